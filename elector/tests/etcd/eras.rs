//! An era ends while somebody leads: its token passes nothing any more, and its key is in nobody's way.

use std::time::Duration;

use highgate_elector::backend::{Backend, OnceError, OnceStep, RenewError};
use highgate_etcd::url::EtcdUrl;
use highgate_etcd::{Client, Range};
use tokio::task::JoinSet;

use super::server::Cluster;
use super::{campaign, candidacy, connect, eventually, lead, renew, within};

/// Longer than the test takes: nothing runs out by itself.
const TTL: u64 = 90;
const SOON: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_era_has_ended_does_not_wait_behind_its_own_key() {
    let name = "a_leader_whose_era_has_ended_does_not_wait_behind_its_own_key";
    let Some(cluster) = Cluster::start(name, 1) else { return };
    let backend = connect(&cluster.url());
    let first = lead(&backend, candidacy("r", "me", TTL)).await;
    cluster.ask(&["put", "/test/era", "1"]);
    assert!(matches!(renew(&backend, &first).await, Err(RenewError::Gone)), "its token is stale");
    let second = within(SOON, campaign(&backend, candidacy("r", "me", TTL))).await.unwrap();
    assert_eq!(second.token.era(), 1);
    assert!(second.token.value() > first.token.value(), "it has queued up anew");
    renew(&backend, &second).await.expect("it leads");
    eventually("its old key is gone", || cluster.keys("/test/e/r/").len() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_in_line_leads_when_a_leader_has_heard_that_its_era_has_ended() {
    let name = "the_next_in_line_leads_when_a_leader_has_heard_that_its_era_has_ended";
    let Some(cluster) = Cluster::start(name, 1) else { return };
    let (one, other) = (connect(&cluster.url()), connect(&cluster.url()));
    let first = lead(&one, candidacy("r", "one", TTL)).await;
    let waiting = campaign(&other, candidacy("r", "other", TTL));
    eventually("it is in line", || cluster.keys("/test/e/r/").len() == 2).await;
    cluster.ask(&["put", "/test/era", "1"]);
    assert!(matches!(renew(&one, &first).await, Err(RenewError::Gone)), "its token is stale");
    let next = within(SOON, waiting).await.unwrap();
    assert_eq!(next.token.era(), 1);
    renew(&other, &next).await.expect("it leads");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_era_has_ended_completes_nothing() {
    let Some(cluster) = Cluster::start("a_leader_whose_era_has_ended_completes_nothing", 1) else { return };
    let backend = connect(&cluster.url());
    let grant = lead(&backend, candidacy("r", "me", TTL)).await;
    backend.once(&grant, "daily", OnceStep::Begin).await.unwrap();
    cluster.ask(&["put", "/test/era", "1"]);
    let deposed = backend.once(&grant, "daily", OnceStep::Complete).await;
    assert!(matches!(deposed, Err(OnceError::Deposed)), "{deposed:?}");
    let entry = cluster.ask(&["get", "--print-value-only", "/test/o/r/daily"]);
    assert!(entry.contains("running"), "{entry}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_of_a_run_once_the_era_of_its_leader_has_ended() {
    const STEPS: usize = 400;
    let name = "nothing_is_written_of_a_run_once_the_era_of_its_leader_has_ended";
    let Some(cluster) = Cluster::start(name, 1) else { return };
    let backend = connect(&cluster.url());
    let etcd = Client::open(&EtcdUrl::parse(&cluster.url()).unwrap()).unwrap();
    for era in 1..=3 {
        let resource = format!("r{era}");
        let grant = lead(&backend, candidacy(&resource, "me", TTL)).await;
        // Some have read the ledger and not written yet when the era ends.
        let mut steps = JoinSet::new();
        for step in 0..STEPS {
            let (backend, grant) = (backend.clone(), grant.clone());
            steps.spawn(async move { backend.once(&grant, &step.to_string(), OnceStep::Begin).await });
        }
        let first = steps.join_next().await.expect("there are many").unwrap();
        first.expect("the era has not ended");
        cluster.ask(&["put", "/test/era", &era.to_string()]);
        let deposed = steps.join_all().await.into_iter().filter(Result::is_err).count();
        let era_began = etcd.range(Range::key("/test/era")).await.unwrap().kvs[0].mod_revision;
        let written = etcd.range(Range::below(format!("/test/o/{resource}/"))).await.unwrap().kvs;
        println!("{} of {STEPS} were taken, {deposed} came too late", written.len());
        let late = written.iter().filter(|kv| kv.mod_revision > era_began).count();
        assert_eq!(late, 0, "of {} were written in an era that their leader does not lead in", written.len());
    }
}
