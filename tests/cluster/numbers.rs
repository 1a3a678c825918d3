//! The numbers of cluster mode: three replicas on a loopback etcd.
//!
//! `scripts/measure` prints them, in release and for as long as it takes. Without `HIGHGATE_MEASURE=1` they are measured in
//! short, to see that nothing is far off, and what takes minutes is left out. The bounds that are asserted are generous,
//! for busy machines and debug builds.

use std::io::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Client, Trial, get, measures, post, quantiles, trial};

fn at_default_validity(name: &'static str) -> Option<Trial> {
    trial(name).alone().validity(Duration::from_secs(4)).start()
}

/// etcd's requests of the three gateways while nobody writes.
struct Idle {
    writes_per_second: f64,
    all_per_second: f64,
}

fn idle(trial: &Trial, time: Duration) -> Idle {
    let (before, began) = (trial.etcd().requests(), Instant::now());
    thread::sleep(time);
    let (asked, seconds) = (trial.etcd().requests().since(before), began.elapsed().as_secs_f64());
    Idle { writes_per_second: asked.writes as f64 / seconds, all_per_second: asked.all() as f64 / seconds }
}

#[test]
fn a_steady_request_costs_etcd_nothing_and_an_idle_replica_about_a_write_per_second() {
    let (requests, seconds) = if measures() { (2000, 10) } else { (500, 4) };
    let name = "a_steady_request_costs_etcd_nothing_and_an_idle_replica_about_a_write_per_second";
    let Some(trial) = at_default_validity(name) else { return };
    trial.raises("ledger", 7);
    let idle = idle(&trial, Duration::from_secs(seconds));
    let each = idle.writes_per_second / trial.gateways.len() as f64;
    println!("idle: {each:.2} etcd writes per second and replica, over {seconds} s");
    // One more may fall into the time that was measured.
    assert!(each <= 1.2 + 1.0 / seconds as f64, "{each}");

    let (before, began) = (trial.etcd().requests(), Instant::now());
    thread::scope(|scope| {
        for gateway in &trial.gateways {
            let mut client = Client::connect(gateway.door.data());
            let ask = post("/").resource("ledger").token(7).header("X-Request", "none").body("x");
            scope.spawn(move || (0..requests).for_each(|_| assert_eq!(client.ask(&ask).status, 200)));
        }
    });
    let took = began.elapsed();
    let asked = trial.etcd().requests().since(before).all() as f64;
    let (all, beyond) = (requests * trial.gateways.len(), asked - idle.all_per_second * took.as_secs_f64());
    println!("{all} requests in {took:?}: {asked} etcd requests, {beyond:.1} beyond the idle rate");
    // A renewal of each gateway may fall into so short a time.
    assert!(beyond <= all as f64 / 200.0 + trial.gateways.len() as f64, "{beyond}");
}

/// How many bytes a day three idle gateways add to what etcd has in use.
fn growth_per_day(trial: &Trial, time: Duration) -> f64 {
    let (before, began) = (trial.etcd().bytes().1, Instant::now());
    thread::sleep(time);
    let grown = trial.etcd().bytes().1 as f64 - before as f64;
    grown * 86_400.0 / began.elapsed().as_secs_f64()
}

/// At a validity of one second there are four times the renewals of the default, so it shows four times as fast. That the
/// gateways compact at all is checked in `upkeep.rs`; this takes two minutes to say how much that is worth.
#[test]
fn idle_gateways_fill_etcd_unless_its_history_is_compacted() {
    let name = "idle_gateways_fill_etcd_unless_its_history_is_compacted";
    if !measures() {
        writeln!(std::io::stderr(), "SKIPPED {name}: it measures for two minutes; scripts/measure runs it")
            .expect("stderr is open");
        return;
    }
    let grow = |history: &str| {
        let trial = trial(name).alone().store("compact", history).start()?;
        // Longer than the history that is kept: what comes is then as much as what goes.
        thread::sleep(Duration::from_secs(15));
        Some(growth_per_day(&trial, Duration::from_secs(25)) / 4.0 / 1e6)
    };
    let (Some(never), Some(compacted)) = (grow("off"), grow("10s")) else { return };
    println!("three idle gateways, V = 4 s: {never:.1} MB a day without compaction, {compacted:.1} MB with");
    assert!(compacted < never / 2.0, "{compacted:.1} of {never:.1} MB a day");
}

/// Waits on a connection of its own until this gateway passes the token.
fn await_open(client: &mut Client, token: u64) {
    loop {
        let answer = client.ask(&get("/v1/resource?name=ledger"));
        let view = answer.json();
        if view["mark"] == token && view["state"] == "open" {
            return;
        }
        thread::sleep(Duration::from_micros(500));
    }
}

#[test]
fn a_handover_takes_a_few_commits() {
    let handovers = if measures() { 100 } else { 30 };
    let Some(trial) = at_default_validity("a_handover_takes_a_few_commits") else { return };
    trial.raises("ledger", 1);
    let mut writer = Client::connect(trial.gateways[0].door.data());
    let mut watchers: Vec<_> =
        trial.gateways.iter().map(|gateway| Client::connect(gateway.door.admin())).collect();
    let hand_over = |token: u64| {
        let began = Instant::now();
        thread::scope(|scope| {
            for watcher in &mut watchers {
                scope.spawn(move || await_open(watcher, token));
            }
            let ask = post("/").resource("ledger").token(token).header("X-Request", "none").body("x");
            writer.ask(&ask).is_ok();
        });
        began.elapsed()
    };
    let (commit, slow_commit, _) = quantiles(trial.etcd().commit_times(200));
    let (middle, most, longest) = quantiles((2..2 + handovers).map(hand_over).collect());
    println!("an etcd commit: p50 {commit:?}, p99 {slow_commit:?}");
    println!(
        "{handovers} handovers, first sent to OPEN on all three: p50 {middle:?}, p99 {most:?}, longest {longest:?}"
    );
    let (goal, most_goal) = (3 * commit + Duration::from_millis(20), 3 * commit + Duration::from_millis(100));
    println!("the goals: p50 {goal:?}, p99 {most_goal:?}");
    assert!(middle <= Duration::from_millis(250), "{middle:?}");
    assert!(most <= Duration::from_secs(2), "{most:?}");
}
