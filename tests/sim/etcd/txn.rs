//! Each transaction: its compares, what it changes, and what it answers.

use std::rc::Rc;

use highgate::names::Names;
use highgate::replica::{Given, Incarnation, Proposal, Record, Revision, State as Gate};
use highgate_elector::backend::etcd::graves::Grave;
use highgate_elector::backend::etcd::ground::Ground;
use highgate_elector::{Resource, Token};
use highgate_etcd::fence::Fence;

use super::elections;
use super::{Etcd, Kept, KeyChange, Laxity, MemberValue, State, TombstoneValue};
use crate::clock::Nanos;

#[derive(Clone, Debug)]
pub(crate) enum Txn {
    ReadEra,
    List,
    /// A page of marks, pinned. What it reads came with the listing; only whether it can be read is asked.
    ReadPage(Revision),
    ReadHead(Resource),
    ReadNames,
    /// The names, if they are still those of the revision that was seen.
    PutNames {
        era: u64,
        seen: Revision,
        names: Rc<Names>,
    },
    BeginEra {
        from: Option<u64>,
        to: u64,
        tombstone: TombstoneValue,
    },
    Join {
        me: Incarnation,
        era: u64,
        value: MemberValue,
    },
    Renew {
        me: Incarnation,
        created: Revision,
        era: u64,
        value: MemberValue,
        /// The newest revision that was known when it was sent.
        known: Revision,
    },
    Propose {
        era: u64,
        proposals: Vec<Proposal>,
    },
    Evict {
        member: Incarnation,
        modified: Revision,
        tombstone: TombstoneValue,
    },
    Retire {
        member: Incarnation,
        tombstone: TombstoneValue,
    },
    Bury {
        member: Incarnation,
        tombstone: TombstoneValue,
    },
    Forget {
        name: String,
        modified: Revision,
    },
    Leave {
        me: Incarnation,
    },
    DeleteByHand {
        member: Incarnation,
    },
    // Of electors.
    Grant {
        lease: u64,
        ttl: Nanos,
    },
    KeepAlive {
        lease: u64,
    },
    Revoke {
        lease: u64,
    },
    /// Queues up, and reads who is first and what a winner stands on.
    Enter {
        resource: Resource,
        lease: u64,
    },
    Confirm {
        resource: Resource,
        lease: u64,
        created: Revision,
    },
    Raise {
        resource: Resource,
        candidate: (u64, Revision),
        /// The revisions of the mark and of the era that were seen.
        seen: (i64, i64),
        mark: Fence,
    },
    Check {
        resource: Resource,
        lease: u64,
        token: Token,
    },
    Withdraw {
        resource: Resource,
        lease: u64,
        created: Option<Revision>,
    },
    Relocate {
        lease: u64,
        from: u64,
        carrier: u64,
        keys: Vec<(Resource, Revision)>,
    },
    AnyMember,
    ReadEraAt,
}

#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Era(Option<u64>),
    /// Which era there is now.
    Begun(Option<u64>),
    /// Everything, the key of who joins included.
    Joined(Rc<State>),
    Listed(Rc<State>),
    /// Of an accepted renewal: the revision of the one before, and whether its word was put.
    Renewed(Option<(Revision, bool)>),
    /// The member is there, and has said something else since.
    Overtaken,
    /// None: the era is another. Of each proposal that was refused, the revision of the record that is there.
    Proposed(Option<Vec<Option<Revision>>>),
    /// Whether it was removed, and whether it was there.
    Forgot(bool, bool),
    Head(Option<(u64, Revision)>),
    Names(Option<(Revision, Rc<Names>)>),
    /// Whether they were put.
    Named(bool),
    /// Whether what was asked for is not compacted away.
    Page(bool),
    Granted {
        term: u64,
    },
    Kept {
        alive: bool,
        term: u64,
    },
    /// When the candidate and when the first in line were created, and the ground. None: there is no such lease.
    Entered(Option<(Revision, Revision, Ground)>),
    Confirmed {
        first: bool,
        lives: bool,
        ground: Ground,
    },
    Raised(bool),
    Checked {
        leads: bool,
        outlived: bool,
    },
    Moved(bool),
    /// Whether gateways serve, and the tombstones of those that were evicted.
    Gateways(bool, Vec<Grave>),
    /// With the revision that wrote it, and the newest.
    EraAt {
        era: u64,
        changed: Revision,
        revision: Revision,
    },
    Done,
}

/// The reply, if it does not depend on what is written; the changes; and whether they are counted by `seq`.
pub(super) type Outcome = (Option<Reply>, Vec<KeyChange>, bool);

