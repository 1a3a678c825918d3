//! Where things are in etcd, under one prefix.
//!
//! `<prefix>/e/<resource>/<lease>` is a candidate, with the holder as its value; the oldest one leads, and
//! its create revision is the token. That is the layout of Go's `concurrency` package, so `etcdctl elect
//! <prefix>/e/<resource>` queues in the same line. Whatever is called, each key below `<prefix>/e/<resource>/` stands in
//! that line: that is how etcd compares, and how the `concurrency` package looks for the leader. `<prefix>/o/<resource>/<key>` is the run-once
//! ledger, `<prefix>/era` the era. The gateways keep their marks in `<prefix>/f/<resource>`, themselves in `<prefix>/m/<id>` and
//! `<prefix>/t/<id>`, and count their changes in `<prefix>/seq`; [`crate::fence`] has the values. What must stay
//! true: two resources never share a prefix, so names are escaped, and a key has one reading or none.

use std::borrow::Cow;

use highgate_token::{Resource, Token};

/// What a key below the prefix is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    Era,
    Seq,
    Names,
    /// `name` is the lease that the candidate's key is named after, or whatever a hand has written there.
    Candidate {
        resource: Resource,
        name: &'a [u8],
    },
    Fence(Resource),
    Member(&'a str),
    Tombstone(&'a str),
}

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

    /// What the key of a candidate of this resource is named; all of it, if it is none's.
    pub fn name_of<'a>(&self, resource: &Resource, key: &'a [u8]) -> &'a [u8] {
        key.strip_prefix(self.election(resource).as_bytes()).unwrap_or(key)
    }

    /// Below which the run-once ledger of all resources is.
    pub fn ledgers(&self) -> String {
        format!("{}/o/", self.prefix)
    }

    /// Below which the run-once ledger of one resource is.
    pub fn ledger(&self, resource: &Resource) -> String {
        format!("{}/o/{}/", self.prefix, escape(resource.as_str()))
    }

    pub fn once(&self, resource: &Resource, key: &str) -> String {
        format!("{}{}", self.ledger(resource), escape(key))
    }

    /// By which the gateways tell how old entries of the run-once ledger are.
    pub fn once_ages(&self) -> String {
        format!("{}/x/once", self.prefix)
    }

    /// The resource and the key of an entry in the run-once ledger. None of any other key.
    pub fn parse_once(&self, key: &[u8]) -> Option<(Resource, String)> {
        let below = std::str::from_utf8(key).ok()?.strip_prefix(&self.ledgers())?;
        let (resource, key) = below.split_once('/')?;
        Some((unescape_resource(resource)?, unescape(last_part(key)?)?.into_owned()))
    }

    pub fn era(&self) -> String {
        format!("{}/era", self.prefix)
    }

    /// Below which everything is.
    pub fn root(&self) -> String {
        format!("{}/", self.prefix)
    }

    /// Put in every transaction that changes a mark, the era or the set of members: its version counts them.
    pub fn seq(&self) -> String {
        format!("{}/seq", self.prefix)
    }

    /// How the gateways name resources.
    pub fn names(&self) -> String {
        format!("{}/names", self.prefix)
    }

    /// Below which the marks of all resources are.
    pub fn fences(&self) -> String {
        format!("{}/f/", self.prefix)
    }

    pub fn fence(&self, resource: &Resource) -> String {
        format!("{}/f/{}", self.prefix, escape(resource.as_str()))
    }

    /// Below which the gateways that serve are.
    pub fn members(&self) -> String {
        format!("{}/m/", self.prefix)
    }

    pub fn member(&self, id: &str) -> String {
        format!("{}/m/{id}", self.prefix)
    }

    /// Below which the gateways are that were evicted and may not know it yet.
    pub fn tombstones(&self) -> String {
        format!("{}/t/", self.prefix)
    }

    pub fn tombstone(&self, id: &str) -> String {
        format!("{}/t/{id}", self.prefix)
    }

    /// What a key is about. None of one that is not below the prefix, of the run-once ledger and of any other.
    pub fn parse<'a>(&self, key: &'a [u8]) -> Option<Key<'a>> {
        let below = key.strip_prefix(self.prefix.as_bytes())?.strip_prefix(b"/")?;
        if let Some(candidate) = below.strip_prefix(b"e/") {
            let cut = candidate.iter().position(|byte| *byte == b'/')?;
            let resource = unescape_resource(std::str::from_utf8(&candidate[..cut]).ok()?)?;
            return Some(Key::Candidate { resource, name: &candidate[cut + 1..] });
        }
        let below = std::str::from_utf8(below).ok()?;
        match below.split_once('/') {
            None if below == "era" => Some(Key::Era),
            None if below == "seq" => Some(Key::Seq),
            None if below == "names" => Some(Key::Names),
            None => None,
            Some(("f", resource)) => unescape_resource(resource).map(Key::Fence),
            Some(("m", id)) => last_part(id).map(Key::Member),
            Some(("t", id)) => last_part(id).map(Key::Tombstone),
            Some(_) => None,
        }
    }
}

/// `/` and `%` are data within a name.
fn escape(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F")
}

/// None of what [`escape`] does not write.
fn unescape(name: &str) -> Option<Cow<'_, str>> {
    if name.contains('/') {
        return None;
    }
    let mut parts = name.split('%');
    let first = parts.next()?;
    let mut plain = Cow::Borrowed(first);
    for part in parts {
        let (character, rest) = match part.strip_prefix("25") {
            Some(rest) => ('%', rest),
            None => ('/', part.strip_prefix("2F")?),
        };
        plain.to_mut().push(character);
        plain.to_mut().push_str(rest);
    }
    Some(plain)
}

