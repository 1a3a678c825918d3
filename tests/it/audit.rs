//! The audit trail: everything that happens to a leader, a mark or the configuration is one line in the log.

use std::collections::BTreeMap;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Client, Highgate, config_for, eventually, highgate, json_post, origin, post};

/// The lines of the audit trail so far.
fn trail(gate: &Highgate) -> Vec<Value> {
    let line = |line: &str| serde_json::from_str::<Value>(line).ok();
    gate.errors().lines().filter_map(line).filter(|line| line["target"] == "audit").collect()
}

/// How often each event was logged of this resource and token, or, of an order, of this action.
fn counted(trail: &[Value]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in trail {
        let number = ["token", "to", "mark"].iter().find_map(|key| line[key].as_u64());
        let parts =
            ["event", "action", "holder"].iter().filter_map(|key| line[key].as_str().map(str::to_owned));
        let parts: Vec<_> = parts.chain(number.map(|number| number.to_string())).collect();
        *counts.entry(parts.join(" ")).or_default() += 1;
    }
    counts
}

fn order(gate: &Highgate, path: &str, body: &Value) -> Value {
    let answer = Client::connect(gate.admin_address()).ask(&json_post(path, body));
    assert!((200..300).contains(&answer.status), "{path}: {}", answer.text());
    if answer.body.is_empty() { Value::Null } else { answer.json() }
}

fn campaign(gate: &Highgate, holder: &str, ttl: u64) -> Value {
    let wish = json!({ "resource": "default", "holder": holder, "ttl_seconds": ttl, "wait_seconds": 20 });
    order(gate, "/v1/elections/campaign", &wish)
}

#[test]
fn every_event_of_a_story_is_one_line_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().start();
    let file = folder.path().join("highgate.toml");
    let config = config_for(origin.address, "lock_delay = \"40ms\"\nhold_timeout = \"5s\"");
    std::fs::write(&file, &config).unwrap();
    let start = || {
        let gate = highgate().config(&file).data(&folder.path().join("data"));
        gate.env("HIGHGATE_LOG_FORMAT", "json").start()
    };
    let gate = start();
    let default = json!({ "resource": "default" });
    campaign(&gate, "dies", 1);
    let resigns = campaign(&gate, "resigns", 60);
    let held = json!({ "resource": "default", "lease": resigns["lease"] });
    order(&gate, "/v1/elections/resign", &held);
    campaign(&gate, "is-evicted", 60);
    order(&gate, "/v1/operator/evict", &default);
    campaign(&gate, "is-overtaken", 60);
    order(&gate, "/v1/operator/raise", &json!({ "resource": "default", "to": 90 }));
    order(&gate, "/v1/operator/freeze", &default);
    order(&gate, "/v1/operator/thaw", &default);
    assert_eq!(gate.ask(&post("/").token(91)).status, 200);
    std::fs::write(&file, config.replace("5s", "6s")).unwrap();
    eventually("the change is taken", || gate.errors().contains("\"reloaded\""));
    std::fs::write(&file, "nonsense").unwrap();
    eventually("the nonsense is not", || gate.errors().contains("reload-failed"));
    std::fs::write(&file, &config).unwrap();
    eventually("the old file is taken", || counted(&trail(&gate)).get("reloaded") == Some(&2));
    let told = trail(&gate);
    let mut expected: BTreeMap<String, usize> = BTreeMap::new();
    for once in [
        "started",
        "elected dies 1",
        "expired dies 1",
        "elected resigns 2",
        "resigned resigns 2",
        "elected is-evicted 3",
        "evicted is-evicted 3",
        "order evict is-evicted 3",
        "elected is-overtaken 4",
        "superseded is-overtaken 4",
        "order raise 90",
        "order freeze",
        "frozen 90",
        "order thaw",
        "thawed 90",
        "reload-failed",
    ] {
        expected.insert(once.to_owned(), 1);
    }
    for mark in [1, 2, 3, 4, 90, 91] {
        expected.extend([(format!("raised {mark}"), 1), (format!("sealed {mark}"), 1)]);
    }
    expected.insert("reloaded".to_owned(), 2);
    assert_eq!(counted(&told), expected);
    let evict = told.iter().find(|line| line["action"] == "evict").unwrap();
    assert!(evict["client"].as_str().unwrap().starts_with("127.0.0.1:"), "{evict}");
    assert_eq!((&evict["identity"], &evict["resource"]), (&json!("anybody"), &json!("default")));
    gate.kill();
    let mut gate = start();
    gate.signal(Signal::TERM);
    assert_eq!(gate.exit_code(), 0, "{}", gate.said());
    let once = ["draining", "started", "stopped", "unclean-start"].map(|event| (event.to_owned(), 1));
    assert_eq!(counted(&trail(&gate)), BTreeMap::from(once));
}
