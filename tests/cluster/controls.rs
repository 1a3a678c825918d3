//! The judge and the fixtures themselves: what breaks the promise has to be reported, or the other tests show
//! nothing.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::etcd::Etcd;
use crate::support::exchange::exchange;
use crate::support::judge::violations;
use crate::support::line::Line;
use crate::support::load::{Choice, Load};
use crate::support::record::{Cut, Entry};
use crate::support::writer::Outcome;
use crate::support::{eventually, get, trial};

/// A write that was received, took effect and was answered at these milliseconds.
fn write(start: Instant, id: &str, token: u64, times: [u64; 3]) -> Entry {
    let [received, effect, responded] = times.map(|time| start + Duration::from_millis(time));
    Entry {
        id: id.to_owned(),
        resource: "r".to_owned(),
        token,
        gateway: "g".to_owned(),
        received,
        body: 1,
        effect: Some(effect),
        responded: Some(responded),
        cut: None,
    }
}

fn told(outcomes: &[(&str, Outcome)]) -> HashMap<String, Outcome> {
    outcomes.iter().map(|(id, outcome)| ((*id).to_owned(), outcome.clone())).collect()
}

#[test]
fn the_judge_has_nothing_against_tokens_one_after_the_other() {
    let start = Instant::now();
    let mut cut = write(start, "c", 7, [5, 0, 0]);
    (cut.effect, cut.responded, cut.cut) = (None, None, Some((start, Cut::Reset)));
    let entries = [
        write(start, "a", 7, [0, 10, 20]),
        write(start, "b", 7, [5, 15, 15]),
        cut,
        write(start, "d", 8, [21, 30, 30]),
    ];
    let told = told(&[
        ("a", Outcome::Passed),
        ("b", Outcome::Unknown("lost".into())),
        ("c", Outcome::Unknown("cut".into())),
        ("d", Outcome::Passed),
        ("e", Outcome::NotSent),
        ("f", Outcome::Refused { status: 412, reason: "stale".into() }),
    ]);
    assert_eq!(violations(&entries, &told), Vec::<String>::new());
}

#[test]
fn the_judge_sees_a_stale_write_land() {
    let start = Instant::now();
    let late = [write(start, "a", 8, [0, 1, 2]), write(start, "b", 7, [3, 4, 5])];
    let found = violations(&late, &HashMap::new());
    assert!(
        found.iter().any(|what| what.contains("write b") && what.contains("was forwarded after")),
        "{found:?}"
    );
    assert!(
        found.iter().any(|what| what.contains("write b") && what.contains("took effect after")),
        "{found:?}"
    );
}

#[test]
fn the_judge_sees_two_tokens_under_way_at_once() {
    let start = Instant::now();
    let (slow, next) = (write(start, "a", 7, [0, 1, 9]), write(start, "b", 8, [5, 6, 7]));
    let found = violations(&[slow.clone(), next.clone()], &HashMap::new());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("write b") && found[0].contains("while write a"), "{found:?}");
    // The effect of a write that was cut counts up to its effect.
    let mut cut = slow;
    (cut.effect, cut.responded) = (Some(start + Duration::from_millis(6)), None);
    assert_eq!(violations(&[cut, next], &HashMap::new()).len(), 1);
}

#[test]
fn the_judge_sees_writers_that_were_told_what_is_not_so() {
    let start = Instant::now();
    let twice = [write(start, "a", 7, [0, 1, 2]), write(start, "a", 7, [3, 4, 5])];
    let refused = Outcome::Refused { status: 503, reason: "raising".into() };
    for (told, lies) in [
        (told(&[("a", Outcome::Passed)]), 1),
        (told(&[("a", Outcome::Unknown(String::new()))]), 1),
        (told(&[("a", refused), ("b", Outcome::Passed)]), 2),
        (told(&[("a", Outcome::NotSent)]), 1),
        (told(&[]), 1),
    ] {
        assert_eq!(violations(&twice, &told).len(), lies, "{told:?}");
    }
}

/// The mistake that cluster mode is there to prevent: replicas that know only their own marks.
#[test]
fn gateways_that_do_not_share_their_marks_are_caught() {
    let trial = trial("gateways_that_do_not_share_their_marks_are_caught").unshared().start().unwrap();
    let (one, other) = (&trial.gateways[0], &trial.gateways[2]);
    let slow = other.write("ledger", 7).held("seven").begin();
    trial.upstream.record().sees("the slow write", |entry| entry.token == 7);
    assert!(one.write("ledger", 8).send().passed());
    trial.upstream.release("seven");
    assert!(slow.answer().passed());
    assert!(other.write("ledger", 7).send().passed());
    let found = trial.violations();
    for what in ["while write", "was forwarded after", "took effect after"] {
        assert!(found.iter().any(|violation| violation.contains(what)), "no {what:?} in {found:#?}");
    }
    let record = trial.upstream.record().entries();
    let gateways: Vec<_> = record.iter().map(|entry| entry.gateway.as_str()).collect();
    assert_eq!(gateways, ["gateway-2", "gateway-0", "gateway-2"], "the upstream knows who forwards");
}

