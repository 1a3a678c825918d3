//! A rolling restart under load, behind something that looks at `/readyz` as a balancer does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::Signal;

use crate::support::load::{Choice, Load};
use crate::support::writer::Outcome;
use crate::support::{Trial, quantiles, trial};

/// Probes all gateways and keeps what it learns at their doors; counts tombstones on the way.
struct Prober {
    stop: Arc<AtomicBool>,
    tombstones: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl Prober {
    fn start(trial: &Trial) -> Self {
        let doors: Vec<_> = trial.gateways.iter().map(|gateway| gateway.door.clone()).collect();
        let (stop, tombstones) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopped, seen) = (stop.clone(), tombstones.clone());
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                for door in &doors {
                    door.is_ready.store(door.says_ready(), Ordering::SeqCst);
                    let answer = door.probe("/v1/replicas").filter(|answer| answer.status == 200);
                    let stones =
                        answer.and_then(|answer| answer.json()["tombstones"].as_array().map(Vec::len));
                    seen.fetch_max(stones.unwrap_or(0), Ordering::SeqCst);
                }
                thread::sleep(Duration::from_millis(20));
            }
        });
        Self { stop, tombstones, thread }
    }

    /// The most tombstones that any gateway has shown at once.
    fn stop(self) -> usize {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().expect("a prober that takes any answer");
        self.tombstones.load(Ordering::SeqCst)
    }
}

#[test]
fn a_rolling_restart_under_load_loses_nothing_and_delays_no_raise() {
    let name = "a_rolling_restart_under_load_loses_nothing_and_delays_no_raise";
    let Some(mut trial) = trial(name).start() else { return };
    let prober = Prober::start(&trial);
    let load = Load::start(&trial, &["a", "b", "c"], Choice::Balanced);
    load.hands_over(3);
    for number in 0..3 {
        let gateway = &mut trial.gateways[number];
        gateway.signal(Signal::TERM);
        assert_eq!(gateway.ends(), 0, "it leaves in order");
        load.hands_over(1);
        let gateway = &mut trial.gateways[number];
        gateway.start_again();
        gateway.becomes_ready();
        load.hands_over(2);
    }
    let resumed = load.resumes();
    let raises = load.stop();
    let tombstones = prober.stop();

    let (middle, most, longest) = quantiles(raises);
    println!(
        "raises: p50 {middle:?}, p99 {most:?}, the longest {longest:?}; all serve again after {resumed:?}"
    );
    assert!(longest < trial.timing.wait(), "a raise waited for a tombstone: {longest:?}");
    assert_eq!(tombstones, 0, "who leaves in order leaves none");
    for (id, outcome) in trial.answers.told() {
        let is_fine = match &outcome {
            Outcome::Passed | Outcome::NotSent => true,
            Outcome::Refused { status, .. } => [412, 503].contains(status),
            Outcome::Unknown(_) => false,
        };
        assert!(is_fine, "write {id} ended as {outcome:?}");
    }
    trial.is_kept().is_worth(30, 150);
}
