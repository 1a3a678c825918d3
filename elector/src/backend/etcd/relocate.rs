//! Moving a lease's keys to a new one, after etcd has elected a new leader.
//!
//! An etcd leader that was stopped for longer than a lease lasts revokes it when it wakes up, although its
//! successor had extended it: etcd 3.6 still does (its check of the own leadership is skipped when a tick came
//! first). A revocation takes the keys with it. But it names the lease that it knew: so after every election the keys
//! are put on a new one, which a put that ignores the value does without changing their create revision, and the
//! old one may be revoked by whoever wants to. Rare, and the only writes that leaderships cost while they last.

use std::sync::Arc;
use std::time::Duration;

use highgate_etcd::{CallError, Compare, Put, Txn};

use super::leases::{Leases, candidate};

/// etcd takes 128 operations in a transaction by default.
const KEYS_PER_MOVE: usize = 100;
const PAUSE: Duration = Duration::from_millis(200);

/// Moves what is on the lease with this name, until that is done or the lease is not used any more.
pub(super) async fn relocate(leases: Arc<Leases>, name: i64) {
    loop {
        let asked = leases.pool().get(&name).map(|lease| lease.asked);
        let Some(asked) = asked else { return };
        if let Ok(granted) = leases.grant(asked).await
            && move_to(&leases, name, granted.id).await
        {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// False: the carrier is gone, or did not answer, and another one is needed.
async fn move_to(leases: &Leases, name: i64, carrier: i64) -> bool {
    let begun = leases.pool().get_mut(&name).map(|lease| (lease.begin_move(carrier), lease.moving_from()));
    let (keys, from) = begun.unwrap_or_default();
    // Who was renewed before this counts on the lease that it leaves: the carrier has to last as long.
    let extended = leases.client().keep_alive(carrier).await;
    if !extended.is_ok_and(|answer| answer.ttl > 0) {
        return false;
    }
    for some in keys.chunks(KEYS_PER_MOVE) {
        loop {
            match move_keys(leases, name, (from, carrier), some).await {
                Ok(()) => break,
                Err(CallError::LeaseNotFound) => return false,
                Err(_) if !leases.pool().contains_key(&name) => return true,
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
    if let Some(lease) = leases.pool().get_mut(&name) {
        lease.end_move();
    }
    true
}

/// Each for itself: one that is gone does not keep the others. Only from where they are now: a request that arrives
/// after a later move must not put them back on a lease that nobody extends any more.
async fn move_keys(
    leases: &Leases,
    name: i64,
    (from, carrier): (i64, i64),
    keys: &[(String, i64)],
) -> Result<(), CallError> {
    let mut all = Txn::default();
    for (election, created) in keys {
        let key = candidate(election, name);
        let put = Put { key: key.clone().into(), lease: carrier, keep_value: true, ..Put::default() };
        let compares = [Compare::created_at(key.as_str(), *created), Compare::on_lease(key, from)];
        all = all.then(Txn::when(compares).then(put));
    }
    leases.client().txn(all).await.map(drop)
}
