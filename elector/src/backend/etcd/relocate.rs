//! Moving a lease's keys to a new one, after etcd has elected a new leader.
//!
//! An etcd leader that was stopped for longer than a lease lasts revokes it when it wakes up, although its
//! successor had extended it: etcd 3.6 still does (its check of the own leadership is skipped when a tick came
//! first). A revocation takes the keys with it. But it names the lease that it knew: so after every election the keys
//! are put on a new one, which a put that ignores the value does without changing their create revision, and the
//! old one may be revoked by whoever wants to. Rare, and the only writes that leaderships cost while they last.

use std::sync::Arc;
use std::time::Duration;

use super::client::CallError;
use super::leases::{Leases, candidate};
use super::wire::{Compare, PutRequest, TxnRequest};

/// etcd takes 128 operations in a transaction by default.
const KEYS_PER_MOVE: usize = 100;
const PAUSE: Duration = Duration::from_millis(200);

/// Moves what is on the lease with this name, until that is done or the lease is not used any more.
pub(super) async fn relocate(leases: Arc<Leases>, name: i64) {
    let Some(asked) = leases.pool().get(&name).map(|lease| lease.asked) else { return };
    let carrier = loop {
        match leases.grant(asked).await {
            Ok(granted) => break granted.id,
            Err(_) if leases.pool().contains_key(&name) => tokio::time::sleep(PAUSE).await,
            Err(_) => return,
        }
    };
    let keys = leases.pool().get_mut(&name).map(|lease| lease.begin_move(carrier)).unwrap_or_default();
    for some in keys.chunks(KEYS_PER_MOVE) {
        while move_keys(&leases, name, carrier, some).await.is_err() {
            if !leases.pool().contains_key(&name) {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
    if let Some(lease) = leases.pool().get_mut(&name) {
        lease.end_move();
    }
}

/// Each for itself: one that is gone does not keep the others.
async fn move_keys(
    leases: &Leases,
    name: i64,
    carrier: i64,
    keys: &[(String, i64)],
) -> Result<(), CallError> {
    let mut all = TxnRequest::default();
    for (election, created) in keys {
        let key = candidate(election, name);
        let put = PutRequest {
            key: key.clone().into(),
            lease: carrier,
            ignore_value: true,
            ..PutRequest::default()
        };
        all = all.then(TxnRequest::when([Compare::created_at(key, *created)]).then(put));
    }
    leases.client().call(all).await.map(drop)
}
