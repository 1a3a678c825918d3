//! What operators do to a cluster that runs: compaction, retiring a replica, and a mistake by hand.

use std::time::Duration;

use crate::support::load::{Choice, Load};
use crate::support::{Trial, eventually, trial};

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
    loses_its_membership(&trial, |incarnation| drop(trial.operate(0, &["retire", incarnation])));
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
