use std::collections::BTreeSet;

use highgate_elector::{Resource, Token};

use super::*;
use crate::elections::Ended;
use crate::journal::{Limits, Writer};

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

fn opened(name: &str, mark: u64) -> Event {
    Event::Opened { resource: resource(name), mark, after: Duration::from_millis(1) }
}

fn elected(name: &str, holder: &str, token: u64) -> elections::Event {
    let token = Token::new(token).unwrap();
    elections::Event::Elected { resource: resource(name), holder: holder.to_owned(), token }
}

fn ended(name: &str, holder: &str, token: u64, why: Ended) -> elections::Event {
    let token = Token::new(token).unwrap();
    elections::Event::Ended { resource: resource(name), holder: holder.to_owned(), token, why }
}

/// Routes of a file with these keys in each of them.
fn routes(keys: &str) -> crate::config::Routes {
    let text = format!("[[routes]]\nname = \"r\"\nupstream = \"http://127.0.0.1:1\"\n{keys}\n");
    let file = std::path::Path::new("a.toml");
    crate::config::Config::parse(&text, file, &crate::config::Overrides::default()).unwrap().routes
}

fn prospects(keys: &str, replicas: bool) -> Prospects {
    Prospects::of(routes(keys).iter().next().map(|route| &**route), replicas)
}

fn matched() -> Prospects {
    prospects("", true)
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
    ledger.limit_resources(10);
    metrics.stored_marks(&ledger);
    let route = metrics.route("r", matched());
    route.upstream(Duration::from_millis(3));
    metrics.decided(Duration::from_micros(3));
    metrics.election_event(&elected("a", "job-1", 6));
    metrics.election_event(&ended("a", "job-1", 6, Ended::Expired));
    metrics.election_event(&elected("a", "job-2", 7));
    metrics.fence_event(&opened("a", 7));
    metrics.show_dropped_lines(|| 3);
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { keep: Duration::from_secs(60), max_size: 1 << 20 };
    metrics.show_journal(Arc::new(Journal::open(folder.path(), limits, Writer::Thread).unwrap()));
    metrics.handshakes("data", true);
    let expires = Some(SystemTime::now());
    metrics.show_certificates(move || {
        [CertificateOf::Listener("data"), CertificateOf::Route("r".into())]
            .map(|of| Certificate { of, expires, taken: true })
            .into()
    });
    let keys = tempfile::tempdir().unwrap();
    signing::create(keys.path(), SystemTime::now(), Duration::ZERO).unwrap();
    metrics.show_signing_keys(Signing::open(keys.path().to_owned()).0.into());
    let text = metrics.render(&ledger, &alone());
    let documentation = include_str!("../../docs/metrics.md");
    let documented: BTreeSet<&str> = documentation
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name))
        .filter(|name| name.starts_with("highgate_") || name.starts_with("process_"))
        .collect();
    assert_eq!(documented, names::ALL.iter().map(|metric| metric.name).collect());
    let shown: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert_eq!(shown, documented, "what is exported is documented, and the other way round");
    for metric in names::ALL {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        };
        assert!(text.contains(&format!("# HELP {} {}\n", metric.name, metric.help)), "{}", metric.name);
        assert!(text.contains(&format!("# TYPE {} {kind}\n", metric.name)), "{}", metric.name);
    }
}

