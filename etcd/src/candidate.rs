//! What the key of a candidate holds: the holder's name and, on a second line, who the candidate has proved to be.
//!
//! `job-1` alone is what Go's `concurrency` package and `etcdctl elect` put there, and what an elector puts there that
//! campaigns in etcd itself: nobody has checked who they are. A gateway that was shown an identity adds the line
//! `by spiffe://corp/job-a`. What must stay true: a name without a line break is read back as it was written.

/// Between the holder and the owner.
const BY: &str = "\nby ";

/// The value of a candidate's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateValue {
    /// What the candidate calls itself.
    pub holder: String,
    /// The identity that a gateway has checked; none: nobody knows.
    pub owner: Option<String>,
}

impl CandidateValue {
    pub fn encode(&self) -> Vec<u8> {
        match &self.owner {
            Some(owner) => format!("{}{BY}{owner}", self.holder).into_bytes(),
            None => self.holder.clone().into_bytes(),
        }
    }

    /// Total: whatever is there is at least somebody's name.
    pub fn decode(value: &[u8]) -> Self {
        let text = String::from_utf8_lossy(value);
        match text.rsplit_once(BY) {
            Some((holder, owner)) if is_owner(owner) => {
                Self { holder: holder.to_owned(), owner: Some(owner.to_owned()) }
            }
            _ => Self { holder: text.into_owned(), owner: None },
        }
    }
}

fn is_owner(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(holder: &str, owner: Option<&str>) -> CandidateValue {
        CandidateValue { holder: holder.to_owned(), owner: owner.map(str::to_owned) }
    }

    #[test]
    fn a_candidate_that_nobody_checked_is_its_name_alone() {
        assert_eq!(value("job-1", None).encode(), b"job-1");
        assert_eq!(CandidateValue::decode(b"job-1"), value("job-1", None));
        assert_eq!(CandidateValue::decode(b""), value("", None));
        assert_eq!(CandidateValue::decode(b"two\nlines"), value("two\nlines", None));
        assert_eq!(CandidateValue::decode(b"a\nby "), value("a\nby ", None));
        assert_eq!(CandidateValue::decode(b"\xff"), value("\u{fffd}", None));
    }

    #[test]
    fn an_owner_is_read_back() {
        let owned = value("job-1", Some("spiffe://corp/job-a"));
        assert_eq!(owned.encode(), b"job-1\nby spiffe://corp/job-a");
        assert_eq!(CandidateValue::decode(&owned.encode()), owned);
    }

    proptest! {
        #[test]
        fn every_name_without_a_line_break_survives(holder in "[^\\n]*", owner in proptest::option::of("[a-z:/. ]{1,20}")) {
            let written = value(&holder, owner.as_deref());
            prop_assert_eq!(CandidateValue::decode(&written.encode()), written);
        }
    }
}
