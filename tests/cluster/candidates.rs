//! Candidates of the election API in trouble: an era that ends, an etcd that is away, a win that is lost, a key that
//! somebody has put in their line.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Client, Trial, eventually, post, stays, trial};

/// Longer than the test takes: nothing runs out by itself.
const TTL: u64 = 90;
/// Longer than one call to etcd is tried for.
const OUTAGE: Duration = Duration::from_secs(6);

fn issued(name: &'static str) -> Option<Trial> {
    trial(name).route("tokens", "issued").start()
}

fn wish(holder: &str, wait: f64) -> Value {
    json!({ "resource": "ledger", "holder": holder, "ttl_seconds": TTL, "wait_seconds": wait })
}

/// Leads at once; the token and the lease.
fn leads(trial: &Trial, gateway: usize, holder: &str) -> (u64, String) {
    let answer = trial.gateways[gateway].post_admin("/v1/elections/campaign", &wish(holder, 10.0));
    assert_eq!(answer.status, 200, "{answer:?}");
    let told = answer.json();
    (told["token"].as_u64().expect("a number"), told["lease"].as_str().expect("a lease").to_owned())
}

/// `renew` or `resign`; the status.
fn tell(trial: &Trial, gateway: usize, what: &str, lease: &str) -> u16 {
    let body = json!({ "resource": "ledger", "lease": lease });
    trial.gateways[gateway].post_admin(&format!("/v1/elections/{what}"), &body).status
}

/// Asks to lead, and waits for the answer or hangs up.
fn campaigns(trial: &Trial, gateway: usize, holder: &str, wait: f64) -> Client {
    let mut client = Client::connect(trial.gateways[gateway].door.admin());
    let ask = post("/v1/elections/campaign").header("Content-Type", "application/json");
    client.send(ask.body(wish(holder, wait).to_string()).bytes());
    client
}

fn in_line(trial: &Trial) -> Vec<String> {
    trial.etcd().keys("/highgate/test/e/ledger/")
}

#[test]
fn a_leader_of_an_era_before_is_told_so_and_its_key_makes_room() {
    let name = "a_leader_of_an_era_before_is_told_so_and_its_key_makes_room";
    let Some(trial) = issued(name) else { return };
    let (old, lease) = leads(&trial, 0, "job-1");
    trial.passes_everywhere("ledger", old);
    let bumped = trial.gateways[1].post_admin("/v1/operator/era-bump", &json!({}));
    assert_eq!(bumped.status, 200, "{bumped:?}");
    trial.gateways.iter().for_each(|gateway| gateway.becomes_ready());
    eventually("it is told that it lost", || tell(&trial, 2, "renew", &lease) == 410);
    assert_eq!(in_line(&trial), [""; 0], "nobody waits behind a key that can lead nobody");

    let (new, _) = leads(&trial, 1, "job-2");
    assert!(new > 1 << 48, "{new} is of the era before");
    trial.passes_everywhere("ledger", new);
    trial.is_refused_everywhere("ledger", old, 412, "stale");
    trial.is_kept();
}

#[test]
fn a_leader_of_an_era_before_that_resigns_makes_room_as_well() {
    let name = "a_leader_of_an_era_before_that_resigns_makes_room_as_well";
    let Some(trial) = issued(name) else { return };
    let (_, lease) = leads(&trial, 0, "job-1");
    let bumped = trial.gateways[1].post_admin("/v1/operator/era-bump", &json!({}));
    assert_eq!(bumped.status, 200, "{bumped:?}");
    trial.gateways.iter().for_each(|gateway| gateway.becomes_ready());
    eventually("it has lost already", || tell(&trial, 2, "resign", &lease) == 410);
    assert_eq!(in_line(&trial), [""; 0]);
    trial.is_kept();
}

#[test]
fn a_candidate_that_withdrew_while_etcd_was_away_is_not_in_line_after_it() {
    let name = "a_candidate_that_withdrew_while_etcd_was_away_is_not_in_line_after_it";
    let Some(mut trial) = issued(name) else { return };
    let (_, lease) = leads(&trial, 0, "job-1");
    let candidate = campaigns(&trial, 1, "job-2", 60.0);
    eventually("it is in line", || in_line(&trial).len() == 2);
    let etcd = trial.etcd_mut();
    etcd.nodes.iter_mut().for_each(|node| node.kill());
    // It hangs up: it does not want to lead any more.
    drop(candidate);
    thread::sleep(OUTAGE);
    (0..3).for_each(|node| etcd.start_node(node));
    etcd.awaits_health();
    let back = Instant::now();
    eventually("only the leader is left", || in_line(&trial) == [format!("/highgate/test/e/ledger/{lease}")]);
    println!("the candidate was gone {:?} after etcd was back", back.elapsed());
    trial.is_kept();
}

/// A resource that is known and frozen: whoever is elected waits for the thaw.
fn frozen(trial: &Trial) {
    let (_, lease) = leads(trial, 0, "job-0");
    assert_eq!(tell(trial, 0, "resign", &lease), 204);
    trial.operate(0, &["freeze", "ledger"]);
}

/// The first in line has won, as far as the mark tells.
fn has_won(trial: &Trial) {
    let key = in_line(trial).pop().expect("it is in line");
    let created = trial.etcd().key(key.trim_start_matches("/highgate/test/")).expect("it lives").created;
    eventually("its mark is raised", || trial.gateways[0].mark("ledger").0 == created);
}

