//! What operators do to a cluster that runs: compaction, retiring a replica, a mistake by hand, and what is kept how long.

use std::time::Duration;

use serde_json::json;

use crate::joins::put;
use crate::support::load::{Choice, Load};
use crate::support::{Gateway, Trial, eventually, trial};

/// While a watch is away, what it would have heard is compacted: only a resync can make up for it.
#[test]
fn compaction_under_load_while_a_gateway_hears_nothing() {
    let builder = trial("compaction_under_load_while_a_gateway_hears_nothing").relayed();
    let Some(trial) = builder.validity(Duration::from_secs(4)).start() else { return };
    let load = Load::start(&trial, &["a", "b"], Choice::Loyal);
    load.hands_over(3);
    let before = trial.gateways[2].incarnation().expect("it is ready");
    for round in 0..3 {
        let resource = format!("fresh/{round}");
        trial.gateways[2].line().cut();
        let write = trial.gateways[0].write(&resource, 1).begin();
        eventually("a raise that it does not hear of", || trial.gateways[1].mark(&resource).0 == 1);
        trial.etcd().compact();
        assert!(!write.is_answered(), "it waits for the one that is away");
        trial.gateways[2].line().mend();
        assert!(write.answer().passed());
        load.hands_over(2);
    }
    for _ in 0..10 {
        trial.etcd().compact();
        load.hands_over(1);
    }
    let resumed = load.resumes();
    load.stop();
    println!("every gateway passed new tokens {resumed:?} after the last compaction");
    let after = trial.gateways[2].incarnation();
    assert_eq!(after, Some(before), "it caught up as the one that it was, and so had to list anew");
    trial.is_kept().is_worth(30, 100);
}

/// Takes the last gateway's membership away in some way, under load; it fences itself and joins anew.
fn loses_its_membership(trial: &Trial, take_away: impl Fn(&str)) {
    let load = Load::start(trial, &["a", "b"], Choice::Loyal);
    load.hands_over(4);
    for _ in 0..3 {
        let before = trial.gateways[2].incarnation().expect("it is ready");
        take_away(&before);
        eventually("it is somebody else", || {
            let now = trial.gateways[2].incarnation();
            now.is_some_and(|now| now != before) && trial.gateways[2].door.says_ready()
        });
        let members = trial.etcd().keys("/highgate/test/m/");
        assert!(!members.iter().any(|key| key.ends_with(&before)), "{members:?}");
        let resumed = load.resumes();
        println!("every gateway passed new tokens {resumed:?} later");
    }
    load.stop();
    // Every loss costs the others a tombstone's time, so there are few.
    trial.is_kept().is_worth(8, 60);
}

#[test]
fn a_replica_that_an_operator_retires_fences_itself_and_joins_anew() {
    let name = "a_replica_that_an_operator_retires_fences_itself_and_joins_anew";
    let Some(trial) = trial(name).route("hold_timeout", "3s").start() else { return };
    loses_its_membership(&trial, |incarnation| drop(trial.operate(0, &["retire", incarnation, "--yes"])));
}

#[test]
fn a_member_key_that_is_deleted_by_hand_does_no_harm() {
    let name = "a_member_key_that_is_deleted_by_hand_does_no_harm";
    let Some(trial) = trial(name).route("hold_timeout", "3s").start() else { return };
    loses_its_membership(&trial, |incarnation| {
        let deleted = trial.etcd().ask(&["del", &format!("/highgate/test/m/{incarnation}")]);
        assert_eq!(deleted.trim(), "1", "its key is where PROTOCOL says");
    });
}

