//! A login that etcd forgets, while hundreds need it: they log in once, together.

use std::path::Path;
use std::time::{Duration, Instant};

use highgate_etcd::url::EtcdUrl;
use highgate_etcd::{Client, Range};
use tokio::task::JoinSet;

use super::server::{Cluster, Node};

const ASKERS: usize = 300;

/// A user `job` with the password `pass` that may do everything below `/test/`.
fn wants_logins(cluster: &Cluster) {
    for command in [
        &["user", "add", "root:root"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "job:pass"],
        &["role", "add", "jobs"],
        &["role", "grant-permission", "--prefix=true", "jobs", "readwrite", "/test/"],
        &["user", "grant-role", "job", "jobs"],
        &["auth", "enable"],
    ] {
        cluster.ask(command);
    }
}

fn logins(cluster: &Cluster) -> u64 {
    logins_at(&cluster.nodes[0])
}

fn logins_at(node: &Node) -> u64 {
    node.counter("grpc_server_started_total", &["grpc_method=\"Authenticate\""])
}

/// What etcd is told to have it sign its tokens, for so long.
fn signed(folder: &Path, ttl: &str) -> String {
    let key = folder.join("key");
    std::fs::write(&key, "a key that only this test knows").unwrap();
    format!("jwt,sign-method=HS256,priv-key={},ttl={ttl}", key.display())
}

fn client(cluster: &Cluster) -> Client {
    let url = cluster.url().replace("etcd://", "etcd://job:pass@");
    Client::open(&EtcdUrl::parse(&url).unwrap()).unwrap()
}

/// All at once. Every one of them gets its answer.
async fn ask_all(client: &Client) {
    let mut asking = JoinSet::new();
    for number in 0..ASKERS {
        let client = client.clone();
        asking.spawn(async move { client.range(Range::key(format!("/test/{number}"))).await });
    }
    for answer in asking.join_all().await {
        answer.expect("the login was fetched anew");
    }
}

/// Rounds of questions, each long after the login's token has run out. How many logins that took at most.
async fn logins_of_rounds(cluster: &Cluster, rounds: u64, apart: Duration) -> u64 {
    let client = client(cluster);
    let before = logins(cluster);
    for _ in 0..rounds {
        let began = Instant::now();
        ask_all(&client).await;
        println!("{ASKERS} questions took {:?}, {} logins so far", began.elapsed(), logins(cluster) - before);
        tokio::time::sleep(apart).await;
    }
    logins(cluster) - before
}

#[tokio::test(flavor = "multi_thread")]
async fn a_simple_token_that_ran_out_is_fetched_once_for_hundreds() {
    let name = "a_simple_token_that_ran_out_is_fetched_once_for_hundreds";
    let Some(cluster) = Cluster::start_with(name, 1, &["--auth-token-ttl", "1"]) else { return };
    wants_logins(&cluster);
    let took = logins_of_rounds(&cluster, 3, Duration::from_secs(4)).await;
    assert!((3..=5).contains(&took), "{took} logins for three expiries");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_token_that_ran_out_is_fetched_once_for_hundreds() {
    let name = "a_signed_token_that_ran_out_is_fetched_once_for_hundreds";
    let folder = tempfile::tempdir().unwrap();
    let kind = signed(folder.path(), "3s");
    let Some(cluster) = Cluster::start_with(name, 1, &["--auth-token", &kind]) else { return };
    wants_logins(&cluster);
    let took = logins_of_rounds(&cluster, 3, Duration::from_secs(4)).await;
    assert!((3..=5).contains(&took), "{took} logins for three expiries");
}

/// A signed token carries how often the users had been changed, and is refused after the next change. Of three nodes
/// each may be behind the one that gave the new one.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_users_costs_few_logins_on_three_nodes() {
    let name = "a_change_of_users_costs_few_logins_on_three_nodes";
    let folder = tempfile::tempdir().unwrap();
    let kind = signed(folder.path(), "1h");
    let Some(cluster) = Cluster::start_with(name, 3, &["--auth-token", &kind]) else { return };
    wants_logins(&cluster);
    let client = client(&cluster);
    ask_all(&client).await;
    let all = || cluster.nodes.iter().map(logins_at).sum::<u64>();
    for user in ["one", "two", "three"] {
        let before = all();
        cluster.ask(&["--user=root:root", "user", "add", &format!("{user}:pass")]);
        ask_all(&client).await;
        let took = all() - before;
        // One of them is etcdctl's own.
        assert!((2..=6).contains(&took), "{took} logins for one change");
    }
}
