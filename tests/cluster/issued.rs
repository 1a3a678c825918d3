//! `tokens = "issued"`: etcd itself proves who leads, whoever holds the election.

use std::thread;
use std::time::{Duration, Instant};

use highgate_etcd::url::EtcdUrl;
use highgate_etcd::{Compare, Put, Txn};

use crate::support::etcd::PREFIX;
use crate::support::{Client, Trial, eventually, post, trial};

fn issued(name: &'static str) -> Option<Trial> {
    trial(name).route("tokens", "issued").start()
}

#[test]
fn the_token_of_a_plain_etcdctl_leader_passes_without_anybody_raising_it() {
    let Some(trial) = issued("the_token_of_a_plain_etcdctl_leader_passes_without_anybody_raising_it") else {
        return;
    };
    let first = trial.etcd().elect("ledger", "first");
    trial.gateways.iter().for_each(|gateway| gateway.opens("ledger", first.token));
    trial.passes_everywhere("ledger", first.token);

    let second = trial.etcd().elect("ledger", "second");
    assert!(second.token > first.token);
    for bogus in [second.token, first.token + 1, 1 << 40] {
        trial.is_refused_everywhere("ledger", bogus, 403, "not-issued");
    }
    trial.is_refused_everywhere("ledger", first.token - 1, 412, "stale");
    trial.is_refused_everywhere("never-elected", 7, 403, "not-issued");
    trial.passes_everywhere("ledger", first.token);

    let (deposed, leads) = (first.token, second.token);
    first.resign();
    let began = Instant::now();
    trial.gateways.iter().for_each(|gateway| gateway.opens("ledger", leads));
    println!("open at the next leader's token on all replicas {:?} after the resignation", began.elapsed());
    trial.passes_everywhere("ledger", leads);
    trial.is_refused_everywhere("ledger", deposed, 412, "stale");

    second.resign();
    eventually("the last leader's token passes nowhere", || {
        let refused = |gateway: &crate::support::Gateway| {
            gateway.write("ledger", leads).send().is_refused(403, "not-issued")
        };
        trial.gateways.iter().all(refused)
    });
    trial.is_refused_everywhere("ledger", leads, 403, "not-issued");
    trial.is_kept().is_worth(1, 9);
}

#[test]
fn the_leader_of_a_resource_with_a_slash_is_found_under_its_escaped_name() {
    let name = "the_leader_of_a_resource_with_a_slash_is_found_under_its_escaped_name";
    let Some(trial) = issued(name) else { return };
    let leader = trial.etcd().elect("ledger%2Facct-7", "me");
    trial.gateways.iter().for_each(|gateway| gateway.opens("ledger/acct-7", leader.token));
    trial.passes_everywhere("ledger/acct-7", leader.token);
    trial.is_refused_everywhere("ledger", leader.token, 403, "not-issued");
    trial.is_kept();
}

#[test]
fn a_leader_that_was_elected_while_no_gateway_ran_passes_at_once() {
    let name = "a_leader_that_was_elected_while_no_gateway_ran_passes_at_once";
    let Some(mut trial) = issued(name) else { return };
    for gateway in &mut trial.gateways {
        gateway.signal(rustix::process::Signal::TERM);
        assert_eq!(gateway.ends(), 0);
    }
    let leader = trial.etcd().elect("ledger", "me");
    for gateway in &mut trial.gateways {
        gateway.start_again();
        gateway.becomes_ready();
    }
    trial.passes_everywhere("ledger", leader.token);
    trial.is_kept();
}

