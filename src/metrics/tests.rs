use std::collections::BTreeSet;

use highgate_elector::{Resource, Token};

use super::*;

fn resource(name: &str) -> Resource {
    Resource::parse(name).unwrap()
}

fn ledger() -> Ledger {
    Ledger::new(|_| {})
}

fn alone() -> Overview {
    Overview::alone("a folder".to_owned(), 1, 1)
}

fn open_at(ledger: &Ledger, name: &str, mark: u64) {
    let _ = ledger.close(&resource(name), mark, crate::ledger::Shut::Raised);
    ledger.open(&resource(name), mark, false).unwrap();
}

fn raised(name: &str, to: u64) -> Event {
    Event::Raised { resource: resource(name), from: to - 1, to }
}

/// The value of exactly one series.
fn value(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

fn series_of<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    text.lines().filter(|line| line.starts_with(&format!("{name}{{"))).collect()
}

#[test]
fn every_metric_is_shown_with_its_help_and_type_and_is_documented() {
    let (metrics, ledger) = (Metrics::new(10), ledger());
    open_at(&ledger, "a", 7);
    metrics.stored_marks(&ledger);
    let route = metrics.route("r");
    route.upstream(Duration::from_millis(3));
    metrics.decided(Duration::from_micros(3));
    metrics.fence_event(&Event::Opened { resource: resource("a"), mark: 7, after: Duration::from_millis(1) });
    let text = metrics.render(&ledger, &alone());
    let documentation = include_str!("../../docs/metrics.md");
    for metric in names::ALL {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        };
        assert!(text.contains(&format!("# HELP {} {}\n", metric.name, metric.help)), "{}", metric.name);
        assert!(text.contains(&format!("# TYPE {} {kind}\n", metric.name)), "{}", metric.name);
        assert!(documentation.contains(metric.name), "{} is not documented", metric.name);
    }
}

