//! Who led when: the answer outlives the process, however it ends.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::support::{Client, Highgate, config_for, eventually, highgate, json_post, origin, post};

fn ask(gate: &Highgate, path: &str, body: &Value) -> Value {
    let answer = Client::connect(gate.admin_address()).ask(&json_post(path, body));
    assert!((200..300).contains(&answer.status), "{path}: {}", answer.text());
    if answer.body.is_empty() { Value::Null } else { answer.json() }
}

fn campaign(gate: &Highgate, resource: &str, holder: &str) -> Value {
    let wish = json!({ "resource": resource, "holder": holder, "ttl_seconds": 60, "wait_seconds": 10 });
    ask(gate, "/v1/elections/campaign", &wish)
}

fn resign(gate: &Highgate, won: &Value) {
    ask(gate, "/v1/elections/resign", &json!({ "resource": won["resource"], "lease": won["lease"] }));
}

fn history(gate: &Highgate, query: &str) -> Value {
    let answer = gate.admin(&format!("/v1/history?{query}"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// What `highgate history` prints.
fn printed(gate: &Highgate, args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_highgate"))
        .arg("history")
        .args(args)
        .args(["--admin", &gate.admin_address().to_string()])
        .output()
        .expect("the program was built");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn terms(history: &Value) -> Vec<(u64, &str, Option<&str>)> {
    let terms = history["terms"].as_array().expect("a list").iter();
    terms
        .map(|term| {
            let (token, holder) = (term["token"].as_u64().expect("a number"), &term["holder"]);
            (token, holder.as_str().expect("a name"), term["ended_by"].as_str())
        })
        .collect()
}

#[test]
fn what_a_leader_was_told_is_in_the_history_after_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().start();
    let config = folder.path().join("highgate.toml");
    std::fs::write(&config, config_for(origin.address, "lock_delay = \"40ms\"\nhold_timeout = \"5s\""))
        .unwrap();
    let start = || highgate().config(&config).data(&folder.path().join("data")).start();
    let mut gate = start();
    let mut expected = Vec::new();
    for round in 0..8 {
        let (first, second) = (format!("first-{round}"), format!("second-{round}"));
        let won = campaign(&gate, "ledger", &first);
        resign(&gate, &won);
        let last = campaign(&gate, "ledger", &second);
        // The moment its winner knows of it.
        gate.kill();
        gate = start();
        let (won, token) = (won["token"].as_u64().unwrap(), last["token"].as_u64().unwrap());
        expected.extend([(won, first, Some("resigned")), (token, second, Some("resigned"))]);
        let told = history(&gate, "resource=ledger");
        let mut known: Vec<_> =
            expected.iter().map(|(token, holder, why)| (*token, holder.as_str(), *why)).collect();
        known.last_mut().unwrap().2 = None;
        assert_eq!(terms(&told), known, "round {round}: the last one leads still");
        assert!(told["terms"].as_array().unwrap().iter().all(|term| term["found"] == false), "{told}");
        resign(&gate, &last);
    }
    let told = history(&gate, "resource=ledger");
    assert!(told["terms"].as_array().unwrap().iter().all(|term| term["until"].is_string()), "{told}");
}

#[test]
fn the_history_is_a_table_for_people_and_json_for_programs() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().start();
    let gate = highgate().upstream(origin.address).data(folder.path()).start();
    let won = campaign(&gate, "default", "job-1");
    resign(&gate, &won);
    assert_eq!(gate.ask(&post("/").token(77)).status, 200);
    let leads = campaign(&gate, "default", "job-2");
    let table = printed(&gate, &["default", "--since", "2h"]);
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["TOKEN", "HOLDER", "FROM", "UNTIL", "ENDED", "BY"], "{table}");
    assert_eq!((rows[1][0], rows[1][1], rows[1][4]), ("1", "job-1", "resigned"), "{table}");
    assert_eq!(
        (rows[2][0], rows[2][1], &rows[2][4..]),
        ("77", "-", &["raised,", "no", "election"][..]),
        "{table}"
    );
    assert_eq!((rows[3][0], rows[3][1], rows[3][3]), ("78", "job-2", "leads"), "{table}");
    let whole: Value = serde_json::from_str(&printed(&gate, &["default", "--json"])).unwrap();
    assert_eq!(whole["terms"][1]["token"], leads["token"]);
    assert_eq!(whole["raises"][0]["token"], 77);
    let from = whole["terms"][1]["from"].as_str().unwrap();
    let later = history(&gate, &format!("resource=default&since={from}"));
    assert_eq!(terms(&later), [(78, "job-2", None)]);
    assert_eq!(gate.admin("/v1/history?resource=nobody").status, 404);
    assert_eq!(gate.admin("/v1/history?resource=default&since=yesterday").status, 400);
    assert_eq!(gate.admin("/v1/history").status, 400);
}

#[test]
fn a_history_that_is_longer_than_an_answer_is_shown_whole() {
    const TERMS: u64 = 23_456;
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().start();
    // What a busy gateway before this one has left: a term a second, up to now.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let line = |token: u64| {
        let from = now - TERMS + token;
        format!("{}000\tended\tledger\t{token}\t0\t{from}000\texpired\tjob\n", from + 1)
    };
    std::fs::create_dir(folder.path().join("history")).unwrap();
    let lines: String = (1..=TERMS).map(line).collect();
    std::fs::write(folder.path().join("history/000000000001.log"), lines).unwrap();
    let gate = highgate().upstream(origin.address).data(folder.path()).start();

    let table = printed(&gate, &["ledger", "--since", "7d"]);
    let shown: Vec<u64> =
        table.lines().skip(1).map(|line| line.split_whitespace().next().unwrap().parse().unwrap()).collect();
    assert_eq!(shown, (1..=TERMS).collect::<Vec<_>>());
    let whole: Value = serde_json::from_str(&printed(&gate, &["ledger", "--json"])).unwrap();
    assert_eq!((whole["terms"].as_array().unwrap().len() as u64, &whole["more"]), (TERMS, &json!(false)));

    let newest = history(&gate, "resource=ledger&limit=10000");
    assert_eq!((terms(&newest)[0].0, &newest["next"]), (TERMS - 9_999, &json!(TERMS - 9_999)));
    let older = history(&gate, &format!("resource=ledger&limit=2&before={}", newest["next"]));
    assert_eq!(terms(&older).iter().map(|term| term.0).collect::<Vec<_>>(), [TERMS - 10_001, TERMS - 10_000]);
    let oldest = history(&gate, "resource=ledger&before=3");
    assert_eq!((terms(&oldest).len(), &oldest["more"], &oldest["next"]), (2, &json!(false), &Value::Null));
    for before in ["0", "-1", "newest"] {
        assert_eq!(gate.admin(&format!("/v1/history?resource=ledger&before={before}")).status, 400);
    }
}

#[test]
fn a_history_that_cannot_be_written_stops_nothing_and_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    // A file where the folder should be.
    std::fs::write(folder.path().join("history"), "in the way").unwrap();
    let origin = origin().start();
    let gate = highgate().upstream(origin.address).data(folder.path()).start();
    for round in 0..5 {
        let won = campaign(&gate, "default", &format!("job-{round}"));
        assert_eq!(gate.ask(&post("/").token(won["token"].as_u64().unwrap())).status, 200);
        resign(&gate, &won);
    }
    eventually("the log says so", || gate.errors().contains("history-failed"));
    assert_eq!(gate.errors().matches("history-failed").count(), 1, "{}", gate.errors());
}
