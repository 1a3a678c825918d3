//! Outcomes that nobody knows, on routes that leave them to an operator: whoever asks, and whoever dies.

use std::time::Duration;

use crate::support::{Trial, eventually, stays, trial};

fn blocking(name: &'static str, tokens: &str) -> Option<Trial> {
    let builder = trial(name).route("on_unknown", "block").route("drain_timeout", "200ms");
    builder.route("tokens", tokens).route("hold_timeout", "500ms").start()
}

/// A write under way at the last gateway that is never answered.
fn leaves_something_unknown(trial: &Trial, token: u64) {
    let hanging = trial.gateways[2].write("ledger", token).held("for ever").begin();
    trial.upstream.record().sees("the write", |entry| entry.token == token && entry.gateway == "gateway-2");
    drop(hanging);
}

/// Longer than a tombstone and every delay together.
fn long(trial: &Trial) -> Duration {
    trial.timing.bound() + trial.timing.validity * 2
}

#[test]
fn an_unknown_outcome_blocks_until_an_operator_thaws_it_through_any_replica() {
    let name = "an_unknown_outcome_blocks_until_an_operator_thaws_it_through_any_replica";
    let Some(trial) = blocking(name, "trusted") else { return };
    trial.raises("ledger", 7);
    leaves_something_unknown(&trial, 7);
    assert!(trial.gateways[0].write("ledger", 8).send().has_status(503));
    let before = trial.gateways[2].incarnation();
    stays("nothing opens by itself", long(&trial), || trial.gateways[0].mark("ledger").1 == "raising");
    assert_eq!(
        trial.gateways[2].incarnation(),
        before,
        "a replica that waits for an operator is not evicted"
    );
    trial.operate(0, &["thaw", "ledger"]);
    trial.gateways.iter().for_each(|gateway| gateway.opens("ledger", 8));
    trial.passes_everywhere("ledger", 8);
    trial.is_kept();
}

#[test]
fn a_replica_that_dies_with_an_unknown_outcome_leaves_it_to_an_operator() {
    let name = "a_replica_that_dies_with_an_unknown_outcome_leaves_it_to_an_operator";
    // Issued: the mark was opened by an election, which knows of no route.
    let Some(mut trial) = blocking(name, "issued") else { return };
    let leader = trial.etcd().elect("ledger", "one");
    trial.gateways.iter().for_each(|gateway| gateway.opens("ledger", leader.token));
    leaves_something_unknown(&trial, leader.token);
    trial.gateways[2].kill();
    drop(leader);
    trial.etcd().ask(&["del", "--prefix", "/highgate/test/e/"]);
    let next = trial.etcd().elect("ledger", "two");
    let raised = |trial: &Trial| trial.gateways[0].mark("ledger") == (next.token, "raising".to_owned());
    eventually("the mark is raised", || raised(&trial));
    stays("nothing opens by itself", long(&trial), || raised(&trial));
    trial.operate(1, &["thaw", "ledger"]);
    for gateway in &trial.gateways[..2] {
        gateway.opens("ledger", next.token);
        assert!(gateway.write("ledger", next.token).send().passed());
    }
    trial.is_kept();
}
