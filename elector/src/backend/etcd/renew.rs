//! Renewing many leaderships with few requests: none of them a write.
//!
//! For every lease one keep-alive, which extends it, and for every hundred keys on it one transaction that only
//! compares and reads, which proves by etcd's log that the leaderships were still there after the call began. The
//! keep-alive alone proves nothing: a stopped etcd leader that wakes up answers it, too. What must stay true: only
//! that transaction, or this process that takes the key itself, can say that a leadership is over; and a key whose
//! leadership ended with its era goes, or everybody would wait behind it, its own process included.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use highgate_etcd::{CallError, Compare, Range, Txn, keys};
use tokio::task::JoinSet;

use super::Core;
use super::campaign::read_era;
use super::leases::candidate;
use crate::Token;
use crate::backend::{Grant, RenewError};

/// etcd takes 128 operations in a transaction by default.
const KEYS_PER_CHECK: usize = 100;

/// A leadership to renew: where its answer goes, and what it is.
#[derive(Clone)]
struct Held {
    place: usize,
    election: String,
    token: Token,
}

/// What etcd says of a leadership.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Leads,
    /// Its key lives, but its token is of an era before: nothing passes it any more.
    Outlived,
    Gone,
}

/// What one request found out about the leaderships that it was about.
type Answers = Vec<(usize, Result<(), RenewError>)>;

pub(super) async fn renew(core: Arc<Core>, grants: Vec<Grant>) -> Vec<Result<(), RenewError>> {
    let mut by_lease: BTreeMap<i64, Vec<Held>> = BTreeMap::new();
    // A lease that is no number was never one of etcd's.
    let mut results: Vec<Result<(), RenewError>> = grants.iter().map(|_| Err(RenewError::Gone)).collect();
    for (place, grant) in grants.iter().enumerate() {
        if let Ok(lease) = i64::from_str_radix(&grant.lease, 16) {
            let held = Held { place, election: core.keys.election(&grant.resource), token: grant.token };
            by_lease.entry(lease).or_default().push(held);
        }
    }
    let mut leases = JoinSet::new();
    for (lease, held) in by_lease {
        leases.spawn(renew_lease(Arc::clone(&core), lease, held));
    }
    for (place, result) in leases.join_all().await.into_iter().flatten() {
        results[place] = result;
    }
    results
}

async fn renew_lease(core: Arc<Core>, lease: i64, held: Vec<Held>) -> Answers {
    let since = Instant::now();
    let mut checks = JoinSet::new();
    for some in held.chunks(KEYS_PER_CHECK) {
        let (core, some) = (Arc::clone(&core), some.to_vec());
        checks.spawn(async move {
            let found = check(&core, lease, &some).await;
            (some, found)
        });
    }
    let (alive, checked) = tokio::join!(core.leases.keep_alive(lease), checks.join_all());
    let mut answers = Vec::with_capacity(held.len());
    for (some, found) in checked {
        for held in some {
            let mut result = judge(&core, &alive, &found, &held);
            if found.as_ref().is_ok_and(|found| found.get(&held.place) == Some(&Found::Outlived)) {
                core.leases.leave(lease, &held.election, Some(keys::revision(held.token)));
            }
            // The keeper takes the key of who was granted it longer ago than its ttl, be it renewed meanwhile.
            if result.is_ok() && !core.leases.renewed(lease, &held.election, since) {
                result = Err(RenewError::Gone);
            }
            answers.push((held.place, result));
        }
    }
    answers
}

fn judge(
    core: &Core,
    alive: &Result<bool, CallError>,
    found: &Result<HashMap<usize, Found>, CallError>,
    held: &Held,
) -> Result<(), RenewError> {
    match (found, alive) {
        (Err(error), _) => Err(RenewError::Failed(core.fail(error))),
        (Ok(found), _) if found.get(&held.place) != Some(&Found::Leads) => Err(RenewError::Gone),
        (Ok(_), Ok(true)) => Ok(()),
        // The key lives, so the lease does: a member of the cluster that is behind has answered.
        (Ok(_), Ok(false)) => Err(RenewError::Failed(core.fail(&CallError::LeaseNotFound))),
        (Ok(_), Err(error)) => Err(RenewError::Failed(core.fail(error))),
    }
}

/// What became of these. One read with etcd's consent, of up to a hundred keys.
async fn check(core: &Core, lease: i64, held: &[Held]) -> Result<HashMap<usize, Found>, CallError> {
    let key = |held: &Held| candidate(&held.election, lease);
    let all_live: Vec<Compare> =
        held.iter().map(|held| Compare::created_at(key(held), keys::revision(held.token))).collect();
    // A transaction without any read would be answered from the node's own memory, however old.
    let era = Range::key(core.keys.era());
    let mut request = Txn::when(all_live).then(era.clone()).or_else(era);
    for held in held {
        request = request.or_else(Range { keys_only: true, ..Range::key(key(held)) });
    }
    let answer = core.client.txn(request).await?;
    let era = read_era(answer.found(0))?;
    let created = |at: usize| answer.found(at + 1).first().map(|kv| kv.create_revision);
    let found = |(at, held): (usize, &Held)| {
        let lives = answer.succeeded || created(at) == Some(keys::revision(held.token));
        let found = match lives {
            true if held.token.era() == era => Found::Leads,
            true => Found::Outlived,
            false => Found::Gone,
        };
        (held.place, found)
    };
    Ok(held.iter().enumerate().map(found).collect())
}
