//! Keys that somebody has put below an election by hand: each stands in the line, as it does for etcd's own tools.

use std::time::Duration;

use highgate_elector::backend::Backend;

use super::server::Cluster;
use super::{campaign, candidacy, connect, eventually, next, resource, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_key_with_a_slash_in_its_name_leads_until_it_is_removed() {
    let name = "a_key_with_a_slash_in_its_name_leads_until_it_is_removed";
    let Some(cluster) = Cluster::start(name, 1) else { return };
    cluster.ask(&["put", "/test/e/r/a/b", "somebody"]);
    let backend = connect(&cluster.url());
    let mut seen = backend.observe(&resource("r"));
    assert_eq!(next(&mut seen).await.expect("it leads").holder, "somebody");
    let waiting = campaign(&backend, candidacy("r", "me", 10));
    eventually("it is in line", || cluster.keys("/test/e/r/").len() == 2).await;
    // Whoever waits waits, and does not ask again and again whether it leads.
    let before = cluster.requests();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = cluster.requests() - before;
    assert!(asked < 10, "{asked} requests in two seconds");
    assert!(!waiting.is_finished());
    cluster.ask(&["del", "/test/e/r/a/b"]);
    let grant = within(Duration::from_secs(20), waiting).await.unwrap();
    assert_eq!(next(&mut seen).await.expect("it leads").token, grant.token);
}
