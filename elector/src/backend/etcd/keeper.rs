//! The rounds that a process makes over its leases, several times a second, without a request if none is due.
//!
//! Keeps leases with waiting candidates alive, takes the keys of leaders that were not renewed, tries again what
//! could not be deleted, and gives up leases that nobody uses. Runs on the backend's own thread, from
//! [`super::EtcdBackend::connect`] to its drop.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::lease::{Due, Lease, Stage};
use super::leases::Leases;
use super::mirror::Mirror;

const ROUND: Duration = Duration::from_millis(200);

/// Never ends.
pub(super) async fn keep(leases: Arc<Leases>, mirror: Arc<Mirror>) {
    let mut rounds = tokio::time::interval(ROUND);
    rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        for (id, due) in all_due(&leases) {
            tokio::spawn(act(Arc::clone(&leases), Arc::clone(&mirror), id, due));
        }
    }
}

fn all_due(leases: &Leases) -> Vec<(i64, Due)> {
    let now = Instant::now();
    let mut pool = leases.pool();
    let due: Vec<(i64, Due)> =
        pool.iter_mut().flat_map(|(id, lease)| lease.due(now).into_iter().map(|due| (*id, due))).collect();
    for (id, _) in due.iter().filter(|(_, due)| matches!(due, Due::Revoke { .. })) {
        pool.remove(id);
    }
    due
}

async fn act(leases: Arc<Leases>, mirror: Arc<Mirror>, id: i64, due: Due) {
    match due {
        // What fails stays marked in the pool, for a later round.
        Due::Remove { election, created } => drop(leases.remove(id, &election, created).await),
        Due::Revoke { carriers } => leases.revoke(&carriers).await,
        Due::KeepAlive => {
            let alive = leases.keep_alive(id).await;
            if alive == Ok(false) {
                // Its keys are gone. The watch has said so, unless this is an etcd that was restored.
                mirror.resync();
                tokio::time::sleep(ROUND * 5).await;
            }
            if let Some(lease) = leases.pool().get_mut(&id) {
                lease.keeping = false;
            }
        }
    }
}

/// At the end of the process's interest: who waits is gone at once, who leads keeps its lease to its end, since
/// its work may not have stopped yet.
pub(super) async fn close(leases: &Leases) {
    let idle: Vec<i64> = {
        let pool = leases.pool();
        let leads = |lease: &Lease| lease.seats.values().any(|stage| matches!(stage, Stage::Leading { .. }));
        pool.values().filter(|lease| !leads(lease)).flat_map(Lease::carriers).collect()
    };
    leases.revoke(&idle).await;
}