#[test]
fn a_request_is_counted_by_route_decision_and_reason() {
    let metrics = Metrics::new(10);
    let route = metrics.route("r");
    route.count(Decision::Admitted, "none");
    route.count(Decision::Admitted, "none");
    route.count(Decision::Refused, "stale");
    metrics.route("r").count(Decision::Refused, "stale");
    route.count(Decision::Refused, "unheard-of");
    let text = metrics.render(&ledger(), &alone());
    let requests = |decision: &str, reason: &str| {
        let labels = format!(r#"{{route="r",decision="{decision}",reason="{reason}"}}"#);
        value(&text, &format!("highgate_requests_total{labels}"))
    };
    assert_eq!(requests("admitted", "none"), Some(2.0));
    assert_eq!(requests("refused", "stale"), Some(2.0), "the same series after a reload");
    assert_eq!(requests("refused", "unheard-of"), Some(1.0));
    assert_eq!(requests("unfenced", "none"), Some(0.0), "expected series start at zero");
}

#[test]
fn resources_above_the_cap_share_one_series_without_a_mark() {
    let (metrics, ledger) = (Metrics::new(2), ledger());
    let route = metrics.route("r");
    for number in 0..100 {
        let name = format!("acct-{number}");
        open_at(&ledger, &name, 5);
        metrics.fence_event(&raised(&name, 5));
        route.stale(&resource(&name));
    }
    let text = metrics.render(&ledger, &alone());
    assert_eq!(series_of(&text, "highgate_token_raises_total").len(), 3);
    assert_eq!(series_of(&text, "highgate_stale_rejections_total").len(), 3);
    assert_eq!(series_of(&text, "highgate_token_high_water").len(), 2);
    assert_eq!(value(&text, r#"highgate_token_raises_total{resource="acct-1"}"#), Some(1.0));
    assert_eq!(value(&text, r#"highgate_token_raises_total{resource="other"}"#), Some(98.0));
    assert_eq!(value(&text, r#"highgate_stale_rejections_total{route="r",resource="other"}"#), Some(98.0));
    assert!(!text.contains(r#"highgate_token_high_water{resource="other"}"#));
}

#[test]
fn a_resource_that_is_called_other_takes_no_place() {
    let (metrics, ledger) = (Metrics::new(1), ledger());
    open_at(&ledger, "other", 5);
    metrics.fence_event(&raised("other", 5));
    metrics.fence_event(&raised("a", 5));
    let text = metrics.render(&ledger, &alone());
    assert_eq!(value(&text, r#"highgate_token_raises_total{resource="a"}"#), Some(1.0));
    assert!(series_of(&text, "highgate_token_high_water").is_empty());
}

#[test]
fn the_mark_is_right_after_a_restart_and_follows_the_ledger() {
    let (metrics, ledger) = (Metrics::new(10), ledger());
    open_at(&ledger, "a", 7);
    metrics.stored_marks(&ledger);
    assert_eq!(
        value(&metrics.render(&ledger, &alone()), r#"highgate_token_high_water{resource="a"}"#),
        Some(7.0)
    );
    open_at(&ledger, "a", 9);
    assert_eq!(
        value(&metrics.render(&ledger, &alone()), r#"highgate_token_high_water{resource="a"}"#),
        Some(9.0)
    );
}

#[test]
fn more_stored_marks_than_places_leave_the_places_to_what_moves() {
    let (metrics, ledger) = (Metrics::new(2), ledger());
    for name in ["a", "b", "z"] {
        open_at(&ledger, name, 7);
    }
    metrics.stored_marks(&ledger);
    metrics.fence_event(&raised("z", 8));
    assert_eq!(series_of(&metrics.render(&ledger, &alone()), "highgate_token_high_water").len(), 1);
}

#[test]
fn a_token_is_never_a_label() {
    const NUMBER: u64 = 987_654_321;
    let (metrics, ledger) = (Metrics::new(10), ledger());
    open_at(&ledger, "a", NUMBER);
    metrics.fence_event(&raised("a", NUMBER));
    metrics.route("r").stale(&resource("a"));
    let text = metrics.render(&ledger, &alone());
    let in_labels =
        |line: &&str| line.split('}').next().is_some_and(|labels| labels.contains(&NUMBER.to_string()));
    assert_eq!(text.lines().filter(|line| line.contains('{')).find(in_labels), None);
    let labels: BTreeSet<_> = text
        .lines()
        .filter_map(|line| line.split_once('{')?.1.split_once('}'))
        .flat_map(|(labels, _)| labels.split(',').filter_map(|label| label.split('=').next()))
        .collect();
    let known = ["action", "decision", "generation", "le", "reason", "resource", "route"];
    assert_eq!(labels, BTreeSet::from(known));
}

#[test]
fn requests_in_flight_are_split_by_whether_a_higher_token_waits_for_them() {
    let (metrics, ledger) = (Metrics::new(10), ledger());
    open_at(&ledger, "a", 7);
    open_at(&ledger, "b", 7);
    let admit = |name: &str| ledger.get(name).unwrap().admit(Token::new(7).unwrap()).ok().unwrap();
    let _permits = [admit("a"), admit("a"), admit("b")];
    let _ = ledger.close(&resource("a"), 8, crate::ledger::Shut::Raised);
    let text = metrics.render(&ledger, &alone());
    assert_eq!(value(&text, r#"highgate_inflight_requests{generation="superseded"}"#), Some(2.0));
    assert_eq!(value(&text, r#"highgate_inflight_requests{generation="current"}"#), Some(1.0));
}

#[test]
fn a_halted_ledger_and_a_bad_reload_show() {
    let (metrics, ledger) = (Metrics::new(10), ledger());
    let text = metrics.render(&ledger, &alone());
    assert_eq!(value(&text, "highgate_replica_valid"), Some(1.0));
    assert_eq!(value(&text, "highgate_replicas"), Some(1.0));
    assert_eq!(value(&text, "highgate_config_last_reload_successful"), Some(1.0));
    assert!(value(&text, "highgate_store_last_sync_timestamp_seconds") > Some(1.7e9));
    ledger.halt();
    metrics.reloaded(false);
    let text = metrics.render(&ledger, &alone());
    assert_eq!(value(&text, "highgate_replica_valid"), Some(0.0));
    assert_eq!(value(&text, "highgate_config_last_reload_successful"), Some(0.0));
}

#[test]
fn the_replicas_are_counted_and_a_fenced_one_is_not_valid() {
    let (metrics, ledger) = (Metrics::new(10), ledger());
    let mut overview = alone();
    overview.replicas.push(overview.replicas[0].clone());
    overview.valid = false;
    let text = metrics.render(&ledger, &overview);
    assert_eq!(value(&text, "highgate_replicas"), Some(2.0));
    assert_eq!(value(&text, "highgate_replica_valid"), Some(0.0));
}

#[test]
fn every_order_of_an_operator_has_a_series_of_its_own() {
    let metrics = Metrics::new(10);
    metrics.operator(Action::BumpEra);
    metrics.operator(Action::Retire);
    metrics.operator(Action::Retire);
    let text = metrics.render(&ledger(), &alone());
    assert_eq!(series_of(&text, "highgate_operator_actions_total").len(), 7);
    assert_eq!(value(&text, r#"highgate_operator_actions_total{action="era-bump"}"#), Some(1.0));
    assert_eq!(value(&text, r#"highgate_operator_actions_total{action="retire"}"#), Some(2.0));
}

#[test]
fn a_microsecond_falls_into_the_first_bucket() {
    let metrics = Metrics::new(10);
    metrics.decided(Duration::from_nanos(900));
    metrics.upkeep();
    let text = metrics.render(&ledger(), &alone());
    assert_eq!(value(&text, r#"highgate_decision_duration_seconds_bucket{le="0.000001"}"#), Some(1.0));
    assert_eq!(value(&text, "highgate_decision_duration_seconds_count"), Some(1.0));
}
