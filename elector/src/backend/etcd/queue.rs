//! Who stands in which line, as etcd last told: a pure picture of the candidates below one prefix.
//!
//! [`super::mirror`] feeds it lists and changes and asks it who leads. No I/O and no clock. What must stay
//! true: after the changes of a revision it equals what etcd holds at that revision.

use std::collections::{BTreeMap, HashMap};

use super::keys::{self, Keys, split_candidate};
use super::wire::{Event, EventKind, KeyValue};
use crate::backend::Leader;

/// All lines, at one revision.
#[derive(Default, PartialEq, Eq)]
pub(super) struct Queues {
    /// Everything up to here is in the picture.
    pub(super) revision: i64,
    era: u64,
    era_key: Vec<u8>,
    /// Below which the candidates are; what else is told of passes by.
    below: Vec<u8>,
    /// By election (the key up to its last slash), then by create revision: the first one leads.
    elections: HashMap<String, BTreeMap<i64, Candidate>>,
    /// The create revision of every candidate, by its key.
    created: HashMap<Vec<u8>, i64>,
}

#[derive(PartialEq, Eq)]
struct Candidate {
    key: Vec<u8>,
    holder: String,
}

/// What a change did to the lines.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Changed {
    /// Somebody came, went or was renamed.
    Election(String),
    /// Every token is another one now.
    Era,
    Nothing,
}

impl Queues {
    pub(super) fn new(keys: &Keys) -> Self {
        let (era_key, below) = (keys.era().into_bytes(), keys.elections().into_bytes());
        Self { era_key, below, ..Self::default() }
    }

    /// Forgets everything for what etcd holds at `revision`.
    pub(super) fn replace(&mut self, listed: &[KeyValue], revision: i64) {
        *self = self.of(listed, revision);
    }

    /// Whether this is what etcd holds at the picture's revision.
    pub(super) fn is_of(&self, listed: &[KeyValue]) -> bool {
        *self == self.of(listed, self.revision)
    }

    fn of(&self, listed: &[KeyValue], revision: i64) -> Self {
        let (era_key, below) = (self.era_key.clone(), self.below.clone());
        let mut queues = Self { revision, era_key, below, ..Self::default() };
        for kv in listed {
            queues.put(kv);
        }
        queues
    }

    pub(super) fn apply(&mut self, event: &Event) -> Changed {
        let Some(kv) = &event.kv else { return Changed::Nothing };
        self.revision = self.revision.max(kv.mod_revision);
        if event.kind == i32::from(EventKind::Delete) { self.delete(&kv.key) } else { self.put(kv) }
    }

    /// When the candidate with this key was created, if it stands in line.
    pub(super) fn created(&self, key: &[u8]) -> Option<i64> {
        self.created.get(key).copied()
    }

    /// The key and create revision of whoever is first.
    pub(super) fn head(&self, election: &str) -> Option<(&[u8], i64)> {
        let (created, candidate) = self.elections.get(election)?.first_key_value()?;
        Some((&candidate.key, *created))
    }

    /// Whether an era that was written at a revision that is in the picture is not the one in the picture.
    pub(super) fn has_missed(&self, written: Option<(&[u8], i64)>) -> bool {
        let (value, revision) = written.unwrap_or((b"0", 0));
        revision <= self.revision && era(value).is_some_and(|era| era != self.era)
    }

    pub(super) fn leader(&self, election: &str) -> Option<Leader> {
        let (created, candidate) = self.elections.get(election)?.first_key_value()?;
        let token = keys::token(self.era, *created)?;
        Some(Leader { holder: candidate.holder.clone(), token })
    }

    fn put(&mut self, kv: &KeyValue) -> Changed {
        if kv.key == self.era_key {
            self.era = era(&kv.value).unwrap_or(self.era);
            return Changed::Era;
        }
        let Some(election) = self.election(&kv.key) else { return Changed::Nothing };
        let candidate =
            Candidate { key: kv.key.clone(), holder: String::from_utf8_lossy(&kv.value).into_owned() };
        self.created.insert(kv.key.clone(), kv.create_revision);
        self.elections.entry(election.to_owned()).or_default().insert(kv.create_revision, candidate);
        Changed::Election(election.to_owned())
    }

    /// None of a key that is no candidate's.
    fn election<'a>(&self, key: &'a [u8]) -> Option<&'a str> {
        key.starts_with(&self.below).then(|| split_candidate(key).map(|(election, _)| election))?
    }

    fn delete(&mut self, key: &[u8]) -> Changed {
        if key == self.era_key {
            self.era = 0;
            return Changed::Era;
        }
        let (Some(election), Some(created)) = (self.election(key), self.created.remove(key)) else {
            return Changed::Nothing;
        };
        if let Some(line) = self.elections.get_mut(election) {
            line.remove(&created);
            if line.is_empty() {
                self.elections.remove(election);
            }
        }
        Changed::Election(election.to_owned())
    }
}

