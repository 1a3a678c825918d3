//! A gateway is killed, stopped or cut off from etcd while a token is being raised: the others go on within
//! X + W + D, and the one that was lost does no harm when it comes back.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::line::Harm;
use crate::support::record::Cut;
use crate::support::writer::Begun;
use crate::support::{A_WHILE, SLACK, Timing, Trial, eventually, stays, trial};

/// Token 7 is open, and the last gateway has a write of it under way that does not end by itself.
fn slow_write_on_the_last(trial: &Trial) -> Begun {
    trial.raises("ledger", 7);
    let slow = trial.gateways[2].write("ledger", 7).held("seven").begin();
    trial.upstream.record().sees("the slow write", |entry| entry.gateway == "gateway-2");
    slow
}

/// The others pass token 8 within the bound; how long it took.
fn others_take_over(trial: &Trial, bound: Duration) -> Duration {
    let began = Instant::now();
    let writes = [0, 1].map(|gateway| trial.gateways[gateway].write("ledger", 8).begin());
    for write in writes {
        let outcome = write.answer();
        assert!(outcome.passed(), "{outcome:?}");
    }
    let took = began.elapsed();
    println!("the others passed the next token after {took:?}; the bound is {bound:?}");
    assert!(took <= bound + SLACK, "{took:?}");
    took
}

/// The lost one serves again, as somebody else, and the old token is refused by all.
fn serves_again(trial: &Trial, before: &str) {
    trial.gateways[2].becomes_ready();
    let now = trial.gateways[2].incarnation().expect("it is ready");
    assert_ne!(now, before, "an incarnation is never used again");
    trial.gateways[2].opens("ledger", 8);
    trial.passes_everywhere("ledger", 8);
    trial.is_refused_everywhere("ledger", 7, 412, "stale");
    trial.is_kept();
}

fn incarnation(trial: &Trial) -> String {
    trial.gateways[2].incarnation().expect("it is ready")
}

/// What a killed gateway leaves to its kernel and its upstream: at the most D of it.
#[test]
fn when_a_gateway_is_killed_the_others_take_over() {
    let Some(mut trial) = trial("when_a_gateway_is_killed_the_others_take_over").start() else { return };
    let before = incarnation(&trial);
    let slow = slow_write_on_the_last(&trial);
    trial.gateways[2].kill();
    let took = others_take_over(&trial, trial.timing.bound());
    assert!(took >= trial.timing.lock_delay, "the slow write's end is unknown, and only {took:?} was waited");
    assert!(!slow.answer().passed());
    trial.gateways[2].start_again();
    serves_again(&trial, &before);
}

/// Once it has acknowledged the raise, it is suspected only when its drain should have ended.
#[test]
fn when_a_gateway_is_killed_while_it_drains_the_others_take_over() {
    let name = "when_a_gateway_is_killed_while_it_drains_the_others_take_over";
    let Some(mut trial) = trial(name).route("drain_timeout", "600ms").start() else { return };
    let Timing { validity, lock_delay } = trial.timing;
    let before = incarnation(&trial);
    let slow = slow_write_on_the_last(&trial);
    let next = trial.gateways[0].write("ledger", 8).begin();
    eventually("it drains", || trial.gateways[2].mark("ledger") == (8, "raising".to_owned()));
    trial.gateways[2].kill();
    let suspected = (2 * validity).max(Duration::from_millis(600) + lock_delay + trial.timing.suspect());
    others_take_over(&trial, suspected + trial.timing.wait() + lock_delay);
    assert!(next.answer().passed());
    assert!(!slow.answer().passed());
    trial.gateways[2].start_again();
    serves_again(&trial, &before);
}

#[test]
fn a_gateway_that_was_stopped_forwards_nothing_old_resets_what_it_had_and_serves_again() {
    let name = "a_gateway_that_was_stopped_forwards_nothing_old_resets_what_it_had_and_serves_again";
    let Some(trial) = trial(name).start() else { return };
    let record = trial.upstream.record();
    let before = incarnation(&trial);
    let slow = slow_write_on_the_last(&trial);
    trial.gateways[2].signal(Signal::STOP);
    // Its kernel takes these, and it finds them when it wakes up.
    let late: Vec<_> = (0..5).map(|_| trial.gateways[2].write("ledger", 7).begin()).collect();
    others_take_over(&trial, trial.timing.bound());
    let sevens = || record.entries().iter().filter(|entry| entry.token == 7).count();
    let forwarded = sevens();
    trial.gateways[2].signal(Signal::CONT);

    let slow_entry = record.sees("the slow write's connection ends", |entry| entry.cut.is_some());
    assert_eq!(slow_entry.cut.map(|(_, how)| how), Some(Cut::Reset), "what is still buffered dies with it");
    assert_eq!(slow_entry.effect, None);
    assert!(!slow.answer().passed());
    for write in late {
        let outcome = write.answer();
        assert!(outcome.has_status(412) || outcome.has_status(503), "{outcome:?}");
    }
    stays("nothing of the old token is forwarded", A_WHILE, || sevens() == forwarded);
    serves_again(&trial, &before);
}

