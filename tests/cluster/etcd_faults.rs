//! What befalls etcd, under load: nothing breaks the promise, and service resumes by itself.

use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::judge::Summary;
use crate::support::load::{Choice, Load};
use crate::support::{PATIENCE, Trial, eventually, trial};

/// Handovers before, during and after the fault.
fn under_load(trial: &mut Trial, fault: impl FnOnce(&mut Trial, &Load)) -> Summary {
    under_load_on(trial, &["a", "b"], fault)
}

/// The same on these resources, which no load had before.
fn under_load_on(trial: &mut Trial, names: &[&str], fault: impl FnOnce(&mut Trial, &Load)) -> Summary {
    let load = Load::start(trial, names, Choice::Loyal);
    load.hands_over(4);
    fault(trial, &load);
    let resumed = load.resumes();
    load.hands_over(4);
    load.stop();
    println!("every gateway passed new tokens {resumed:?} after the end of the fault");
    assert!(resumed < PATIENCE / 2, "{resumed:?}");
    let summary = trial.is_kept();
    summary.is_worth(16, 60);
    summary
}

fn incarnations(trial: &Trial) -> Vec<Option<String>> {
    trial.gateways.iter().map(|gateway| gateway.incarnation()).collect()
}

#[test]
fn the_raft_leader_is_stopped_for_ten_seconds() {
    let name = "the_raft_leader_is_stopped_for_ten_seconds";
    let builder = trial(name).validity(Duration::from_secs(4)).route("hold_timeout", "3s");
    let Some(mut trial) = builder.start() else { return };
    let before = incarnations(&trial);
    under_load(&mut trial, |trial, load| {
        let leader = trial.etcd().raft_leader();
        trial.etcd().nodes[leader].signal(Signal::STOP);
        thread::sleep(Duration::from_secs(5));
        load.hands_over(2);
        thread::sleep(Duration::from_secs(5));
        trial.etcd().nodes[leader].signal(Signal::CONT);
    });
    let kept = before.iter().zip(incarnations(&trial)).filter(|(old, new)| **old == *new).count();
    println!("{kept} of 3 gateways were valid throughout: V is longer than an election in etcd");
}

#[test]
fn an_etcd_node_is_killed_and_started_again() {
    let builder = trial("an_etcd_node_is_killed_and_started_again").validity(Duration::from_secs(4));
    let Some(mut trial) = builder.route("hold_timeout", "3s").start() else { return };
    for (at, names) in [("the leader", ["a", "b"]), ("a follower", ["c", "d"])] {
        under_load_on(&mut trial, &names, |trial, load| {
            let leader = trial.etcd().raft_leader();
            let node = if at == "the leader" { leader } else { (leader + 1) % 3 };
            trial.etcd_mut().nodes[node].kill();
            load.hands_over(3);
            trial.etcd_mut().start_node(node);
            trial.etcd_mut().awaits_health();
        });
    }
}

/// Nobody can renew, so everybody has to stop; and nobody has to be told to go on.
fn all_of_etcd_is_away(mut trial: Trial, leave: impl FnOnce(&mut Trial), come_back: impl FnOnce(&mut Trial)) {
    let away = trial.timing.wait() + Duration::from_secs(2);
    under_load(&mut trial, |trial, _| {
        leave(trial);
        eventually("no gateway is ready", || !trial.gateways.iter().any(|gateway| gateway.door.says_ready()));
        assert!(trial.gateways.iter().all(|gateway| gateway.is_alive()), "but alive");
        for gateway in &trial.gateways {
            let outcome = gateway.write("while-away", 1).send();
            assert!(outcome.has_status(503), "{} says {outcome:?}", gateway.name);
        }
        thread::sleep(away);
        come_back(trial);
    });
}

#[test]
fn all_of_etcd_is_stopped_for_longer_than_the_validity() {
    let name = "all_of_etcd_is_stopped_for_longer_than_the_validity";
    let Some(trial) = trial(name).route("hold_timeout", "2s").start() else { return };
    let stop = |trial: &mut Trial| trial.etcd().signal_all(Signal::STOP);
    all_of_etcd_is_away(trial, stop, |trial| trial.etcd().signal_all(Signal::CONT));
}

#[test]
fn all_of_etcd_is_killed_for_longer_than_the_validity() {
    let name = "all_of_etcd_is_killed_for_longer_than_the_validity";
    let Some(trial) = trial(name).route("hold_timeout", "2s").start() else { return };
    let kill = |trial: &mut Trial| trial.etcd_mut().nodes.iter_mut().for_each(|node| node.kill());
    all_of_etcd_is_away(trial, kill, |trial| {
        (0..3).for_each(|node| trial.etcd_mut().start_node(node));
        trial.etcd_mut().awaits_health();
    });
}
