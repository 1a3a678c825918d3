//! Handovers among healthy replicas: a token waits for what is under way on all of them.

use std::thread;
use std::time::Duration;

use crate::support::load::{Choice, Load};
use crate::support::{A_WHILE, eventually, stays, trial};

#[test]
fn a_new_token_is_forwarded_nowhere_before_a_slow_lower_one_on_another_replica_has_ended() {
    let name = "a_new_token_is_forwarded_nowhere_before_a_slow_lower_one_on_another_replica_has_ended";
    let Some(trial) = trial(name).start() else { return };
    let record = trial.upstream.record();
    trial.raises("ledger", 7);
    let slow = trial.gateways[2].write("ledger", 7).held("seven").begin();
    record.sees("the slow write", |entry| entry.gateway == "gateway-2");

    let next: Vec<_> = trial.gateways.iter().map(|gateway| gateway.write("ledger", 8).begin()).collect();
    eventually("every replica knows of the raise", || {
        trial.gateways.iter().all(|gateway| gateway.mark("ledger") == (8, "raising".to_owned()))
    });
    trial.is_refused_everywhere("ledger", 7, 412, "stale");
    stays("nothing of the new token passes", A_WHILE, || {
        !record.has_token("ledger", 8) && !next.iter().any(|write| write.is_answered())
    });
    assert!(!slow.is_answered(), "it is slow");

    trial.upstream.release("seven");
    assert!(slow.answer().passed(), "it was admitted before the raise");
    for write in next {
        assert!(write.answer().passed());
    }
    trial.passes_everywhere("ledger", 8);
    trial.is_refused_everywhere("ledger", 7, 412, "stale");
    trial.is_kept().is_worth(1, 8);
}

#[test]
fn a_slow_write_that_outlasts_the_drain_time_out_is_cut_and_its_lock_delay_waited_for() {
    let name = "a_slow_write_that_outlasts_the_drain_time_out_is_cut_and_its_lock_delay_waited_for";
    let builder = trial(name).lock_delay(Duration::from_secs(1)).route("drain_timeout", "300ms");
    let Some(trial) = builder.start() else { return };
    let record = trial.upstream.record();
    trial.raises("ledger", 7);
    // It goes on after the cut, and takes effect within the lock-delay.
    let slow = trial.gateways[2].write("ledger", 7).delayed(Duration::from_millis(1100)).begin();
    record.sees("the slow write", |entry| entry.gateway == "gateway-2");
    assert!(trial.gateways[0].write("ledger", 8).send().passed());
    assert!(!slow.answer().passed());
    let slow = record.sees("the cut", |entry| entry.cut.is_some());
    let next = record.sees("the next token", |entry| entry.token == 8);
    let (cut, _) = slow.cut.unwrap();
    // The upstream sees the cut a little later than it was made.
    let waited = next.received.duration_since(cut) + Duration::from_millis(60);
    assert!(slow.effect.is_some(), "it did not notice");
    assert!(waited >= trial.timing.lock_delay, "only {waited:?}");
    trial.is_kept();
}

#[test]
fn many_handovers_through_all_replicas_at_once_among_stale_senders() {
    let name = "many_handovers_through_all_replicas_at_once_among_stale_senders";
    let Some(trial) = trial(name).start() else { return };
    let load = Load::start(&trial, &["a", "b/c", "d%2Fe"], Choice::Loyal);
    load.hands_over(20);
    load.stop();
    let summary = trial.is_kept();
    summary.is_worth(50, 200);
    assert!(summary.refused > 20, "stale senders are refused: {summary}");
    assert_eq!(summary.unknown, 0, "nobody was lost: {summary}");
}

#[test]
fn a_frozen_resource_is_frozen_on_every_replica_until_it_is_thawed_through_any() {
    let name = "a_frozen_resource_is_frozen_on_every_replica_until_it_is_thawed_through_any";
    let Some(trial) = trial(name).start() else { return };
    trial.raises("ledger", 7);
    trial.operate(0, &["freeze", "ledger"]);
    let is = |state: &str| {
        eventually(&format!("{state} everywhere"), || {
            trial.gateways.iter().all(|gateway| gateway.mark("ledger") == (7, state.to_owned()))
        });
    };
    is("frozen");
    trial.is_refused_everywhere("ledger", 7, 423, "frozen");
    trial.operate(1, &["thaw", "ledger"]);
    is("open");
    trial.operate(2, &["raise", "ledger", "--to", "9"]);
    trial.gateways.iter().for_each(|gateway| gateway.opens("ledger", 9));
    trial.is_refused_everywhere("ledger", 8, 412, "stale");
    trial.passes_everywhere("ledger", 9);
    trial.is_kept();
}

#[test]
fn a_replica_that_joins_later_knows_every_mark() {
    let name = "a_replica_that_joins_later_knows_every_mark";
    let Some(mut trial) = trial(name).start() else { return };
    trial.gateways[2].signal(rustix::process::Signal::TERM);
    assert_eq!(trial.gateways[2].ends(), 0);
    // More than one page of marks, raised while it is away.
    let raisers: Vec<_> = (0..8)
        .map(|raiser| {
            let writes: Vec<_> = (0..150)
                .map(|number| trial.gateways[raiser % 2].write(&format!("r/{raiser}/{number}"), 7))
                .collect();
            thread::spawn(move || writes.into_iter().all(|write| write.send().passed()))
        })
        .collect();
    assert!(raisers.into_iter().all(|raiser| raiser.join().unwrap()));
    trial.gateways[2].start_again();
    trial.gateways[2].becomes_ready();
    for (raiser, number) in [(0, 0), (3, 77), (7, 149)] {
        let resource = format!("r/{raiser}/{number}");
        let outcome = trial.gateways[2].write(&resource, 6).send();
        assert!(outcome.is_refused(412, "stale"), "{outcome:?}");
        assert!(trial.gateways[2].write(&resource, 7).send().passed());
    }
    let listed = trial.gateways[2].admin("/v1/resources?limit=1").json();
    assert_eq!(listed["total"], 1200, "{listed}");
    trial.is_kept();
}
