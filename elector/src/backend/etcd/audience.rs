//! Who waits for a turn and who observes, and what the picture of the lines says to them. No I/O and no clock.
//!
//! [`super::mirror`] feeds it what it reads and hears. What must stay true: nobody is told that its key is gone by a
//! picture that may be that of an etcd which is no more, nor by one that is older than the key; but a key that was
//! known before etcd was asked, and is not in the answer, is gone, whatever its revision: etcd may have been restored
//! from a backup.

use std::collections::{BTreeSet, HashMap};

use highgate_etcd::keys::Keys;
use highgate_etcd::{Event, KeyValue};
use tokio::sync::{mpsc, oneshot};

use super::queue::{Changed, Queues};
use crate::backend::{BackendError, Leader};

/// What an observer gets.
pub(super) type Seen = Result<Option<Leader>, BackendError>;

pub(super) struct Audience {
    queues: Queues,
    /// False until the first list.
    synced: bool,
    /// False while nothing is heard, and nobody told of a turn: the picture may be that of an etcd that is no more.
    heard: bool,
    waiters: HashMap<Vec<u8>, Waiter>,
    observers: HashMap<String, Vec<Observer>>,
}

/// Candidates that wait, as they were known before etcd was asked: their keys, and when those were created.
pub(super) type Known = Vec<(Vec<u8>, i64)>;

struct Waiter {
    election: String,
    created: i64,
    tell: oneshot::Sender<Turn>,
}

struct Observer {
    tell: mpsc::UnboundedSender<Seen>,
    /// What it was told last; None before the first word.
    last: Option<Option<Leader>>,
}

/// What happened to a candidate that waited.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is first in line.
    First,
    /// Its key is gone.
    Gone,
}

impl Audience {
    pub(super) fn new(keys: &Keys) -> Self {
        Self {
            queues: Queues::new(keys),
            synced: false,
            heard: false,
            waiters: HashMap::new(),
            observers: HashMap::new(),
        }
    }

    /// When this candidate is first in line, or gone.
    pub(super) fn turn(&mut self, election: &str, key: &str, created: i64) -> oneshot::Receiver<Turn> {
        let (tell, turn) = oneshot::channel();
        let waiter = Waiter { election: election.to_owned(), created, tell };
        self.waiters.insert(key.as_bytes().to_vec(), waiter);
        self.wake(key.as_bytes());
        turn
    }

    pub(super) fn observe(&mut self, election: &str) -> mpsc::UnboundedReceiver<Seen> {
        let (tell, seen) = mpsc::unbounded_channel();
        self.observers.entry(election.to_owned()).or_default().push(Observer { tell, last: None });
        if self.synced {
            self.show(election);
        }
        seen
    }

    /// The revision that the picture is of.
    pub(super) fn revision(&self) -> i64 {
        self.queues.revision
    }

    /// Whether an era that was written at a revision that is in the picture is not the one in the picture.
    pub(super) fn has_missed(&self, written: Option<(&[u8], i64)>) -> bool {
        self.queues.has_missed(written)
    }

    /// The stream of changes has ended, or begins anew.
    pub(super) fn nothing_is_heard(&mut self) {
        self.heard = false;
    }

    /// A stream begins where the picture ends, at an etcd that held this at the picture's revision. False: that is
    /// not what the picture shows.
    pub(super) fn goes_on(&mut self, listed: &[KeyValue]) -> bool {
        self.heard = self.queues.is_of(listed);
        self.wake_all();
        self.heard
    }

    /// What etcd holds at this revision. It was asked when these were `known` to wait.
    pub(super) fn replace(&mut self, listed: &[KeyValue], revision: i64, known: &Known) {
        self.queues.replace(listed, revision);
        (self.synced, self.heard) = (true, true);
        for (key, _) in known.iter().filter(|one| self.waits(one)).cloned().collect::<Vec<_>>() {
            self.tell(&key);
        }
        self.wake_all();
        self.show_all();
    }

    /// All changes of one revision; whether every token is another one now.
    pub(super) fn apply(&mut self, changes: &[Event]) -> bool {
        let changed: Vec<Changed> = changes.iter().map(|event| self.queues.apply(event)).collect();
        for event in changes {
            self.wake(&event.kv.key);
        }
        let elections: BTreeSet<&String> = changed
            .iter()
            .filter_map(|change| match change {
                Changed::Election(election) => Some(election),
                Changed::Era | Changed::Nothing => None,
            })
            .collect();
        for election in elections {
            self.wake_first(election);
            self.show(election);
        }
        let new_era = changed.contains(&Changed::Era);
        if new_era {
            self.show_all();
        }
        new_era
    }

    fn wake_first(&mut self, election: &str) {
        if let Some((key, _)) = self.queues.head(election) {
            let key = key.to_vec();
            self.wake(&key);
        }
    }

    /// Tells the waiter with this key, if there is something to tell.
    fn wake(&mut self, key: &[u8]) {
        let Some(waiter) = self.waiters.get(key) else { return };
        if self.heard && self.queues.revision >= waiter.created {
            self.tell(key);
        }
    }