#[test]
fn a_request_is_counted_by_route_decision_and_reason() {
    let metrics = Metrics::new(10);
    let route = metrics.route("r", matched());
    route.count(Decision::Admitted, "none");
    route.count(Decision::Admitted, "none");
    route.count(Decision::Refused, "stale");
    metrics.route("r", matched()).count(Decision::Refused, "stale");
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
    let route = metrics.route("r", matched());
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
    metrics.route("r", matched()).stale(&resource("a"));
    let text = metrics.render(&ledger, &alone());
    let in_labels =
        |line: &&str| line.split('}').next().is_some_and(|labels| labels.contains(&NUMBER.to_string()));
    assert_eq!(text.lines().filter(|line| line.contains('{')).find(in_labels), None);
    let labels: BTreeSet<_> = text
        .lines()
        .filter_map(|line| line.split_once('{')?.1.split_once('}'))
        .flat_map(|(labels, _)| labels.split(',').filter_map(|label| label.split('=').next()))
        .collect();
    let known = [
        "action",
        "cause",
        "decision",
        "generation",
        "le",
        "limit",
        "reason",
        "resource",
        "route",
        "state",
        "version",
    ];
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

#[test]
fn who_leads_has_one_series_and_whoever_led_before_has_none() {
    let (metrics, ledger) = (Metrics::new(10), ledger());
    metrics.election_event(&elected("a", "job-1", 7));
    metrics.fence_event(&opened("a", 7));
    let text = metrics.render(&ledger, &alone());
    assert_eq!(value(&text, r#"highgate_leader_info{resource="a",holder="job-1"}"#), Some(1.0));
    assert_eq!(value(&text, r#"highgate_leaderless_seconds{resource="a"}"#), Some(0.0));
    metrics.election_event(&ended("a", "job-1", 7, Ended::Expired));
    let text = metrics.render(&ledger, &alone());
    assert!(series_of(&text, "highgate_leader_info").is_empty(), "{text}");
    assert!(value(&text, r#"highgate_leaderless_seconds{resource="a"}"#) > Some(0.0));
    metrics.election_event(&elected("a", "job-2", 8));
    let text = metrics.render(&ledger, &alone());
    assert_eq!(
        series_of(&text, "highgate_leader_info"),
        [r#"highgate_leader_info{resource="a",holder="job-2"} 1"#]
    );
    let before = value(&text, r#"highgate_leaderless_seconds{resource="a"}"#);
    assert!(before > Some(0.0), "elected is not sealed: its token does not pass yet");
    metrics.fence_event(&opened("a", 8));
    let text = metrics.render(&ledger, &alone());
    assert_eq!(value(&text, r#"highgate_leaderless_seconds{resource="a"}"#), Some(0.0));
    for (cause, count) in [("won", 2.0), ("expired", 1.0), ("resigned", 0.0), ("evicted", 0.0)] {
        let own = value(&text, &format!(r#"highgate_elections_total{{cause="{cause}",resource="a"}}"#));
        let expected = (count > 0.0).then_some(count);
        assert_eq!(own, expected, "{cause}");
        let others =
            value(&text, &format!(r#"highgate_elections_total{{cause="{cause}",resource="other"}}"#));
        assert_eq!(others, Some(0.0), "{cause}");
    }
}

#[test]
fn a_failover_ends_with_the_seal_and_a_leader_that_gave_up_with_nobody_behind_it_began_none() {
    let (metrics, ledger) = (Metrics::new(10), ledger());
    let count = |metrics: &Metrics| {
        metrics.upkeep();
        value(&metrics.render(&ledger, &alone()), "highgate_failover_seconds_count").unwrap_or(0.0)
    };
    metrics.election_event(&elected("a", "job-1", 1));
    metrics.fence_event(&opened("a", 1));
    assert_eq!(count(&metrics), 0.0, "the first leader of all follows nobody");
    metrics.election_event(&ended("a", "job-1", 1, Ended::Resigned));
    metrics.election_event(&elected("a", "job-2", 2));
    metrics.fence_event(&opened("a", 2));
    assert_eq!(count(&metrics), 0.0, "nobody waited for it");
    metrics.line(&resource("a"), 1);
    metrics.election_event(&ended("a", "job-2", 2, Ended::Resigned));
    metrics.line(&resource("a"), 0);
    metrics.fence_event(&opened("a", 2));
    metrics.election_event(&elected("a", "job-3", 3));
    assert_eq!(count(&metrics), 0.0, "the seal of another mark, and of none so far");
    metrics.fence_event(&opened("a", 3));
    assert_eq!(count(&metrics), 1.0);
    metrics.election_event(&ended("a", "job-3", 3, Ended::Expired));
    metrics.election_event(&elected("a", "job-4", 4));
    metrics.fence_event(&opened("a", 4));
    metrics.fence_event(&opened("a", 4));
    assert_eq!(count(&metrics), 2.0, "once");
}

#[test]
fn leaders_above_the_cap_are_counted_and_not_named() {
    let (metrics, ledger) = (Metrics::new(2), ledger());
    for number in 0..50 {
        let name = format!("acct-{number}");
        metrics.election_event(&elected(&name, "job", 5));
        metrics.line(&resource(&name), 2);
    }
    let text = metrics.render(&ledger, &alone());
    assert_eq!(series_of(&text, "highgate_leader_info").len(), 2);
    assert_eq!(series_of(&text, "highgate_leaderless_seconds").len(), 2);
    assert_eq!(value(&text, r#"highgate_elections_total{cause="won",resource="other"}"#), Some(48.0));
    assert_eq!(value(&text, r#"highgate_waiting_candidates{resource="acct-1"}"#), Some(2.0));
    assert_eq!(value(&text, r#"highgate_waiting_candidates{resource="other"}"#), Some(96.0));
    for number in 0..50 {
        metrics.line(&resource(&format!("acct-{number}")), 0);
    }
    let text = metrics.render(&ledger, &alone());
    assert_eq!(value(&text, r#"highgate_waiting_candidates{resource="other"}"#), Some(0.0));
    assert_eq!(value(&text, r#"highgate_waiting_candidates{resource="acct-1"}"#), Some(0.0));
}

#[test]
fn after_a_start_or_a_gap_the_leaders_are_those_that_the_store_names() {
    let (metrics, ledger) = (Metrics::new(10), ledger());
    metrics.election_event(&elected("a", "gone", 5));
    metrics.line(&resource("c"), 7);
    let leader = Some(("found".to_owned(), Token::new(6).unwrap()));
    metrics.stand(&[Standing { resource: resource("b"), leader, waiting: 1 }]);
    let text = metrics.render(&ledger, &alone());
    assert_eq!(
        series_of(&text, "highgate_leader_info"),
        [r#"highgate_leader_info{resource="b",holder="found"} 1"#]
    );
    assert!(value(&text, r#"highgate_leaderless_seconds{resource="a"}"#) > Some(0.0));
    assert_eq!(value(&text, r#"highgate_leaderless_seconds{resource="b"}"#), Some(0.0));
    assert_eq!(value(&text, r#"highgate_waiting_candidates{resource="b"}"#), Some(1.0));
    assert_eq!(
        value(&text, r#"highgate_elections_total{cause="won",resource="b"}"#),
        None,
        "nobody saw it won"
    );
}

#[test]
fn resources_are_counted_by_state_and_one_that_is_blocked_is_only_that() {
    use crate::ledger::Shut;
    let (metrics, ledger) = (Metrics::new(10), ledger());
    let states = || {
        let text = metrics.render(&ledger, &alone());
        ["open", "raising", "frozen", "vacant", "blocked"]
            .map(|state| value(&text, &format!(r#"highgate_resources{{state="{state}"}}"#)).unwrap())
    };
    assert_eq!(states(), [0.0; 5]);
    for name in ["a", "b", "c", "d"] {
        open_at(&ledger, name, 7);
    }
    let _ = ledger.enter(&resource("never-raised"));
    let _ = ledger.close(&resource("b"), 8, Shut::Raised);
    let _ = ledger.close(&resource("c"), 7, Shut::Frozen);
    let _ = ledger.close(&resource("d"), 7, Shut::Vacant);
    assert_eq!(states(), [1.0, 1.0, 1.0, 1.0, 0.0]);
    let permit = ledger.get("a").unwrap().admit(Token::new(7).unwrap()).ok().unwrap();
    ledger.block(permit);
    assert_eq!(states(), [0.0, 1.0, 1.0, 1.0, 1.0]);
    ledger.settle(&resource("a"));
    ledger.close_all();
    assert_eq!(states(), [0.0, 2.0, 1.0, 1.0, 0.0]);
    open_at(&ledger, "c", 9);
    open_at(&ledger, "b", 9);
    assert_eq!(states(), [2.0, 1.0, 0.0, 1.0, 0.0]);
}

/// The shortest of many: this machine may be busy with other things.
fn scrape_time(resources: u32) -> Duration {
    let (metrics, ledger) = (Metrics::new(10), ledger());
    for number in 0..resources {
        let name = format!("acct-{number}");
        open_at(&ledger, &name, 7);
        metrics.election_event(&elected(&name, "job", 7));
    }
    let scrape = || {
        let began = std::time::Instant::now();
        let text = metrics.render(&ledger, &alone());
        let took = began.elapsed();
        assert_eq!(value(&text, r#"highgate_resources{state="open"}"#), Some(resources.into()));
        took
    };
    (0..50).map(|_| scrape()).min().unwrap()
}

#[test]
fn a_scrape_does_not_look_at_every_resource() {
    let (few, many) = (scrape_time(100), scrape_time(100_000));
    assert!(many < Duration::from_millis(50), "{many:?}");
    assert!(many < few * 3 + Duration::from_millis(2), "{few:?} with few resources, {many:?} with many");
}

#[test]
fn what_cannot_become_of_a_request_has_no_series_until_it_does() {
    let reasons = |name: &str, prospects: Prospects| {
        let metrics = Metrics::new(10);
        let route = metrics.route(name, prospects);
        route.count(Decision::Refused, "fenced");
        let text = metrics.render(&ledger(), &alone());
        assert!(text.contains(r#"reason="fenced"} 1"#), "what happens is counted: {text}");
        let reason = |line: &&str| Some(line.split("reason=\"").nth(1)?.split('"').next()?.to_owned());
        let all: BTreeSet<String> =
            series_of(&text, "highgate_requests_total").iter().filter_map(reason).collect();
        (all, text.contains("highgate_unknown_outcomes_total"))
    };
    let (trusted, forwards) = reasons("r", prospects("tokens = 'trusted'\nmissing_token = 'allow'", false));
    assert!(forwards && trusted.contains("stale") && trusted.contains("missing"));
    assert!(!trusted.contains("not-issued") && !trusted.contains("no-route"), "{trusted:?}");
    let (issued, _) = reasons("r", prospects("", false));
    assert!(issued.contains("not-issued") && issued.contains("missing"), "{issued:?}");
    let (none, forwards) = reasons("none", Prospects::of(None, false));
    let expected = ["fenced", "malformed", "no-route", "overloaded", "request-timeout"].map(str::to_owned);
    assert_eq!((none, forwards), (BTreeSet::from(expected), false));
}
