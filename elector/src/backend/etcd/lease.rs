//! One lease of the process and who sits on it: what may happen to it, without I/O.
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

pub(super) struct Lease {
    /// What was asked for; etcd may have raised it to `ttl`.
    pub(super) asked: Duration,
    pub(super) ttl: Duration,
    /// Before the last keep-alive that worked was sent.
    pub(super) kept: Instant,
    /// Held while somebody waits for a keep-alive that many may need.
    pub(super) extending: Arc<tokio::sync::Mutex<()>>,
    /// A keep-alive for those who wait is under way.
    pub(super) keeping: bool,
    /// Nobody new sits down.
    pub(super) closed: bool,
    /// By election.
    pub(super) seats: HashMap<String, Stage>,
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
pub(super) enum Stage {
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

impl Lease {
    pub(super) fn new(name: i64, asked: Duration, ttl: Duration, kept: Instant, term: u64) -> Self {
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

    pub(super) fn has_room(&self, election: &str, asked: Duration) -> bool {
        let fresh = self.kept.elapsed() < self.ttl / 2;
        let room = self.seats.len() < SEATS && !self.seats.contains_key(election);
        self.asked == asked && !self.closed && fresh && room
    }

    /// The etcd leases that have keys on them.
    pub(super) fn carriers(&self) -> Vec<i64> {
        self.old.into_iter().chain([self.carrier]).collect()
    }

    /// A keep-alive that was sent then was answered. True: etcd has had an election, the keys should move.
    pub(super) fn answered(&mut self, sent: Instant, alive: bool, term: u64) -> bool {
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

    /// From now on `to` carries the keys. Which ones have to move: the elections and the keys' create revisions.
    pub(super) fn begin_move(&mut self, to: i64) -> Vec<(String, i64)> {
        self.old = Some(std::mem::replace(&mut self.carrier, to));
        self.closed = true;
        let settled = |(election, stage): (&String, &Stage)| match *stage {
            Stage::Waiting { created: Some(created) } | Stage::Leading { created, .. } => {
                Some((election.clone(), created))
            }
            Stage::Waiting { created: None } | Stage::Leaving { .. } => None,
        };
        self.seats.iter().filter_map(settled).collect()
    }

    pub(super) fn end_move(&mut self) {
        self.old = None;
        self.moving = false;
    }

    /// etcd has entered a candidate, on the lease's own name. False: the others have moved meanwhile.
    pub(super) fn enter(&mut self, election: &str, created: i64) -> bool {
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
        let mut lease = lease();
        assert!(lease.has_room("a", TTL) && !lease.has_room("a", TTL * 2));
        lease.seats.insert("a".to_owned(), Stage::Waiting { created: None });
        assert!(!lease.has_room("a", TTL) && lease.has_room("b", TTL));
        lease.closed = true;
        assert!(!lease.has_room("b", TTL));
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
        assert!(!lease.enter("enters", 9), "its key is on the old one");
        lease.end_move();
        assert_eq!(lease.carriers(), [8]);
        assert!(lease.answered(renewed, true, 5));
    }
}
