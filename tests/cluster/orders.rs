//! Orders to all replicas: asked for first, and the way back from a mark that was raised too high.

use std::process::{Command, Output};

use serde_json::json;

use crate::support::{Trial, eventually, trial};

const NEXT_ERA: u64 = 1 << 48;

/// Runs `highgate` without a terminal.
fn highgate(trial: &Trial, words: &[&str]) -> Output {
    let admin = trial.gateways[0].door.admin().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_highgate"));
    command.args(words).args(["--admin", &admin]).output().expect("it was built")
}

#[test]
fn an_order_to_all_replicas_is_not_carried_out_without_a_yes() {
    let name = "an_order_to_all_replicas_is_not_carried_out_without_a_yes";
    let Some(trial) = trial(name).start() else { return };
    let me = trial.gateways[1].incarnation().expect("it takes part");
    for order in [&["era", "bump"][..], &["retire", &me]] {
        let asked = highgate(&trial, order);
        let text = String::from_utf8_lossy(&asked.stderr);
        assert_eq!(asked.status.code(), Some(2), "{order:?}: {text}");
        assert!(text.contains("nothing was done") && text.contains("--yes"), "{text}");
        let tried = highgate(&trial, &[order, &["--dry-run"]].concat());
        assert!(tried.status.success(), "{tried:?}");
    }
    assert_eq!(trial.etcd().keys("/highgate/test/m/").len(), 3);
    assert!(trial.gateways.iter().all(|gateway| gateway.overview()["era"] == 0));
    trial.operate(0, &["era", "bump", "--yes", "--from", "0"]);
    eventually("the era is known", || trial.gateways[0].overview()["era"] == 1);
    trial.operate(0, &["era", "bump", "--yes", "--from", "0"]);
    assert_eq!(trial.gateways[0].overview()["era"], 1, "said again, it begins no other");
}

#[test]
fn a_mark_that_was_raised_too_high_is_left_behind_by_a_new_era() {
    let name = "a_mark_that_was_raised_too_high_is_left_behind_by_a_new_era";
    let Some(trial) = trial(name).route("tokens", "issued").start() else { return };
    let wish = json!({ "resource": "ledger", "holder": "job", "ttl_seconds": 60, "wait_seconds": 15 });
    let highest = (NEXT_ERA - 1).to_string();
    let unforced = highgate(&trial, &["raise", "ledger", "--new", "--to", &highest]);
    assert_eq!(unforced.status.code(), Some(1), "{unforced:?}");
    let unborn = highgate(&trial, &["raise", "ledger", "--new", "--force", "--to", &NEXT_ERA.to_string()]);
    assert_eq!(unborn.status.code(), Some(1), "above what any era bump could leave behind: {unborn:?}");
    trial.operate(0, &["raise", "ledger", "--new", "--force", "--to", &highest]);
    let shut_out = trial.etcd().elect("ledger", "etcdctl");
    trial.is_refused_everywhere("ledger", shut_out.token, 412, "stale");
    shut_out.resign();

    trial.operate(0, &["era", "bump", "--yes"]);
    let won = trial.gateways[1].post_admin("/v1/elections/campaign", &wish);
    assert_eq!(won.status, 200, "{won:?}");
    let token = won.json()["token"].as_u64().expect("a token");
    assert!(token > NEXT_ERA, "{token}");
    trial.gateways.iter().for_each(|gateway| gateway.opens("ledger", token));
    trial.passes_everywhere("ledger", token);
    trial.is_kept();
}
