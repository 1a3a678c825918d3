//! Leaders elected by the gateway itself: only their tokens pass, from the moment they are told.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    Client, Running, eventually, gateway_to, highgate, json_post, origin, post, reply, stays,
};

/// A lease that a test has won.
#[derive(Clone, Debug)]
struct Won {
    token: u64,
    held: Value,
}

fn wish(holder: &str, ttl: f64, wait: f64) -> Value {
    json!({ "resource": "default", "holder": holder, "ttl_seconds": ttl, "wait_seconds": wait })
}

fn won(answer: &Value) -> Won {
    let held = json!({ "resource": answer["resource"], "lease": answer["lease"] });
    Won { token: answer["token"].as_u64().expect("an integer"), held }
}

fn campaign(gate: &Running, holder: &str) -> Won {
    let answer = gate.post_admin("/v1/elections/campaign", &wish(holder, 60.0, 10.0));
    assert_eq!(answer.status, 200, "{}", answer.text());
    won(&answer.json())
}

fn renew(gate: &Running, won: &Won) -> u16 {
    gate.post_admin("/v1/elections/renew", &won.held).status
}

fn resign(gate: &Running, won: &Won) -> u16 {
    gate.post_admin("/v1/elections/resign", &won.held).status
}

fn waiting(gate: &Running) -> u64 {
    gate.admin("/v1/elections?resource=default").json()["waiting"].as_u64().expect("a number")
}

fn issued() -> (crate::support::Origin, Running) {
    let origin = origin().start();
    let gate = gateway_to(&origin).route("tokens", "issued").start();
    (origin, gate)
}

#[test]
fn only_the_token_of_the_leader_passes() {
    let (origin, gate) = issued();
    let first = campaign(&gate, "a");
    gate.ask(&post("/").token(first.token)).is_ok();
    let second = gate.begin_admin("/v1/elections/campaign", wish("b", 60.0, 10.0));
    eventually("b waits", || waiting(&gate) == 1);
    gate.ask(&post("/").token(first.token + 1)).is_refused(403, "not-issued");
    gate.ask(&post("/").token(1 << 62)).is_refused(403, "not-issued");
    assert_eq!(resign(&gate, &first), 204);
    let second = won(&second.answer().json());
    assert!(second.token > first.token);
    gate.ask(&post("/").token(first.token)).is_refused(412, "stale");
    gate.ask(&post("/").token(second.token)).is_ok();
    assert_eq!(origin.count(), 2);
}

#[test]
fn a_departed_leader_passes_no_longer_even_without_a_successor() {
    let (origin, gate) = issued();
    let leader = campaign(&gate, "a");
    assert_eq!(resign(&gate, &leader), 204);
    let refused = gate.ask(&post("/").token(leader.token));
    refused.is_refused(403, "not-issued");
    assert_eq!(refused.json()["mark"], leader.token);
    let said = |refused: crate::support::Response| refused.json()["detail"].as_str().unwrap().to_owned();
    let left = said(refused);
    assert!(left.contains("has left (it resigned, was evicted, or let its lease run out)"), "{left}");
    let never = said(gate.ask(&post("/").token(leader.token + 1)));
    assert!(never.contains("was not issued to the leader of default"), "{never}");
    assert_eq!(resign(&gate, &leader), 410);
    assert_eq!(renew(&gate, &leader), 410);
    assert!(origin.received_nothing());
}

#[test]
fn the_old_leader_is_refused_before_the_new_one_is_told() {
    let origin = origin().answering(|_| reply(200).held("slow")).start();
    let gate = gateway_to(&origin).route("tokens", "issued").route("drain_timeout", "10s").start();
    let first = campaign(&gate, "a");
    let slow = gate.begin(post("/").token(first.token));
    origin.wait("the write of the first is under way", |seen| seen.requests.len() == 1);
    let second = gate.begin_admin("/v1/elections/campaign", wish("b", 60.0, 10.0));
    eventually("b waits", || waiting(&gate) == 1);
    assert_eq!(resign(&gate, &first), 204);
    eventually("the mark is raised", || gate.mark("default") > first.token);
    gate.ask(&post("/").token(first.token)).is_refused(412, "stale");
    stays("b is not told while the first's write is under way", || !second.is_answered());
    origin.release("slow");
    slow.answer().is_ok();
    let second = won(&second.answer().json());
    assert!(gate.ledger().get("default").is_some_and(|cell| cell.is_open() && cell.mark() == second.token));
}

