//! Candidates and their leases: the transactions of `elector/src/backend/etcd`, at the level of what they mean.

use highgate::replica::{Record, Revision, State as Gate};
use highgate_elector::backend::etcd::graves::Grave;
use highgate_elector::backend::etcd::ground::Ground;
use highgate_elector::{Resource, Token};
use highgate_etcd::fence::Fence;

use super::txn::{Outcome, Reply, nothing};
use super::{Etcd, Kept, KeyChange, State, TombstoneValue};
use crate::clock::Nanos;

/// A lease, which takes the keys attached to it along when it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) ttl: Nanos,
    /// In true time. When it is noticed is another matter.
    pub(crate) expires: Nanos,
}

/// A candidate's key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) created: Revision,
    /// The lease that it ends with.
    pub(crate) carrier: u64,
}

impl Etcd {
    /// Asked twice, it grants once.
    pub(super) fn grant(&mut self, lease: u64, ttl: Nanos, now: Nanos) -> Reply {
        let expires = now + self.in_true_time(ttl);
        self.state.leases.entry(lease).or_insert(Held { ttl, expires });
        Reply::Granted { term: self.term }
    }

    pub(super) fn keep_alive(&mut self, lease: u64, now: Nanos) -> Reply {
        let term = self.term;
        let Some(ttl) = self.state.leases.get(&lease).map(|held| held.ttl) else {
            return Reply::Kept { alive: false, term };
        };
        self.state.leases.insert(lease, Held { ttl, expires: now + self.in_true_time(ttl) });
        Reply::Kept { alive: true, term }
    }

    /// How long a span of etcd's clock is.
    fn in_true_time(&self, span: Nanos) -> Nanos {
        let rate = u64::try_from(1_000_000 + self.ppm).unwrap_or(1_000_000);
        span / 1000 * 1_000_000 / rate * 1000
    }

    /// A new leader of etcd counts every lease anew. What the old one would have revoked by then, it may still revoke.
    pub(crate) fn elect(&mut self, now: Nanos) -> Vec<u64> {
        self.term += 1;
        let leases: Vec<u64> = self.state.leases.keys().copied().collect();
        for lease in &leases {
            self.keep_alive(*lease, now);
        }
        leases
    }
}

pub(super) fn enter(state: &State, resource: &Resource, lease: u64) -> Outcome {
    let at = state.revision + 1;
    let (created, came) = match state.candidates.get(&(resource.clone(), lease)) {
        Some(there) => (there.created, None),
        None if !state.leases.contains_key(&lease) => return nothing(Reply::Entered(None)),
        None => {
            (at, Some(KeyChange::Came(resource.clone(), lease, Candidate { created: at, carrier: lease })))
        }
    };
    let head = state.head(resource).map_or(created, |(_, oldest)| oldest);
    let mut ground = ground(state, resource);
    ground.revision += i64::from(came.is_some());
    (Some(Reply::Entered(Some((created, head, ground)))), came.into_iter().collect(), false)
}

pub(super) fn confirm(state: &State, resource: &Resource, lease: u64, created: Revision) -> Reply {
    let own = state.candidates.get(&(resource.clone(), lease)).map(|candidate| candidate.created);
    let (first, lives) = (state.head(resource) == Some((lease, created)), own == Some(created));
    Reply::Confirmed { first: first && lives, lives, ground: ground(state, resource) }
}

/// What is asked for in the same transaction.
fn ground(state: &State, resource: &Resource) -> Ground {
    let mark = state.fences.get(resource);
    Ground {
        era: state.era.unwrap_or_default(),
        era_changed: signed(state.era_changed),
        mark: mark.map(|record| fence(record).encode()),
        mark_changed: mark.map_or(0, |record| signed(record.modified)),
        guarded: !state.members.is_empty(),
        graves: graves(state),
        revision: signed(state.revision),
    }
}

