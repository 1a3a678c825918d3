//! One lease of the process and who sits on it: what may happen to it and what is due, without I/O and clock.
//!
//! A lease is known by its name, the id that it was first granted under and that its candidates' keys are named
//! after. Its carrier, the etcd lease that the keys are attached to, changes when etcd has elected a new leader
//! (see [`super::relocate`]). What must stay true: whoever leads or waits has its key on the carrier, or on the old
//! one which is kept alive as well until all keys have moved.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One lease carries no more keys than this: etcd deletes them all in one transaction.
const SEATS: usize = 1000;

/// A lease and its seats. [`super::leases`] keeps them.
pub struct Lease {
    /// What was asked for; etcd may have raised it to `ttl`.
    pub asked: Duration,
    pub ttl: Duration,
    /// Before the last keep-alive that worked was sent.
    pub kept: Instant,
    /// Held while somebody waits for a keep-alive that many may need.
    pub extending: Arc<tokio::sync::Mutex<()>>,
    /// A keep-alive for those who wait is under way.
    pub keeping: bool,
    /// Nobody new sits down.
    pub closed: bool,
    /// By election.
    pub seats: HashMap<String, Stage>,
    name: i64,
    carrier: i64,
    /// While keys move from it to the carrier.
    old: Option<i64>,
    /// From the word of an election to the last key's arrival: one move at a time.
    moving: bool,
    /// etcd's term when the carrier was granted; 0 when that is not known.
    term: u64,
}

/// How far a candidate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// `created` is None until etcd has said at which revision the key was created.
    Waiting {
        created: Option<i64>,
    },
    Leading {
        created: i64,
        renewed: Instant,
    },
    /// Its key has to go; `created` is not known of one that gave up before etcd had answered.
    Leaving {
        created: Option<i64>,
        busy: bool,
    },
}

/// What is due for a lease.
#[derive(Debug, PartialEq, Eq)]
pub enum Due {
    KeepAlive,
    Remove { election: String, created: Option<i64> },
    Revoke { carriers: Vec<i64> },
}

impl Lease {
    pub fn new(name: i64, asked: Duration, ttl: Duration, kept: Instant, term: u64) -> Self {
        Self {
            asked,
            ttl,
            kept,
            extending: Arc::default(),
            keeping: false,
            closed: false,
            seats: HashMap::new(),
            name,
            carrier: name,
            old: None,
            moving: false,
            term,
        }
    }

    /// Whether a candidate for this election may sit down.
    pub fn has_room(&self, election: &str, asked: Duration, now: Instant) -> bool {
        let fresh = now.saturating_duration_since(self.kept) < self.ttl / 2;
        let room = self.seats.len() < SEATS && !self.seats.contains_key(election);
        self.asked == asked && !self.closed && fresh && room
    }

    /// What is due for it, which is marked as under way.
    pub fn due(&mut self, now: Instant) -> Vec<Due> {
        let (ttl, age) = (self.ttl, now.duration_since(self.kept));
        if self.seats.is_empty() {
            return if age > ttl / 2 { vec![Due::Revoke { carriers: self.carriers() }] } else { Vec::new() };
        }
        let mut due = Vec::new();
        if self.seats.values().any(|stage| matches!(stage, Stage::Waiting { .. }))
            && age > ttl / 3
            && !self.keeping
        {
            self.keeping = true;
            due.push(Due::KeepAlive);
        }
        for (election, stage) in &mut self.seats {
            let created = match *stage {
                Stage::Leading { created, renewed } if now.duration_since(renewed) > ttl => Some(created),
                Stage::Leaving { created, busy: false } => created,
                _ => continue,
            };
            *stage = Stage::Leaving { created, busy: true };
            due.push(Due::Remove { election: election.clone(), created });
        }
        due
    }

    /// The etcd leases that have keys on them.
    pub fn carriers(&self) -> Vec<i64> {
        self.old.into_iter().chain([self.carrier]).collect()
    }

    /// A keep-alive that was sent then was answered. True: etcd has had an election, the keys should move.
    pub fn answered(&mut self, sent: Instant, alive: bool, term: u64) -> bool {
        if alive {
            self.kept = self.kept.max(sent);
        } else {
            self.closed = true;
        }
        let elected = self.term != 0 && term > self.term && !self.moving;
        if elected || self.term == 0 {
            self.term = term;
        }
        self.moving |= elected;
        elected
    }

    /// A candidate's key has to go. Where nobody knows which one it was, the name is not used again: the request may
    /// be run late, and would take the next one's.
    pub fn leaving(&mut self, election: &str, created: Option<i64>, busy: bool) {
        self.closed |= created.is_none();
        self.seats.insert(election.to_owned(), Stage::Leaving { created, busy });
    }

    /// etcd has confirmed that the key which was created then is gone, or has not. The seat is free again unless
    /// another key of the same name has been found since.
    pub fn left(&mut self, election: &str, gone: Option<i64>, confirmed: bool) {
        let Some(Stage::Leaving { created, busy }) = self.seats.get_mut(election) else { return };
        if *created != gone {
            return;
        }
        *busy = false;
        if confirmed {
            self.seats.remove(election);
        }
    }