#[test]
fn a_load_on_gateways_that_do_not_share_their_marks_is_caught() {
    let name = "a_load_on_gateways_that_do_not_share_their_marks_is_caught";
    let trial = trial(name).unshared().start().unwrap();
    let load = Load::start(&trial, &["a"], Choice::Loyal);
    load.hands_over(5);
    load.stop();
    let found = trial.violations();
    assert!(found.iter().any(|violation| violation.contains("while write")), "{found:#?}");
}

#[test]
fn a_load_on_one_gateway_is_fine_through_its_restart_and_its_kill() {
    let name = "a_load_on_one_gateway_is_fine_through_its_restart_and_its_kill";
    let mut trial = trial(name).unshared().start().unwrap();
    trial.gateways.truncate(1);
    let load = Load::start(&trial, &["a", "b"], Choice::Loyal);
    load.hands_over(3);
    let gateway = &mut trial.gateways[0];
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.ends(), 0);
    gateway.start_again();
    load.resumes();
    trial.gateways[0].kill();
    trial.gateways[0].start_again();
    load.resumes();
    let raises = load.stop();
    let summary = trial.is_kept();
    summary.is_worth(10, 20);
    assert!(raises.len() > summary.handovers, "every token's raise was timed, the first ones' as well");
}

#[test]
fn an_upstream_sees_how_its_gateway_ended_and_goes_on_with_what_it_has() {
    let name = "an_upstream_sees_how_its_gateway_ended_and_goes_on_with_what_it_has";
    let mut trial = trial(name).unshared().start().unwrap();
    let held = trial.gateways[0].write("held", 7).held("never").begin();
    let delayed = trial.gateways[0].write("delayed", 7).delayed(Duration::from_millis(150)).begin();
    for resource in ["held", "delayed"] {
        trial.upstream.record().sees(resource, |entry| entry.resource == resource);
    }
    trial.gateways[0].kill();
    assert!(matches!(held.answer(), Outcome::Unknown(_)));
    assert!(matches!(delayed.answer(), Outcome::Unknown(_)));
    let record = trial.upstream.record();
    let delayed = record.sees("the effect after the cut", |entry| entry.effect.is_some());
    assert_eq!(delayed.resource, "delayed");
    assert!(delayed.cut.is_some() && delayed.responded.is_none(), "{delayed:?}");
    record.sees("the cut of what is held", |entry| entry.resource == "held" && entry.cut.is_some());
    assert_eq!(trial.gateways[0].write("held", 7).send(), Outcome::NotSent);
    trial.gateways[0].start_again();
    trial.gateways[0].becomes_ready();
    assert!(trial.gateways[0].write("held", 7).send().passed(), "the mark was open before");
    trial.is_kept();
}

#[test]
fn etcd_and_its_operators_do_here_what_the_tests_take_them_for() {
    let Some(mut etcd) = Etcd::start("etcd_and_its_operators_do_here_what_the_tests_take_them_for") else {
        return;
    };
    let snapshot = tempfile::NamedTempFile::new().unwrap();
    etcd.ask(&["put", "/highgate/test/a", "1"]);
    etcd.save_snapshot(snapshot.path());
    let before = etcd.requests();
    etcd.ask(&["put", "/highgate/test/b", "1"]);
    etcd.ask(&["get", "/highgate/test/b"]);
    let asked = etcd.requests().since(before);
    assert_eq!((asked.reads, asked.writes), (1, 1));
    assert_eq!(etcd.commit_times(5).len(), 5);
    assert_eq!(etcd.requests().since(before).writes, 6);

    let (first, second) = (etcd.elect("ledger", "first"), etcd.elect("ledger", "second"));
    assert!(second.token > first.token);
    first.resign();
    eventually("one is left", || etcd.keys("/highgate/test/e/ledger/").len() == 1);

    let compacted = etcd.compact();
    let revision = format!("--rev={}", compacted - 1);
    assert!(!etcd.ctl(&["get", &revision, "x"]).output().unwrap().status.success());

    let leader = etcd.raft_leader();
    etcd.nodes[leader].kill();
    eventually("another leads", || (0..3).any(|node| node != leader && etcd.nodes[node].is_raft_leader()));
    etcd.start_node(leader);
    etcd.awaits_health();
    etcd.restore(snapshot.path());
    assert_eq!(etcd.keys("/highgate/test/"), ["/highgate/test/a"], "what came after the backup is lost");
}

#[test]
fn a_line_can_be_cut_swallow_and_be_mended() {
    let Some(etcd) = Etcd::start("a_line_can_be_cut_swallow_and_be_mended") else { return };
    let line = Line::to(etcd.ports());
    let is_heard = || {
        let heard = |port: u16| {
            let ask = get("/health").header("Connection", "close");
            exchange(([127, 0, 0, 1], port).into(), &ask, Duration::from_millis(300)).is_ok()
        };
        line.ports().into_iter().map(heard).collect::<Vec<_>>()
    };
    assert_eq!(is_heard(), [true; 3]);
    line.cut();
    assert_eq!(is_heard(), [false; 3]);
    line.mend();
    assert_eq!(is_heard(), [true; 3]);
    line.swallow();
    assert_eq!(is_heard(), [false; 3]);
    line.mend();
    assert_eq!(is_heard(), [true; 3]);
}
