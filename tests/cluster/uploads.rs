//! Bodies that are still on their way when their gateway is stopped: whatever it finds when it goes on, the rest of
//! them never leaves it.

use std::fs;
use std::net::SocketAddr;

use rustix::process::{Pid, Signal, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::support::front::Speech;
use crate::support::record::{Cut, Entry};
use crate::support::trial::Builder;
use crate::support::{A_WHILE, Client, Trial, eventually, post, stays, trial};

/// More than what is read before a request is admitted.
const SIZE: usize = 70_000;
/// The gateway wakes up with this many at once, each of which races with its fence.
const UPLOADS: usize = 8;

/// An upload that lacks its last byte.
fn begin(data: SocketAddr, number: usize) -> Client {
    let ask = post("/").resource("ledger").token(11).header("X-Request", &format!("upload-{number}"));
    let bytes = ask.header("Connection", "close").body(vec![b'x'; SIZE]).bytes();
    let mut client = Client::connect(data);
    client.send(&bytes[..bytes.len() - 1]);
    client
}

/// All threads of the process share one core, and the workers come first: an order in which a busy machine may run
/// them, and in which nobody but the writes themselves can stop an upload.
fn serves_workers_first(process: u32) {
    let allowed = sched_getaffinity(None).expect("a process knows its cores");
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).find(|core| allowed.is_set(*core)).expect("a core to run on"));
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("a process that runs");
    for task in tasks.flatten() {
        let thread = task.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw);
        sched_setaffinity(thread, &one).expect("a thread of a child");
        if fs::read_to_string(task.path().join("comm")).is_ok_and(|name| !name.starts_with("worker")) {
            setpriority_process(thread, 19).expect("a thread of a child");
        }
    }
}

fn uploads(trial: &Trial) -> Vec<Entry> {
    let entries = trial.upstream.record().entries();
    entries.iter().filter(|entry| entry.id.starts_with("upload-")).cloned().collect()
}

fn unknown_outcomes(trial: &Trial, gateway: usize) -> Option<u64> {
    let metrics = trial.gateways[gateway].admin("/metrics").text();
    let counted = metrics.lines().find(|line| line.starts_with("highgate_unknown_outcomes_total{"))?;
    counted.rsplit(' ').next()?.parse().ok()
}

#[test]
fn a_gateway_that_was_stopped_in_the_middle_of_an_upload_never_sends_the_rest_of_it() {
    let name = "a_gateway_that_was_stopped_in_the_middle_of_an_upload_never_sends_the_rest_of_it";
    never_sends_the_rest(trial(name));
}

/// What lies between the gateway and its socket keeps bytes back, and must not send them later.
#[test]
fn neither_does_one_that_speaks_http2_over_tls() {
    let trial = trial("neither_does_one_that_speaks_http2_over_tls");
    never_sends_the_rest(trial.speaking(Speech { tls: true, h2: true }));
}

fn never_sends_the_rest(trial: Builder) {
    let Some(trial) = trial.start() else { return };
    trial.raises("ledger", 11);
    let stopped = &trial.gateways[1];
    let mut clients: Vec<_> = (0..UPLOADS).map(|number| begin(stopped.door.data(), number)).collect();
    let all_but_one = |entry: &Entry| entry.body == SIZE - 1;
    eventually("all bytes but the last are there", || {
        uploads(&trial).iter().filter(|entry| all_but_one(entry)).count() == UPLOADS
    });

    serves_workers_first(stopped.pid());
    stopped.signal(Signal::STOP);
    let outcome = trial.gateways[2].write("ledger", 12).send();
    assert!(outcome.passed(), "after eviction, W and D: {outcome:?}");
    for client in &mut clients {
        client.send(b"x");
    }
    stopped.signal(Signal::CONT);

    let is_over = |entry: &Entry| entry.cut.is_some() || entry.effect.is_some();
    eventually("the uploads end", || uploads(&trial).iter().all(is_over));
    let ended = uploads(&trial);
    assert!(ended.iter().all(all_but_one), "a byte of 11 came after 12: {ended:#?}");
    for entry in &ended {
        assert_eq!(entry.cut.map(|(_, how)| how), Some(Cut::Reset), "what the kernel still had died with it");
    }
    for answer in clients.iter_mut().filter_map(Client::response_if_any) {
        assert_eq!((answer.status, answer.outcome()), (502, Some("unknown")), "{answer:?}");
    }
    eventually("the gateway serves again", || trial.gateways[1].door.says_ready());
    assert_eq!(unknown_outcomes(&trial, 1), Some(UPLOADS as u64));
    trial.gateways[1].opens("ledger", 12);
    trial.passes_everywhere("ledger", 12);
    stays("nothing of 11 comes later", A_WHILE, || uploads(&trial).iter().all(all_but_one));
    trial.is_kept();
}
