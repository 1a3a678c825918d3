//! A config that names a resource differently is rolled out over several gateways, and its fence holds all the while.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::etcd::PREFIX;
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

/// Wins an election of the gateways': the token and the lease.
fn elect(trial: &Trial, gateway: usize, resource: &str) -> (u64, Value) {
    let wish = json!({"resource": resource, "holder": "job", "ttl_seconds": 60, "wait_seconds": 10});
    let won = trial.gateways[gateway].post_admin("/v1/elections/campaign", &wish);
    assert_eq!(won.status, 200, "{won:?}");
    (won.json()["token"].as_u64().unwrap(), won.json()["lease"].clone())
}

fn change_is_over(trial: &Trial) {
    let is_over = |gateway: usize| trial.gateways[gateway].overview()["change_of_names"].is_null();
    eventually("the change of names is over", || (0..3).all(is_over));
}

#[test]
fn an_elected_leader_of_the_old_name_passes_everywhere_until_the_change_is_over_and_nowhere_after_it() {
    let name =
        "an_elected_leader_of_the_old_name_passes_everywhere_until_the_change_is_over_and_nowhere_after_it";
    let Some(trial) = one_name(name).route("tokens", "issued").start() else { return };
    let record = trial.upstream.record();
    let (old, lease) = elect(&trial, 0, "ledger");
    trial.passes_everywhere("ledger", old);
    let slow = trial.gateways[2].write("ledger", old).held("old").begin();
    record.sees("the slow write", |entry| entry.gateway == "gateway-2" && entry.effect.is_none());
    rename(&trial, 0, "ledger", "accounts");
    trial.passes_everywhere("ledger", old);

    let resigned = json!({"resource": "ledger", "lease": lease});
    assert_eq!(trial.gateways[1].post_admin("/v1/elections/resign", &resigned).status, 204);
    eventually("all gateways have heard of it", || {
        let write = |gateway: usize| trial.gateways[gateway].write("ledger", old).send();
        (0..3).all(|gateway| write(gateway).is_refused(403, "not-issued"))
    });
    trial.upstream.release("old");
    assert!(slow.answer().passed());
    change_is_over(&trial);
    trial.is_refused_everywhere("ledger", old, 403, "not-issued");
    let (new, _) = elect(&trial, 1, "accounts");
    trial.passes_everywhere("ledger", new);
    trial.is_refused_everywhere("ledger", old, 412, "stale");
    trial.is_kept();
}

/// Deletes what says which marks renamed resources start from.
fn delete_names(trial: &Trial) {
    assert_eq!(trial.etcd().ask(&["del", &format!("{PREFIX}/names")]).trim(), "1");
}

#[test]
fn names_that_are_deleted_by_hand_are_put_back_with_the_marks_that_renamed_resources_start_from() {
    let name = "names_that_are_deleted_by_hand_are_put_back_with_the_marks_that_renamed_resources_start_from";
    let Some(trial) = one_name(name).start() else { return };
    trial.raises("ledger", 50);
    for gateway in 0..3 {
        rename(&trial, gateway, "ledger", "accounts");
    }
    change_is_over(&trial);
    delete_names(&trial);
    let key = format!("{PREFIX}/names");
    eventually("they are back", || !trial.etcd().keys(&key).is_empty());
    trial.gateways.iter().for_each(|gateway| gateway.becomes_ready());
    assert!(trial.gateways.iter().any(|gateway| gateway.words().contains("they are put back")));
    trial.is_refused_everywhere("ledger", 49, 412, "stale");
    trial.passes_everywhere("ledger", 50);
    trial.is_kept();
}

#[test]
fn names_that_were_changed_while_a_gateway_was_away_are_not_put_back_as_it_knew_them() {
    let name = "names_that_were_changed_while_a_gateway_was_away_are_not_put_back_as_it_knew_them";
    let Some(mut trial) = one_name(name).relayed().start() else { return };
    trial.raises("ledger", 50);
    trial.gateways[2].line().cut();
    eventually("it is fenced", || !trial.gateways[2].door.says_ready());
    rename(&trial, 0, "ledger", "accounts");
    rename(&trial, 1, "ledger", "accounts");
    eventually("the change is finished without it", || {
        (0..2).all(|gateway| trial.gateways[gateway].overview()["change_of_names"].is_null())
    });
    assert!(trial.gateways[0].write("ledger", 60).send().passed());
    assert_eq!(trial.gateways[0].mark("ledger").0, 50, "only the new name was raised");
    for gateway in &mut trial.gateways[..2] {
        gateway.signal(Signal::TERM);
        assert_eq!(gateway.ends(), 0);
    }
    delete_names(&trial);
    trial.gateways[2].line().mend();
    let says_why = || trial.gateways[2].words().contains("the document of names has been deleted");
    eventually("it looks for them", || says_why() || trial.gateways[2].door.says_ready());
    assert!(!trial.gateways[2].write("ledger", 55).send().passed(), "60 passed under the new name");
    assert!(says_why());
    stays("it is not ready", A_WHILE, || !trial.gateways[2].door.says_ready());
    let bumped = trial.operate(2, &["era", "bump", "--yes"]);
    assert!(bumped.status.success(), "{bumped:?}");
    trial.gateways[2].becomes_ready();
    assert!(trial.gateways[2].write("ledger", 61).send().is_refused(412, "stale"), "of the era before");
    assert!(trial.gateways[2].write("ledger", (1 << 48) + 1).send().passed());
    trial.is_kept();
}

#[test]
fn a_gateway_that_finds_marks_and_no_names_serves_only_after_a_new_era() {
    let name = "a_gateway_that_finds_marks_and_no_names_serves_only_after_a_new_era";
    let Some(mut trial) = one_name(name).start() else { return };
    trial.raises("ledger", 50);
    for gateway in &mut trial.gateways {
        gateway.signal(Signal::TERM);
        assert_eq!(gateway.ends(), 0);
    }
    delete_names(&trial);
    trial.gateways[0].start_again();
    let says_why = || trial.gateways[0].words().contains("the document of names has been deleted");
    eventually("it says why it does not serve", says_why);
    stays("it is not ready", A_WHILE, || !trial.gateways[0].door.says_ready());
    let bumped = trial.operate(0, &["era", "bump", "--yes"]);
    assert!(bumped.status.success(), "{bumped:?}");
    trial.gateways[0].becomes_ready();
    assert!(trial.gateways[0].write("ledger", 51).send().is_refused(412, "stale"), "of the era before");
    assert!(trial.gateways[0].write("ledger", (1 << 48) + 1).send().passed());
}