/// Cut off, it knows by itself when its time is over, and the upstream hears of it.
fn a_gateway_is_cut_off(trial: Trial, cut: impl FnOnce(&Trial)) {
    let record = trial.upstream.record();
    let before = incarnation(&trial);
    let slow = slow_write_on_the_last(&trial);
    cut(&trial);
    let began = Instant::now();
    let next = trial.gateways[0].write("ledger", 8).begin();

    let slow_entry = record.sees("the slow write's connection ends", |entry| entry.cut.is_some());
    let (fenced, how) = slow_entry.cut.unwrap();
    assert_eq!(how, Cut::Reset);
    let (validity, fenced) = (trial.timing.validity, fenced - began);
    println!("cut off, it gave up after {fenced:?} of {validity:?}");
    assert!(fenced <= validity + SLACK, "{fenced:?}");
    assert!(!slow.answer().passed());
    eventually("it is not ready", || !trial.gateways[2].door.says_ready());
    assert!(trial.gateways[2].is_alive(), "but alive");
    for token in [7, 8] {
        let refusal = trial.gateways[2].write("ledger", token).refusal();
        let reason = refusal.reason().unwrap_or_default().to_owned();
        assert_eq!(refusal.status, 503, "{refusal:?}");
        assert!(["fenced", "store-unavailable"].contains(&reason.as_str()), "{reason}");
        assert!(refusal.header("retry-after").is_some(), "{refusal:?}");
    }

    assert!(next.answer().passed());
    let (took, bound) = (began.elapsed(), trial.timing.bound());
    println!("the others passed the next token after {took:?}; the bound is {bound:?}");
    assert!(took <= bound + SLACK, "{took:?}");
    trial.gateways[2].line().mend();
    serves_again(&trial, &before);
}

#[test]
fn a_gateway_whose_connections_to_etcd_are_closed_gives_up_in_time_and_serves_again() {
    let name = "a_gateway_whose_connections_to_etcd_are_closed_gives_up_in_time_and_serves_again";
    let Some(trial) = trial(name).relayed().start() else { return };
    a_gateway_is_cut_off(trial, |trial| trial.gateways[2].line().cut());
}

#[test]
fn a_gateway_that_etcd_does_not_hear_any_more_gives_up_in_time_and_serves_again() {
    let name = "a_gateway_that_etcd_does_not_hear_any_more_gives_up_in_time_and_serves_again";
    let Some(trial) = trial(name).relayed().start() else { return };
    a_gateway_is_cut_off(trial, |trial| trial.gateways[2].line().swallow());
}

/// With nobody left who could have acknowledged anything.
#[test]
fn when_all_gateways_are_killed_the_next_ones_pass_the_open_token_at_once_and_raise_after_the_wait() {
    let name =
        "when_all_gateways_are_killed_the_next_ones_pass_the_open_token_at_once_and_raise_after_the_wait";
    let Some(mut trial) = trial(name).start() else { return };
    trial.raises("ledger", 7);
    let delayed = trial.gateways[1].write("ledger", 7).delayed(Duration::from_millis(150)).begin();
    trial.upstream.record().sees("the delayed write", |entry| entry.gateway == "gateway-1");
    trial.gateways.iter_mut().for_each(|gateway| gateway.kill());
    assert!(!delayed.answer().passed());
    for gateway in &mut trial.gateways {
        gateway.start_again();
        gateway.becomes_ready();
    }
    trial.passes_everywhere("ledger", 7);
    let began = Instant::now();
    assert!(trial.gateways[0].write("ledger", 8).send().passed());
    let (took, bound) = (began.elapsed(), 2 * trial.timing.validity + trial.timing.bound());
    println!("the first raise after all were killed took {took:?}");
    assert!(took <= bound + SLACK, "{took:?}");
    trial.is_kept().is_worth(1, 5);
}

/// As behind a Kubernetes Service whose node is gone: one address, and connections that nobody answers or ends.
#[test]
fn a_gateway_with_one_address_of_etcd_outlives_the_loss_of_its_connections() {
    let name = "a_gateway_with_one_address_of_etcd_outlives_the_loss_of_its_connections";
    let builder = trial(name).validity(Duration::from_secs(4)).with_one_address();
    let Some(trial) = builder.start() else { return };
    trial.raises("ledger", 7);
    let before = incarnation(&trial);
    for token in 8..=10 {
        trial.gateways[2].line().suffers(Harm::Lose, None);
        let outcome = trial.gateways[2].write("ledger", token).send();
        assert!(outcome.passed(), "{outcome:?}");
        stays("it serves", trial.timing.validity, || trial.gateways[2].door.says_ready());
    }
    assert_eq!(incarnation(&trial), before, "it was never fenced");
    trial.is_kept();
}