/// None of a name that is not canonical: it would be a second key of the resource.
fn unescape_resource(name: &str) -> Option<Resource> {
    let name = unescape(name)?;
    Resource::parse(&name).ok().filter(|resource| resource.as_str() == name)
}

fn last_part(name: &str) -> Option<&str> {
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

/// The election in whose line a key stands, of all that are below `elections`.
pub fn election_of<'a>(elections: &[u8], key: &'a [u8]) -> Option<&'a str> {
    let cut = key.strip_prefix(elections)?.iter().position(|byte| *byte == b'/')?;
    std::str::from_utf8(&key[..elections.len() + cut + 1]).ok()
}

/// The election that a candidate's key belongs to, and the lease that it is named after.
pub fn split_candidate(key: &[u8]) -> Option<(&str, &str)> {
    let key = std::str::from_utf8(key).ok()?;
    let cut = key.rfind('/')? + 1;
    Some((&key[..cut], &key[cut..]))
}

/// The token of a candidate that etcd created at this revision. None of a revision that is out of range.
pub fn token(era: u64, revision: i64) -> Option<Token> {
    let revision = u64::try_from(revision).ok().filter(|revision| *revision < 1 << 48)?;
    Token::new(era.checked_mul(1 << 48)?.checked_add(revision)?)
}

/// The revision that a token stands for.
pub fn revision(token: Token) -> i64 {
    i64::try_from(token.value()).expect("48 bits fit")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    #[test]
    fn a_key_has_one_reading_or_none() {
        let keys = Keys::new("/p");
        let ledger = resource("ledger/acct-7");
        let candidate = |name| Key::Candidate { resource: ledger.clone(), name };
        for (key, reading) in [
            ("/p/era", Key::Era),
            ("/p/seq", Key::Seq),
            ("/p/e/ledger%2Facct-7/7f", candidate(b"7f")),
            ("/p/e/ledger%2Facct-7/a/b", candidate(b"a/b")),
            ("/p/e/ledger%2Facct-7/", candidate(b"")),
            ("/p/f/ledger%2Facct-7", Key::Fence(ledger.clone())),
            ("/p/m/00ff", Key::Member("00ff")),
            ("/p/t/era-0", Key::Tombstone("era-0")),
        ] {
            assert_eq!(keys.parse(key.as_bytes()), Some(reading), "{key}");
        }
        for key in [
            "/p",
            "/p/",
            "/q/era",
            "/p/era/",
            "/p/e",
            "/p/e/",
            "/p/e/a",
            "/p/e/A/7f",
            "/p/e//7f",
            "/p/f/",
            "/p/f/a/b",
            "/p/f/a%2fb",
            "/p/f/a%20b",
            "/p/f/A",
            "/p/f/a%",
            "/p/f/%2F",
            "/p/m/",
            "/p/m/a/b",
            "/p/t/",
            "/p/o/a/b",
            "/p/x",
            "/pp/era",
        ] {
            assert_eq!(keys.parse(key.as_bytes()), None, "{key}");
        }
        assert_eq!(keys.parse(b"/p/m/\xff"), None);
        assert_eq!(keys.parse(b"/p/e/ledger%2Facct-7/\xff"), Some(candidate(b"\xff")));
    }

    #[test]
    fn every_key_below_an_election_stands_in_its_line() {
        let of = |key: &'static str| election_of(b"/p/e/", key.as_bytes());
        for key in ["/p/e/a%2Fb/7f", "/p/e/a%2Fb/", "/p/e/a%2Fb/c/7f"] {
            assert_eq!(of(key), Some("/p/e/a%2Fb/"));
        }
        assert_eq!((of("/p/e/a"), of("/p/f/a/7f"), of("/p/era")), (None, None, None));
        assert_eq!(election_of(b"/p/e/", b"/p/e/a/\xff"), Some("/p/e/a/"));
    }

    #[test]
    fn an_entry_of_the_run_once_ledger_belongs_to_its_resource() {
        let keys = Keys::new("/p");
        let (one, other) = (resource("ledger"), resource("ledger/acct-7"));
        assert_eq!(keys.once(&one, "daily/2026"), "/p/o/ledger/daily%2F2026");
        assert_ne!(keys.once(&one, "acct-7/x"), keys.once(&other, "x"));
        for (key, resource) in [("daily/2026", &one), ("50%", &other), ("%2F", &one), ("é", &other)] {
            let stored = keys.once(resource, key);
            assert_eq!(keys.parse_once(stored.as_bytes()), Some((resource.clone(), key.to_owned())));
        }
        for key in ["/p/o/", "/p/o/a", "/p/o/a/", "/p/o/A/b", "/p/o/a/b/c", "/p/e/a/b", "/p/o/a/%2f"] {
            assert_eq!(keys.parse_once(key.as_bytes()), None, "{key}");
        }
    }

    proptest! {
        #[test]
        fn every_resource_is_read_back_from_its_keys(name in "([a-zA-Z0-9._~:@=+,/ %é-]|%2[0-9fF]){1,40}", lease in 0..i64::MAX) {
            let Ok(resource) = Resource::parse(&name) else { return Ok(()) };
            let keys = Keys::new("/highgate/default");
            let fence = keys.fence(&resource);
            prop_assert_eq!(keys.parse(fence.as_bytes()), Some(Key::Fence(resource.clone())));
            let (candidate, lease) = (keys.candidate(&resource, lease), format!("{lease:x}"));
            let reading = Key::Candidate { resource, name: lease.as_bytes() };
            prop_assert_eq!(keys.parse(candidate.as_bytes()), Some(reading));
        }
    }
}
