//! Who leads, as metrics of the gateway: for jobs in any language, which have none of their own.

use serde_json::{Value, json};

use crate::support::{Running, eventually, gateway_to, origin, post};

fn wish(holder: &str, ttl: u64) -> Value {
    json!({ "resource": "default", "holder": holder, "ttl_seconds": ttl, "wait_seconds": 20 })
}

/// The value of exactly one series.
fn value(gate: &Running, series: &str) -> Option<f64> {
    let text = gate.admin("/metrics").text();
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

fn holders(gate: &Running) -> Vec<String> {
    let text = gate.admin("/metrics").text();
    let holder = |line: &str| Some(line.strip_prefix("highgate_leader_info{")?.split('"').nth(3)?.to_owned());
    text.lines().filter_map(holder).collect()
}

fn elections(gate: &Running, cause: &str) -> Option<f64> {
    value(gate, &format!(r#"highgate_elections_total{{cause="{cause}",resource="default"}}"#))
}

fn state(gate: &Running, state: &str) -> Option<f64> {
    value(gate, &format!(r#"highgate_resources{{state="{state}"}}"#))
}

const LEADERLESS: &str = r#"highgate_leaderless_seconds{resource="default"}"#;
const WAITING: &str = r#"highgate_waiting_candidates{resource="default"}"#;

#[test]
fn a_failover_shows_in_the_metrics_of_the_gateway() {
    let origin = origin().start();
    let gate = gateway_to(&origin).route("tokens", "issued").start();
    assert!(holders(&gate).is_empty() && value(&gate, LEADERLESS).is_none(), "nobody has led yet");
    let first = gate.post_admin("/v1/elections/campaign", &wish("dies", 1)).json();
    assert_eq!(holders(&gate), ["dies"]);
    gate.ask(&post("/").token(first["token"].as_u64().unwrap())).is_ok();
    let second = gate.begin_admin("/v1/elections/campaign", wish("follows", 60));
    let second = second.answer().json();
    assert_eq!(holders(&gate), ["follows"], "whoever led before has no series");
    assert_eq!((elections(&gate, "won"), elections(&gate, "expired")), (Some(2.0), Some(1.0)));
    assert_eq!((value(&gate, LEADERLESS), value(&gate, WAITING)), (Some(0.0), Some(0.0)));
    assert_eq!((state(&gate, "open"), state(&gate, "vacant")), (Some(1.0), Some(0.0)));
    eventually("the failover was timed", || value(&gate, "highgate_failover_seconds_count") == Some(1.0));
    let took = value(&gate, "highgate_failover_seconds_sum").unwrap();
    assert!(took > 0.0 && took < 10.0, "{took} s from the end of the lease to the open mark");

    let third = gate.begin_admin("/v1/elections/campaign", wish("waits", 60));
    eventually("it waits", || value(&gate, WAITING) == Some(1.0));
    let held = json!({ "resource": "default", "lease": second["lease"] });
    assert_eq!(gate.post_admin("/v1/elections/resign", &held).status, 204);
    let third = third.answer().json();
    assert_eq!((holders(&gate), value(&gate, WAITING)), (vec!["waits".to_owned()], Some(0.0)));
    eventually("so was this", || value(&gate, "highgate_failover_seconds_count") == Some(2.0));
    assert_eq!(gate.operate("evict", "default").status, 200);
    assert!(holders(&gate).is_empty());
    let ends = ["expired", "resigned", "evicted"].map(|cause| elections(&gate, cause));
    assert_eq!((ends, elections(&gate, "won")), ([Some(1.0); 3], Some(3.0)));
    eventually("it is vacant", || state(&gate, "vacant") == Some(1.0));
    let since = value(&gate, LEADERLESS).unwrap();
    assert!(since > 0.0);
    eventually("the time goes on", || value(&gate, LEADERLESS).unwrap() > since);
    assert!(third["token"].as_u64() > second["token"].as_u64());
}

#[test]
fn the_gateway_shows_its_connections_its_version_and_its_process() {
    let origin = origin().start();
    let gate = gateway_to(&origin).start();
    assert_eq!(value(&gate, "highgate_connections"), Some(0.0));
    let mut clients = [gate.connect(), gate.connect()];
    for client in &mut clients {
        client.ask(&post("/").token(1)).is_ok();
    }
    assert_eq!(value(&gate, "highgate_connections"), Some(2.0));
    drop(clients);
    eventually("they have gone", || value(&gate, "highgate_connections") == Some(0.0));
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(value(&gate, &format!(r#"highgate_build_info{{version="{version}"}}"#)), Some(1.0));
    assert!(value(&gate, "process_open_fds") > Some(3.0));
    assert!(value(&gate, "highgate_history_bytes") > Some(0.0), "the raise is in it");
    assert_eq!(value(&gate, "highgate_history_lost_total"), Some(0.0));
    assert!(value(&gate, "highgate_log_lines_dropped_total").is_none(), "no log, no lines");
}
