//! One line of the journal: a term that began, a term that ended, or a mark that was raised.
//!
//! Fields lie between tabs, and what could hold a tab or a line break is escaped, so a line has one reading or none. A
//! line that cannot be read (a crash tore it, a later version wrote it) is passed over, never guessed at.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use highgate_elector::Resource;

use crate::elections::Ended;

/// Holders are named by jobs, on etcd by anything that can write a key: what is longer is cut.
const MAX_HOLDER: usize = 1024;

const WON: &str = "won";
const ENDED: &str = "ended";
const RAISED: &str = "raised";

/// Who leads, by which token and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reign {
    pub token: u64,
    pub holder: String,
    pub from: SystemTime,
    /// It led already when this gateway looked, so it began at `from` or earlier.
    pub found: bool,
}

/// What is written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Won { resource: Resource, reign: Reign },
    Ended { resource: Resource, reign: Reign, until: SystemTime, why: EndedBy },
    Raised { resource: Resource, from: u64, to: u64, at: SystemTime },
}

/// What ended a term, in the words of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    Expired,
    Resigned,
    Evicted,
    Superseded,
    Unknown,
}

impl EndedBy {
    const ALL: [Self; 5] = [Self::Expired, Self::Resigned, Self::Evicted, Self::Superseded, Self::Unknown];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Resigned => "resigned",
            Self::Evicted => "evicted",
            Self::Superseded => "superseded",
            Self::Unknown => "unknown",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == word)
    }
}

impl From<Ended> for EndedBy {
    fn from(why: Ended) -> Self {
        match why {
            Ended::Expired => Self::Expired,
            Ended::Resigned => Self::Resigned,
            Ended::Evicted => Self::Evicted,
            Ended::Overtaken => Self::Superseded,
            Ended::Gone => Self::Unknown,
        }
    }
}

impl Reign {
    /// Of whoever is known to lead from now on.
    pub(super) fn beginning(holder: &str, token: u64, from: SystemTime, found: bool) -> Self {
        let mut end = holder.len().min(MAX_HOLDER);
        while !holder.is_char_boundary(end) {
            end -= 1;
        }
        // As it will be read back, so that a restart changes nothing.
        let from = UNIX_EPOCH + Duration::from_millis(millis(from));
        Self { token, holder: holder[..end].to_owned(), from, found }
    }
}

impl Entry {
    /// The line with its line break.
    pub(super) fn line(&self) -> String {
        let mut line = String::with_capacity(96);
        let written = match self {
            Self::Won { resource, reign } => {
                let Reign { token, holder, from, found } = reign;
                let (at, name, holder) = (millis(*from), escaped(resource.as_str()), escaped(holder));
                writeln!(line, "{at}\t{WON}\t{name}\t{token}\t{}\t{holder}", u8::from(*found))
            }
            Self::Ended { resource, reign, until, why } => {
                let Reign { token, holder, from, found } = reign;
                let (at, from, why) = (millis(*until), millis(*from), why.as_str());
                let (name, holder) = (escaped(resource.as_str()), escaped(holder));
                writeln!(
                    line,
                    "{at}\t{ENDED}\t{name}\t{token}\t{}\t{from}\t{why}\t{holder}",
                    u8::from(*found)
                )
            }
            Self::Raised { resource, from, to, at } => {
                writeln!(line, "{}\t{RAISED}\t{}\t{from}\t{to}", millis(*at), escaped(resource.as_str()))
            }
        };
        debug_assert!(written.is_ok(), "a string takes everything");
        line
    }

