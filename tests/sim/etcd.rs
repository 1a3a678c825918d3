//! A linearizable log with what the protocol keeps in it, and the transactions of `src/store/etcd/requests.rs` at
//! the level of what they mean.
//!
//! The wire calls [`Etcd::execute`] for each arrival of a request, be it late or the second of its kind. What must
//! stay true: the compares are those of `requests.rs`, no more and no fewer; a revision is made if and only if
//! something was put or deleted.

mod elections;
mod txn;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use highgate::names::Names;
use highgate::replica::{Incarnation, Record, Revision};
use highgate_elector::Resource;

use super::clock::Nanos;
pub(crate) use elections::{Candidate, Held, encoded};
pub(crate) use txn::{Reply, Txn, key_of};

/// A value with the revisions at which its key was made and last put.
#[derive(Clone, Debug)]
pub(crate) struct Kept<T> {
    pub(crate) value: T,
    pub(crate) created: Revision,
    pub(crate) modified: Revision,
}

/// `m/<incarnation>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemberValue {
    pub(crate) watermark: Revision,
    pub(crate) draining: Vec<Revision>,
    pub(crate) validity: Duration,
    pub(crate) lock_delay: Duration,
}

/// `t/<incarnation>`.
#[derive(Clone, Debug)]
pub(crate) struct TombstoneValue {
    pub(crate) created: Revision,
    pub(crate) watermark: Revision,
    pub(crate) draining: Vec<Revision>,
    pub(crate) validity: Duration,
    pub(crate) lock_delay: Duration,
}

/// Everything that etcd holds, at one revision.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) revision: Revision,
    pub(crate) era: Option<u64>,
    /// The revision that wrote it.
    pub(crate) era_changed: Revision,
    /// The version of `seq`, and the revision it was last put at.
    pub(crate) seq: (u64, Revision),
    pub(crate) fences: BTreeMap<Resource, Record>,
    /// How resources are called, and the revision that wrote it.
    pub(crate) names: Option<(Revision, Rc<Names>)>,
    pub(crate) members: BTreeMap<Incarnation, Kept<MemberValue>>,
    pub(crate) tombstones: BTreeMap<String, Kept<TombstoneValue>>,
    /// By resource and by the lease that they are named after.
    pub(crate) candidates: BTreeMap<(Resource, u64), Candidate>,
    pub(crate) leases: BTreeMap<u64, Held>,
}

impl State {
    /// Who leads: the oldest candidate.
    pub(crate) fn head(&self, resource: &Resource) -> Option<(u64, Revision)> {
        let below = self.candidates.range((resource.clone(), 0)..=(resource.clone(), u64::MAX));
        below.map(|((_, lease), candidate)| (*lease, candidate.created)).min_by_key(|(_, created)| *created)
    }
}

/// What one revision did to one key.
#[derive(Clone, Debug)]
pub(crate) enum KeyChange {
    Fence(Resource, Record),
    Member(Incarnation, Kept<MemberValue>),
    MemberGone(Incarnation),
    Tombstone(String, Kept<TombstoneValue>),
    TombstoneGone(String),
    Era(u64),
    Names(Rc<Names>),
    Came(Resource, u64, Candidate),
    Went(Resource, u64),
}

/// One revision.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) revision: Revision,
    pub(crate) seq: Option<u64>,
    pub(crate) changes: Vec<KeyChange>,
}

impl Entry {
    pub(crate) fn is_about_elections(&self) -> bool {
        self.changes.iter().any(|change| matches!(change, KeyChange::Came(..) | KeyChange::Went(..)))
    }
}

/// What is on the way to whoever asked.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) cluster: u64,
    /// Counts restores.
    pub(crate) history: u64,
    pub(crate) revision: Revision,
    pub(crate) reply: Reply,
}