#[test]
fn a_lease_that_is_not_renewed_runs_out_and_one_that_is_does_not() {
    let (_origin, gate) = issued();
    let answer = gate.post_admin("/v1/elections/campaign", &wish("a", 1.0, 5.0));
    let first = won(&answer.json());
    for _ in 0..6 {
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(renew(&gate, &first), 200);
    }
    let second = campaign(&gate, "b");
    assert!(second.token > first.token);
    assert_eq!(renew(&gate, &first), 410);
    gate.ask(&post("/").token(first.token)).is_refused(412, "stale");
}

#[test]
fn whoever_waits_in_vain_learns_who_leads() {
    let (_origin, gate) = issued();
    let leader = campaign(&gate, "a");
    let answer = gate.post_admin("/v1/elections/campaign", &wish("b", 5.0, 0.1));
    assert_eq!(answer.status, 409);
    assert_eq!(answer.json()["leader"], json!({ "holder": "a", "token": leader.token }));
    assert_eq!(waiting(&gate), 0, "b has left the line");
}

#[test]
fn waiters_lead_in_the_order_in_which_they_came_and_who_hangs_up_leaves_the_line() {
    let (_origin, gate) = issued();
    let leader = campaign(&gate, "leader");
    let mut lines = Vec::new();
    for number in 0..4u64 {
        let mut client = Client::connect(gate.admin_address());
        client.send(json_post("/v1/elections/campaign", &wish(&format!("{number}"), 60.0, 30.0)).bytes());
        lines.push(client);
        eventually("one more waits", || waiting(&gate) == number + 1);
    }
    drop(lines.remove(1));
    eventually("one has left", || waiting(&gate) == 3);
    let mut last = leader;
    for mut line in lines {
        assert_eq!(resign(&gate, &last), 204);
        let next = won(&line.response().json());
        assert!(next.token > last.token);
        last = next;
    }
}

#[test]
fn an_evicted_leader_is_out_at_once_and_the_next_in_line_leads() {
    let (_origin, gate) = issued();
    let leader = campaign(&gate, "a");
    assert_eq!(gate.operate("evict", "default").status, 200);
    gate.ask(&post("/").token(leader.token)).is_refused(403, "not-issued");
    assert_eq!(renew(&gate, &leader), 410);
    assert_eq!(gate.operate("evict", "default").status, 404);
    let next = campaign(&gate, "b");
    gate.ask(&post("/").token(next.token)).is_ok();
}

#[test]
fn an_operators_raise_deposes_the_leader() {
    let (_origin, gate) = issued();
    let leader = campaign(&gate, "a");
    let order = json!({ "resource": "default", "to": 500 });
    assert_eq!(gate.post_admin("/v1/operator/raise", &order).status, 200);
    assert_eq!(renew(&gate, &leader), 410);
    assert!(campaign(&gate, "b").token > 500);
}

#[test]
fn what_was_completed_once_is_not_run_again_and_a_deposed_leader_completes_nothing() {
    let (_origin, gate) = issued();
    let step = |won: &Won, step: &str, key: &str| {
        let mut order = won.held.clone();
        order["key"] = key.into();
        gate.post_admin(&format!("/v1/once/{step}"), &order)
    };
    let first = campaign(&gate, "a");
    assert_eq!(step(&first, "begin", "day/1").json()["state"], "running");
    assert_eq!(step(&first, "begin", "day/2").json()["state"], "running");
    assert_eq!(step(&first, "complete", "day/1").json()["state"], "completed");
    assert_eq!(resign(&gate, &first), 204);
    let second = campaign(&gate, "b");
    let completed = step(&second, "begin", "day/1").json();
    assert_eq!((&completed["state"], &completed["holder"]), (&json!("completed"), &json!("a")));
    assert_eq!(step(&first, "complete", "day/2").status, 410);
    assert_eq!(step(&second, "begin", "day/2").json()["holder"], "b", "taken over");
}

