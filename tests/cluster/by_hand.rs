//! Marks that somebody deletes, lowers or overwrites in etcd by hand: no gateway forgets them, and etcd is not stormed.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::etcd::PREFIX;
use crate::support::line::Harm;
use crate::support::{Trial, eventually, trial};

fn key(resource: &str) -> String {
    format!("{PREFIX}/f/{resource}")
}

/// How many revisions etcd makes in a second, over this time.
fn revisions_per_second(trial: &Trial, time: Duration) -> f64 {
    let (before, began) = (trial.etcd().revision(), Instant::now());
    thread::sleep(time);
    (trial.etcd().revision() - before) as f64 / began.elapsed().as_secs_f64()
}

/// Every gateway, and one that joins only now, refuses what is below the mark and passes it.
fn is_fenced_at(trial: &mut Trial, resource: &str, token: u64) {
    trial.gateways[2].signal(Signal::TERM);
    trial.gateways[2].ends();
    trial.gateways[2].start_again();
    trial.gateways[2].becomes_ready();
    trial.gateways.iter().for_each(|gateway| gateway.opens(resource, token));
    trial.is_refused_everywhere(resource, token - 1, 412, "stale");
    trial.passes_everywhere(resource, token);
}

#[test]
fn a_mark_that_is_deleted_by_hand_is_put_back_and_etcd_is_not_stormed() {
    let name = "a_mark_that_is_deleted_by_hand_is_put_back_and_etcd_is_not_stormed";
    let Some(mut trial) = trial(name).start() else { return };
    trial.raises("ledger", 8);
    let idle = revisions_per_second(&trial, Duration::from_secs(2));
    assert_eq!(trial.etcd().ask(&["del", &key("ledger")]).trim(), "1");
    eventually("it is back", || !trial.etcd().keys(&key("ledger")).is_empty());
    is_fenced_at(&mut trial, "ledger", 8);
    // Again, with a raise under way that sees the mark gone.
    for token in [9, 10] {
        assert_eq!(trial.etcd().ask(&["del", &key("ledger")]).trim(), "1");
        trial.raises("ledger", token);
    }
    let after = revisions_per_second(&trial, Duration::from_secs(2));
    println!("{idle:.1} revisions a second before, {after:.1} after");
    assert!(after < idle + 30.0, "{after:.1} revisions a second, {idle:.1} before");
    is_fenced_at(&mut trial, "ledger", 10);
    assert!(trial.gateways[0].words().contains("deleted this mark"), "and it is said");
    trial.is_kept();
}

/// Its watch tells of nothing, so only a refused proposal can.
#[test]
fn a_deletion_that_a_gateway_does_not_hear_of_makes_no_storm_either() {
    let name = "a_deletion_that_a_gateway_does_not_hear_of_makes_no_storm_either";
    let Some(mut trial) = trial(name).that_can_be_deaf().start() else { return };
    trial.raises("ledger", 8);
    for number in 0..2 {
        trial.gateways[number].signal(Signal::TERM);
        trial.gateways[number].ends();
    }
    trial.gateways[2].line().suffers(Harm::LoseEvents, None);
    assert_eq!(trial.etcd().ask(&["del", &key("ledger")]).trim(), "1");
    let write = trial.gateways[2].write("ledger", 9).begin();
    let during = revisions_per_second(&trial, Duration::from_secs(2));
    println!("{during:.1} revisions a second while nobody tells it that the mark is gone");
    assert!(during < 60.0, "{during:.1} revisions a second");
    assert!(write.answer().passed());
    assert!(trial.gateways[2].write("ledger", 8).send().is_refused(412, "stale"));
    trial.is_kept();
}

#[test]
fn a_mark_that_is_overwritten_by_hand_with_nonsense_is_put_back() {
    let name = "a_mark_that_is_overwritten_by_hand_with_nonsense_is_put_back";
    let Some(mut trial) = trial(name).start() else { return };
    trial.raises("ledger", 8);
    trial.etcd().ask(&["put", &key("ledger"), "nonsense"]);
    eventually("it is back", || trial.etcd().ask(&["get", &key("ledger")]).contains("\"token\":8"));
    is_fenced_at(&mut trial, "ledger", 8);
    trial.raises("ledger", 9);
    trial.is_kept();
}

