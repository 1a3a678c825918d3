//! Many candidates, many elections: how much etcd has to do, counted by etcd.

use std::collections::HashSet;
use std::time::Duration;

use highgate_elector::backend::{Backend, Grant};

use super::sealer::Sealer;
use super::server::Cluster;
use super::{campaign, candidacy, connect, eventually, lead, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_handover_among_five_hundred_wakes_one() {
    let Some(cluster) = Cluster::start("a_handover_among_five_hundred_wakes_one", 1) else { return };
    let processes: Vec<_> = (0..5).map(|_| connect(&cluster.url())).collect();
    let mut leading = lead(&processes[0], candidacy("r", "first", 600)).await;
    let mut waiting = tokio::task::JoinSet::new();
    for at in 0..500 {
        let one = campaign(&processes[at % 5], candidacy("r", &at.to_string(), 600));
        waiting.spawn(async move { one.await.unwrap() });
    }
    eventually("all are in line", || cluster.keys("/test/e/r/").len() == 501).await;

    let before = cluster.requests();
    for _ in 0..20 {
        processes[0].resign(&leading).await.unwrap();
        let next = within(Duration::from_secs(10), waiting.join_next()).await.unwrap().unwrap();
        assert!(next.token > leading.token);
        leading = next;
    }
    let requests = cluster.requests() - before;
    println!("20 handovers among 500 candidates: {requests} requests to etcd, two are the least");
    assert!(requests <= 20 * 3, "{requests} requests");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sealed_handover_among_five_hundred_wakes_one() {
    let Some(cluster) = Cluster::start("a_sealed_handover_among_five_hundred_wakes_one", 1) else { return };
    let sealer = Sealer::start(&cluster, Duration::ZERO).await;
    let processes: Vec<_> = (0..5).map(|_| connect(&cluster.url())).collect();
    let mut leading = lead(&processes[0], candidacy("r", "first", 600)).await;
    let mut waiting = tokio::task::JoinSet::new();
    for at in 0..500 {
        let one = campaign(&processes[at % 5], candidacy("r", &at.to_string(), 600));
        waiting.spawn(async move { one.await.unwrap() });
    }
    eventually("all are in line", || cluster.keys("/test/e/r/").len() == 501).await;

    let (before, mut took) = (cluster.requests(), Vec::new());
    for _ in 0..20 {
        let started = std::time::Instant::now();
        processes[0].resign(&leading).await.unwrap();
        leading = within(Duration::from_secs(10), waiting.join_next()).await.unwrap().unwrap();
        took.push(started.elapsed());
        assert!(sealer.is_open("r", leading.token).await);
    }
    // Without this test's own looks.
    let requests = cluster.requests() - before - 20;
    took.sort();
    println!("20 sealed handovers among 500: {requests} requests, five are the least; p50 {:?}", took[10]);
    // Resign, confirm, raise, the gateways' seal, confirm.
    assert!(requests <= 20 * 6, "{requests} requests");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_winners_that_wait_for_the_gateways_wait_together() {
    let name = "a_thousand_winners_that_wait_for_the_gateways_wait_together";
    let Some(cluster) = Cluster::start(name, 1) else { return };
    let mut sealer = Sealer::idle(&cluster).await;
    let backend = connect(&cluster.url());
    let campaigns: Vec<_> =
        (0..1000).map(|at| campaign(&backend, candidacy(&format!("r/{at}"), "me", 60))).collect();
    eventually("all have raised", || cluster.keys("/test/f/").len() == 1000).await;
    // A raise that is answered late is followed by nothing but the wait.
    let (before, started) = (cluster.requests(), std::time::Instant::now());
    tokio::time::sleep(Duration::from_secs(4)).await;
    let (requests, waited) = (cluster.requests() - before, started.elapsed());
    println!("1000 winners that wait: {requests} requests in {waited:?}");
    assert!(requests <= 2 * waited.as_secs() + 2, "{requests} requests");
    assert!(campaigns.iter().all(|campaign| !campaign.is_finished()));

    let started = std::time::Instant::now();
    sealer.open_after(Duration::ZERO).await;
    for campaign in campaigns {
        within(Duration::from_secs(30), campaign).await.unwrap();
    }
    println!("and lead {:?} after the gateways begin to open", started.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_elections_are_renewed_without_a_write() {
    let Some(cluster) = Cluster::start("a_thousand_elections_are_renewed_without_a_write", 1) else { return };
    let backend = connect(&cluster.url());
    let campaigns: Vec<_> =
        (0..1000).map(|at| campaign(&backend, candidacy(&format!("r/{at}"), "me", 60))).collect();
    let mut grants: Vec<Grant> = Vec::new();
    for campaign in campaigns {
        grants.push(within(Duration::from_secs(30), campaign).await.unwrap());
    }
    let leases: HashSet<&str> = grants.iter().map(|grant| grant.lease.as_str()).collect();
    assert!(leases.len() <= 2, "{} leases", leases.len());

    let writes = || cluster.counter("etcd_server_proposals_committed_total", &[]);
    let streams = || cluster.counter("grpc_server_started_total", &["LeaseKeepAlive"]);
    let before = (writes(), cluster.requests(), streams());
    let started = std::time::Instant::now();
    for _ in 0..10 {
        assert!(backend.renew(&grants).await.iter().all(Result::is_ok));
    }
    let took = started.elapsed() / 10;
    let spent = (writes() - before.0, cluster.requests() - before.1, streams() - before.2);
    println!(
        "10 heartbeats of 1000 elections on {} lease(s): {} writes, {} reads, {} keep-alives; {took:?} each",
        leases.len(),
        spent.0,
        spent.1,
        spent.2
    );
    assert!(spent.0 <= 10 * leases.len() as u64, "at most one write per lease and heartbeat");
    assert!(spent.2 <= 10 * leases.len() as u64 + 2, "a lease is kept alive once per heartbeat");
}
