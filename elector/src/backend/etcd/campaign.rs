//! Queueing up for leadership, and knowing for certain that it is one's own.
//!
//! One transaction puts the candidate's key and reads who is first; whoever is first leads, all others wait for
//! [`super::mirror`] to wake them and then ask etcd again whether their key still lives and is the oldest. Where
//! gateways serve, the winner is sealed before it is told ([`super::seal`]). What must stay true: nobody leads by
//! what the watch said alone, and an answer that got lost is read back, never guessed: the transaction that finds
//! its key there reads it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use highgate_etcd::{CallError, Compare, KeyValue, Outcome, Put, Range, Txn, keys};
use tokio::time::sleep;

use super::Core;
use super::audience::Turn;
use super::ground::Ground;
use super::leases::Seat;
use super::queue::era;
use super::seal::{self, seal};
use crate::backend::{BackendError, Candidacy, Grant};
use crate::{Resource, Token};

/// Before etcd is asked again when it and the watch do not agree, or when it does not answer.
const PAUSE: Duration = Duration::from_millis(50);

/// Before a candidate that was overtaken queues up again: somebody may go on raising.
const PAUSE_AFTER_OVERTAKEN: Duration = Duration::from_millis(250);

/// What became of a candidacy.
pub(super) enum Standing {
    Leads(Term),
    Waits,
    /// The key or its lease is gone: to the end of the line, on a lease that lives.
    Gone,
    /// It leads, but the mark has passed it by: to the end of the line.
    Overtaken,
}

/// A candidate that leads, as etcd knew it in one transaction.
pub(super) struct Term {
    pub(super) token: Token,
    pub(super) created: i64,
    /// The lease was extended after this.
    pub(super) since: Instant,
    pub(super) ground: Ground,
}

/// Waits until the candidate leads. Dropping it withdraws the candidacy, by the drop of its seat.
pub(super) async fn campaign(core: Arc<Core>, candidacy: Candidacy) -> Result<Grant, BackendError> {
    core.mirror.start();
    let election = core.keys.election(&candidacy.resource);
    loop {
        let since = Instant::now();
        let mut seat =
            core.leases.sit_down(&election, candidacy.ttl).await.map_err(|error| core.fail(&error))?;
        match contest(&core, &mut seat, &candidacy, since).await? {
            Standing::Leads(Term { token, created, since, .. }) => {
                let Candidacy { resource, holder, .. } = candidacy;
                let grant = Grant {
                    resource,
                    holder,
                    token,
                    lease: format!("{:x}", seat.lease),
                    ttl: seat.ttl,
                    signed_token: None,
                };
                seat.lead(created, since);
                return Ok(grant);
            }
            Standing::Overtaken => {
                drop(seat);
                sleep(PAUSE_AFTER_OVERTAKEN).await;
            }
            Standing::Waits | Standing::Gone => core.leases.close(seat.lease),
        }
    }
}

/// From the end of the line to a leadership that gateways pass, or to the end of this candidacy.
async fn contest(
    core: &Core,
    seat: &mut Seat,
    candidacy: &Candidacy,
    since: Instant,
) -> Result<Standing, BackendError> {
    let mut standing = queue_up(core, seat, candidacy, since).await.map_err(|error| core.fail(&error))?;
    if matches!(standing, Standing::Waits) {
        standing = wait(core, seat, &candidacy.resource).await?;
    }
    match standing {
        Standing::Leads(term) => seal(core, seat, &candidacy.resource, term).await,
        standing => Ok(standing),
    }
}

