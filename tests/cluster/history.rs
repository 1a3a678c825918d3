//! Who led when, and who leads, as every gateway tells it that shares an etcd with others.

use serde_json::{Value, json};

use crate::support::{Gateway, Trial, eventually, trial};

fn campaign(trial: &Trial, gateway: usize, holder: &str) -> Value {
    let body = json!({ "resource": "ledger", "holder": holder, "ttl_seconds": 2, "wait_seconds": 20 });
    let answer = trial.gateways[gateway].post_admin("/v1/elections/campaign", &body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// Holder, token and end of every term.
fn terms(gateway: &Gateway) -> Vec<(String, u64, Option<String>)> {
    let answer = gateway.admin("/v1/history?resource=ledger");
    let told = answer.json();
    let Some(terms) = told["terms"].as_array() else { return Vec::new() };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    terms
        .iter()
        .map(|term| {
            (text(&term["holder"]).unwrap(), term["token"].as_u64().unwrap(), text(&term["ended_by"]))
        })
        .collect()
}

/// The value of exactly one series.
fn value(gateway: &Gateway, series: &str) -> Option<f64> {
    let text = gateway.admin("/metrics").text();
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

fn leads(gateway: &Gateway, holder: &str) -> bool {
    value(gateway, &format!(r#"highgate_leader_info{{resource="ledger",holder="{holder}"}}"#)) == Some(1.0)
}

#[test]
fn every_gateway_tells_who_led_when_and_how_long_a_failover_took() {
    let name = "every_gateway_tells_who_led_when_and_how_long_a_failover_took";
    let Some(mut trial) = trial(name).route("tokens", "issued").start() else { return };
    let first = campaign(&trial, 0, "dies");
    let second = campaign(&trial, 1, "resigns");
    for gateway in &trial.gateways {
        eventually("everybody knows the leader", || leads(gateway, "resigns") && !leads(gateway, "dies"));
        eventually("everybody has timed the failover", || {
            value(gateway, "highgate_failover_seconds_count") == Some(1.0)
        });
        let took = value(gateway, "highgate_failover_seconds_sum").unwrap();
        assert!(took > 0.0 && took < 10.0, "{took}");
        assert_eq!(value(gateway, r#"highgate_leaderless_seconds{resource="ledger"}"#), Some(0.0));
        let won = r#"highgate_elections_total{cause="won",resource="ledger"}"#;
        assert_eq!(value(gateway, won), Some(2.0));
        assert_eq!(value(gateway, r#"highgate_resources{state="open"}"#), Some(1.0));
    }
    let expired = r#"highgate_elections_total{cause="expired",resource="ledger"}"#;
    assert_eq!(
        value(&trial.gateways[0], expired),
        Some(1.0),
        "it campaigned here, and nobody asked it to go"
    );
    let held = json!({ "resource": "ledger", "lease": second["lease"] });
    assert_eq!(trial.gateways[2].post_admin("/v1/elections/resign", &held).status, 204);
    let third = campaign(&trial, 2, "is-evicted");
    assert_eq!(
        trial.gateways[0].post_admin("/v1/operator/evict", &json!({ "resource": "ledger" })).status,
        200
    );
    let last = campaign(&trial, 0, "leads");
    let ended = |holder: &str, told: &Value, why: &str| {
        (holder.to_owned(), told["token"].as_u64().unwrap(), Some(why.to_owned()))
    };
    let leads = ("leads".to_owned(), last["token"].as_u64().unwrap(), None);
    // That a lease has run out only the gateway can know that the leader came through.
    let whys = [
        ["expired", "resigned", "evicted"],
        ["unknown", "resigned", "evicted"],
        ["unknown", "resigned", "evicted"],
    ];
    let expected = whys.map(|[dies, resigns, is_evicted]| {
        vec![
            ended("dies", &first, dies),
            ended("resigns", &second, resigns),
            ended("is-evicted", &third, is_evicted),
            leads.clone(),
        ]
    });
    for (gateway, expected) in trial.gateways.iter().zip(&expected) {
        eventually("everybody tells what it saw", || terms(gateway) == *expected);
    }
    // What a gateway missed it finds when it is back, and what it had seen is there.
    trial.gateways[1].kill();
    let held = json!({ "resource": "ledger", "lease": last["lease"] });
    assert_eq!(trial.gateways[0].post_admin("/v1/elections/resign", &held).status, 204);
    trial.gateways[1].start_again();
    trial.gateways[1].becomes_ready();
    let [mut of_zero, mut of_one, _] = expected;
    of_one[3].2 = Some("unknown".to_owned());
    eventually("it has found out that the last is gone", || terms(&trial.gateways[1]) == of_one);
    of_zero[3].2 = Some("resigned".to_owned());
    assert_eq!(terms(&trial.gateways[0]), of_zero);
}
