//! A watch that lives and tells of nothing, or not of everything: a gateway finds out by itself, from the answers to what it
//! asks and from numbers without a gap, and nobody has to wait for it.

use std::time::Duration;

use rustix::process::Signal;

use crate::joins::fill;
use crate::support::etcd::PREFIX;
use crate::support::line::Harm;
use crate::support::load::{Choice, Load};
use crate::support::{Trial, eventually, quantiles, trial};

/// So many that nobody should have to read them all for one that was missed: with three times as many, that takes longer
/// than the others wait.
const MARKS: usize = 100_000;

/// The last gateway is the only one, so nobody else could notice or help.
fn alone(name: &'static str) -> Option<Trial> {
    let mut trial = trial(name).that_can_be_deaf().start()?;
    trial.raises("ledger", 7);
    for number in 0..2 {
        trial.gateways[number].signal(Signal::TERM);
        trial.gateways[number].ends();
    }
    let count = |trial: &Trial| trial.gateways[2].overview()["replicas"].as_array().map(Vec::len);
    eventually("the others have left", || count(&trial) == Some(1));
    Some(trial)
}

#[test]
fn a_gateway_alone_whose_watch_tells_nothing_hands_over_all_the_same() {
    let name = "a_gateway_alone_whose_watch_tells_nothing_hands_over_all_the_same";
    let Some(trial) = alone(name) else { return };
    let before = trial.gateways[2].incarnation().expect("it is ready");
    trial.gateways[2].line().suffers(Harm::LoseEvents, None);
    for token in 8..=10 {
        let outcome = trial.gateways[2].write("ledger", token).send();
        assert!(outcome.passed(), "{outcome:?}");
        assert!(trial.gateways[2].write("ledger", token - 1).send().is_refused(412, "stale"));
    }
    assert_eq!(trial.gateways[2].incarnation(), Some(before), "it was never fenced");
    trial.gateways[2].line().mend();
    trial.is_kept();
}

/// An election that knows nothing of Highgate writes nothing that is counted: only the gateway's own renewals, which do
/// not come back, tell that the watch is deaf.
#[test]
fn a_leader_that_a_deaf_watch_does_not_tell_of_is_found() {
    let name = "a_leader_that_a_deaf_watch_does_not_tell_of_is_found";
    let Some(trial) = alone(name) else { return };
    trial.gateways[2].line().suffers(Harm::LoseEvents, None);
    let candidate = trial.etcd().elect("elected", "somebody");
    trial.gateways[2].opens("elected", candidate.token);
    trial.gateways[2].line().mend();
}

/// One message in eight of what the watch tells is lost, among many marks and while tokens are handed over: it is told again,
/// and the gateway goes on acknowledging.
#[test]
fn a_gateway_whose_watch_loses_some_of_what_it_tells_holds_nobody_up_among_many_marks() {
    let name = "a_gateway_whose_watch_loses_some_of_what_it_tells_holds_nobody_up_among_many_marks";
    let builder = trial(name).alone().that_can_be_deaf().validity(Duration::from_secs(4));
    let Some(trial) = builder.start() else { return };
    fill(&trial, MARKS);
    let load = Load::start(&trial, &["a", "b"], Choice::Loyal);
    load.hands_over(2);
    let before = trial.gateways[2].incarnation();
    trial.gateways[2].line().suffers(Harm::LoseSomeEvents(8), None);
    load.hands_over(12);
    trial.gateways[2].line().mend();
    load.hands_over(2);
    let (middle, most, longest) = quantiles(load.stop());
    let words = trial.gateways[2].words();
    let told_again = words.matches("the log is told again").count();
    println!("{MARKS} marks, {told_again} losses: handovers {middle:?}, {most:?}, {longest:?}");
    assert!(longest < trial.timing.suspect(), "a handover waited for who had lost something: {longest:?}");
    assert_eq!(trial.gateways[2].incarnation(), before, "it went on as who it was");
    assert!(told_again >= 4, "it lost something only {told_again} times");
    assert!(trial.etcd().keys(&format!("{PREFIX}/t/")).is_empty(), "nobody was evicted");
    trial.is_kept().is_worth(20, 60);
}