/// Rules that a control breaks here.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Laxity {
    pub(crate) seal_without_compare: bool,
    pub(crate) evict_without_tombstone: bool,
    pub(crate) era_without_tombstone: bool,
    pub(crate) renew_without_member: bool,
    pub(crate) renewed_by_late_copies: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Etcd {
    pub(crate) cluster: u64,
    pub(crate) history: u64,
    pub(crate) state: State,
    /// Everything after the revision `compacted`.
    log: Vec<Rc<Entry>>,
    pub(crate) compacted: Revision,
    pub(crate) paused_until: u64,
    /// Counts the elections of its own leader.
    pub(crate) term: u64,
    /// The error of the clock that leases are counted by.
    pub(crate) ppm: i64,
    pub(crate) laxity: Laxity,
}

impl Etcd {
    pub(crate) fn new(laxity: Laxity, ppm: i64) -> Self {
        Self { cluster: 1, term: 1, ppm, laxity, ..Self::default() }
    }

    /// What was committed, if anything, comes with the answer.
    pub(crate) fn execute(&mut self, txn: &Txn, now: Nanos) -> (Answer, Option<Rc<Entry>>) {
        let (reply, changes, counts) = match txn {
            Txn::Grant { lease, ttl } => txn::nothing(self.grant(*lease, *ttl, now)),
            Txn::KeepAlive { lease } => txn::nothing(self.keep_alive(*lease, now)),
            txn => txn::run(self, txn),
        };
        if let Txn::Revoke { lease } = txn {
            self.state.leases.remove(lease);
        }
        let entry = (!changes.is_empty() || counts).then(|| self.commit(changes, counts));
        let reply = reply.unwrap_or_else(|| {
            let state = Rc::new(self.state.clone());
            if matches!(txn, Txn::Join { .. }) { Reply::Joined(state) } else { Reply::Listed(state) }
        });
        let Self { cluster, history, .. } = *self;
        (Answer { cluster, history, revision: self.state.revision, reply }, entry)
    }

    fn commit(&mut self, changes: Vec<KeyChange>, counts: bool) -> Rc<Entry> {
        let state = &mut self.state;
        state.revision += 1;
        if counts {
            state.seq = (state.seq.0 + 1, state.revision);
        }
        for change in &changes {
            apply(state, change);
        }
        let entry = Rc::new(Entry { revision: state.revision, seq: counts.then_some(state.seq.0), changes });
        self.log.push(entry.clone());
        entry
    }

    /// Revisions from this one on; none if they are compacted away.
    pub(crate) fn since(&self, next: Revision) -> Option<&[Rc<Entry>]> {
        if next <= self.compacted {
            return None;
        }
        let skipped = usize::try_from(next - self.compacted - 1).unwrap_or(usize::MAX);
        Some(self.log.get(skipped..).unwrap_or(&[]))
    }

    pub(crate) fn compact(&mut self) {
        self.log.clear();
        self.compacted = self.state.revision;
    }

    /// From a backup, as another cluster or the same.
    pub(crate) fn restore(&mut self, backup: State, cluster: u64, now: Nanos) {
        self.cluster = cluster;
        self.history += 1;
        self.state = backup;
        self.elect(now);
        self.compact();
    }
}

fn apply(state: &mut State, change: &KeyChange) {
    match change.clone() {
        KeyChange::Fence(resource, record) => drop(state.fences.insert(resource, record)),
        KeyChange::Member(id, kept) => drop(state.members.insert(id, kept)),
        KeyChange::MemberGone(id) => drop(state.members.remove(&id)),
        KeyChange::Tombstone(name, kept) => drop(state.tombstones.insert(name, kept)),
        KeyChange::TombstoneGone(name) => drop(state.tombstones.remove(&name)),
        KeyChange::Era(era) => {
            state.era = Some(era);
            state.era_changed = state.revision;
        }
        KeyChange::Names(names) => state.names = Some((state.revision, names)),
        KeyChange::Came(resource, lease, candidate) => {
            state.candidates.insert((resource, lease), candidate);
        }
        KeyChange::Went(resource, lease) => drop(state.candidates.remove(&(resource, lease))),
    }
}