#[test]
fn retiring_nobody_is_an_error_that_says_so() {
    let Some(trial) = trial("retiring_nobody_is_an_error_that_says_so").start() else { return };
    let admin = trial.gateways[0].door.admin().to_string();
    let nobody = "0123456789abcdef0123456789abcdef";
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_highgate"));
    let output = command.args(["retire", nobody, "--admin", &admin]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(!output.stderr.is_empty());
    let members = trial.etcd().keys("/highgate/test/m/");
    assert_eq!(members.len(), 3, "{members:?}");
}

#[test]
fn what_the_run_once_ledger_keeps_no_longer_is_removed_from_etcd() {
    let name = "what_the_run_once_ledger_keeps_no_longer_is_removed_from_etcd";
    let Some(trial) = trial(name).route("tokens", "issued").start() else { return };
    let wish = json!({ "resource": "ledger", "holder": "job", "ttl_seconds": 60, "wait_seconds": 5 });
    let lease = trial.gateways[0].post_admin("/v1/elections/campaign", &wish).json()["lease"].clone();
    for key in ["a", "b", "c"] {
        let step = json!({ "key": key, "resource": "ledger", "lease": lease });
        for what in ["begin", "complete"].iter().take(if key == "a" { 1 } else { 2 }) {
            let answer = trial.gateways[1].post_admin(&format!("/v1/once/{what}"), &step);
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    }
    assert_eq!(trial.etcd().keys("/highgate/test/o/").len(), 3);
    let file = trial.folder.path().join("gateway-2.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    // Written by a clock that is years behind, which is what a clock that is years ahead would take all others for.
    let old = r#"{"state":"completed","holder":"job","token":1,"at":"2001-01-01T00:00:00.000Z"}"#;
    trial.etcd().put("/highgate/test/o/ledger/old", old);
    // As it comes along when the keys of an etcd that was far ahead are copied into a new one: there everything is old.
    let copied = r#"{"clock":1000000000,"notes":[{"clock":0,"revision":5000000}],"puts":500}"#;
    trial.etcd().put("/highgate/test/x/once", copied);
    std::fs::write(&file, format!("{config}\n[once]\nkeep = \"8s\"\n")).unwrap();
    let clock = || {
        let ages = trial.etcd().value("/highgate/test/x/once");
        serde_json::from_str::<serde_json::Value>(&ages).ok()?["clock"].as_u64()
    };
    eventually("the ledger gets older", || clock().is_some_and(|clock| (1..1_000_000_000).contains(&clock)));
    let (kept, clock) = (trial.etcd().keys("/highgate/test/o/"), clock().unwrap());
    assert!(kept.len() == 4 || clock >= 8000, "after {clock} ms there is {kept:?}");
    eventually("nothing is kept of what is over", || trial.etcd().keys("/highgate/test/o/").is_empty());
    assert_eq!(
        trial.etcd().keys("/highgate/test/f/"),
        ["/highgate/test/f/ledger"],
        "a mark is kept for good"
    );
}

/// Ten seconds of history instead of an hour. Whatever anybody needs of it is still there, or is read again.
#[test]
fn the_gateways_compact_etcds_history_and_nobody_notices() {
    let name = "the_gateways_compact_etcds_history_and_nobody_notices";
    let builder = trial(name).validity(Duration::from_secs(4)).store("compact", "10s");
    let Some(trial) = builder.start() else { return };
    let load = Load::start(&trial, &["a", "b"], Choice::Loyal);
    let before: Vec<_> = trial.gateways.iter().map(|gateway| gateway.incarnation()).collect();
    for _ in 0..2 {
        let now = trial.etcd().revision();
        eventually("what is old is gone", || trial.etcd().has_forgotten(now));
        assert!(!trial.etcd().has_forgotten(trial.etcd().revision()), "and what is new is not");
        load.hands_over(2);
    }
    load.resumes();
    load.stop();
    let after: Vec<_> = trial.gateways.iter().map(|gateway| gateway.incarnation()).collect();
    assert_eq!(before, after, "nobody was fenced");
    trial.is_kept();
}

#[test]
fn an_etcd_that_is_to_compact_by_itself_is_left_alone() {
    let name = "an_etcd_that_is_to_compact_by_itself_is_left_alone";
    let Some(trial) = trial(name).store("compact", "off").start() else { return };
    let first = trial.etcd().revision();
    let load = Load::start(&trial, &["a"], Choice::Loyal);
    load.hands_over(4);
    load.stop();
    assert!(!trial.etcd().has_forgotten(first));
}

/// A database that fills up: it is said before it is full, and when it is full, by whom nothing passes any more.
#[test]
fn an_etcd_that_runs_out_of_room_is_spoken_of() {
    let name = "an_etcd_that_runs_out_of_room_is_spoken_of";
    let builder = trial(name).etcd_flags(&["--quota-backend-bytes", "33554432"]).store("compact", "10s");
    let Some(trial) = builder.start() else { return };
    trial.raises("ledger", 7);
    let warns = |word: &str| {
        let says = |gateway: &Gateway| gateway.overview()["warnings"].to_string().contains(word);
        trial.gateways.iter().all(says)
    };
    assert!(!warns("etcd"), "{}", trial.gateways[0].overview());
    for number in 0..27 {
        if trial.etcd().bytes().0 < 26 << 20 {
            put(&trial, std::iter::once((format!("fill/{number}"), vec![b'x'; 1 << 20])), 1);
        }
    }
    eventually("they say that it is almost full", || warns("MiB of 32 MiB"));
    trial.passes_everywhere("ledger", 7);
    let status = String::from_utf8(trial.operate(0, &["status"]).stdout).unwrap();
    assert!(status.contains("warning: etcd's database has"), "{status}");
    let mut more = 0;
    eventually("it takes no more", || {
        more += 1;
        !trial.etcd().put(&format!("more/{more}"), &"x".repeat(120 << 10))
    });
    eventually("they say that it is full", || warns("NOSPACE"));
    eventually("and so does the answer of who is not ready", || {
        trial.gateways.iter().all(|gateway| gateway.admin("/readyz").text().contains("NOSPACE"))
    });
    assert!(trial.gateways[0].words().contains("etcd needs an operator"), "and the log");
}
