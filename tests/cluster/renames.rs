//! A config that names a resource differently is rolled out over several gateways, and its fence holds all the while.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::trial::Builder;
use crate::support::{A_WHILE, Trial, eventually, stays, trial};

/// Gateways that fence everything as `ledger`. What writers call it goes to the upstream, for the judge.
fn one_name(test: &'static str) -> Builder {
    trial(test).route("resource", "ledger").route("drain_timeout", "30s")
}

fn config(trial: &Trial, gateway: usize) -> PathBuf {
    trial.folder.path().join(format!("gateway-{gateway}.toml"))
}

/// Has one gateway's config call the resource something else, and waits until that is in force.
fn rename(trial: &Trial, gateway: usize, from: &str, to: &str) {
    let file = config(trial, gateway);
    let text = std::fs::read_to_string(&file).unwrap();
    let line = |name: &str| format!("resource = {name:?}");
    assert!(text.contains(&line(from)), "{text}");
    let reloads = trial.gateways[gateway].words().matches("routes reloaded").count();
    std::fs::write(&file, text.replace(&line(from), &line(to))).unwrap();
    trial.gateways[gateway].signal(Signal::HUP);
    eventually("the file is in force", || {
        trial.gateways[gateway].words().matches("routes reloaded").count() > reloads
    });
}

/// Waits until requests are checked under the new name only: the old one's mark does not move with it any more.
fn is_finished(trial: &Trial, mut token: u64) -> u64 {
    eventually("the change of names is finished", || {
        token += 1;
        assert!(trial.gateways[0].write("ledger", token).send().passed());
        trial.gateways[0].mark("ledger").0 < token
    });
    token
}

#[test]
fn a_rolling_change_of_a_name_keeps_the_fence_on_all_gateways() {
    let name = "a_rolling_change_of_a_name_keeps_the_fence_on_all_gateways";
    let Some(trial) = one_name(name).start() else { return };
    let record = trial.upstream.record();
    trial.raises("ledger", 50);
    let slow = trial.gateways[2].write("ledger", 50).held("fifty").begin();
    record.sees("the slow write", |entry| entry.gateway == "gateway-2");

    rename(&trial, 0, "ledger", "accounts");
    trial.is_refused_everywhere("ledger", 49, 412, "stale");
    let next = trial.gateways[0].write("ledger", 51).begin();
    eventually("the old name is raised", || trial.gateways[2].mark("ledger").0 == 51);
    stays("51 waits for the slow write", A_WHILE, || !record.has_token("ledger", 51));
    trial.upstream.release("fifty");
    assert!(slow.answer().passed());
    assert!(next.answer().passed());
    trial.passes_everywhere("ledger", 51);
    trial.is_refused_everywhere("ledger", 50, 412, "stale");

    // Through a gateway with the old config, and through one with the new.
    let slow = trial.gateways[2].write("ledger", 51).held("fifty-one").begin();
    record.sees("the slow write", |entry| entry.gateway == "gateway-2" && entry.token == 51);
    rename(&trial, 1, "ledger", "accounts");
    let next = trial.gateways[1].write("ledger", 52).begin();
    stays("52 waits for the slow write", A_WHILE, || !record.has_token("ledger", 52));
    trial.upstream.release("fifty-one");
    assert!(slow.answer().passed() && next.answer().passed());

    rename(&trial, 2, "ledger", "accounts");
    let last = is_finished(&trial, 52);
    trial.is_refused_everywhere("ledger", last - 1, 412, "stale");
    trial.passes_everywhere("ledger", last);
    trial.is_kept().is_worth(3, 10);
}

#[test]
fn a_gateway_that_starts_with_another_name_than_the_others_have_keeps_the_fence() {
    let name = "a_gateway_that_starts_with_another_name_than_the_others_have_keeps_the_fence";
    let Some(mut trial) = one_name(name).start() else { return };
    trial.raises("ledger", 50);
    trial.gateways[1].signal(Signal::TERM);
    assert_eq!(trial.gateways[1].ends(), 0);
    let file = config(&trial, 1);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("resource = \"ledger\"", "resource = \"accounts\"")).unwrap();
    trial.gateways[1].start_again();
    trial.gateways[1].becomes_ready();

    trial.is_refused_everywhere("ledger", 49, 412, "stale");
    let record = trial.upstream.record();
    let slow = trial.gateways[2].write("ledger", 50).held("fifty").begin();
    record.sees("the slow write", |entry| entry.gateway == "gateway-2" && entry.token == 50);
    let next = trial.gateways[1].write("ledger", 51).begin();
    stays("51 waits for the slow write", A_WHILE, || !record.has_token("ledger", 51));
    trial.upstream.release("fifty");
    assert!(slow.answer().passed() && next.answer().passed());
    trial.is_refused_everywhere("ledger", 50, 412, "stale");
    trial.is_kept().is_worth(1, 2);
}

#[test]
fn a_request_that_was_claimed_before_a_change_and_a_fence_is_checked_under_the_new_name() {
    let name = "a_request_that_was_claimed_before_a_change_and_a_fence_is_checked_under_the_new_name";
    let Some(trial) = one_name(name).start() else { return };
    trial.raises("ledger", 50);
    let slow = trial.gateways[2].write("ledger", 50).uploaded_over(Duration::from_secs(15)).begin();
    // Answered behind it, so that it has most likely come by then; if not, it has the new name anyway.
    assert!(trial.gateways[2].write("ledger", 50).send().passed());
    rename(&trial, 0, "ledger", "accounts");
    rename(&trial, 1, "ledger", "accounts");
    trial.upstream.stops("gateway-2");
    trial.gateways[2].signal(Signal::STOP);
    eventually("the change is finished without it", || {
        (0..2).all(|gateway| trial.gateways[gateway].overview()["change_of_names"].is_null())
    });
    assert!(trial.gateways[0].write("ledger", 51).send().passed());
    assert_eq!(trial.gateways[0].mark("ledger").0, 50, "only the new name was raised");
    trial.gateways[2].signal(Signal::CONT);
    trial.upstream.resumes("gateway-2");
    trial.gateways[2].becomes_ready();
    assert!(!slow.is_answered(), "its last byte is still to come");
    let outcome = slow.answer();
    assert!(outcome.is_refused(412, "stale"), "{outcome:?}");
    trial.passes_everywhere("ledger", 51);
    trial.is_kept();
}

#[test]
fn a_change_is_taken_back_by_the_gateway_that_has_it() {
    let name = "a_change_is_taken_back_by_the_gateway_that_has_it";
    let Some(trial) = one_name(name).start() else { return };
    let record = trial.upstream.record();
    trial.raises("ledger", 50);
    let slow = trial.gateways[2].write("ledger", 50).held("fifty").begin();
    record.sees("the slow write", |entry| entry.gateway == "gateway-2");
    let is_under_way = |gateway: usize| !trial.gateways[gateway].overview()["change_of_names"].is_null();
    rename(&trial, 0, "ledger", "typo");
    eventually("all know of the change", || (0..3).all(is_under_way));
    rename(&trial, 0, "typo", "ledger");
    eventually("it is taken back", || !(0..3).any(is_under_way));
    trial.upstream.release("fifty");
    assert!(slow.answer().passed());
    trial.is_refused_everywhere("ledger", 49, 412, "stale");
    rename(&trial, 1, "ledger", "accounts");
    trial.is_refused_everywhere("ledger", 49, 412, "stale");
    trial.is_kept();
}