#[test]
fn a_run_once_key_belongs_to_its_resource_and_operators_list_show_and_reset_it() {
    let (_origin, gate) = issued();
    let lead = |resource: &str| {
        let mut wish = wish("a", 60.0, 10.0);
        wish["resource"] = resource.into();
        won(&gate.post_admin("/v1/elections/campaign", &wish).json())
    };
    let step = |won: &Won, step: &str, key: &str| {
        let mut order = won.held.clone();
        order["key"] = key.into();
        gate.post_admin(&format!("/v1/once/{step}"), &order).json()["state"].clone()
    };
    let (one, other) = (lead("ledger"), lead("ledger/acct-7"));
    assert_eq!(step(&one, "complete", "day/1"), "completed");
    assert_eq!(step(&other, "begin", "day/1"), "running", "another resource's key is another entry");
    assert_eq!(step(&one, "begin", "day/2"), "running");

    let list = |query: &str| {
        let answer = gate.admin(&format!("/v1/once{query}")).json();
        let entries = answer["entries"].as_array().expect("a list").iter();
        let names =
            entries.map(|entry| (entry["resource"].clone(), entry["key"].clone(), entry["state"].clone()));
        (names.collect::<Vec<_>>(), answer["next"].clone())
    };
    let entry = |resource: &str, key: &str, state: &str| (json!(resource), json!(key), json!(state));
    let (first, second) = (entry("ledger", "day/1", "completed"), entry("ledger", "day/2", "running"));
    let third = entry("ledger/acct-7", "day/1", "running");
    assert_eq!(list(""), (vec![first.clone(), second.clone(), third.clone()], Value::Null));
    assert_eq!(list("?resource=ledger"), (vec![first.clone(), second.clone()], Value::Null));
    assert_eq!(list("?limit=1"), (vec![first], json!({ "resource": "ledger", "key": "day/1" })));
    assert_eq!(list("?after_resource=ledger&after_key=day/1"), (vec![second, third], Value::Null));

    let shown = gate.admin("/v1/once?resource=ledger&key=day%2F1").json();
    assert_eq!((&shown["holder"], &shown["token"]), (&json!("a"), &json!(one.token)));
    assert!(shown["at"].as_str().is_some_and(|at| at.starts_with("20") && at.ends_with('Z')), "{shown}");
    assert_eq!(gate.admin("/v1/once?resource=ledger&key=never").status, 404);
    assert_eq!(gate.admin("/v1/once?key=day/1").status, 400);

    let order = json!({ "resource": "ledger", "key": "day/1" });
    let reset = gate.post_admin("/v1/operator/once-reset", &order).json();
    assert_eq!((&reset["changed"], &reset["was"]["state"]), (&json!(true), &json!("completed")));
    assert_eq!(gate.post_admin("/v1/operator/once-reset", &order).json()["changed"], false);
    assert_eq!(step(&one, "begin", "day/1"), "running", "it is run again");
}

#[test]
fn a_watcher_sees_who_leads_and_every_change() {
    let (_origin, gate) = issued();
    let first = campaign(&gate, "a");
    let mut watcher = Client::connect(gate.admin_address());
    watcher.send("GET /v1/elections/watch?resource=default HTTP/1.0\r\n\r\n");
    assert!(watcher.response_head().start.contains("200"));
    let mut next = || loop {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            line.extend(watcher.body_bytes(1));
        }
        if let Some(data) = line.strip_prefix(b"data: ") {
            let data: Value = serde_json::from_slice(data).unwrap();
            return data["leader"]["holder"].as_str().map(str::to_owned);
        }
    };
    assert_eq!(next().as_deref(), Some("a"));
    resign(&gate, &first);
    assert_eq!(next(), None);
    let second = campaign(&gate, "b");
    assert_eq!(next().as_deref(), Some("b"));
    resign(&gate, &second);
    assert_eq!(next(), None);
}

