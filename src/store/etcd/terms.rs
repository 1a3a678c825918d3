//! What etcd says of a leadership that came through the election API, and what its holder and operators do to it.
//!
//! [`super::ballot`] calls it for orders, [`super::once`] for steps of leaders. What must stay true: only a key that
//! leads in this era is extended. One that led in an era before has a token that nothing passes any more, and goes as
//! soon as its holder is heard of, so that somebody can lead.

use std::time::Duration;

use highgate_elector::{Resource, Token};
use highgate_etcd::candidate::CandidateValue;
use highgate_etcd::{Compare, Delete, KeyValue, Range, Txn, keys};

use super::ballot::lease_id;
use super::endings::saying_why;
use super::link::{Link, Trouble};
use super::queues::Head;
use super::revoke::Revoker;
use super::values::{number, revision};
use crate::elections::{Actor, Ended, Lease, NotHeld};
use crate::replica::Revision;
use crate::store::elections::Leader;

/// A leadership that somebody acts on.
pub(super) struct Held {
    pub(super) resource: Resource,
    pub(super) lease: Lease,
    pub(super) actor: Actor,
}

/// A leader as etcd knows it.
pub(super) struct Known {
    created: i64,
    pub(super) token: Token,
    pub(super) holder: String,
    owner: Option<String>,
}

impl Known {
    /// It, if whoever acts on it may.
    pub(super) fn held_by(self, actor: &Actor) -> Result<Self, NotHeld> {
        if actor.may_act_for(self.owner.as_deref()) { Ok(self) } else { Err(NotHeld::Anothers) }
    }
}

/// What etcd says of a candidate's key.
enum Standing {
    Leads(Known),
    /// It is the oldest, but of an era before: its holder was given a token of that era, which is stale.
    Outlived {
        created: i64,
        owner: Option<String>,
    },
    /// It waits, or is gone.
    Neither,
}

async fn standing(link: &Link, resource: &Resource, key: &str) -> Result<Standing, Trouble> {
    let first = Range::oldest_below(link.keys.election(resource).as_bytes());
    let ask = Txn::default().then(first).then(Range::key(link.keys.era()));
    let answer = link.txn(ask).await?;
    let Some(kv) = answer.found(0).first().filter(|kv| kv.key == key.as_bytes()) else {
        return Ok(Standing::Neither);
    };
    let (created, era) = (kv.create_revision, answer.found(1).first());
    let CandidateValue { holder, owner } = CandidateValue::decode(&kv.value);
    if is_of_an_older_era(revision(created), era) {
        return Ok(Standing::Outlived { created, owner });
    }
    let era = era.and_then(|era| super::values::era(&era.value)).unwrap_or(0);
    let known = |token| Standing::Leads(Known { created, token, holder, owner });
    Ok(keys::token(era, created).map_or(Standing::Neither, known))
}

/// Whether the key leads in this era, by etcd's word.
pub(super) async fn leads(link: &Link, resource: &Resource, key: &str) -> Result<Option<Known>, Trouble> {
    Ok(match standing(link, resource, key).await? {
        Standing::Leads(known) => Some(known),
        Standing::Outlived { .. } | Standing::Neither => None,
    })
}

/// Whether a candidate of this revision queued up before the era began.
pub(super) fn is_of_an_older_era(created: Revision, era: Option<&KeyValue>) -> bool {
    era.is_some_and(|era| super::values::era(&era.value) != Some(0) && revision(era.mod_revision) > created)
}

/// Has etcd confirm that the key leads, then extends its lease: one that cannot lead is not kept.
pub(super) async fn renew(
    link: Link,
    revoker: Revoker,
    held: Held,
) -> Result<Result<Leader, NotHeld>, Trouble> {
    let Known { token, holder, owner, .. } = match look(&link, &revoker, &held).await? {
        Ok(known) => known,
        Err(not_held) => return Ok(Err(not_held)),
    };
    let extended = link.client.keep_alive(lease_id(held.lease)).await?;
    let ttl = u64::try_from(extended.ttl).ok().filter(|ttl| *ttl > 0).map(Duration::from_secs);
    Ok(ttl.map(|ttl| Leader { holder, token, ttl: Some(ttl), owner }).ok_or(NotHeld::Gone))
}

pub(super) async fn resign(link: Link, revoker: Revoker, held: Held) -> Result<Result<(), NotHeld>, Trouble> {
    let known = match look(&link, &revoker, &held).await? {
        Ok(known) => known,
        Err(not_held) => return Ok(Err(not_held)),
    };
    let key = link.keys.candidate(&held.resource, lease_id(held.lease));
    end(&link, &revoker, (&key, known.created), held.lease, Ended::Resigned).await?;
    Ok(Ok(()))
}

/// The leadership, if it is one and whoever acts on it may. One that was outlived by its era goes.
async fn look(link: &Link, revoker: &Revoker, held: &Held) -> Result<Result<Known, NotHeld>, Trouble> {
    let key = link.keys.candidate(&held.resource, lease_id(held.lease));
    match standing(link, &held.resource, &key).await? {
        Standing::Leads(known) => Ok(known.held_by(&held.actor)),
        Standing::Outlived { created, owner } => {
            if !held.actor.may_act_for(owner.as_deref()) {
                return Ok(Err(NotHeld::Anothers));
            }
            end(link, revoker, (&key, created), held.lease, Ended::Overtaken).await?;
            Ok(Err(NotHeld::Gone))
        }
        Standing::Neither => Ok(Err(NotHeld::Gone)),
    }
}

/// The key goes, and its lease after it.
async fn end(
    link: &Link,
    revoker: &Revoker,
    (key, created): (&str, i64),
    lease: Lease,
    why: Ended,
) -> Result<(), Trouble> {
    let gone = Txn::when([Compare::created_at(key, created)]).then(Delete::key(key));
    link.txn(saying_why(gone, &link.keys, key.as_bytes(), why)).await?;
    revoker.revoke(lease);
    Ok(())
}

pub(super) async fn evict(link: Link, leader: Option<Leader>, head: Head) -> Result<Option<Leader>, Trouble> {
    let gone = Txn::when([Compare::created_at(head.candidate.key.clone(), number(head.created))])
        .then(Delete::key(head.candidate.key.clone()));
    link.txn(saying_why(gone, &link.keys, &head.candidate.key, Ended::Evicted)).await?;
    Ok(leader)
}
