//! `highgate run` over etcd beside the gateways: a job starts only when its token passes, everywhere.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::etcd::PREFIX;
use crate::support::{Trial, eventually, trial};

/// A job that leads: it prints its token and goes on until it is told to stop. Killed when dropped.
struct Job {
    process: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Job {
    fn start(trial: &Trial) -> Self {
        let ports: Vec<_> = trial.etcd().ports().iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let backend = format!("etcd://{}{PREFIX}", ports.join(","));
        let mut command = Command::new(env!("CARGO_BIN_EXE_highgate"));
        command.args(["run", "--resource", "ledger", "--backend", &backend, "--ttl", "3s", "--"]);
        let mut process = command
            .args(["sh", "-c", "echo $FENCING_TOKEN; exec sleep 60"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it was built");
        let lines = BufReader::new(process.stdout.take().expect("a pipe was asked for")).lines();
        Self { process, lines }
    }

    /// Waits until the job runs.
    fn token(&mut self) -> u64 {
        self.lines.next().expect("a line").expect("a pipe").trim().parse().expect("the token")
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_job_starts_when_its_token_passes_everywhere_and_its_predecessors_nowhere() {
    let name = "a_job_starts_when_its_token_passes_everywhere_and_its_predecessors_nowhere";
    let Some(trial) = trial(name).route("tokens", "issued").start() else { return };
    let mut first = Job::start(&trial);
    let old = first.token();
    trial.passes_everywhere("ledger", old);
    // A slow write of the first is under way while the second is elected: it has to end first.
    let slow = trial.gateways[1].write("ledger", old).held("slow").begin();
    trial.upstream.record().sees("the slow write", |entry| entry.token == old && entry.responded.is_none());
    let mut second = Job::start(&trial);
    trial.operate(2, &["evict", "ledger"]);
    eventually("the mark is raised for the second", || trial.gateways[0].mark("ledger").0 > old);
    let began = Instant::now();
    let told = std::thread::spawn(move || (second.token(), Instant::now(), second));
    std::thread::sleep(Duration::from_millis(500));
    assert!(!told.is_finished(), "it is not told before the slow write has ended");
    trial.upstream.release("slow");
    assert!(slow.answer().passed());
    let (new, at, _second) = told.join().expect("it reads a line");
    println!("the second job ran {:?} after the evicted one's last write was awaited", at - began);
    // Not a moment of grace is needed: it passes on every gateway as soon as the job knows it.
    trial.passes_everywhere("ledger", new);
    trial.is_refused_everywhere("ledger", old, 412, "stale");
    trial.is_kept().is_worth(1, 6);
}

#[test]
fn a_job_does_not_start_while_a_gateway_may_still_forward_whose_peers_evicted_it_and_left() {
    let name = "a_job_does_not_start_while_a_gateway_may_still_forward_whose_peers_evicted_it_and_left";
    let builder = trial(name).route("tokens", "issued").validity(Duration::from_secs(3));
    let Some(mut trial) = builder.lock_delay(Duration::from_secs(2)).start() else { return };
    let mut first = Job::start(&trial);
    let old = first.token();
    trial.passes_everywhere("ledger", old);
    trial.gateways[0].signal(Signal::STOP);
    let tombstones = |trial: &Trial| trial.etcd().keys("/highgate/test/t/").len();
    eventually("it is evicted", || tombstones(&trial) == 1);
    for gateway in &mut trial.gateways[1..] {
        gateway.signal(Signal::TERM);
        assert_eq!(gateway.ends(), 0);
    }
    assert_eq!((trial.etcd().keys("/highgate/test/m/").len(), tombstones(&trial)), (0, 1));
    drop(first);
    let began = Instant::now();
    let mut second = Job::start(&trial);
    let new = second.token();
    let took = began.elapsed();
    println!("the second job ran {took:?} after it was started");
    assert!(took >= trial.timing.wait() + trial.timing.lock_delay, "{took:?}");
    // The one that was stopped finds that it is evicted, and is the first to know of the new leader.
    trial.gateways[0].signal(Signal::CONT);
    trial.gateways[0].opens("ledger", new);
    assert!(trial.gateways[0].write("ledger", new).send().passed());
    assert!(trial.gateways[0].write("ledger", old).send().is_refused(412, "stale"));
    trial.is_kept();
}
