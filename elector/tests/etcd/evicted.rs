//! A gateway that was evicted may still forward: a winner waits for it, even where no other gateway serves.

use std::time::{Duration, Instant};

use highgate_elector::backend::Backend;
use highgate_etcd::fence::{Fence, TombstoneValue};

use super::sealer::Sealer;
use super::server::Cluster;
use super::{campaign, candidacy, connect, eventually, lead, within};

const LIMIT: Duration = Duration::from_secs(20);
const VALIDITY: Duration = Duration::from_secs(2);
const LOCK_DELAY: Duration = Duration::from_secs(1);

/// A member becomes a tombstone: its peer, which evicted it, has left.
async fn is_evicted(sealer: &Sealer, name: &str) {
    let tombstone = TombstoneValue {
        created: 1,
        watermark: 1,
        draining: Vec::new(),
        validity: VALIDITY,
        lock_delay: LOCK_DELAY,
    };
    sealer.bury(name, &tombstone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_winner_waits_for_a_gateway_that_was_evicted_by_one_that_has_left() {
    let name = "a_winner_waits_for_a_gateway_that_was_evicted_by_one_that_has_left";
    let Some(cluster) = Cluster::start(name, 1) else { return };
    let sealer = Sealer::idle(&cluster).await;
    sealer.set("r", Fence { token: 1, ..Fence::default() }).await;
    sealer.leave().await;
    let began = Instant::now();
    is_evicted(&sealer, "frozen").await;
    let backend = connect(&cluster.url());
    let waiting = campaign(&backend, candidacy("r", "me", 10));
    let raised = sealer.mark_when("r", |mark| mark.raised).await;
    assert!(!waiting.is_finished(), "the evicted one may still forward");
    let grant = within(LIMIT, waiting).await.unwrap();
    let took = began.elapsed();
    println!("eviction to the grant: {took:?}");
    assert!(took >= VALIDITY + LOCK_DELAY, "{took:?}");
    assert_eq!(grant.token.get(), raised.token);
    // A gateway that starts now shuts out the leader before.
    assert_eq!(sealer.mark("r").await, Some(raised));

    // It was waited for once, by all elections of the process.
    let began = Instant::now();
    lead(&backend, candidacy("s", "me", 10)).await;
    assert!(began.elapsed() < VALIDITY, "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_winner_that_waits_for_an_evicted_gateway_is_told_when_another_one_opens_its_mark() {
    let name = "a_winner_that_waits_for_an_evicted_gateway_is_told_when_another_one_opens_its_mark";
    let Some(cluster) = Cluster::start(name, 1) else { return };
    let mut sealer = Sealer::idle(&cluster).await;
    sealer.leave().await;
    let forever = TombstoneValue {
        created: 1,
        watermark: 1,
        draining: Vec::new(),
        validity: VALIDITY,
        lock_delay: Duration::from_secs(3600),
    };
    sealer.bury("frozen", &forever).await;
    let backend = connect(&cluster.url());
    let waiting = campaign(&backend, candidacy("r", "me", 3));
    let raised = sealer.mark_when("r", |mark| mark.raised).await;
    sealer.open_after(Duration::ZERO).await;
    let grant = within(LIMIT, waiting).await.unwrap();
    assert_eq!(grant.token.get(), raised.token);
    assert!(sealer.is_open("r", grant.token).await);
    backend.resign(&grant).await.unwrap();
    eventually("it has left", || cluster.keys("/test/e/r/").is_empty()).await;
}
