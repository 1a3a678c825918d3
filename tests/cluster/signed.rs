//! Signed tokens over etcd: any gateway signs for all, and no gateway asks etcd what a signature says.

use std::time::{Duration, SystemTime};

use highgate::signing::{Holder, Issue, Signing, create};
use highgate_elector::{Resource, Token};
use serde_json::{Value, json};

use crate::support::{Client, Gateway, Trial, eventually, post, trial};

fn campaign(gateway: &Gateway) -> (Value, String) {
    let wish = json!({ "resource": "ledger", "holder": "job", "ttl_seconds": 30, "wait_seconds": 10 });
    let answer = gateway.post_admin("/v1/elections/campaign", &wish);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let told = answer.json();
    let signed = told["signed_token"].as_str().expect("a key that signs").to_owned();
    (json!({ "resource": "ledger", "lease": told["lease"] }), signed)
}

/// The status of a write, and the reason of a refusal.
fn write(gateway: &Gateway, resource: &str, shown: &str) -> (u16, Option<String>) {
    let ask = post("/").header("X-Fencing-Token", shown).resource(resource);
    let answer = Client::connect(gateway.door.data()).ask(&ask);
    (answer.status, answer.reason().map(str::to_owned))
}

fn answers_everywhere(trial: &Trial, shown: &str, status: u16, reason: Option<&str>) {
    for gateway in &trial.gateways {
        let name = &gateway.name;
        assert_eq!(write(gateway, "ledger", shown), (status, reason.map(str::to_owned)), "{name}: {shown}");
    }
}

#[test]
fn what_one_gateway_has_signed_all_gateways_verify() {
    let keys = tempfile::tempdir().unwrap();
    create(keys.path(), SystemTime::now(), Duration::ZERO).unwrap();
    let name = "what_one_gateway_has_signed_all_gateways_verify";
    let Some(trial) = trial(name).signed_by(keys.path()).start() else { return };
    let (held, first) = campaign(&trial.gateways[0]);
    answers_everywhere(&trial, &first, 200, None);
    let (number, _) = first.split_once('.').unwrap();
    answers_everywhere(&trial, number, 400, Some("malformed"));
    let renewed = trial.gateways[1].post_admin("/v1/elections/renew", &held).json();
    let renewed = renewed["signed_token"].as_str().expect("a key that signs");
    assert!(renewed.starts_with(&format!("{number}.")), "{renewed}");
    answers_everywhere(&trial, renewed, 200, None);

    assert_eq!(trial.gateways[2].post_admin("/v1/elections/resign", &held).status, 204);
    let left = (403, Some("not-issued".to_owned()));
    let refuses = |gateway: &Gateway| write(gateway, "ledger", &first) == left;
    eventually("the leader has left everywhere", || trial.gateways.iter().all(refuses));
    let (_, second) = campaign(&trial.gateways[1]);
    answers_everywhere(&trial, &second, 200, None);
    answers_everywhere(&trial, &first, 412, Some("stale"));
    assert_eq!(write(&trial.gateways[0], "other", &second), (403, Some("not-issued".to_owned())));
}

#[test]
fn a_signed_number_of_another_authority_raises_the_mark_of_all_gateways() {
    let keys = tempfile::tempdir().unwrap();
    create(keys.path(), SystemTime::now(), Duration::ZERO).unwrap();
    let name = "a_signed_number_of_another_authority_raises_the_mark_of_all_gateways";
    let Some(trial) = trial(name).signed_by(keys.path()).start() else { return };
    let (signing, resource) = (Signing::open(keys.path().to_owned()).0, Resource::parse("ledger").unwrap());
    let sign = |number| {
        let holder = Holder::Named("elsewhere".into());
        let ttl = Duration::from_secs(60);
        let issue = Issue { resource: &resource, token: Token::new(number).unwrap(), holder: &holder, ttl };
        signing.keys().sign(issue, SystemTime::now()).unwrap()
    };
    let (seven, eight) = (sign(1 << 40), sign((1 << 40) + 1));
    answers_everywhere(&trial, &seven, 200, None);
    answers_everywhere(&trial, &eight, 200, None);
    answers_everywhere(&trial, &seven, 412, Some("stale"));
    // Of an era that has not begun.
    answers_everywhere(&trial, &sign((1 << 48) + 1), 403, Some("not-issued"));
}
