//! Marks that names start from which got their requests from other names: [`Floors`].
//!
//! A store keeps them for good, since a name may be used for the first time long after the change of the config
//! that gave it its requests. A token below the floor of its resource is stale, whatever the resource's own mark.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

/// The lowest token that may pass, by the name of a resource or by a pattern of names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Floors {
    /// There may be as many as resources: looked up, never gone through.
    names: BTreeMap<String, u64>,
    patterns: BTreeMap<NamePattern, u64>,
}

/// Names of resources: text, `{}` for what has no slash, `{*}` for anything.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamePattern(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Text(String),
    Segment,
    Rest,
}

const SEGMENT: &str = "{}";
const REST: &str = "{*}";

impl Floors {
    /// The lowest token that may pass under this name; 0 if any may.
    pub fn of(&self, name: &str) -> u64 {
        let by_pattern =
            self.patterns.iter().filter(|(pattern, _)| pattern.matches(name)).map(|(_, floor)| *floor);
        by_pattern.chain(self.names.get(name).copied()).max().unwrap_or(0)
    }

    pub(super) fn raise(&mut self, names: NamePattern, floor: u64) {
        let known = match names.as_name() {
            _ if floor == 0 => return,
            Some(name) => self.names.entry(name.to_owned()).or_default(),
            None => self.patterns.entry(names).or_default(),
        };
        *known = floor.max(*known);
    }

    /// Both of them: where they differ, the higher one.
    pub fn merge(&mut self, other: Self) {
        for (names, floor) in other.iter() {
            self.raise(names, floor);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (NamePattern, u64)> {
        let names = self.names.iter().map(|(name, floor)| (NamePattern::parse(name), *floor));
        names.chain(self.patterns.iter().map(|(names, floor)| (names.clone(), *floor)))
    }

    pub fn len(&self) -> usize {
        self.names.len() + self.patterns.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn to_json(&self) -> Value {
        Value::Object(self.iter().map(|(names, floor)| (names.to_string(), floor.into())).collect())
    }

    /// Nothing if the value was not made by [`Floors::to_json`].
    pub fn from_json(value: &Value) -> Option<Self> {
        let mut floors = Self::default();
        for (names, floor) in value.as_object()? {
            floors.raise(NamePattern::parse(names), floor.as_u64()?);
        }
        Some(floors)
    }
}

impl NamePattern {
    pub(super) fn anything() -> Self {
        Self(vec![Part::Rest])
    }

    pub(super) fn push_text(&mut self, text: &str) {
        if let Some(Part::Text(before)) = self.0.last_mut() {
            before.push_str(text);
        } else if !text.is_empty() {
            self.0.push(Part::Text(text.to_owned()));
        }
    }

    pub(super) fn push_segment(&mut self) {
        self.0.push(Part::Segment);
    }

    pub(super) fn push_rest(&mut self) {
        self.0.push(Part::Rest);
    }

    fn parse(source: &str) -> Self {
        let mut pattern = Self::default();
        let mut rest = source;
        while let Some(at) = rest.find('{') {
            let (text, param) = rest.split_at(at);
            pattern.push_text(text);
            if let Some(after) = param.strip_prefix(REST) {
                pattern.push_rest();
                rest = after;
            } else {
                pattern.push_segment();
                rest = param.strip_prefix(SEGMENT).unwrap_or(&param[1..]);
            }
        }
        pattern.push_text(rest);
        pattern
    }

    /// The name, if there is only one.
    pub(super) fn as_name(&self) -> Option<&str> {
        match self.0.as_slice() {
            [Part::Text(name)] => Some(name),
            _ => None,
        }
    }

    pub fn matches(&self, name: &str) -> bool {
        matches(&self.0, name)
    }

    /// Whether a name can be of both patterns. It may say so of two that no name is of.
    pub(super) fn may_meet(&self, other: &Self) -> bool {
        let start = |pattern: &Self| match pattern.0.first() {
            Some(Part::Text(text)) => text.clone(),
            _ => String::new(),
        };
        let (own, their) = (start(self), start(other));
        own.starts_with(&their) || their.starts_with(&own)
    }
}

fn matches(parts: &[Part], name: &str) -> bool {
    let Some((first, others)) = parts.split_first() else { return name.is_empty() };
    let limit = match first {
        Part::Text(text) => {
            return name.strip_prefix(text.as_str()).is_some_and(|rest| matches(others, rest));
        }
        Part::Segment => name.find('/').unwrap_or(name.len()),
        Part::Rest => name.len(),
    };
    let ends = name.char_indices().map(|(at, first)| at + first.len_utf8()).take_while(|end| *end <= limit);
    let mut ends: Vec<usize> = ends.collect();
    // The longest first: most often that is it.
    std::iter::from_fn(|| ends.pop()).any(|end| matches(others, &name[end..]))
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| {
            f.write_str(match part {
                Part::Text(text) => text,
                Part::Segment => SEGMENT,
                Part::Rest => REST,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_the_names_they_stand_for_and_are_read_back() {
        for (pattern, matching, other) in [
            ("ledger", vec!["ledger"], vec!["ledger/7", "ledge"]),
            ("ledger/{}", vec!["ledger/7", "ledger/a-b"], vec!["ledger/", "ledger/7/x", "other/7"]),
            ("{}/x-{}", vec!["a/x-b"], vec!["a/b/x-c", "a/x-"]),
            ("files/{*}", vec!["files/a", "files/a/b"], vec!["files/", "file/a"]),
            ("{*}", vec!["a", "a/b"], vec![""]),
        ] {
            let pattern = NamePattern::parse(pattern);
            assert_eq!(NamePattern::parse(&pattern.to_string()), pattern);
            for name in matching {
                assert!(pattern.matches(name), "{pattern} {name}");
            }
            for name in other {
                assert!(!pattern.matches(name), "{pattern} {name}");
            }
        }
    }

    #[test]
    fn the_highest_floor_of_a_name_counts() {
        let mut floors = Floors::default();
        floors.raise(NamePattern::parse("ledger/{}"), 50);
        floors.raise(NamePattern::parse("ledger/7"), 60);
        floors.raise(NamePattern::parse("ledger/7"), 55);
        assert_eq!((floors.of("ledger/7"), floors.of("ledger/8"), floors.of("ledger")), (60, 50, 0));
        assert_eq!(Floors::from_json(&floors.to_json()), Some(floors));
    }
}
