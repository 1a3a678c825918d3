//! The first start of all: who may be waited for on a prefix that has no era, and an operator's word that nobody is.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::support::etcd::PREFIX;
use crate::support::server::Cluster;
use crate::support::trial;

fn init(url: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_highgate")).args(["backend", "init", url]).output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// W + D is twenty seconds here, and longer than the trial waits for its gateways.
#[test]
fn a_prefix_that_an_operator_calls_new_waits_for_nobody() {
    let name = "a_prefix_that_an_operator_calls_new_waits_for_nobody";
    let long = Duration::from_secs(10);
    let Some(trial) = trial(name).validity(long).lock_delay(long).start() else { return };
    assert!(trial.etcd().keys(&format!("{PREFIX}/t/")).is_empty());
    let began = Instant::now();
    trial.raises("ledger", 7);
    println!("the first write of a new cluster passed everywhere after {:?}", began.elapsed());
    assert!(began.elapsed() < trial.timing.wait(), "{:?}", began.elapsed());
    trial.passes_everywhere("ledger", 7);
    trial.is_kept();
}

/// Three gateways that start at once on a prefix of which nobody has said that it is new.
#[test]
fn a_prefix_that_nobody_calls_new_is_waited_for_once() {
    let name = "a_prefix_that_nobody_calls_new_is_waited_for_once";
    let began = Instant::now();
    let Some(trial) = trial(name).validity(Duration::from_secs(3)).unprepared().start() else { return };
    let wait = trial.timing.wait() + trial.timing.lock_delay;
    println!("at rest after {:?}; W + D is {wait:?}", began.elapsed());
    assert!(began.elapsed() > wait, "whoever came before could still forward: {:?}", began.elapsed());
    trial.raises("ledger", 7);
    trial.passes_everywhere("ledger", 7);
    trial.is_kept();
}

/// A backup from before the first use, and a gateway that remembers nothing: it cannot know who else lives.
#[test]
fn an_etcd_that_was_restored_to_nothing_is_waited_for() {
    let name = "an_etcd_that_was_restored_to_nothing_is_waited_for";
    let Some(empty) = Cluster::start(name, 1) else { return };
    let Some(mut trial) = trial(name).validity(Duration::from_secs(2)).start() else { return };
    trial.raises("ledger", 7);
    let snapshot = trial.folder.path().join("snapshot");
    empty.save_snapshot(&snapshot);
    for gateway in &mut trial.gateways {
        gateway.kill();
    }
    std::fs::remove_dir_all(trial.folder.path().join("gateway-2")).unwrap();
    trial.etcd_mut().restore(&snapshot);
    trial.gateways[2].start_again();
    trial.gateways[2].becomes_ready();
    let began = Instant::now();
    assert_eq!(trial.etcd().keys(&format!("{PREFIX}/t/")), [format!("{PREFIX}/t/era-0")]);
    assert!(trial.gateways[2].write("ledger", 8).send().passed());
    let wait = trial.timing.wait() + trial.timing.lock_delay;
    println!("the first write passed after {:?}; W + D is {wait:?}", began.elapsed());
    assert!(began.elapsed() > wait / 2, "{:?}", began.elapsed());
}

#[test]
fn an_operators_word_counts_once_and_only_where_nobody_was() {
    let name = "an_operators_word_counts_once_and_only_where_nobody_was";
    let Some(cluster) = Cluster::start(name, 1) else { return };
    let url = |prefix: &str| format!("etcd://127.0.0.1:{}{prefix}", cluster.nodes[0].port);
    // Elections are no gateways.
    cluster.ask(&["put", "/a/e/ledger/7f", "x"]);
    let first = init(&url("/a"));
    assert!(first.status.success() && said(&first).contains("era 0 has begun"), "{first:?}");
    assert_eq!(cluster.keys("/a/"), ["/a/e/ledger/7f", "/a/era", "/a/seq"]);
    let second = init(&url("/a"));
    assert!(second.status.success() && said(&second).contains("in era 0; nothing to do"), "{second:?}");
    for (number, key) in ["f/ledger", "m/1", "t/1", "seq"].iter().enumerate() {
        let prefix = format!("/used{number}");
        cluster.ask(&["put", &format!("{prefix}/{key}"), "x"]);
        let refused = init(&url(&prefix));
        assert_eq!(refused.status.code(), Some(1), "{key}: {refused:?}");
        assert!(said(&refused).contains("era bump"), "{refused:?}");
        assert_eq!(cluster.keys(&format!("{prefix}/")).len(), 1, "nothing was written");
    }
    assert_eq!(init("highgate://127.0.0.1:9901").status.code(), Some(2));
    drop(cluster);
    assert_eq!(init("etcd://127.0.0.1:1/a").status.code(), Some(69));
}