#[test]
fn a_token_that_is_used_the_moment_it_was_issued_waits_for_its_raise_only() {
    const ROUNDS: usize = 100;
    let name = "a_token_that_is_used_the_moment_it_was_issued_waits_for_its_raise_only";
    let Some(trial) = issued(name) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let nodes: Vec<_> = trial.etcd().ports().iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let url = EtcdUrl::parse(&format!("etcd://{}{PREFIX}", nodes.join(","))).unwrap();
    let etcd = runtime.block_on(async { highgate_etcd::Client::open(&url) }).unwrap();
    let mut slowest = Duration::ZERO;
    for round in 0..ROUNDS {
        let (resource, key) = (format!("r{round}"), format!("{PREFIX}/e/r{round}/1"));
        let enter = Txn::when([Compare::created_at(key.as_str(), 0)]).then(Put::new(key, "me"));
        let token = u64::try_from(runtime.block_on(etcd.txn(enter)).unwrap().revision()).unwrap();
        // The gateways ask etcd who leads while the watch tells them, and while one of them raises the mark.
        let began = Instant::now();
        let write = |gateway: &crate::support::Gateway| gateway.write(&resource, token).begin();
        let writes: Vec<_> = trial.gateways.iter().map(write).collect();
        for (gateway, write) in trial.gateways.iter().zip(writes) {
            let outcome = write.answer();
            assert!(
                outcome.passed(),
                "{} of {resource} after {:?}: {outcome:?}",
                gateway.name,
                began.elapsed()
            );
        }
        slowest = slowest.max(began.elapsed());
    }
    println!("{ROUNDS} tokens at three gateways as soon as they were issued; the slowest took {slowest:?}");
    trial.is_kept();
}

/// Sends so many tokens from this one on that nobody issued, of one resource or of many.
fn flood(trial: &Trial, first: u64, count: u64, resource: impl Fn(u64) -> String) {
    let mut clients: Vec<_> =
        trial.gateways.iter().map(|gateway| Client::connect(gateway.door.data())).collect();
    for number in 0..count {
        let client = &mut clients[number as usize % trial.gateways.len()];
        let answer = client.ask(&post("/").resource(&resource(number)).token(first + number).body("x"));
        let bounded = answer.status == 503 && answer.reason() == Some("overloaded");
        assert!(bounded || (answer.status, answer.reason()) == (403, Some("not-issued")), "{answer:?}");
    }
}

#[test]
fn a_flood_of_bogus_tokens_costs_etcd_little() {
    const FLOOD: u64 = 3000;
    let Some(trial) = issued("a_flood_of_bogus_tokens_costs_etcd_little") else { return };
    let leader = trial.etcd().elect("ledger", "me");
    trial.gateways[0].opens("ledger", leader.token);
    for what in ["one resource", "a thousand resources"] {
        let idle = idle_rate(&trial);
        let (before, began) = (trial.etcd().requests(), Instant::now());
        flood(&trial, 1 << 40, FLOOD, |number| match what {
            "one resource" => "ledger".to_owned(),
            _ => format!("bogus/{}", number % 1000),
        });
        let took = began.elapsed();
        let asked = trial.etcd().requests().since(before).all() as f64 - idle * took.as_secs_f64();
        println!(
            "{FLOOD} bogus tokens of {what} in {took:?} cost etcd {asked:.0} requests beyond the idle rate"
        );
        assert!(asked < FLOOD as f64 / 10.0, "{asked}");
    }
    // Just beyond what etcd has issued: these could be true, so somebody has to ask, but not for each.
    let (before, began) = (trial.etcd().requests(), Instant::now());
    flood(&trial, leader.token + 10_000, 150, |number| format!("near/{number}"));
    let (asked, took) = (trial.etcd().requests().since(before).all() as f64, began.elapsed().as_secs_f64());
    println!("150 tokens just beyond the last revision in {took:.1} s cost etcd {asked:.0} requests");
    assert!(asked < 30.0 + 45.0 * took, "{asked}");
    trial.passes_everywhere("ledger", leader.token);
    assert!(!trial.upstream.record().entries().iter().any(|entry| entry.token >= 1 << 40));
    trial.is_kept();
}

/// Requests per second when nobody writes.
fn idle_rate(trial: &Trial) -> f64 {
    let (before, began) = (trial.etcd().requests(), Instant::now());
    thread::sleep(Duration::from_secs(2));
    trial.etcd().requests().since(before).all() as f64 / began.elapsed().as_secs_f64()
}
