//! An operator at the command line: the real program against a running gateway.

use std::process::{Command, Output};

use serde_json::json;

use crate::support::{eventually, gateway_to, origin, post};

/// Runs `highgate` with these words against a gateway's admin port.
fn highgate(gate: &crate::support::Running, words: &[&str]) -> Output {
    let admin = gate.admin_address().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_highgate"));
    command.env_remove("HIGHGATE_ADMIN_TOKEN").args(words).args(["--admin", &admin]);
    command.output().expect("it was built")
}

fn said(output: &Output) -> (Option<i32>, String) {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn every_refusal_is_counted_not_only_a_stale_token() {
    let origin = origin().start();
    let gate = gateway_to(&origin).route("tokens", "issued").start();
    let wish = json!({"resource": "default", "holder": "a", "wait_seconds": 5});
    let token = gate.post_admin("/v1/elections/campaign", &wish).json()["token"].as_u64().unwrap();
    gate.ask(&post("/").token(token)).is_ok();
    gate.ask(&post("/")).is_refused(428, "missing");
    gate.ask(&post("/").token(token + 1)).is_refused(403, "not-issued");
    gate.operate("freeze", "default");
    gate.ask(&post("/").token(token)).is_refused(423, "frozen");
    let shown = gate.admin("/v1/resource?name=default").json();
    assert_eq!(shown["refused"], 3, "{shown}");
    let (code, text) = said(&highgate(&gate, &["status", "default"]));
    let row: Vec<_> = text.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!((code, row.get(4).copied()), (Some(0), Some("3")), "{text}");
}

#[test]
fn a_slip_of_the_hand_freezes_and_raises_nothing() {
    let origin = origin().start();
    let gate = gateway_to(&origin).start();
    for order in [&["freeze", "typo"][..], &["raise", "typo", "--to", "9"]] {
        let (code, text) = said(&highgate(&gate, order));
        assert!(
            code == Some(2) && text.contains("typo") && text.contains("--new"),
            "{order:?}: {code:?} {text}"
        );
    }
    assert_eq!(said(&highgate(&gate, &["freeze", "typo", "--new", "--dry-run"])).0, Some(0));
    assert!(gate.ledger().is_empty());
    let (code, text) = said(&highgate(&gate, &["freeze", "fresh", "--new", "--json"]));
    let told: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((code, &told["changed"], &told["state"]), (Some(0), &json!(true), &json!("frozen")));
    let (code, text) = said(&highgate(&gate, &["freeze", "fresh"]));
    assert_eq!((code, text.as_str()), (Some(0), "fresh: is frozen already; nothing was changed\n"));
}

#[test]
fn an_eviction_prints_the_token_of_who_was_deposed_though_the_next_one_leads_already() {
    let origin = origin().start();
    let gate = gateway_to(&origin).route("tokens", "issued").start();
    let wish =
        |holder| json!({"resource": "default", "holder": holder, "ttl_seconds": 60, "wait_seconds": 10});
    let first = gate.post_admin("/v1/elections/campaign", &wish("first")).json()["token"].clone();
    let second = gate.begin_admin("/v1/elections/campaign", wish("second"));
    eventually("the second waits", || gate.admin("/v1/elections?resource=default").json()["waiting"] == 1);
    let (code, text) = said(&highgate(&gate, &["evict", "default"]));
    let expected = format!("default: first with token {first} was deposed; {first} passes no longer");
    assert!(code == Some(0) && text.starts_with(&expected), "{text}");
    assert_eq!(second.answer().status, 200);
    let (code, text) = said(&highgate(&gate, &["evict", "default", "--token", &first.to_string()]));
    assert_eq!(
        (code, text),
        (Some(0), format!("default: token {first} is over already; nothing was changed\n"))
    );
    assert_eq!(leader(&gate), "second");
}

fn leader(gate: &crate::support::Running) -> String {
    let leads = gate.admin("/v1/elections?resource=default").json();
    leads["leader"]["holder"].as_str().unwrap_or("nobody").to_owned()
}

#[test]
fn an_eviction_that_is_said_again_deposes_nobody_else() {
    let origin = origin().start();
    let gate = gateway_to(&origin).route("tokens", "issued").start();
    let campaign = |holder: &str| {
        let wish = json!({"resource": "default", "holder": holder, "ttl_seconds": 60, "wait_seconds": 10});
        gate.post_admin("/v1/elections/campaign", &wish).json()["token"].as_u64().expect("a token")
    };
    let first = campaign("first");
    assert_eq!(said(&highgate(&gate, &["evict", "default"])).0, Some(0));
    let second = campaign("second");
    for flags in [&[][..], &["--dry-run"]] {
        let (code, text) = said(&highgate(&gate, &[&["evict", "default"][..], flags].concat()));
        let expected = format!(
            "default: token {first} is over already: first was evicted less than a minute ago. second leads with token \
             {second}; to depose it as well, say --token {second}; nothing was changed\n"
        );
        assert_eq!((code, text), (Some(0), expected));
        assert_eq!(leader(&gate), "second");
    }
    let (_, text) = said(&highgate(&gate, &["evict", "default", "--json"]));
    let told: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (&told["changed"], &told["evicted_before"]["token"]),
        (&json!(false), &json!(first)),
        "{told}"
    );
    assert!(told.get("dry_run").is_none(), "{told}");
    let (code, text) = said(&highgate(&gate, &["evict", "default", "--token", &second.to_string()]));
    assert!(code == Some(0) && text.contains("second with token"), "{text}");
    assert_eq!(leader(&gate), "nobody");
}

#[test]
fn a_raise_that_would_depose_a_leader_names_it_and_wants_a_yes() {
    let origin = origin().start();
    let gate = gateway_to(&origin).route("tokens", "issued").start();
    let wish = json!({"resource": "default", "holder": "job-1", "ttl_seconds": 60, "wait_seconds": 10});
    let token = gate.post_admin("/v1/elections/campaign", &wish).json()["token"].as_u64().unwrap();
    let order = ["raise", "default", "--to", "9"];
    let who = format!("job-1 leads default with token {token}: it is deposed");
    let (code, text) = said(&highgate(&gate, &order));
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains(&who) && text.contains("nothing was done") && text.contains("--yes"), "{text}");
    let (code, text) = said(&highgate(&gate, &[&order[..], &["--dry-run"]].concat()));
    let expected = format!(
        "default: would be raised from {token} to 9, for good, and job-1 with token {token} would be deposed"
    );
    assert!(code == Some(0) && text.starts_with(&expected), "{text}");
    assert_eq!(leader(&gate), "job-1");
    let (code, text) = said(&highgate(&gate, &[&order[..], &["--yes"]].concat()));
    let expected =
        format!("default: raised to 9; lower tokens are refused, and job-1 with token {token} was deposed");
    assert!(code == Some(0) && text.starts_with(&expected), "{text}");
    assert_eq!(leader(&gate), "nobody");
    let (code, text) = said(&highgate(&gate, &["raise", "default", "--to", "12"]));
    assert!(
        code == Some(0) && text.starts_with("default: raised to 12; lower"),
        "nobody leads, so nobody asks: {text}"
    );
}
