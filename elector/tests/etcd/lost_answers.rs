//! Requests that etcd ran although its answer got lost.

use std::time::Duration;

use highgate_elector::backend::Backend;

use super::relay::Relay;
use super::server::Cluster;
use super::{campaign, candidacy, connect, eventually, lead, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_candidacy_whose_answer_got_lost_is_found_and_not_entered_twice() {
    let name = "a_candidacy_whose_answer_got_lost_is_found_and_not_entered_twice";
    let Some(cluster) = Cluster::start(name, 1) else { return };
    let relay = Relay::start(cluster.nodes[0].port).await;
    let backend = connect(&format!("etcd://127.0.0.1:{}/test", relay.port));
    // So that there is a lease, and only the candidacy itself is at stake.
    lead(&backend, candidacy("other", "me", 60)).await;

    relay.swallow_answers();
    let campaigning = campaign(&backend, candidacy("r", "me", 60));
    eventually("etcd has run it", || cluster.keys("/test/e/r/").len() == 1).await;
    relay.heal();
    let grant = within(Duration::from_secs(15), campaigning).await.unwrap();
    let key = format!("/test/e/r/{}", grant.lease);
    assert_eq!(cluster.keys("/test/e/r/"), [key.as_str()]);
    let found = cluster.ask(&["get", "-w", "json", &key]);
    assert!(found.contains(&format!("\"create_revision\":{},", grant.token)), "{found}");
    assert!(found.contains("\"version\":1,"), "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_candidacy_that_is_dropped_before_its_answer_came_leaves_nothing_behind() {
    let name = "a_candidacy_that_is_dropped_before_its_answer_came_leaves_nothing_behind";
    let Some(cluster) = Cluster::start(name, 1) else { return };
    let relay = Relay::start(cluster.nodes[0].port).await;
    let backend = connect(&format!("etcd://127.0.0.1:{}/test", relay.port));
    let kept = lead(&backend, candidacy("other", "me", 60)).await;

    relay.swallow_answers();
    let campaigning = campaign(&backend, candidacy("r", "me", 60));
    eventually("etcd has run it", || cluster.keys("/test/e/r/").len() == 1).await;
    campaigning.abort();
    relay.heal();
    eventually("it is gone", || cluster.keys("/test/e/r/").is_empty()).await;
    let next = lead(&backend, candidacy("r", "me", 60)).await;
    assert!(backend.renew(&[kept, next]).await.iter().all(Result::is_ok));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_appears_on_our_lease_with_nobody_behind_it_is_removed() {
    let name = "a_key_that_appears_on_our_lease_with_nobody_behind_it_is_removed";
    let Some(cluster) = Cluster::start(name, 1) else { return };
    let backend = connect(&cluster.url());
    let kept = lead(&backend, candidacy("other", "me", 60)).await;
    // As a request does that was under way for long.
    let late = format!("/test/e/r/{}", kept.lease);
    cluster.ask(&["put", &late, "me", &format!("--lease={}", kept.lease)]);
    eventually("it is gone", || cluster.keys("/test/e/r/").is_empty()).await;
    assert_eq!(cluster.keys("/test/e/other/").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resignation_whose_answer_got_lost_is_one() {
    let Some(cluster) = Cluster::start("a_resignation_whose_answer_got_lost_is_one", 1) else { return };
    let relay = Relay::start(cluster.nodes[0].port).await;
    let backend = connect(&format!("etcd://127.0.0.1:{}/test", relay.port));
    let grant = lead(&backend, candidacy("r", "me", 60)).await;
    relay.swallow_answers();
    let resigning = tokio::spawn({
        let (backend, grant) = (backend.clone(), grant.clone());
        async move { backend.resign(&grant).await }
    });
    eventually("etcd has run it", || cluster.keys("/test/e/r/").is_empty()).await;
    relay.heal();
    within(Duration::from_secs(15), resigning).await.unwrap().unwrap();
    backend.resign(&grant).await.expect("twice is fine");
}