/// Puts the key. A second run finds the key of the first and reads it.
async fn queue_up(
    core: &Core,
    seat: &mut Seat,
    candidacy: &Candidacy,
    since: Instant,
) -> Result<Standing, CallError> {
    let key = seat.key();
    let put = Put {
        key: key.clone().into(),
        value: candidacy.holder.as_str().into(),
        lease: seat.lease,
        ..Put::default()
    };
    let first = Range::oldest_below(seat.election.as_bytes());
    let mut enter = Txn::when([Compare::created_at(key.as_str(), 0)])
        .then(put)
        .then(first.clone())
        .or_else(Range::key(key.as_str()))
        .or_else(first);
    for question in seal::questions(core, &candidacy.resource) {
        enter = enter.then(question.clone()).or_else(question);
    }
    let answer = match core.client.txn(enter).await {
        Err(CallError::LeaseNotFound) => return Ok(Standing::Gone),
        answer => answer?,
    };
    let created = if answer.succeeded {
        answer.revision()
    } else {
        answer.found(0).first().map_or(0, |kv| kv.create_revision)
    };
    if !seat.enter(created) {
        return Ok(Standing::Gone);
    }
    if answer.found(1).first().map(|kv| kv.create_revision) != Some(created) {
        return Ok(Standing::Waits);
    }
    // The lease may be one that is half run out.
    if !core.leases.keep_alive_since(seat.lease, since).await? {
        return Ok(Standing::Gone);
    }
    leads(core, &answer, 2, created, since)
}

/// Until the candidate leads or its key is gone. While etcd is away the lease decides which.
async fn wait(core: &Core, seat: &Seat, resource: &Resource) -> Result<Standing, BackendError> {
    let created = seat.created.expect("it has queued up");
    loop {
        let turn = core.mirror.turn(&seat.election, &seat.key(), created).await;
        let Ok(turn) = turn else { return Ok(Standing::Gone) };
        match confirm(core, seat, resource, created).await {
            Ok(Standing::Waits) | Err(CallError::Unavailable(_)) => {
                if turn == Turn::Gone {
                    // The watch has told of another etcd, or of what this one was before it was restored.
                    core.mirror.resync();
                }
                sleep(PAUSE).await;
            }
            Ok(standing) => return Ok(standing),
            Err(error) => return Err(core.fail(&error)),
        }
    }
}

/// Asks etcd whether the own key lives and is the oldest, and extends the lease on the way.
pub(super) async fn confirm(
    core: &Core,
    seat: &Seat,
    resource: &Resource,
    created: i64,
) -> Result<Standing, CallError> {
    let (key, since) = (seat.key(), Instant::now());
    let mut is_first = Txn::when(Compare::issued(&core.keys, resource, key.as_str(), created))
        .or_else(Range::key(key.as_str()));
    for question in seal::questions(core, resource) {
        is_first = is_first.then(question);
    }
    let (alive, answer) =
        tokio::join!(core.leases.keep_alive_since(seat.lease, since), core.client.txn(is_first));
    let answer = answer?;
    if alive == Ok(false) {
        // The key may live on a lease that others were to leave for one that is gone, as after a restore: to stay
        // would keep it there for good, and nobody could lead.
        return Ok(Standing::Gone);
    }
    if answer.succeeded && alive? {
        return leads(core, &answer, 0, created, since);
    }
    let lives = answer.succeeded || answer.found(0).first().is_some_and(|kv| kv.create_revision == created);
    Ok(if lives { Standing::Waits } else { Standing::Gone })
}

/// What the token stands on was read from `place` on.
fn leads(
    core: &Core,
    answer: &Outcome,
    place: usize,
    created: i64,
    since: Instant,
) -> Result<Standing, CallError> {
    let mut ground = Ground::read(answer, place)?;
    ground.guarded |= core.gateways.may_forward(&ground.graves);
    let token = keys::token(ground.era, created)
        .ok_or_else(|| CallError::Refused("etcd's revision is no token".to_owned()))?;
    Ok(Standing::Leads(Term { token, created, since, ground }))
}

/// The era, 0 while nobody has bumped it.
pub(super) fn read_era(found: &[KeyValue]) -> Result<u64, CallError> {
    match found.first() {
        None => Ok(0),
        Some(kv) => era(&kv.value).ok_or_else(|| CallError::Refused("the era is not a number".to_owned())),
    }
}
