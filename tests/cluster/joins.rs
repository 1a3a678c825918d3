//! Gateways that join a cluster with more marks than they can read before their peers would give them up, and with
//! values and limits in etcd that nobody has chosen for them.

use std::time::{Duration, Instant};

use highgate_etcd::url::EtcdUrl;
use highgate_etcd::{Client, Put, Txn};
use rustix::process::Signal;

use crate::support::etcd::PREFIX;
use crate::support::gateway::Gateway;
use crate::support::load::{Choice, Load};
use crate::support::{Trial, eventually, quantiles, trial};

/// How many marks; `HIGHGATE_TEST_MARKS` says otherwise, for a measurement.
fn marks() -> usize {
    std::env::var("HIGHGATE_TEST_MARKS").ok().and_then(|count| count.parse().ok()).unwrap_or(60_000)
}

/// Puts all of these, many at a time.
pub(crate) fn put(trial: &Trial, pairs: impl Iterator<Item = (String, Vec<u8>)>, at_once: usize) {
    let url = EtcdUrl {
        endpoints: vec![format!("127.0.0.1:{}", trial.etcd().ports()[0])],
        prefix: PREFIX.to_owned(),
        login: None,
        tls: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::open(&url).unwrap();
        let mut pairs = pairs.peekable();
        while pairs.peek().is_some() {
            let put = |request: Txn, (key, value)| request.then(Put::new(key, value));
            let request = pairs.by_ref().take(at_once).fold(Txn::default(), put);
            client.txn(request).await.unwrap();
        }
    });
}

/// Many marks. Gateways that run do not take one that opens without having been raised; a vacant one is shut.
pub(crate) fn fill(trial: &Trial, count: usize) {
    let vacant = br#"{"state":"open","token":2,"vacant":true}"#;
    let mark = |number| (format!("{PREFIX}/f/many%2F{number}"), vacant.to_vec());
    put(trial, (0..count).map(mark), 100);
}

/// The last gateway leaves in order, is away for a while and comes back; how long it takes to be ready.
fn leaves_and_joins(trial: &mut Trial) -> Duration {
    trial.gateways[2].signal(Signal::TERM);
    trial.gateways[2].ends();
    let began = Instant::now();
    trial.gateways[2].start_again();
    trial.gateways[2].becomes_ready();
    began.elapsed()
}

/// X is one second here, and reading all marks takes longer than that.
#[test]
fn a_gateway_joins_among_many_marks_and_holds_nobody_up() {
    let name = "a_gateway_joins_among_many_marks_and_holds_nobody_up";
    let Some(mut trial) = trial(name).alone().validity(Duration::from_secs(2)).start() else { return };
    fill(&trial, marks());
    let load = Load::start(&trial, &["a", "b"], Choice::Loyal);
    load.hands_over(3);
    let joined = leaves_and_joins(&mut trial);
    load.hands_over(3);
    let (middle, most, longest) = quantiles(load.stop());
    println!("{} marks: ready after {joined:?}; handovers {middle:?}, {most:?}, {longest:?}", marks());
    assert!(longest < Duration::from_secs(1), "a handover waited for who joined: {longest:?}");
    let evicted = trial.etcd().keys(&format!("{PREFIX}/t/"));
    assert!(evicted.is_empty(), "{evicted:?}");
    let last = format!("many/{}", marks() - 1);
    assert!(trial.gateways[2].write(&last, 1).send().is_refused(412, "stale"));
    assert!(trial.gateways[2].write(&last, 3).send().passed());
    trial.is_kept().is_worth(8, 60);
}

/// Somebody compacts etcd's history to the last revision, again and again, while a gateway reads many marks.
#[test]
fn a_gateway_joins_among_many_marks_while_history_is_compacted_under_it() {
    let name = "a_gateway_joins_among_many_marks_while_history_is_compacted_under_it";
    let builder = trial(name).alone().validity(Duration::from_secs(4)).store("compact", "off");
    let Some(mut trial) = builder.start() else { return };
    fill(&trial, marks());
    trial.raises("ledger", 7);
    trial.gateways[2].signal(Signal::TERM);
    trial.gateways[2].ends();
    let first = trial.etcd().revision();
    trial.gateways[2].start_again();
    let mut compacted = 0;
    eventually("it has joined", || {
        compacted += u32::from(trial.etcd().tries_to_compact());
        trial.gateways[2].door.says_ready()
    });
    println!("{} marks: {compacted} compactions while it joined", marks());
    assert!(compacted >= 3 && trial.etcd().has_forgotten(first), "only {compacted} compactions");
    trial.raises("ledger", 8);
    trial.is_refused_everywhere("ledger", 7, 412, "stale");
    let last = format!("many/{}", marks() - 1);
    assert!(trial.gateways[2].write(&last, 1).send().is_refused(412, "stale"));
    trial.is_kept();
}

