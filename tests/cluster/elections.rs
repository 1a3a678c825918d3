//! The election API of gateways that share an etcd: any of them speaks for all.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{SLACK, Trial, eventually, trial};

fn issued(name: &'static str) -> Option<Trial> {
    trial(name).route("tokens", "issued").start()
}

/// What a candidate that won knows.
#[derive(Debug)]
struct Grant {
    token: u64,
    lease: String,
}

fn campaign(trial: &Trial, gateway: usize, holder: &str, wait: u64) -> Result<Grant, (u16, Value)> {
    let body = json!({ "resource": "ledger", "holder": holder, "ttl_seconds": 3, "wait_seconds": wait });
    let answer = trial.gateways[gateway].post_admin("/v1/elections/campaign", &body);
    let told = answer.json();
    if answer.status != 200 {
        return Err((answer.status, told));
    }
    let token = told["token"].as_u64().expect("a JSON integer");
    Ok(Grant { token, lease: told["lease"].as_str().expect("a lease").to_owned() })
}

/// `renew` or `resign`; the status.
fn tell(trial: &Trial, gateway: usize, what: &str, grant: &Grant) -> u16 {
    let body = json!({ "resource": "ledger", "lease": grant.lease });
    trial.gateways[gateway].post_admin(&format!("/v1/elections/{what}"), &body).status
}

#[test]
fn a_leader_campaigns_renews_and_resigns_through_different_gateways() {
    let name = "a_leader_campaigns_renews_and_resigns_through_different_gateways";
    let Some(trial) = issued(name) else { return };
    let leader = campaign(&trial, 0, "job-1", 5).expect("nobody else wants it");
    trial.gateways.iter().for_each(|gateway| gateway.opens("ledger", leader.token));
    trial.passes_everywhere("ledger", leader.token);
    is_on_a_real_lease(&trial, &leader);

    let (status, told) = campaign(&trial, 2, "job-2", 1).expect_err("somebody leads");
    assert_eq!(status, 409, "{told}");
    assert!(told.to_string().contains("job-1"), "it names the leader: {told}");
    for gateway in [1, 2, 0] {
        assert_eq!(tell(&trial, gateway, "renew", &leader), 200);
    }
    for gateway in &trial.gateways {
        let shown = gateway.admin("/v1/elections?resource=ledger").json();
        assert_eq!(shown["leader"]["holder"], "job-1", "{} says {shown}", gateway.name);
        assert_eq!(shown["leader"]["token"], leader.token, "{} says {shown}", gateway.name);
    }

    assert_eq!(tell(&trial, 1, "resign", &leader), 204);
    assert_eq!(tell(&trial, 2, "renew", &leader), 410);
    let next = campaign(&trial, 2, "job-2", 5).expect("the first has resigned");
    assert!(next.token > leader.token);
    // Sealed before the winner is told: the leader before is refused from that moment.
    let outcome = trial.gateways[2].write("ledger", next.token).send();
    assert!(outcome.passed(), "{outcome:?}");
    trial.is_refused_everywhere("ledger", leader.token, 412, "stale");
    trial.passes_everywhere("ledger", next.token);
    assert_eq!(tell(&trial, 0, "resign", &next), 204);
    trial.is_kept().is_worth(1, 6);
}

/// The key of its candidacy is on a lease that etcd knows and lets run out.
fn is_on_a_real_lease(trial: &Trial, leader: &Grant) {
    let key = trial.etcd().key(&format!("e/ledger/{}", leader.lease)).expect("it is named after its lease");
    assert_eq!(key.created, leader.token, "the token is the key's create_revision");
    assert_ne!(key.lease, 0, "the key would outlive its leader");
    let shown = trial.etcd().ask(&["lease", "timetolive", &format!("{:x}", key.lease)]);
    println!("{}", shown.trim());
    assert!(shown.contains("granted with TTL(3s)"), "{shown}");
}

#[test]
fn a_killed_gateway_does_not_lose_the_leader_that_renews_elsewhere() {
    let name = "a_killed_gateway_does_not_lose_the_leader_that_renews_elsewhere";
    let Some(mut trial) = issued(name) else { return };
    let leader = campaign(&trial, 0, "job-1", 5).expect("nobody else wants it");
    trial.gateways[1].opens("ledger", leader.token);
    trial.gateways[0].kill();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(7) {
        assert_eq!(tell(&trial, 1, "renew", &leader), 200, "after {:?}", began.elapsed());
        let outcome = trial.gateways[1].write("ledger", leader.token).send();
        assert!(outcome.passed(), "after {:?}: {outcome:?}", began.elapsed());
        thread::sleep(Duration::from_millis(500));
    }
    // Now it is silent, and the lease runs out.
    let silent = Instant::now();
    let next = campaign(&trial, 2, "job-2", 15).expect("the first one's lease has run out");
    let took = silent.elapsed();
    println!("the next leader led {took:?} after the last renewal, with a ttl of 3 s");
    assert!(took >= Duration::from_secs(2), "the lease had not run out: {took:?}");
    assert!(took <= Duration::from_secs(3 + 1) + trial.timing.bound() + SLACK, "{took:?}");
    eventually("the first has lost", || tell(&trial, 1, "renew", &leader) == 410);
    trial.gateways[0].start_again();
    trial.gateways[0].becomes_ready();
    trial.is_refused_everywhere("ledger", leader.token, 412, "stale");
    assert!(next.token > leader.token);
    trial.is_kept();
}

#[test]
fn candidates_of_different_gateways_and_of_etcdctl_stand_in_one_line() {
    let name = "candidates_of_different_gateways_and_of_etcdctl_stand_in_one_line";
    let Some(trial) = issued(name) else { return };
    let first = trial.etcd().elect("ledger", "etcdctl");
    trial.gateways[0].opens("ledger", first.token);
    let (status, _) = campaign(&trial, 0, "job-1", 1).expect_err("etcdctl leads");
    assert_eq!(status, 409);
    let token = first.token;
    thread::scope(|scope| {
        let waiting = scope.spawn(|| campaign(&trial, 1, "job-2", 15).expect("its turn comes"));
        eventually("it is in line", || trial.etcd().keys("/highgate/test/e/ledger/").len() == 2);
        first.resign();
        let next = waiting.join().expect("an answer");
        assert!(next.token > token);
        let outcome = trial.gateways[2].write("ledger", next.token).send();
        assert!(outcome.passed(), "{outcome:?}");
    });
    trial.is_refused_everywhere("ledger", token, 412, "stale");
    trial.is_kept();
}
