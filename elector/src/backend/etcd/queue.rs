//! Who stands in which line, as etcd last told: a pure picture of the candidates below one prefix.
//!
//! [`super::mirror`] feeds it lists and changes and asks it who leads. No I/O and no clock. What must stay
//! true: after the changes of a revision it equals what etcd holds at that revision.

use std::collections::{BTreeMap, HashMap};

use highgate_etcd::candidate::CandidateValue;
use highgate_etcd::keys::{self, Keys, election_of};
use highgate_etcd::{Event, EventKind, KeyValue};

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
    /// By election (the prefix of its candidates), then by create revision and key: the first one leads.
    elections: HashMap<String, BTreeMap<(i64, Vec<u8>), Holder>>,
    /// The create revision of every candidate, by its key.
    created: HashMap<Vec<u8>, i64>,
}

/// What a candidate calls itself.
type Holder = String;

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
        self.revision = self.revision.max(event.kv.mod_revision);
        match event.kind {
            EventKind::Delete => self.delete(&event.kv.key),
            EventKind::Put => self.put(&event.kv),
        }
    }

    /// When the candidate with this key was created, if it stands in line.
    pub(super) fn created(&self, key: &[u8]) -> Option<i64> {
        self.created.get(key).copied()
    }

    /// The key and create revision of whoever is first.
    pub(super) fn head(&self, election: &str) -> Option<(&[u8], i64)> {
        let ((created, key), _) = self.elections.get(election)?.first_key_value()?;
        Some((key, *created))
    }

    /// Whether an era that was written at a revision that is in the picture is not the one in the picture.
    pub(super) fn has_missed(&self, written: Option<(&[u8], i64)>) -> bool {
        let (value, revision) = written.unwrap_or((b"0", 0));
        revision <= self.revision && era(value).is_some_and(|era| era != self.era)
    }

    pub(super) fn leader(&self, election: &str) -> Option<Leader> {
        let ((created, _), holder) = self.elections.get(election)?.first_key_value()?;
        let token = keys::token(self.era, *created)?;
        Some(Leader { holder: holder.clone(), token })
    }

    fn put(&mut self, kv: &KeyValue) -> Changed {
        if kv.key == self.era_key {
            self.era = era(&kv.value).unwrap_or(self.era);
            return Changed::Era;
        }
        let Some(election) = election_of(&self.below, &kv.key) else { return Changed::Nothing };
        let holder = CandidateValue::decode(&kv.value).holder;
        if self.created(&kv.key).is_some_and(|created| created != kv.create_revision) {
            // It was created anew, and has left its place: whether or not that was told.
            self.delete(&kv.key);
        }
        self.created.insert(kv.key.clone(), kv.create_revision);
        let line = self.elections.entry(election.to_owned()).or_default();
        line.insert((kv.create_revision, kv.key.clone()), holder);
        Changed::Election(election.to_owned())
    }

    fn delete(&mut self, key: &[u8]) -> Changed {
        if key == self.era_key {
            self.era = 0;
            return Changed::Era;
        }
        let (Some(election), Some(created)) = (election_of(&self.below, key), self.created.remove(key))
        else {
            return Changed::Nothing;
        };
        if let Some(line) = self.elections.get_mut(election) {
            line.remove(&(created, key.to_vec()));
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
    use proptest::prelude::*;

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
        Event { kind: EventKind::Put, kv: kv(key, value, revision, revision) }
    }

    fn delete(key: &str, revision: i64) -> Event {
        Event { kind: EventKind::Delete, kv: kv(key, "", 0, revision) }
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
        let renamed = Event { kind: EventKind::Put, kv: kv("/p/e/a/1", "me, too", 3, 4) };
        queues.apply(&renamed);
        assert_eq!(leader(&queues, "/p/e/a/"), Some(("me, too".to_owned(), 3)));
    }

    /// Of one revision: which keys are put, and which are deleted before that.
    fn revisions() -> impl Strategy<Value = Vec<Vec<(usize, bool, bool)>>> {
        let change = (0..KEYS.len(), any::<bool>(), any::<bool>());
        prop::collection::vec(prop::collection::vec(change, 1..4), 1..40)
    }

    const KEYS: [&str; 6] = ["/p/e/a/1", "/p/e/a/2", "/p/e/a/by/hand", "/p/e/a/", "/p/e/b/1", "/p/e/b/2"];

    proptest! {
        #[test]
        fn the_picture_is_what_a_plain_list_of_keys_says(revisions in revisions()) {
            let mut queues = Queues::new(&Keys::new("/p"));
            let mut plain: BTreeMap<&str, i64> = BTreeMap::new();
            for (changes, revision) in revisions.into_iter().zip(1..) {
                for (key, deleted, created_anew) in changes {
                    let key = KEYS[key];
                    if deleted {
                        queues.apply(&delete(key, revision));
                        plain.remove(key);
                    }
                    // A change of the value, or a key that is new, even if nobody told that the old one went.
                    let created = plain.get(key).copied().filter(|_| !created_anew).unwrap_or(revision);
                    if !deleted || created_anew {
                        let kv = kv(key, "me", created, revision);
                        queues.apply(&Event { kind: EventKind::Put, kv });
                        plain.insert(key, created);
                    }
                }
                for election in ["/p/e/a/", "/p/e/b/"] {
                    let line = plain.iter().filter(|(key, _)| key.starts_with(election));
                    let first = line.map(|(key, created)| (*created, *key)).min();
                    let head = queues.head(election).map(|(key, created)| (created, key));
                    prop_assert_eq!(head, first.map(|(created, key)| (created, key.as_bytes())));
                }
                let listed: Vec<_> =
                    plain.iter().map(|(key, created)| kv(key, "me", *created, revision)).collect();
                prop_assert!(queues.is_of(&listed), "as if it had been listed");
            }
        }
    }
}
