//! Where things are in etcd, under one prefix.
//!
//! `<prefix>/e/<resource>/<lease>` is a candidate, with the holder as its value; the oldest one leads, and
//! its create revision is the token. That is the layout of Go's `concurrency` package, so `etcdctl elect
//! <prefix>/e/<resource>` queues in the same line. `<prefix>/o/<key>` is the run-once ledger, `<prefix>/era`
//! the era. What must stay true: two resources never share a prefix, so names are escaped.

use crate::{Resource, Token};

/// The layout under one prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    prefix: String,
}

impl Keys {
    /// `prefix` has no slash at its end.
    pub fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// Below which the candidates of all resources are.
    pub fn elections(&self) -> String {
        format!("{}/e/", self.prefix)
    }

    /// Below which the candidates of one resource are.
    pub fn election(&self, resource: &Resource) -> String {
        format!("{}/e/{}/", self.prefix, escape(resource.as_str()))
    }

    pub fn candidate(&self, resource: &Resource, lease: i64) -> String {
        format!("{}{lease:x}", self.election(resource))
    }

    pub fn once(&self, key: &str) -> String {
        format!("{}/o/{}", self.prefix, escape(key))
    }

    pub fn era(&self) -> String {
        format!("{}/era", self.prefix)
    }
}

/// `/` and `%` are data within a name.
fn escape(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F")
}

/// The election that a candidate's key belongs to, and the lease that it is named after.
pub(super) fn split_candidate(key: &[u8]) -> Option<(&str, &str)> {
    let key = std::str::from_utf8(key).ok()?;
    let cut = key.rfind('/')? + 1;
    Some((&key[..cut], &key[cut..]))
}

/// The token of a candidate that etcd created at this revision. None of a revision that is out of range.
pub(super) fn token(era: u64, revision: i64) -> Option<Token> {
    let revision = u64::try_from(revision).ok().filter(|revision| *revision < 1 << 48)?;
    Token::new(era.checked_mul(1 << 48)?.checked_add(revision)?)
}

/// The revision that a token stands for.
pub(super) fn revision(token: Token) -> i64 {
    i64::try_from(token.value()).expect("48 bits fit")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(name: &str) -> Resource {
        Resource::parse(name).unwrap()
    }

    #[test]
    fn no_election_is_within_another() {
        let keys = Keys::new("/highgate/default");
        assert_eq!(keys.candidate(&resource("ledger"), 0x7f), "/highgate/default/e/ledger/7f");
        assert_eq!(keys.election(&resource("ledger/acct-7")), "/highgate/default/e/ledger%2Facct-7/");
        assert_ne!(keys.election(&resource("a/b")), keys.election(&resource("a%2Fb")));
    }

    #[test]
    fn a_token_is_a_revision_in_its_era() {
        let token = token(3, 7).unwrap();
        assert_eq!((token.era(), revision(token)), (3, 7));
        assert_eq!(super::token(0, 0), None);
        assert_eq!(super::token(0, 1 << 48), None);
        assert_eq!(super::token(1 << 15, 1), None);
    }

    #[test]
    fn a_candidate_is_named_after_its_lease() {
        assert_eq!(split_candidate(b"/p/e/a%2Fb/7f"), Some(("/p/e/a%2Fb/", "7f")));
        assert_eq!(split_candidate(b"era"), None);
    }
}