#[test]
fn a_lease_survives_kill_9_and_no_token_is_issued_twice() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().start();
    let config = folder.path().join("highgate.toml");
    let text = crate::support::config_for(origin.address, "lock_delay = \"50ms\"\nhold_timeout = \"5s\"");
    std::fs::write(&config, text.replace("trusted", "issued")).unwrap();
    let start = || highgate().config(&config).data(&folder.path().join("data")).start();
    let mut gate = start();
    let mut last = 0;
    for round in 0..6 {
        let ask =
            |path: &str, body: &Value| Client::connect(gate.admin_address()).ask(&json_post(path, body));
        let answer = ask("/v1/elections/campaign", &wish("a", 60.0, 10.0));
        assert_eq!(answer.status, 200, "round {round}: {}", answer.text());
        let leader = won(&answer.json());
        assert!(leader.token > last, "round {round}: {} after {last}", leader.token);
        last = leader.token;
        gate.signal(Signal::KILL);
        gate.kill();
        gate = start();
        let ask =
            |path: &str, body: &Value| Client::connect(gate.admin_address()).ask(&json_post(path, body));
        assert_eq!(ask("/v1/elections/renew", &leader.held).status, 200, "round {round}");
        assert_eq!(gate.ask(&post("/").token(leader.token)).status, 200, "round {round}");
        assert_eq!(ask("/v1/elections/resign", &leader.held).status, 204, "round {round}");
    }
    let mut elsewhere = wish("a", 60.0, 10.0);
    elsewhere["resource"] = "elsewhere".into();
    let path = "/v1/elections/campaign";
    let answer = Client::connect(gate.admin_address()).ask(&json_post(path, &elsewhere));
    assert!(won(&answer.json()).token > last, "not on another resource either");
}

#[test]
fn a_free_resource_is_won_without_waiting_in_line() {
    let (_origin, gate) = issued();
    let answer = gate.post_admin("/v1/elections/campaign", &wish("a", 60.0, 0.0));
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn the_winner_of_a_frozen_resource_is_told_when_it_is_thawed() {
    let (_origin, gate) = issued();
    assert_eq!(gate.operate("freeze", "default").status, 200);
    let winner = gate.begin_admin("/v1/elections/campaign", wish("a", 60.0, 10.0));
    eventually("the mark is raised", || gate.mark("default") == 1);
    stays("nobody is told", || !winner.is_answered());
    assert_eq!(gate.operate("evict", "default").status, 404, "nobody leads yet");
    assert_eq!(gate.operate("thaw", "default").status, 200);
    let winner = won(&winner.answer().json());
    gate.ask(&post("/").token(winner.token)).is_ok();
}

#[test]
fn a_winner_that_was_never_told_does_not_lead_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().answering(|_| reply(200).held("never")).start();
    let config = folder.path().join("highgate.toml");
    let route = "lock_delay = \"50ms\"\ndrain_timeout = \"60s\"";
    let text = crate::support::config_for(origin.address, route).replace("trusted", "issued");
    std::fs::write(&config, text).unwrap();
    let start = || highgate().config(&config).data(&folder.path().join("data")).start();
    let gate = start();
    let ask = |path: &str, body: &Value| Client::connect(gate.admin_address()).ask(&json_post(path, body));
    let first = won(&ask("/v1/elections/campaign", &wish("a", 60.0, 10.0)).json());
    let mut writer = gate.connect();
    writer.send(post("/").token(first.token).bytes());
    origin.wait("the write is under way", |seen| seen.requests.len() == 1);
    let mut second = Client::connect(gate.admin_address());
    second.send(json_post("/v1/elections/campaign", &wish("b", 3600.0, 30.0)).bytes());
    eventually("b waits", || gate.admin("/v1/elections?resource=default").json()["waiting"] == 1);
    assert_eq!(ask("/v1/elections/resign", &first.held).status, 204);
    gate.kill();

    let gate = start();
    let answer = Client::connect(gate.admin_address())
        .ask(&json_post("/v1/elections/campaign", &wish("c", 60.0, 5.0)));
    assert_eq!(answer.status, 200, "b's lease of an hour is nobody's: {}", answer.text());
    assert!(won(&answer.json()).token > first.token + 1);
}