    fn wake_all(&mut self) {
        for (key, _) in self.known() {
            self.wake(&key);
        }
    }

    /// All who wait.
    pub(super) fn known(&self) -> Known {
        self.waiters.iter().map(|(key, waiter)| (key.clone(), waiter.created)).collect()
    }

    /// Those of whose keys the watch has yet to tell.
    pub(super) fn unseen(&self) -> Known {
        let mut known = self.known();
        known.retain(|(_, created)| *created > self.queues.revision);
        known
    }

    /// Whether somebody of them waits still, and its key was never told of.
    pub(super) fn any_unseen(&self, expected: &Known) -> bool {
        expected.iter().any(|one| self.waits(one) && self.queues.created(&one.0) != Some(one.1))
    }

    fn waits(&self, (key, created): &(Vec<u8>, i64)) -> bool {
        self.waiters.get(key).is_some_and(|waiter| waiter.created == *created)
    }

    /// To every observer.
    pub(super) fn report(&self, error: impl Fn() -> BackendError) {
        for observer in self.observers.values().flatten() {
            // One that hung up is forgotten when its election changes.
            let _ = observer.tell.send(Err(error()));
        }
    }

    /// What the picture says of a waiter.
    fn tell(&mut self, key: &[u8]) {
        let Some(waiter) = self.waiters.get(key) else { return };
        let turn = match self.queues.created(key) {
            Some(created) if created == waiter.created => {
                let first = self.queues.head(&waiter.election).map(|(_, created)| created);
                if first != Some(created) {
                    return;
                }
                Turn::First
            }
            _ => Turn::Gone,
        };
        if let Some(waiter) = self.waiters.remove(key) {
            // A campaign that was given up does not listen.
            let _ = waiter.tell.send(turn);
        }
    }

    /// Tells the observers of an election who leads, if that is news.
    fn show(&mut self, election: &str) {
        let leader = self.queues.leader(election);
        let Some(observers) = self.observers.get_mut(election) else { return };
        observers.retain_mut(|observer| {
            if observer.last.as_ref() == Some(&leader) {
                return !observer.tell.is_closed();
            }
            observer.last = Some(leader.clone());
            observer.tell.send(Ok(leader.clone())).is_ok()
        });
        if observers.is_empty() {
            self.observers.remove(election);
        }
    }

    fn show_all(&mut self) {
        for election in self.observers.keys().cloned().collect::<Vec<_>>() {
            self.show(&election);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ELECTION: &str = "/p/e/a/";

    fn kv(key: &str, created: i64) -> KeyValue {
        let (key, value) = (key.as_bytes().to_vec(), b"holder".to_vec());
        KeyValue { key, value, create_revision: created, mod_revision: created, ..KeyValue::default() }
    }

    /// At revision 9: one leads, the other waits.
    fn audience() -> (Audience, oneshot::Receiver<Turn>) {
        let mut audience = Audience::new(&Keys::new("/p"));
        audience.replace(&[kv("/p/e/a/1", 5), kv("/p/e/a/2", 6)], 9, &Known::new());
        let turn = audience.turn(ELECTION, "/p/e/a/2", 6);
        (audience, turn)
    }

    #[test]
    fn a_picture_that_is_older_than_a_key_says_nothing_of_it() {
        let (mut audience, mut turn) = audience();
        let mut later = audience.turn(ELECTION, "/p/e/a/3", 11);
        let known = audience.known();
        let mut latest = audience.turn(ELECTION, "/p/e/a/4", 12);
        assert_eq!(audience.unseen().len(), 2);
        assert!(turn.try_recv().is_err() && later.try_recv().is_err());
        // An etcd that has gone back: whoever was known before it was asked is judged by its answer.
        audience.replace(&[kv("/p/e/a/2", 6)], 7, &known);
        assert_eq!(turn.try_recv(), Ok(Turn::First));
        assert_eq!(later.try_recv(), Ok(Turn::Gone));
        assert!(latest.try_recv().is_err(), "it may have been created after the answer");
        let expected = audience.unseen();
        assert!(audience.any_unseen(&expected));
    }

    #[test]
    fn a_key_with_another_life_than_the_one_that_waits_is_gone() {
        let (mut audience, mut turn) = audience();
        let known = audience.known();
        audience.replace(&[kv("/p/e/a/2", 3)], 4, &known);
        assert_eq!(turn.try_recv(), Ok(Turn::Gone));
    }

    #[test]
    fn nobody_is_told_by_a_picture_until_etcd_is_known_to_have_its_past() {
        let (mut audience, mut turn) = audience();
        audience.nothing_is_heard();
        let mut strange = audience.turn(ELECTION, "/p/e/a/7", 8);
        assert!(
            !audience.goes_on(&[kv("/p/e/a/2", 6), kv("/p/e/a/7", 8)]),
            "it was restored, and has caught up"
        );
        assert!(turn.try_recv().is_err() && strange.try_recv().is_err());
        assert!(audience.goes_on(&[kv("/p/e/a/1", 5), kv("/p/e/a/2", 6)]));
        assert!(turn.try_recv().is_err(), "it is second");
        assert_eq!(strange.try_recv(), Ok(Turn::Gone));
    }
}