pub(super) fn run(etcd: &Etcd, txn: &Txn) -> Outcome {
    let (state, lax) = (&etcd.state, etcd.laxity);
    let at = state.revision + 1;
    match txn {
        Txn::ReadEra => nothing(Reply::Era(state.era)),
        Txn::ReadPage(pinned) => nothing(Reply::Page(*pinned >= etcd.compacted)),
        Txn::ReadHead(resource) => nothing(Reply::Head(state.head(resource))),
        Txn::ReadNames => nothing(Reply::Names(state.names.clone())),
        Txn::PutNames { era, seen, names } => put_names(state, *era, *seen, names),
        Txn::List => (None, Vec::new(), false),
        Txn::BeginEra { from, to, tombstone } => begin_era(state, lax, *from, *to, tombstone),
        Txn::Join { me, era, value } => join(state, *me, *era, value),
        Txn::Renew { me, created, era, value, known } => {
            renew(state, lax, *me, (*created, *era), (value, *known))
        }
        Txn::Propose { era, proposals } => propose(state, lax, *era, proposals),
        Txn::Evict { member, modified, tombstone } => {
            let as_judged = state.members.get(member).is_some_and(|kept| kept.modified == *modified);
            when(as_judged, || bury(*member, tombstone, at, !lax.evict_without_tombstone))
        }
        Txn::Retire { member, tombstone } => {
            when(state.members.contains_key(member), || bury(*member, tombstone, at, true))
        }
        Txn::Bury { member, tombstone } => {
            let absent = !state.members.contains_key(member);
            let put = put_tombstone(&name_of(*member), tombstone, at);
            when(absent && !state.tombstones.contains_key(&name_of(*member)), || vec![put])
        }
        Txn::Forget { name, modified } => forget(state, name, *modified),
        Txn::Leave { me } => leave(state, *me),
        Txn::DeleteByHand { member } => {
            let there = state.members.contains_key(member);
            (Some(Reply::Done), there.then_some(KeyChange::MemberGone(*member)).into_iter().collect(), false)
        }
        // What is not in the log is not done here.
        Txn::Grant { .. } | Txn::KeepAlive { .. } => nothing(Reply::Done),
        Txn::Revoke { lease } => (Some(Reply::Done), elections::revoke(state, *lease), false),
        Txn::Enter { resource, lease } => elections::enter(state, resource, *lease),
        Txn::Confirm { resource, lease, created } => {
            nothing(elections::confirm(state, resource, *lease, *created))
        }
        Txn::Raise { resource, candidate, seen, mark } => {
            elections::raise(state, resource, *candidate, *seen, mark)
        }
        Txn::Check { resource, lease, token } => nothing(elections::check(state, resource, *lease, *token)),
        Txn::Withdraw { resource, lease, created } => elections::withdraw(state, resource, *lease, *created),
        Txn::Relocate { lease, from, carrier, keys } => {
            elections::relocate(state, *lease, (*from, *carrier), keys)
        }
        Txn::ReadEraAt => nothing(Reply::EraAt {
            era: state.era.unwrap_or_default(),
            changed: state.era_changed,
            revision: state.revision,
        }),
        Txn::AnyMember => nothing(Reply::Gateways(!state.members.is_empty(), elections::graves(state))),
    }
}

pub(super) fn nothing(reply: Reply) -> Outcome {
    (Some(reply), Vec::new(), false)
}

fn when(holds: bool, changes: impl FnOnce() -> Vec<KeyChange>) -> Outcome {
    if holds { (Some(Reply::Done), changes(), true) } else { nothing(Reply::Done) }
}

pub(crate) fn name_of(member: Incarnation) -> String {
    format!("{member:032x}")
}

fn put_tombstone(name: &str, value: &TombstoneValue, at: Revision) -> KeyChange {
    KeyChange::Tombstone(name.to_owned(), Kept { value: value.clone(), created: at, modified: at })
}

fn bury(
    member: Incarnation,
    tombstone: &TombstoneValue,
    at: Revision,
    with_tombstone: bool,
) -> Vec<KeyChange> {
    let mut changes = vec![KeyChange::MemberGone(member)];
    changes.extend(with_tombstone.then(|| put_tombstone(&name_of(member), tombstone, at)));
    changes
}

