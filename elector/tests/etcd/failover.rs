//! Three nodes, one of which is stopped, killed or cut off: no leadership is lost, and handovers go on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use highgate_elector::backend::etcd::EtcdBackend;
use highgate_elector::backend::{Backend, Grant, RenewError};
use rustix::process::Signal;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::relay::Relay;
use super::server::Cluster;
use super::{campaign, candidacy, connect, eventually, lead, next, renew, within};

const TTL: u64 = 5;

/// Renews as the elector does, and returns the longest time between two renewals that worked.
fn heartbeat(backend: &Arc<EtcdBackend>, grants: Vec<Grant>) -> (oneshot::Sender<()>, JoinHandle<Duration>) {
    let backend = backend.clone();
    let (stop, mut stopped) = oneshot::channel();
    let beating = tokio::spawn(async move {
        let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
        let beat = Duration::from_secs(TTL) / 3;
        while stopped.try_recv() == Err(oneshot::error::TryRecvError::Empty) {
            let sent = Instant::now();
            let answers = tokio::time::timeout(beat, backend.renew(&grants)).await.unwrap_or_default();
            assert!(!answers.iter().any(|answer| matches!(answer, Err(RenewError::Gone))), "{answers:?}");
            if !answers.is_empty() && answers.iter().all(Result::is_ok) {
                longest = longest.max(last.elapsed());
                last = sent;
            }
            tokio::time::sleep_until((sent + beat).into()).await;
        }
        longest
    });
    (stop, beating)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_node_of_three_that_is_stopped_costs_no_leadership() {
    let Some(cluster) = Cluster::start("one_node_of_three_that_is_stopped_costs_no_leadership", 3) else {
        return;
    };
    let backends: Vec<_> = (0..3).map(|_| connect(&cluster.url())).collect();
    let (mut hearts, mut grants) = (Vec::new(), Vec::new());
    for (at, backend) in backends.iter().enumerate() {
        let grant = lead(backend, candidacy(&format!("kept/{at}"), "me", TTL)).await;
        hearts.push(heartbeat(backend, vec![grant.clone()]));
        grants.push(grant);
    }
    for node in &cluster.nodes {
        let role = if node.is_raft_leader() { "the raft leader" } else { "a follower" };
        node.signal(Signal::STOP);
        let began = Instant::now();
        for (at, backend) in backends.iter().enumerate() {
            hand_over(backend, &backends[(at + 1) % 3], &format!("handed/{at}")).await;
        }
        println!("{role} is stopped: three handovers took {:?}", began.elapsed());
        // It sleeps through the whole of the leases that it knows.
        tokio::time::sleep(Duration::from_secs(TTL + 2).saturating_sub(began.elapsed())).await;
        node.signal(Signal::CONT);
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    for grant in &grants {
        let (created, lease) = attached(&cluster, grant);
        assert_eq!(created, grant.token.get(), "it was never created anew");
        assert_ne!(format!("{lease:x}"), grant.lease, "it has left the lease that the stopped node knew");
    }
    cluster.nodes[0].signal(Signal::KILL);
    tokio::time::sleep(Duration::from_secs(4)).await;
    for (stop, heart) in hearts {
        stop.send(()).unwrap();
        let gap = heart.await.expect("nobody was told that it is gone");
        println!("the longest time between two renewals, of {TTL} s: {gap:?}");
        assert!(gap < Duration::from_secs(TTL), "{gap:?}");
    }
}

/// When a leader's key was created and which lease it is on.
fn attached(cluster: &Cluster, grant: &Grant) -> (u64, u64) {
    let key = format!("/test/e/{}/{}", grant.resource.as_str().replace('/', "%2F"), grant.lease);
    let found: serde_json::Value = serde_json::from_str(&cluster.ask(&["get", "-w", "json", &key])).unwrap();
    let number = |name: &str| found["kvs"][0][name].as_u64().unwrap();
    (number("create_revision"), number("lease"))
}

/// One leads, the other waits, the first resigns.
async fn hand_over(from: &Arc<EtcdBackend>, to: &Arc<EtcdBackend>, name: &str) {
    let leading = lead(from, candidacy(name, "from", TTL)).await;
    let waiting = campaign(to, candidacy(name, "to", TTL));
    tokio::time::sleep(Duration::from_millis(300)).await;
    from.resign(&leading).await.expect("two of three nodes are enough");
    let next = within(Duration::from_secs(15), waiting).await.unwrap();
    assert!(next.token > leading.token);
    to.resign(&next).await.expect("two of three nodes are enough");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_candidate_hears_of_its_turn_although_the_watch_missed_it_and_it_was_compacted() {
    let name = "a_candidate_hears_of_its_turn_although_the_watch_missed_it_and_it_was_compacted";
    let Some(cluster) = Cluster::start(name, 1) else { return };
    let relay = Relay::start(cluster.nodes[0].port).await;
    let direct = connect(&cluster.url());
    let relayed = connect(&format!("etcd://127.0.0.1:{}/test", relay.port));
    let leading = lead(&direct, candidacy("r", "direct", 60)).await;
    let waiting = campaign(&relayed, candidacy("r", "relayed", 60));
    eventually("it is in line", || cluster.keys("/test/e/r/").len() == 2).await;

    relay.close();
    direct.resign(&leading).await.unwrap();
    for round in 0..5 {
        cluster.ask(&["put", "/test/e/other/1", &round.to_string()]);
    }
    let answer = cluster.ask(&["get", "-w", "json", "x"]);
    let revision = answer.split("\"revision\":").nth(1).unwrap().split([',', '}']).next().unwrap().to_owned();
    cluster.ask(&["compact", &revision]);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    relay.heal();
    let next = within(Duration::from_secs(15), waiting).await.unwrap();
    assert!(next.token > leading.token);
    renew(&relayed, &next).await.unwrap();
}

/// As behind a Kubernetes Service whose node is gone: one address, and a connection that nobody answers or ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_the_network_lost_costs_a_second_with_one_endpoint() {
    let name = "a_connection_that_the_network_lost_costs_a_second_with_one_endpoint";
    let Some(cluster) = Cluster::start(name, 1) else { return };
    let relay = Relay::start(cluster.nodes[0].port).await;
    let backend = connect(&format!("etcd://127.0.0.1:{}/test", relay.port));
    let grant = lead(&backend, candidacy("r", "me", 60)).await;
    let mut seen = backend.observe(&grant.resource);
    // The picture may be older than the leader at first.
    while next(&mut seen).await.map(|leader| leader.token) != Some(grant.token) {}
    for _ in 0..3 {
        relay.lose_connections();
        let started = Instant::now();
        renew(&backend, &grant).await.expect("it is asked again, on a new connection");
        let took = started.elapsed();
        println!("renewed after {took:?}");
        assert!(took < Duration::from_secs(3), "{took:?}");
    }
    // The watch finds its way, too.
    cluster.ask(&["del", &format!("/test/e/r/{}", grant.lease)]);
    assert_eq!(next(&mut seen).await, None);
}
