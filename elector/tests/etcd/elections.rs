//! One node, a few candidates: order, handover, loss, the ledger.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use highgate_elector::backend::{Backend, OnceError, OnceState, OnceStep, RenewError};
use rustix::process::{Pid, Signal, kill_process};

use super::server::Cluster;
use super::{campaign, candidacy, connect, eventually, lead, next, renew, resource, within};

/// `etcdctl elect`, which prints its key and name when it leads and resigns at SIGINT.
struct Foreign(Child);

impl Foreign {
    fn elect(cluster: &Cluster, election: &str, name: &str) -> Self {
        let mut command = cluster.ctl(&["elect", election, name]);
        Self(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Blocks until it leads; its key. Both lines are read: it would die of a closed pipe, without resigning.
    fn leads(&mut self) -> String {
        let lines = BufReader::new(self.0.stdout.take().unwrap()).lines();
        lines.take(2).map(Result::unwrap).collect::<Vec<_>>().swap_remove(0)
    }

    fn resign(mut self) {
        kill_process(Pid::from_raw(self.0.id().try_into().unwrap()).unwrap(), Signal::INT).unwrap();
        self.0.wait().unwrap();
    }
}

/// What blocks, beside the test.
async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || tell.send(work()));
    told.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_elect_and_ours_queue_behind_one_another() {
    let Some(cluster) = Cluster::start("etcdctl_elect_and_ours_queue_behind_one_another", 1) else { return };
    let election = "/test/e/ledger%2Facct-7";
    let ours = connect(&cluster.url());
    let mut seen = ours.observe(&resource("ledger/acct-7"));
    assert_eq!(next(&mut seen).await, None);

    let first = lead(&ours, candidacy("ledger/acct-7", "ours", 10)).await;
    let mut foreign = Foreign::elect(&cluster, election, "theirs");
    eventually("theirs is in line", || cluster.keys(election).len() == 2).await;
    let third = campaign(&ours, candidacy("ledger/acct-7", "ours again", 10));
    eventually("ours is behind it", || cluster.keys(election).len() == 3).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!third.is_finished());

    ours.resign(&first).await.unwrap();
    let (foreign, key) = on_thread(move || {
        let key = foreign.leads();
        (foreign, key)
    })
    .await;
    assert!(key.starts_with(election), "{key}");
    assert!(!third.is_finished(), "theirs is before ours");
    on_thread(move || foreign.resign()).await;
    let third = within(Duration::from_secs(10), third).await.unwrap();
    renew(&ours, &third).await.expect("it leads");

    let holders = [next(&mut seen).await, next(&mut seen).await, next(&mut seen).await].map(Option::unwrap);
    assert_eq!(holders.clone().map(|leader| leader.holder), ["ours", "theirs", "ours again"]);
    assert!(holders[0].token < holders[1].token && holders[1].token < holders[2].token);
    assert_eq!((holders[0].token, holders[2].token), (first.token, third.token));
}