fn begin_era(state: &State, lax: Laxity, from: Option<u64>, to: u64, tombstone: &TombstoneValue) -> Outcome {
    if state.era != from {
        return nothing(Reply::Begun(state.era));
    }
    let mut changes = vec![KeyChange::Era(to)];
    if !(lax.era_without_tombstone && from.is_some()) {
        changes.push(put_tombstone(&format!("era-{to}"), tombstone, state.revision + 1));
    }
    (Some(Reply::Begun(Some(to))), changes, true)
}

/// The reads come after the writes: they see them. Run late, after its member was evicted, it must not bring it back.
fn join(state: &State, me: Incarnation, era: u64, value: &MemberValue) -> Outcome {
    let evicted = state.tombstones.contains_key(&name_of(me));
    if state.members.contains_key(&me) || evicted || state.era != Some(era) {
        return nothing(Reply::Joined(Rc::new(state.clone())));
    }
    let at = state.revision + 1;
    let put = KeyChange::Member(me, Kept { value: value.clone(), created: at, modified: at });
    (None, vec![put], true)
}

fn renew(
    state: &State,
    lax: Laxity,
    me: Incarnation,
    (created, era): (Revision, u64),
    (value, known): (&MemberValue, Revision),
) -> Outcome {
    let before = state.members.get(&me).filter(|kept| kept.created == created);
    if lax.renew_without_member && before.is_none() {
        return nothing(Reply::Renewed(Some((Revision::MAX, true))));
    }
    match before.filter(|_| state.era == Some(era)) {
        None => nothing(Reply::Renewed(None)),
        // The first copy of it has been run, or a later one.
        Some(before) if before.modified > known && !lax.renewed_by_late_copies => {
            match before.value == *value {
                true => nothing(Reply::Renewed(Some((before.modified, false)))),
                false => nothing(Reply::Overtaken),
            }
        }
        Some(before) => {
            let kept = Kept { value: value.clone(), created, modified: state.revision + 1 };
            (Some(Reply::Renewed(Some((before.modified, true)))), vec![KeyChange::Member(me, kept)], false)
        }
    }
}

fn put_names(state: &State, era: u64, seen: Revision, names: &Rc<Names>) -> Outcome {
    let there = state.names.as_ref().map_or(0, |(revision, _)| *revision);
    if there != seen || state.era != Some(era) {
        return nothing(Reply::Named(false));
    }
    (Some(Reply::Named(true)), vec![KeyChange::Names(names.clone())], true)
}

/// Each on its own condition, all in one revision, which counts even if none was met.
fn propose(state: &State, lax: Laxity, era: u64, proposals: &[Proposal]) -> Outcome {
    if state.era != Some(era) {
        return nothing(Reply::Proposed(None));
    }
    let at = state.revision + 1;
    let (mut changes, mut refusals) = (Vec::new(), Vec::new());
    for proposal in proposals {
        let there = state.fences.get(&proposal.resource).map_or(0, |record| record.modified);
        let unchecked = lax.seal_without_compare && proposal.record.state == Gate::Open;
        if (there == proposal.seen || unchecked) && is_given(state, proposal) {
            let record = Record { modified: at, ..proposal.record };
            changes.push(KeyChange::Fence(proposal.resource.clone(), record));
            refusals.push(None);
        } else {
            refusals.push(Some(there));
        }
    }
    (Some(Reply::Proposed(Some(refusals))), changes, true)
}

fn is_given(state: &State, proposal: &Proposal) -> bool {
    match &proposal.given {
        Given::Nothing => true,
        Given::Leaderless => state.head(&proposal.resource).is_none(),
        Given::Leads(key) => {
            let value = Token::new(proposal.record.token).map_or(0, Token::value);
            state.head(&proposal.resource) == Some((lease_of(key), value))
        }
    }
}

/// The key of a candidate is its lease.
pub(crate) fn key_of(lease: u64) -> Box<[u8]> {
    Box::new(lease.to_be_bytes())
}

fn lease_of(key: &[u8]) -> u64 {
    key.try_into().map_or(0, u64::from_be_bytes)
}

fn forget(state: &State, name: &str, modified: Revision) -> Outcome {
    match state.tombstones.get(name) {
        Some(kept) if kept.modified == modified => {
            (Some(Reply::Forgot(true, true)), vec![KeyChange::TombstoneGone(name.to_owned())], true)
        }
        there => nothing(Reply::Forgot(false, there.is_some())),
    }
}

fn leave(state: &State, me: Incarnation) -> Outcome {
    if state.members.contains_key(&me) {
        return when(true, || vec![KeyChange::MemberGone(me)]);
    }
    let name = name_of(me);
    when(state.tombstones.contains_key(&name), || vec![KeyChange::TombstoneGone(name)])
}