    /// None of a line that cannot be read.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split('\t');
        let at = time(fields.next()?)?;
        let kind = fields.next()?;
        let resource = Resource::parse(&unescaped(fields.next()?)).ok()?;
        let entry = match kind {
            WON => {
                let token = fields.next()?.parse().ok()?;
                let found = flag(fields.next()?)?;
                let reign = Reign { token, holder: unescaped(fields.next()?), from: at, found };
                Self::Won { resource, reign }
            }
            ENDED => {
                let token = fields.next()?.parse().ok()?;
                let (found, from) = (flag(fields.next()?)?, time(fields.next()?)?);
                let why = EndedBy::parse(fields.next()?)?;
                let reign = Reign { token, holder: unescaped(fields.next()?), from, found };
                Self::Ended { resource, reign, until: at, why }
            }
            RAISED => {
                let (from, to) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
                Self::Raised { resource, from, to, at }
            }
            _ => return None,
        };
        fields.next().is_none().then_some(entry)
    }

    /// The name of the resource that a line is about, as [`escaped`] writes it. None of a line that is no entry.
    pub(super) fn subject(line: &str) -> Option<&str> {
        let mut fields = line.split('\t').skip(1);
        let is_entry = matches!(fields.next()?, WON | ENDED | RAISED);
        fields.next().filter(|_| is_entry)
    }

    /// The token that was won, lost or raised to: of all that is said about a token there is one row in a history.
    pub(super) fn token(&self) -> u64 {
        match self {
            Self::Won { reign, .. } | Self::Ended { reign, .. } => reign.token,
            Self::Raised { to, .. } => *to,
        }
    }

    /// When it happened.
    pub(super) fn at(&self) -> SystemTime {
        match self {
            Self::Won { reign, .. } => reign.from,
            Self::Ended { until, .. } => *until,
            Self::Raised { at, .. } => *at,
        }
    }
}

/// A text without tabs and line breaks.
pub(super) fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r")
}

fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        plain.push(match character {
            '\\' => match characters.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some(other) => other,
                None => '\\',
            },
            other => other,
        });
    }
    plain
}

fn millis(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}

fn time(text: &str) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(text.parse().ok()?))
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(millis: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(millis)
    }

    #[test]
    fn a_line_says_what_happened_and_when() {
        let resource = Resource::parse("ledger/7").unwrap();
        let reign = Reign::beginning("job-1", 8, at(1_772_271_000_250), false);
        let won = Entry::Won { resource: resource.clone(), reign: reign.clone() };
        assert_eq!(won.line(), "1772271000250\twon\tledger/7\t8\t0\tjob-1\n");
        let until = at(1_772_271_009_000);
        let ended = Entry::Ended { resource, reign, until, why: EndedBy::Expired };
        assert_eq!(ended.line(), "1772271009000\tended\tledger/7\t8\t0\t1772271000250\texpired\tjob-1\n");
        assert_eq!(Entry::subject(&ended.line()), Some("ledger/7"));
    }

    #[test]
    fn a_line_that_is_torn_or_of_another_kind_is_not_read() {
        let resource = Resource::parse("ledger").unwrap();
        let reign = Reign::beginning("job", 8, at(5), true);
        let line = Entry::Ended { resource, reign, until: at(9), why: EndedBy::Unknown }.line();
        for end in 0..line.trim_end_matches("job\n").len() {
            assert_eq!(Entry::parse(&line[..end]), None, "{:?}", &line[..end]);
        }
        for text in ["5\tcrowned\tledger\t8", "5\twon\tledger\t8\t2\tjob", "5\traised\tledger\t7\t8\tmore"] {
            assert_eq!(Entry::parse(text), None, "{text:?}");
        }
        assert_eq!(Entry::subject("5\tcrowned\tledger\t8"), None);
    }

    #[test]
    fn a_long_holder_is_cut_between_two_characters() {
        let reign = Reign::beginning(&"é".repeat(2000), 1, at(0), false);
        assert!(reign.holder.len() <= MAX_HOLDER && reign.holder.chars().all(|character| character == 'é'));
    }

    proptest! {
        #[test]
        fn every_entry_is_read_back_as_it_was(
            name in "[a-z0-9/%]{1,30}", holder in "\\PC{0,20}[\t\n\r\\\\]{0,3}", token in 1_u64.., from in 0_u64..1 << 45,
            found: bool, why in 0_usize..5,
        ) {
            let Ok(resource) = Resource::parse(&name) else { return Ok(()) };
            let reign = Reign::beginning(&holder, token, at(from), found);
            let (until, why) = (at(from + 7), EndedBy::ALL[why]);
            for entry in [
                Entry::Won { resource: resource.clone(), reign: reign.clone() },
                Entry::Ended { resource: resource.clone(), reign, until, why },
                Entry::Raised { resource, from: token - 1, to: token, at: until },
            ] {
                let line = entry.line();
                prop_assert_eq!(line.matches('\n').count(), 1);
                prop_assert_eq!(Entry::parse(line.trim_end_matches('\n')), Some(entry));
            }
        }
    }
}