#[test]
fn a_candidate_that_lost_its_win_waits_in_line_no_longer_than_it_said() {
    let name = "a_candidate_that_lost_its_win_waits_in_line_no_longer_than_it_said";
    let Some(trial) = issued(name) else { return };
    frozen(&trial);
    let (began, mut candidate) = (Instant::now(), campaigns(&trial, 0, "job-1", 5.0));
    eventually("it is in line", || in_line(&trial).len() == 1);
    has_won(&trial);
    let other = trial.etcd().elect("ledger", "somebody");
    trial.operate(1, &["evict", "ledger"]);
    let answer = candidate.response();
    let took = began.elapsed();
    println!("it was told after {took:?}: {}", answer.text());
    assert_eq!(answer.status, 409, "{answer:?}");
    assert!(took >= Duration::from_secs(5), "its time was not over: {took:?}");
    eventually("it has left the line", || in_line(&trial).len() == 1);
    other.resign();
    trial.is_kept();
}

#[test]
fn a_candidate_that_loses_its_win_after_its_time_does_not_go_back_to_the_line() {
    let name = "a_candidate_that_loses_its_win_after_its_time_does_not_go_back_to_the_line";
    let Some(trial) = issued(name) else { return };
    frozen(&trial);
    let mut candidate = campaigns(&trial, 0, "job-1", 1.0);
    eventually("it is in line", || in_line(&trial).len() == 1);
    has_won(&trial);
    // Its time in line is over, but it has won and waits for the thaw.
    thread::sleep(Duration::from_secs(2));
    let other = trial.etcd().elect("ledger", "somebody");
    trial.operate(1, &["evict", "ledger"]);
    assert_eq!(candidate.response().status, 409);
    eventually("it has left the line", || in_line(&trial).len() == 1);
    other.resign();
    trial.is_kept();
}

#[test]
fn a_key_that_was_put_in_line_by_hand_leads_is_reported_and_can_be_evicted() {
    let name = "a_key_that_was_put_in_line_by_hand_leads_is_reported_and_can_be_evicted";
    let Some(trial) = issued(name) else { return };
    trial.etcd().ask(&["put", "/highgate/test/e/ledger/a/b", "somebody"]);
    let key = trial.etcd().key("e/ledger/a/b").expect("it was put");
    trial.gateways.iter().for_each(|gateway| gateway.opens("ledger", key.created));
    let told = trial.gateways[0].post_admin("/v1/elections/campaign", &wish("job-1", 1.0));
    assert_eq!(told.status, 409, "{told:?}");
    assert!(told.text().contains("somebody"), "it names who leads: {}", told.text());
    for gateway in &trial.gateways {
        let reports = || {
            let words = gateway.words();
            words.contains("/highgate/test/e/ledger/a/b")
                && words.contains("`highgate evict ledger` removes it")
        };
        eventually("it says what is in the way, and what to do", reports);
    }
    trial.operate(1, &["evict", "ledger"]);
    let (token, _) = leads(&trial, 2, "job-1");
    trial.passes_everywhere("ledger", token);
    trial.is_kept();
}

/// Asks to lead with a lease that the client names.
fn campaigns_with(trial: &Trial, resource: &str, lease: &str) -> Client {
    let mut client = Client::connect(trial.gateways[1].door.admin());
    let wish = json!({
        "resource": resource, "holder": "job-2", "ttl_seconds": TTL, "wait_seconds": 60.0, "lease": lease,
    });
    let ask = post("/v1/elections/campaign").header("Content-Type", "application/json");
    client.send(ask.body(wish.to_string()).bytes());
    client
}

#[test]
fn a_lease_that_is_named_twice_leaves_nobody_in_line_once_all_have_hung_up() {
    let name = "a_lease_that_is_named_twice_leaves_nobody_in_line_once_all_have_hung_up";
    let Some(trial) = issued(name) else { return };
    let (_, leader) = leads(&trial, 0, "job-1");
    let of_leader = || in_line(&trial) == [format!("/highgate/test/e/ledger/{leader}")];
    let lease = "2fffffffffffff01";
    let first = campaigns_with(&trial, "ledger", lease);
    eventually("it is in line", || in_line(&trial).len() == 2);
    let other = campaigns_with(&trial, "other", lease);
    eventually("the other is in line, and leads", || trial.etcd().keys("/highgate/test/e/other/").len() == 1);
    drop((other, first));
    eventually("only the leader is left", of_leader);
    stays("nobody comes back", Duration::from_secs(2), of_leader);

    // The same candidate by a second connection: the end of the first one does not take its place away.
    let first = campaigns_with(&trial, "ledger", "2fffffffffffff02");
    eventually("it is in line", || in_line(&trial).len() == 2);
    let second = campaigns_with(&trial, "ledger", "2fffffffffffff02");
    stays("both have come by then", Duration::from_millis(500), || in_line(&trial).len() == 2);
    drop(first);
    stays("it stays in line", Duration::from_secs(2), || in_line(&trial).len() == 2);
    drop(second);
    eventually("only the leader is left", of_leader);
    trial.is_kept();
}

#[test]
fn an_era_is_ended_once_however_many_ask_for_that() {
    let name = "an_era_is_ended_once_however_many_ask_for_that";
    let Some(trial) = issued(name) else { return };
    let asks: Vec<_> = trial
        .gateways
        .iter()
        .map(|gateway| gateway.door.clone())
        .map(|door| thread::spawn(move || door.order("/v1/operator/era-bump", &json!({ "from": 0 }))))
        .collect();
    for answer in asks.into_iter().filter_map(|ask| ask.join().expect("an order")) {
        assert_eq!((answer.status, answer.json()["era"].as_u64()), (200, Some(1)), "{answer:?}");
    }
    trial.gateways.iter().for_each(|gateway| gateway.becomes_ready());
    for gateway in &trial.gateways {
        let again = gateway.post_admin("/v1/operator/era-bump", &json!({ "from": 0 })).json();
        assert_eq!((&again["changed"], &again["era"]), (&json!(false), &json!(1)));
    }
}