#[tokio::test(flavor = "multi_thread")]
async fn resigning_hands_over_at_once_with_a_higher_token() {
    let Some(cluster) = Cluster::start("resigning_hands_over_at_once_with_a_higher_token", 1) else { return };
    let sides = [connect(&cluster.url()), connect(&cluster.url())];
    let mut leading = lead(&sides[0], candidacy("r", "0", 10)).await;
    let mut took = Vec::new();
    for turn in 1..=100 {
        let waiting = campaign(&sides[turn % 2], candidacy("r", &turn.to_string(), 10));
        eventually("it is in line", || cluster.requests() > 0 && cluster.keys("/test/e/r/").len() == 2).await;
        let started = Instant::now();
        sides[(turn + 1) % 2].resign(&leading).await.unwrap();
        let next = within(Duration::from_secs(10), waiting).await.unwrap();
        took.push(started.elapsed());
        assert!(next.token > leading.token);
        assert!(matches!(renew(&sides[(turn + 1) % 2], &leading).await, Err(RenewError::Gone)));
        leading = next;
    }
    took.sort();
    println!("resign to the next grant: p50 {:?}, p99 {:?}, max {:?}", took[50], took[98], took[99]);
    assert!(took[50] < Duration::from_millis(200), "no ttl was waited for");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_vanishes_is_followed_when_its_lease_ends() {
    let Some(cluster) = Cluster::start("a_leader_that_vanishes_is_followed_when_its_lease_ends", 1) else {
        return;
    };
    let (dying, living) = (connect(&cluster.url()), connect(&cluster.url()));
    let lost = lead(&dying, candidacy("r", "dying", 2)).await;
    let waiting = campaign(&living, candidacy("r", "living", 2));
    eventually("it is in line", || cluster.keys("/test/e/r/").len() == 2).await;
    renew(&dying, &lost).await.unwrap();
    let started = Instant::now();
    drop(dying);
    let next = within(Duration::from_secs(20), waiting).await.unwrap();
    let took = started.elapsed();
    println!("crash to the next grant: {took:?} with a ttl of {:?}", lost.ttl);
    assert!(next.token > lost.token);
    assert!(took > Duration::from_millis(1500), "the work of the old leader may go on for its ttl: {took:?}");
    assert!(took < lost.ttl + Duration::from_secs(3), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leadership_that_is_not_renewed_ends_although_its_lease_is_shared() {
    let name = "a_leadership_that_is_not_renewed_ends_although_its_lease_is_shared";
    let Some(cluster) = Cluster::start(name, 1) else { return };
    let backend = connect(&cluster.url());
    let stuck = lead(&backend, candidacy("stuck", "me", 2)).await;
    let alive = lead(&backend, candidacy("alive", "me", 2)).await;
    assert_eq!(stuck.lease, alive.lease);
    let started = Instant::now();
    while !cluster.keys("/test/e/stuck/").is_empty() {
        renew(&backend, &alive).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(started.elapsed() < Duration::from_secs(10));
    }
    assert!(started.elapsed() >= stuck.ttl - Duration::from_millis(500), "{:?}", started.elapsed());
    let answers = backend.renew(&[alive.clone(), stuck.clone()]).await;
    assert!(answers[0].is_ok() && matches!(answers[1], Err(RenewError::Gone)), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_campaign_that_is_dropped_leaves_the_line() {
    let Some(cluster) = Cluster::start("a_campaign_that_is_dropped_leaves_the_line", 1) else { return };
    let backend = connect(&cluster.url());
    let first = lead(&backend, candidacy("r", "first", 10)).await;
    let dropped = campaign(&backend, candidacy("r", "dropped", 10));
    eventually("it is in line", || cluster.keys("/test/e/r/").len() == 2).await;
    let third = campaign(&backend, candidacy("r", "third", 10));
    eventually("all are in line", || cluster.keys("/test/e/r/").len() == 3).await;
    dropped.abort();
    eventually("it has left", || cluster.keys("/test/e/r/").len() == 2).await;
    backend.resign(&first).await.unwrap();
    assert_eq!(within(Duration::from_secs(10), third).await.unwrap().holder, "third");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_candidate_queues_up_again_and_an_evicted_leader_is_told() {
    let name = "an_evicted_candidate_queues_up_again_and_an_evicted_leader_is_told";
    let Some(cluster) = Cluster::start(name, 1) else { return };
    let backend = connect(&cluster.url());
    let first = lead(&backend, candidacy("r", "first", 10)).await;
    let waiting = campaign(&backend, candidacy("r", "second", 10));
    eventually("it is in line", || cluster.keys("/test/e/r/").len() == 2).await;
    let leader = format!("/test/e/r/{}", first.lease);
    let waits = cluster.keys("/test/e/r/").into_iter().find(|key| *key != leader).unwrap();
    cluster.ask(&["del", &waits]);
    eventually("it is in line again", || cluster.keys("/test/e/r/").len() == 2).await;
    cluster.ask(&["del", &leader]);
    assert!(matches!(renew(&backend, &first).await, Err(RenewError::Gone)));
    assert!(within(Duration::from_secs(10), waiting).await.unwrap().token > first.token);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_listens_only_to_the_leader() {
    let Some(cluster) = Cluster::start("the_ledger_listens_only_to_the_leader", 1) else { return };
    let backend = connect(&cluster.url());
    let old = lead(&backend, candidacy("jobs", "old", 10)).await;
    assert_eq!(backend.once(&old, "2026/11/16", OnceStep::Begin).await.unwrap(), OnceState::Running);
    backend.resign(&old).await.unwrap();
    for step in [OnceStep::Begin, OnceStep::Complete] {
        assert!(matches!(backend.once(&old, "2026/11/16", step).await, Err(OnceError::Deposed)));
    }
    let new = lead(&backend, candidacy("jobs", "new", 10)).await;
    assert_eq!(backend.once(&new, "2026/11/16", OnceStep::Begin).await.unwrap(), OnceState::Running);
    let completed = backend.once(&new, "2026/11/16", OnceStep::Complete).await.unwrap();
    let OnceState::Completed { ref holder, token, at } = completed else { panic!("{completed:?}") };
    assert_eq!((holder.as_str(), token), ("new", new.token));
    assert!(at > std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000), "{at:?}");
    for step in [OnceStep::Begin, OnceStep::Complete] {
        assert_eq!(backend.once(&new, "2026/11/16", step).await.unwrap(), completed);
    }
    assert_eq!(cluster.keys("/test/o/"), ["/test/o/jobs/2026%2F11%2F16"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_carry_the_era_and_a_new_era_ends_leaderships() {
    let Some(cluster) = Cluster::start("tokens_carry_the_era_and_a_new_era_ends_leaderships", 1) else {
        return;
    };
    let backend = connect(&cluster.url());
    cluster.ask(&["put", "/test/era", "3"]);
    let old = lead(&backend, candidacy("r", "me", 10)).await;
    assert_eq!(old.token.era(), 3);
    cluster.ask(&["put", "/test/era", "4"]);
    assert!(matches!(renew(&backend, &old).await, Err(RenewError::Gone)));
    assert!(matches!(backend.once(&old, "k", OnceStep::Begin).await, Err(OnceError::Deposed)));
    backend.resign(&old).await.unwrap();
    assert_eq!(lead(&backend, candidacy("r", "me", 10)).await.token.era(), 4);
}