/// The tombstones, as who reads them sees them.
pub(super) fn graves(state: &State) -> Vec<Grave> {
    let grave = |(name, Kept { value, modified, .. }): (&String, &Kept<TombstoneValue>)| {
        Grave::new(name.as_bytes().to_vec(), signed(*modified), value.validity, value.lock_delay)
    };
    state.tombstones.iter().map(grave).collect()
}

/// RAISE by who leads: with the proof, if nothing has changed since.
pub(super) fn raise(
    state: &State,
    resource: &Resource,
    (lease, created): (u64, Revision),
    (mark_changed, era_changed): (i64, i64),
    mark: &Fence,
) -> Outcome {
    let there = state.fences.get(resource).map_or(0, |record| signed(record.modified));
    let leads = state.head(resource) == Some((lease, created));
    if !leads || there != mark_changed || signed(state.era_changed) != era_changed {
        return nothing(Reply::Raised(false));
    }
    let put = KeyChange::Fence(resource.clone(), record(mark, state.revision + 1));
    (Some(Reply::Raised(true)), vec![put], true)
}

/// Whether the leadership with this token was there; if not, whether its key is, from an era before.
pub(super) fn check(state: &State, resource: &Resource, lease: u64, token: Token) -> Reply {
    let own = state.candidates.get(&(resource.clone(), lease)).map(|candidate| candidate.created);
    let (lives, of_this_era) = (own == Some(token.value()), token.era() == state.era.unwrap_or_default());
    Reply::Checked { leads: lives && of_this_era, outlived: lives && !of_this_era }
}

/// Of one that was created at another revision nothing is deleted.
pub(super) fn withdraw(state: &State, resource: &Resource, lease: u64, created: Option<Revision>) -> Outcome {
    let there = state.candidates.get(&(resource.clone(), lease));
    let it = there.is_some_and(|candidate| created.is_none_or(|created| created == candidate.created));
    let went = it.then(|| KeyChange::Went(resource.clone(), lease));
    (Some(Reply::Done), went.into_iter().collect(), false)
}

/// Puts keys on another lease; false if there is none. Those that are gone, or not there any more, stay so.
pub(super) fn relocate(
    state: &State,
    lease: u64,
    (from, carrier): (u64, u64),
    keys: &[(Resource, Revision)],
) -> Outcome {
    let lives = |(resource, created): &&(Resource, Revision)| {
        let there = state.candidates.get(&(resource.clone(), lease));
        there.is_some_and(|there| there.created == *created && there.carrier == from)
    };
    let moving: Vec<_> = keys.iter().filter(lives).collect();
    if !moving.is_empty() && !state.leases.contains_key(&carrier) {
        return nothing(Reply::Moved(false));
    }
    let put = |(resource, created): &(Resource, Revision)| {
        KeyChange::Came(resource.clone(), lease, Candidate { created: *created, carrier })
    };
    (Some(Reply::Moved(true)), moving.into_iter().map(put).collect(), false)
}

/// The lease and everything on it.
pub(super) fn revoke(state: &State, lease: u64) -> Vec<KeyChange> {
    let on_it = state.candidates.iter().filter(|(_, candidate)| candidate.carrier == lease);
    on_it.map(|((resource, name), _)| KeyChange::Went(resource.clone(), *name)).collect()
}

fn fence(record: &Record) -> Fence {
    Fence {
        token: record.token,
        raised: record.state == Gate::Raised,
        frozen: record.frozen,
        vacant: record.vacant,
        block: record.block,
        block_next: record.block_next,
        issued: record.issued,
        settled: signed(record.settled),
    }
}

fn record(fence: &Fence, modified: Revision) -> Record {
    Record {
        token: fence.token,
        modified,
        settled: u64::try_from(fence.settled).unwrap_or(0),
        state: if fence.raised { Gate::Raised } else { Gate::Open },
        frozen: fence.frozen,
        vacant: fence.vacant,
        block: fence.block,
        block_next: fence.block_next,
        issued: fence.issued,
        unreadable: false,
    }
}

/// The value of a mark, as electors see it.
pub(crate) fn encoded(record: &Record) -> Vec<u8> {
    fence(record).encode()
}

fn signed(revision: Revision) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}
