//! The etcd backend against real etcd servers. Without an etcd binary every test says that it was skipped.
#![cfg(feature = "etcd")]
#![allow(clippy::unwrap_used)]

#[path = "etcd/access.rs"]
mod access;
#[path = "etcd/by_hand.rs"]
mod by_hand;
#[path = "etcd/certificates.rs"]
mod certificates;
#[path = "etcd/crowd.rs"]
mod crowd;
#[path = "etcd/elections.rs"]
mod elections;
#[path = "etcd/eras.rs"]
mod eras;
#[path = "etcd/evicted.rs"]
mod evicted;
#[path = "etcd/failover.rs"]
mod failover;
#[path = "etcd/logins.rs"]
mod logins;
#[path = "etcd/lost_answers.rs"]
mod lost_answers;
#[path = "etcd/relay.rs"]
mod relay;
#[path = "etcd/restored.rs"]
mod restored;
#[path = "etcd/sealed.rs"]
mod sealed;
#[path = "etcd/sealer.rs"]
mod sealer;
#[path = "etcd/server.rs"]
#[allow(dead_code, reason = "shared with the conformance suite, which restarts nodes")]
mod server;

use std::sync::Arc;
use std::time::{Duration, Instant};

use highgate_elector::Resource;
use highgate_elector::backend::etcd::EtcdBackend;
use highgate_elector::backend::{Backend, BackendError, Candidacy, Grant, Leader, Observation, RenewError};
use tokio::task::JoinHandle;
use tokio_stream::StreamExt;

fn connect(url: &str) -> Arc<EtcdBackend> {
    Arc::new(EtcdBackend::connect(url).expect("a good URL"))
}

fn resource(name: &str) -> Resource {
    Resource::parse(name).unwrap()
}

fn candidacy(name: &str, holder: &str, ttl: u64) -> Candidacy {
    Candidacy { resource: resource(name), holder: holder.to_owned(), ttl: Duration::from_secs(ttl) }
}

/// A campaign that goes on by itself, and begins anew when etcd does not answer, as the elector does.
fn campaign(backend: &Arc<EtcdBackend>, candidacy: Candidacy) -> JoinHandle<Grant> {
    let backend = backend.clone();
    tokio::spawn(async move {
        loop {
            match backend.campaign(&candidacy).await {
                Err(BackendError::Unavailable { .. }) => tokio::time::sleep(Duration::from_millis(100)).await,
                result => return result.expect("etcd is there"),
            }
        }
    })
}

async fn lead(backend: &Arc<EtcdBackend>, candidacy: Candidacy) -> Grant {
    within(Duration::from_secs(20), campaign(backend, candidacy)).await.unwrap()
}

async fn renew(backend: &EtcdBackend, grant: &Grant) -> Result<(), RenewError> {
    backend.renew(std::slice::from_ref(grant)).await.remove(0).map(|_renewed| ())
}

async fn next(observation: &mut Observation) -> Option<Leader> {
    let seen = within(Duration::from_secs(20), observation.next()).await;
    seen.expect("it never ends").expect("etcd is there")
}

async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(limit, work).await.expect("in time")
}

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(20), "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