/// What the watch has missed is compacted away, so that only reading everything again makes up for it, among many marks and
/// while tokens are handed over.
#[test]
fn a_gateway_reads_again_among_many_marks_and_holds_nobody_up() {
    let name = "a_gateway_reads_again_among_many_marks_and_holds_nobody_up";
    let builder = trial(name).alone().relayed().validity(Duration::from_secs(4)).store("compact", "off");
    let Some(trial) = builder.start() else { return };
    fill(&trial, marks());
    let load = Load::start(&trial, &["a", "b"], Choice::Loyal);
    load.hands_over(3);
    let before = trial.gateways[2].incarnation();
    let missed = || trial.gateways[2].words().matches("the watch cannot go on").count();
    let mut cuts = 0;
    while missed() < 3 && cuts < 10 {
        cuts += 1;
        trial.gateways[2].line().cut();
        // The watch goes on after the last revision that it has told of, and only what lies before the newest is forgotten.
        trial.etcd().commit_times(3);
        trial.etcd().compact();
        trial.gateways[2].line().mend();
        load.hands_over(2);
    }
    let (middle, most, longest) = quantiles(load.stop());
    println!("{} marks, {cuts} cuts: handovers {middle:?}, {most:?}, {longest:?}", marks());
    assert!(longest < trial.timing.suspect(), "a handover waited for who read again: {longest:?}");
    assert_eq!(trial.gateways[2].incarnation(), before, "it went on as who it was");
    assert!(missed() >= 3, "it had to read again {} times only in {cuts} cuts", missed());
    trial.is_kept().is_worth(8, 60);
}

/// Seventy candidates that say a megabyte each: no answer of the client's may be so large.
#[test]
fn a_gateway_joins_among_candidates_with_large_values() {
    let name = "a_gateway_joins_among_candidates_with_large_values";
    let Some(mut trial) = trial(name).start() else { return };
    let candidate = |number| (format!("{PREFIX}/e/large/{number:x}"), vec![b'x'; 1 << 20]);
    put(&trial, (1..=70).map(candidate), 1);
    trial.raises("ledger", 7);
    leaves_and_joins(&mut trial);
    trial.passes_everywhere("ledger", 7);
    trial.raises("ledger", 8);
}

/// etcd refuses a transaction with more operations than it was told to take, and would refuse it for ever.
#[test]
fn an_etcd_that_takes_few_operations_at_once_gets_smaller_batches() {
    let name = "an_etcd_that_takes_few_operations_at_once_gets_smaller_batches";
    let limited = trial(name).etcd_flags(&["--max-txn-ops", "16"]).validity(Duration::from_secs(8));
    let Some(trial) = limited.start() else { return };
    let gateway = &trial.gateways[0];
    // While etcd says nothing, all the raises come together; otherwise they may go out in fours and fives.
    trial.etcd().signal_all(Signal::STOP);
    let raises: Vec<_> = (0..60).map(|number| gateway.write(&format!("many/{number}"), 7).begin()).collect();
    eventually("all requests have come", || connections(gateway) >= raises.len());
    trial.etcd().signal_all(Signal::CONT);
    for raise in raises {
        let outcome = raise.answer();
        assert!(outcome.passed(), "{outcome:?}");
    }
    let shrank = gateway.words().matches("fewer operations").count();
    assert!((1..=4).contains(&shrank), "it learns the size once: {shrank} times");
}

fn connections(gateway: &Gateway) -> usize {
    let metrics = gateway.admin("/metrics").text();
    let line = metrics.lines().find(|line| line.starts_with("highgate_connections"));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}
