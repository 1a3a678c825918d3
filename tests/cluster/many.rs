//! Thousands of resources that change hands at once; ten thousand with `HIGHGATE_MEASURE=1`. `scripts/measure` prints the
//! times.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Client, PATIENCE, Trial, measures, post, trial};

const CLIENTS_EACH: usize = 8;

fn resources() -> usize {
    if measures() { 10_000 } else { 3000 }
}

/// Asks for this token of every resource, through all gateways at once. Nobody waits for its raise.
fn want_all(trial: &Trial, token: u64) {
    let clients = trial.gateways.len() * CLIENTS_EACH;
    let threads: Vec<_> = (0..clients)
        .map(|number| {
            let address = trial.gateways[number % trial.gateways.len()].door.data();
            thread::spawn(move || {
                let mut client = Client::connect(address);
                for resource in (number..resources()).step_by(clients) {
                    let ask = post("/").resource(&format!("many/{resource}")).token(token);
                    let answer = client.ask(&ask.header("X-Request", "none").body("x"));
                    let waits = answer.status == 503 && answer.reason() == Some("raising");
                    assert!(answer.status == 200 || waits, "{answer:?}");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a client that was answered"));
}

/// How many resources this gateway passes with the token.
fn open_at(trial: &Trial, gateway: usize, token: u64) -> usize {
    let listed = trial.gateways[gateway].admin("/v1/resources?limit=10000").json();
    let resources = listed["resources"].as_array().expect("a list").clone();
    resources.iter().filter(|view| view["mark"] == token && view["state"] == "open").count()
}

/// From the first request to the last seal that the slowest replica has seen.
fn fail_over(trial: &Trial, token: u64) -> (Duration, Duration) {
    let began = Instant::now();
    want_all(trial, token);
    let asked = began.elapsed();
    for gateway in 0..trial.gateways.len() {
        while open_at(trial, gateway, token) < resources() {
            let so_far = open_at(trial, gateway, token);
            assert!(began.elapsed() < 3 * PATIENCE, "only {so_far} of {} are open at {token}", resources());
            thread::sleep(Duration::from_millis(50));
        }
    }
    (asked, began.elapsed())
}

#[test]
fn thousands_of_resources_fail_over_together() {
    let builder = trial("thousands_of_resources_fail_over_together").alone();
    // The answer is of no interest here, so nobody is held.
    let builder = builder.validity(Duration::from_secs(4)).route("hold_timeout", "1ms");
    let Some(trial) = builder.start() else { return };
    let before = trial.gateways.iter().map(|gateway| gateway.incarnation()).collect::<Vec<_>>();
    for token in [1, 2] {
        let (asked, sealed) = fail_over(&trial, token);
        println!(
            "{} resources to token {token}: all asked for after {asked:?}, sealed everywhere after {sealed:?}",
            resources()
        );
    }
    let after = trial.gateways.iter().map(|gateway| gateway.incarnation()).collect::<Vec<_>>();
    assert_eq!(after, before, "nobody was too busy to renew");
    for resource in (0..resources()).step_by(resources() / 20) {
        let gateway = &trial.gateways[resource % 3];
        let resource = format!("many/{resource}");
        assert!(gateway.write(&resource, 1).send().is_refused(412, "stale"));
        assert!(gateway.write(&resource, 2).send().passed());
    }
    trial.is_kept();
}
