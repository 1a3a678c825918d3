//! Patterns of names with `*`, as `[[grants]]` has them: [`Glob`].
//!
//! A name has segments. `*` stands for any characters within one segment; a last segment that is `*` alone stands for
//! everything that follows, one segment or more. Where names grow to the left, as host names do, "last" is the left end.
//! What must stay true: matching a name that a stranger chose takes time in proportion to its length, and no memory.

use std::cmp::Ordering;
use std::fmt;

/// A pattern of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    source: String,
    order: Order,
    /// From the root on.
    segments: Vec<Segment>,
    /// Whether more segments have to follow.
    open_ended: bool,
}

/// How names are made of segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// `a/b/c`, from the left to the right.
    Path,
    /// `c.b.a`, from the right to the left.
    Host,
    /// One segment, whatever it holds.
    Word,
}

/// The texts of a segment between its stars.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Literal(String),
    Starred { start: String, middle: Vec<String>, end: String },
}

impl Glob {
    /// The pattern that `source` spells.
    pub(super) fn new(source: &str, order: Order) -> Self {
        let mut segments: Vec<&str> = order.segments(source);
        let open_ended = segments.last() == Some(&"*");
        if open_ended {
            segments.pop();
        }
        let segments = segments.into_iter().map(Segment::new).collect();
        Self { source: source.to_owned(), order, segments, open_ended }
    }

    /// The pattern of every name.
    pub(super) fn everything() -> Self {
        Self::new("*", Order::Path)
    }

    pub fn matches(&self, name: &str) -> bool {
        match self.order {
            Order::Path => self.fits(name.split('/')),
            Order::Host => self.fits(name.rsplit('.')),
            Order::Word => self.fits(std::iter::once(name)),
        }
    }

    fn fits<'n>(&self, mut names: impl Iterator<Item = &'n str>) -> bool {
        let fit = self.segments.iter().all(|segment| names.next().is_some_and(|name| segment.matches(name)));
        fit && names.next().is_some() == self.open_ended
    }

    /// Whether every name is of this pattern.
    pub fn is_everything(&self) -> bool {
        self.segments.is_empty() && self.open_ended
    }

    /// Whether a name can be of both patterns, which have the same order.
    pub(super) fn meets(&self, other: &Self) -> bool {
        let long_enough = match self.segments.len().cmp(&other.segments.len()) {
            Ordering::Less => self.open_ended,
            Ordering::Greater => other.open_ended,
            // One that wants more after what the other ends with meets nothing.
            Ordering::Equal => self.open_ended == other.open_ended,
        };
        long_enough && self.segments.iter().zip(&other.segments).all(|(own, their)| own.meets(their))
    }
}

impl Order {
    fn segments(self, source: &str) -> Vec<&str> {
        match self {
            Self::Path => source.split('/').collect(),
            Self::Host => source.rsplit('.').collect(),
            Self::Word => vec![source],
        }
    }
}

impl Segment {
    fn new(source: &str) -> Self {
        let mut texts = source.split('*').map(str::to_owned);
        let start = texts.next().unwrap_or_default();
        let mut middle: Vec<String> = texts.collect();
        match middle.pop() {
            None => Self::Literal(start),
            Some(end) => Self::Starred { start, middle, end },
        }
    }

    fn matches(&self, name: &str) -> bool {
        let (start, middle, end) = match self {
            Self::Literal(text) => return text == name,
            Self::Starred { start, middle, end } => (start, middle, end),
        };
        let Some(rest) = name.strip_prefix(start.as_str()) else { return false };
        let Some(mut rest) = rest.strip_suffix(end.as_str()) else { return false };
        // The leftmost place of each text leaves the most room for those after it.
        middle.iter().all(|text| match rest.find(text.as_str()) {
            Some(at) => {
                rest = &rest[at + text.len()..];
                true
            }
            None => false,
        })
    }

    fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Literal(text), other) | (other, Self::Literal(text)) => other.matches(text),
            // Between the longer start and the longer end there is room for all that either has in its middle.
            (
                Self::Starred { start: own_start, end: own_end, .. },
                Self::Starred { start: their_start, end: their_end, .. },
            ) => {
                (own_start.starts_with(their_start.as_str()) || their_start.starts_with(own_start.as_str()))
                    && (own_end.ends_with(their_end.as_str()) || their_end.ends_with(own_end.as_str()))
            }
        }
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(order: Order, pattern: &str, name: &str) -> bool {
        Glob::new(pattern, order).matches(name)
    }

    #[test]
    fn a_star_stays_in_its_segment_unless_it_is_the_last_one() {
        for (pattern, matching, other) in [
            ("ledger", vec!["ledger"], vec!["ledger/7", "ledge", "ledgers", ""]),
            ("ledger/*", vec!["ledger/7", "ledger/7/x"], vec!["ledger", "ledgers/7", "a/ledger/7"]),
            ("ledger/acct-*", vec!["ledger/acct-7", "ledger/acct-"], vec!["ledger/acct-7/x", "ledger/acct"]),
            ("*/nightly", vec!["a/nightly"], vec!["nightly", "a/b/nightly"]),
            ("a*b*c/x", vec!["abc/x", "a-b-b-c/x"], vec!["acb/x", "ab/x", "abc/y"]),
            ("ab*bc", vec!["abbc", "abcbc"], vec!["abc"]),
            ("*", vec!["a", "a/b"], vec![]),
        ] {
            for name in matching {
                assert!(matches(Order::Path, pattern, name), "{pattern} {name}");
            }
            for name in other {
                assert!(!matches(Order::Path, pattern, name), "{pattern} {name}");
            }
        }
    }

    #[test]
    fn host_names_grow_to_the_left() {
        assert!(matches(Order::Host, "*.internal", "a.internal"));
        assert!(matches(Order::Host, "*.internal", "b.a.internal"));
        assert!(!matches(Order::Host, "*.internal", "internal"));
        assert!(!matches(Order::Host, "*.internal", "a.internal.example"));
        assert!(matches(Order::Host, "job-*.internal", "job-a.internal"));
        assert!(!matches(Order::Host, "job-*.internal", "x.job-a.internal"));
    }

    #[test]
    fn two_patterns_meet_if_a_name_can_be_of_both() {
        let meets = |one: &str, other: &str| {
            let (one, other) = (Glob::new(one, Order::Path), Glob::new(other, Order::Path));
            assert_eq!(one.meets(&other), other.meets(&one), "{one} {other}");
            one.meets(&other)
        };
        for (one, other) in
            [("ledger/*", "ledger/acct-*"), ("*", "a"), ("a/*", "a/b/c"), ("x-*/b", "*-y/b"), ("a", "a")]
        {
            assert!(meets(one, other), "{one} {other}");
        }
        for (one, other) in
            [("ledger/*", "ledger"), ("ledger/*", "jobs/*"), ("a/b", "a"), ("a-*/b", "b-*/b"), ("*/x", "a")]
        {
            assert!(!meets(one, other), "{one} {other}");
        }
    }

    #[test]
    fn only_a_star_alone_is_everything() {
        let everything = |pattern: &str| Glob::new(pattern, Order::Path).is_everything();
        assert!(everything("*") && !everything("*/*") && !everything("a/*") && !everything("**"));
    }

    /// What a star may stand for, tried one by one.
    fn slowly(pattern: &str, name: &str) -> bool {
        match (pattern.chars().next(), name.chars().next()) {
            (None, None) => true,
            (Some('*'), _) => {
                slowly(&pattern[1..], name) || (!name.is_empty() && slowly(pattern, &name[1..]))
            }
            (Some(one), Some(other)) if one == other => slowly(&pattern[1..], &name[1..]),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn a_word_matches_as_trying_everything_says(pattern in "[ab*]{0,8}", name in "[ab]{0,8}") {
            prop_assert_eq!(matches(Order::Word, &pattern, &name), slowly(&pattern, &name), "{} {}", pattern, name);
        }

        #[test]
        fn patterns_that_share_a_name_meet(one in "[ab*]{1,4}(/[ab*]{1,3}){0,2}", other in "[ab*]{1,4}(/[ab*]{1,3}){0,2}", name in "[ab]{1,4}(/[ab]{1,3}){0,2}") {
            let (one, other) = (Glob::new(&one, Order::Path), Glob::new(&other, Order::Path));
            if one.matches(&name) && other.matches(&name) {
                prop_assert!(one.meets(&other), "{} {} {}", one, other, name);
            }
        }
    }
}