#[test]
fn nonsense_that_nobody_knows_the_mark_of_keeps_its_resource_shut() {
    let name = "nonsense_that_nobody_knows_the_mark_of_keeps_its_resource_shut";
    let Some(mut trial) = trial(name).start() else { return };
    trial.raises("ledger", 8);
    trial.raises("other", 8);
    for gateway in &mut trial.gateways {
        gateway.signal(Signal::TERM);
        gateway.ends();
    }
    trial.etcd().ask(&["put", &key("ledger"), "nonsense"]);
    for gateway in &mut trial.gateways {
        gateway.start_again();
        gateway.becomes_ready();
    }
    for token in [1, 8, 9] {
        trial.is_refused_everywhere("ledger", token, 423, "frozen");
    }
    // Who is elected has its mark raised, but not over what nobody can read.
    let candidate = trial.etcd().elect("ledger", "somebody");
    trial.raises("other", 9);
    candidate.resign();
    assert!(trial.etcd().ask(&["get", &key("ledger")]).contains("nonsense"), "nobody writes over it");
    assert!(trial.gateways[0].words().contains("cannot be read"), "and it is said");
    trial.etcd().ask(&["put", &key("ledger"), r#"{"state":"raised","token":8}"#]);
    trial.raises("other", 10);
    trial.gateways.iter().for_each(|gateway| gateway.opens("ledger", 8));
    trial.is_refused_everywhere("ledger", 7, 412, "stale");
    trial.passes_everywhere("ledger", 8);
}

#[test]
fn a_mark_that_is_lowered_by_hand_is_put_back_and_nobody_is_fenced() {
    let name = "a_mark_that_is_lowered_by_hand_is_put_back_and_nobody_is_fenced";
    let Some(mut trial) = trial(name).start() else { return };
    trial.raises("ledger", 8);
    let who = |trial: &Trial| trial.gateways.iter().map(|gateway| gateway.incarnation()).collect::<Vec<_>>();
    let before = who(&trial);
    for lower in [r#"{"state":"open","token":3}"#, r#"{"state":"raised","token":7}"#] {
        trial.etcd().ask(&["put", &key("ledger"), lower]);
        eventually("it is back", || trial.etcd().ask(&["get", &key("ledger")]).contains("\"token\":8"));
        trial.gateways.iter().for_each(|gateway| gateway.opens("ledger", 8));
    }
    assert_eq!(who(&trial), before, "all went on as who they were");
    assert!(trial.gateways[0].words().contains("lowered this mark"), "and it is said");
    is_fenced_at(&mut trial, "ledger", 8);
    trial.raises("ledger", 9);
    trial.is_kept();
}

/// All gateways are held still meanwhile, so that the raise comes before any of them can put the mark back.
#[test]
fn a_raise_over_a_frozen_mark_that_was_deleted_by_hand_leaves_it_frozen() {
    let name = "a_raise_over_a_frozen_mark_that_was_deleted_by_hand_leaves_it_frozen";
    let Some(trial) = trial(name).validity(Duration::from_secs(4)).start() else { return };
    trial.raises("ledger", 8);
    trial.operate(0, &["freeze", "ledger"]);
    trial.is_refused_everywhere("ledger", 8, 423, "frozen");
    trial.gateways.iter().for_each(|gateway| gateway.signal(Signal::STOP));
    assert_eq!(trial.etcd().ask(&["del", &key("ledger")]).trim(), "1");
    trial.etcd().ask(&["put", &key("ledger"), r#"{"state":"raised","token":9}"#]);
    trial.gateways.iter().for_each(|gateway| gateway.signal(Signal::CONT));
    let kept = || {
        let mark = trial.etcd().ask(&["get", &key("ledger")]);
        mark.contains("\"token\":9") && mark.contains("\"frozen\":true")
    };
    eventually("it is frozen at the new mark", kept);
    eventually("all know of the new mark", || {
        trial.gateways.iter().all(|gateway| gateway.mark("ledger").0 == 9)
    });
    trial.is_refused_everywhere("ledger", 9, 423, "frozen");
    trial.operate(1, &["thaw", "ledger"]);
    trial.gateways.iter().for_each(|gateway| gateway.opens("ledger", 9));
    trial.passes_everywhere("ledger", 9);
    trial.is_kept();
}