/// The era as it is written: a decimal. None of anything else.
pub(super) fn era(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kv(key: &str, value: &str, create_revision: i64, mod_revision: i64) -> KeyValue {
        KeyValue {
            key: key.into(),
            value: value.into(),
            create_revision,
            mod_revision,
            ..KeyValue::default()
        }
    }

    fn put(key: &str, value: &str, revision: i64) -> Event {
        Event { kind: EventKind::Put.into(), kv: Some(kv(key, value, revision, revision)) }
    }

    fn delete(key: &str, revision: i64) -> Event {
        Event { kind: EventKind::Delete.into(), kv: Some(kv(key, "", 0, revision)) }
    }

    fn leader(queues: &Queues, election: &str) -> Option<(String, u64)> {
        queues.leader(election).map(|leader| (leader.holder, leader.token.get()))
    }

    #[test]
    fn the_oldest_candidate_leads_and_the_next_one_follows() {
        let mut queues = Queues::new(&Keys::new("/p"));
        queues.replace(&[kv("/p/e/a/9", "first", 5, 5), kv("/p/e/b/9", "other", 4, 4)], 6);
        assert_eq!(queues.apply(&put("/p/e/a/1", "second", 7)), Changed::Election("/p/e/a/".to_owned()));
        assert_eq!(leader(&queues, "/p/e/a/"), Some(("first".to_owned(), 5)));
        queues.apply(&delete("/p/e/a/9", 8));
        assert_eq!(leader(&queues, "/p/e/a/"), Some(("second".to_owned(), 7)));
        assert_eq!((queues.created(b"/p/e/a/9"), queues.created(b"/p/e/a/1")), (None, Some(7)));
        queues.apply(&delete("/p/e/a/1", 9));
        assert_eq!((leader(&queues, "/p/e/a/"), queues.revision), (None, 9));
        assert_eq!(leader(&queues, "/p/e/b/"), Some(("other".to_owned(), 4)));
    }

    #[test]
    fn a_mark_is_nobody_in_line() {
        let mut queues = Queues::new(&Keys::new("/p"));
        assert_eq!(queues.apply(&put("/p/f/a", "{}", 3)), Changed::Nothing);
        assert_eq!(queues.apply(&delete("/p/f/a", 4)), Changed::Nothing);
        assert_eq!((leader(&queues, "/p/f/"), queues.created(b"/p/f/a")), (None, None));
    }

    #[test]
    fn a_list_replaces_everything_that_was_known() {
        let mut queues = Queues::new(&Keys::new("/p"));
        queues.replace(&[kv("/p/e/a/9", "old", 5, 5), kv("/p/era", "2", 1, 1)], 6);
        assert_eq!(leader(&queues, "/p/e/a/"), Some(("old".to_owned(), (2 << 48) + 5)));
        queues.replace(&[kv("/p/e/a/1", "new", 8, 8)], 9);
        assert_eq!(leader(&queues, "/p/e/a/"), Some(("new".to_owned(), 8)));
        assert_eq!(queues.apply(&put("/p/era", "1", 10)), Changed::Era);
        assert_eq!(leader(&queues, "/p/e/a/"), Some(("new".to_owned(), (1 << 48) + 8)));
    }

    #[test]
    fn an_era_that_was_never_told_of_is_one_of_another_etcd() {
        let mut queues = Queues::new(&Keys::new("/p"));
        assert!(!queues.has_missed(None));
        queues.replace(&[kv("/p/era", "2", 6, 6)], 9);
        assert!(
            !queues.has_missed(Some((b"2", 6))) && !queues.has_missed(Some((b"3", 10))),
            "it will be told"
        );
        assert!(queues.has_missed(Some((b"3", 7))) && queues.has_missed(None));
    }

    #[test]
    fn a_picture_is_told_from_that_of_another_past() {
        let (one, other) = (kv("/p/e/a/1", "one", 5, 5), kv("/p/e/a/2", "other", 6, 6));
        let mut queues = Queues::new(&Keys::new("/p"));
        queues.replace(&[one.clone(), other.clone()], 6);
        queues.apply(&delete("/p/e/a/1", 7));
        assert!(queues.is_of(std::slice::from_ref(&other)));
        for past in [
            &[][..],
            std::slice::from_ref(&one),
            &[one.clone(), other.clone()],
            &[kv("/p/e/a/2", "other", 7, 7)],
        ] {
            assert!(!queues.is_of(past), "{past:?}");
        }
    }

    #[test]
    fn a_leader_that_renames_itself_keeps_its_token() {
        let mut queues = Queues::new(&Keys::new("/p"));
        queues.apply(&put("/p/e/a/1", "me", 3));
        let renamed = Event { kind: 0, kv: Some(kv("/p/e/a/1", "me, too", 3, 4)) };
        queues.apply(&renamed);
        assert_eq!(leader(&queues, "/p/e/a/"), Some(("me, too".to_owned(), 3)));
    }
}
