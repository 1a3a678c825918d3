//! What `--metrics` shows of a run.

use std::io::{Read, Write};
use std::net::TcpStream;

use tempfile::TempDir;

use crate::support::{Gateway, Run, eventually, run_on};

const RESOURCE: [&str; 6] = ["--resource", "r", "--ttl", "2s", "--metrics", "127.0.0.1:0"];

/// Where a run says that its metrics are.
fn address(run: &Run) -> String {
    run.says("/metrics\n");
    let log = run.log();
    log.split("metrics on http://").nth(1).unwrap().split("/metrics").next().unwrap().to_owned()
}

/// The answer to a GET of this path.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The value of a series with the label of the resource.
fn value(answer: &str, name: &str) -> Option<f64> {
    let start = format!("highgate_elector_{name}{{resource=\"r\"}} ");
    answer.lines().find_map(|line| line.strip_prefix(&start)).map(|value| value.parse().unwrap())
}

#[test]
fn metrics_tell_who_leads_with_which_token_and_how_it_is_renewed() {
    let gateway = Gateway::start();
    let mut first =
        gateway.run("first", &RESOURCE).sh("echo $FENCING_TOKEN; while [ ! -e end ]; do sleep 0.01; done");
    let at = address(&first);
    eventually("the command", || !gateway.read("first.out").is_empty());
    eventually("a renewal", || value(&get(&at, "/metrics"), "heartbeat_duration_seconds_count") >= Some(1.0));
    let shown = get(&at, "/metrics");
    assert!(
        shown.starts_with("HTTP/1.1 200 OK\r\n") && shown.contains("content-type: text/plain"),
        "{shown}"
    );
    assert!(shown.contains("# HELP highgate_elector_is_leader ") && shown.contains("_bucket{"), "{shown}");
    assert_eq!(value(&shown, "is_leader"), Some(1.0));
    assert_eq!(value(&shown, "token"), gateway.read("first.out").trim().parse().ok());
    assert_eq!(value(&shown, "elections_total"), Some(1.0));
    let remaining = value(&shown, "lease_remaining_seconds").unwrap();
    assert!(remaining > 0.5 && remaining <= 2.0, "{remaining}");

    let mut second = gateway.run("second", &RESOURCE).sh("while [ ! -e end2 ]; do sleep 0.01; done");
    let next = address(&second);
    second.says("waiting: ");
    assert_eq!(value(&get(&next, "/metrics"), "is_leader"), Some(0.0));
    std::fs::write(gateway.folder.path().join("end"), "").unwrap();
    assert_eq!(first.code(), 0);
    second.says("leading r ");
    let shown = get(&next, "/metrics");
    assert_eq!(value(&shown, "is_leader"), Some(1.0));
    assert!(value(&shown, "leaderless_seconds").is_some(), "{shown}");
    std::fs::write(gateway.folder.path().join("end2"), "").unwrap();
    assert_eq!(second.code(), 0);
    assert!(TcpStream::connect(&next).is_err(), "the port is closed");
}

#[test]
fn there_is_nothing_else_on_the_port_and_nobody_who_holds_the_run_up() {
    let gateway = Gateway::start();
    let mut run = gateway.run("a", &RESOURCE).sh("while [ ! -e end ]; do sleep 0.01; done");
    let at = address(&run);
    let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(&at).unwrap()).collect();
    drop(silent);
    assert!(get(&at, "/").starts_with("HTTP/1.1 404 "));
    let _silent: Vec<_> = (0..20).map(|_| TcpStream::connect(&at).unwrap()).collect();
    std::fs::write(gateway.folder.path().join("end"), "").unwrap();
    assert_eq!(run.code(), 0);
}

#[test]
fn an_address_that_cannot_be_used_is_said_before_anything_starts() {
    let folder = TempDir::new().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (name, at, code, says) in [
        ("bad", "9903", 2, "is not an address and a port, such as :9903"),
        ("unknown", "somewhere:9903", 2, "is not an address and a port, such as :9903"),
        ("taken", taken.as_str(), 1, "cannot serve metrics on 127.0.0.1:"),
    ] {
        let args = ["--resource", "r", "--metrics", at];
        let mut run = run_on("highgate://127.0.0.1:1", folder.path(), name, &args).sh("echo never");
        assert_eq!(run.code(), code, "{name}");
        run.says(says);
        assert!(!run.log().contains("campaigning"));
    }
}