    /// A key was seen of which nobody here knows: a request that was run late. True: its seat was free, or is being
    /// left by another one, and is its own until the key is gone.
    pub fn take_orphan(&mut self, election: &str, found: Option<i64>) -> bool {
        let free = match self.seats.get(election) {
            None => true,
            Some(Stage::Leaving { created, .. }) => created.is_some() && *created < found,
            Some(_) => false,
        };
        if free {
            self.leaving(election, found, true);
        }
        free
    }

    /// A leadership was found to be there by a call that began at `since`. False: its key is being taken meanwhile.
    pub fn renewed(&mut self, election: &str, since: Instant) -> bool {
        match self.seats.get_mut(election) {
            Some(Stage::Leading { renewed, .. }) => {
                *renewed = since;
                true
            }
            _ => false,
        }
    }

    /// From now on `to` carries the keys, in place of a carrier that they did not get to. Which ones have to move: the elections and the keys' create revisions.
    pub fn begin_move(&mut self, to: i64) -> Vec<(String, i64)> {
        let before = std::mem::replace(&mut self.carrier, to);
        self.old.get_or_insert(before);
        self.closed = true;
        let settled = |(election, stage): (&String, &Stage)| match *stage {
            Stage::Waiting { created: Some(created) } | Stage::Leading { created, .. } => {
                Some((election.clone(), created))
            }
            Stage::Waiting { created: None } | Stage::Leaving { .. } => None,
        };
        self.seats.iter().filter_map(settled).collect()
    }

    /// The etcd lease that the keys are to leave.
    pub fn moving_from(&self) -> i64 {
        self.old.unwrap_or(self.carrier)
    }

    pub fn end_move(&mut self) {
        self.old = None;
        self.moving = false;
    }

    /// etcd has entered a candidate, on the lease's own name. False: the others have moved meanwhile.
    pub fn enter(&mut self, election: &str, created: i64) -> bool {
        if self.carrier != self.name {
            return false;
        }
        self.seats.insert(election.to_owned(), Stage::Waiting { created: Some(created) });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(5);

    fn lease() -> Lease {
        Lease::new(7, TTL, TTL, Instant::now(), 3)
    }

    #[test]
    fn two_candidates_of_one_election_never_share_a_lease() {
        let (mut lease, now) = (lease(), Instant::now());
        assert!(lease.has_room("a", TTL, now) && !lease.has_room("a", TTL * 2, now));
        lease.seats.insert("a".to_owned(), Stage::Waiting { created: None });
        assert!(!lease.has_room("a", TTL, now) && lease.has_room("b", TTL, now));
        lease.closed = true;
        assert!(!lease.has_room("b", TTL, now));
    }

    #[test]
    fn who_was_granted_too_late_is_not_renewed_once_its_key_is_taken() {
        let mut lease = lease();
        let began = Instant::now();
        lease.seats.insert("a".to_owned(), Stage::Leading { created: 5, renewed: began });
        assert!(lease.renewed("a", began));
        let taken = Due::Remove { election: "a".to_owned(), created: Some(5) };
        assert_eq!(lease.due(began + TTL * 2), [taken]);
        assert!(!lease.renewed("a", began + TTL * 2) && !lease.renewed("b", began));
    }

    #[test]
    fn a_name_is_used_again_only_when_its_key_is_known_and_gone() {
        let (mut lease, now) = (lease(), Instant::now());
        assert!(lease.take_orphan("a", Some(5)) && !lease.take_orphan("a", Some(5)));
        assert!(lease.take_orphan("a", Some(6)), "run late, while the first was being deleted");
        lease.left("a", Some(5), true);
        assert!(!lease.has_room("a", TTL, now) && lease.has_room("b", TTL, now));
        lease.left("a", Some(6), false);
        assert!(!lease.has_room("a", TTL, now));
        lease.left("a", Some(6), true);
        assert!(lease.has_room("a", TTL, now));
        lease.leaving("b", None, true);
        lease.seats.clear();
        assert!(!lease.has_room("b", TTL, now), "a request to delete whatever is there may still be run");
    }

    #[test]
    fn an_election_of_etcd_moves_whoever_is_known_to_etcd() {
        let mut lease = lease();
        let renewed = Instant::now();
        lease.seats.insert("leads".to_owned(), Stage::Leading { created: 5, renewed });
        lease.seats.insert("enters".to_owned(), Stage::Waiting { created: None });
        assert!(lease.enter("waits", 6));
        assert!(!lease.answered(renewed, true, 3) && !lease.answered(renewed, true, 2));
        assert!(lease.answered(renewed, true, 4));
        assert!(!lease.answered(renewed, true, 5), "one move at a time");

        let mut moving = lease.begin_move(8);
        moving.sort();
        assert_eq!(moving, [("leads".to_owned(), 5), ("waits".to_owned(), 6)]);
        assert_eq!(lease.carriers(), [7, 8]);
        lease.begin_move(9);
        assert_eq!(lease.carriers(), [7, 9], "the keys are where they were");
        assert!(!lease.enter("enters", 9), "its key is on the old one");
        lease.end_move();
        assert_eq!(lease.carriers(), [9]);
        assert!(lease.answered(renewed, true, 5));
    }
}
