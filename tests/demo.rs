//! `highgate demo` as a user runs it: the story it tells, and what it leaves behind, which is nothing.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

/// The running demo, with a folder of its own for temporary files. Killed when dropped.
struct Demo {
    process: Child,
    output: BufReader<ChildStdout>,
    told: String,
    folder: TempDir,
}

impl Demo {
    fn start(args: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_highgate"))
            .arg("demo")
            .args(args)
            .env("TMPDIR", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output, told: String::new(), folder }
    }

    /// Reads up to the first line that contains this text, and returns the line.
    fn read_to(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "no {text:?} in\n{}", self.told);
            self.told.push_str(&line);
            if line.contains(text) {
                return line;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    fn end(&mut self) -> ExitStatus {
        self.output.read_to_string(&mut self.told).unwrap();
        self.process.wait().unwrap()
    }

    /// The leaders that the demo started, by what it told.
    fn leaders(&self) -> Vec<Pid> {
        let pids = self.told.lines().filter_map(|line| line.split_once("starts as process "));
        pids.map(|(_, pid)| Pid::from_raw(pid.parse().unwrap()).unwrap()).collect()
    }

    fn assert_nothing_is_left(&self, leaders: usize) {
        assert_eq!(self.leaders().len(), leaders, "{}", self.told);
        for leader in self.leaders() {
            assert!(test_kill_process(leader).is_err(), "leader {leader:?} is left after\n{}", self.told);
        }
        let files: Vec<_> = self.folder.path().read_dir().unwrap().map(|file| file.unwrap().path()).collect();
        assert!(files.is_empty(), "{files:?} are left");
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // Either fails only for a process that has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What was told in each act.
fn acts(told: &str) -> (&str, &str) {
    let (_, acts) = told.split_once("ACT ONE").unwrap();
    acts.split_once("ACT TWO").unwrap()
}

#[test]
fn the_stale_write_lands_without_highgate_and_is_refused_with_it() {
    let started = Instant::now();
    let mut demo = Demo::start(&["--once"]);
    let status = demo.end();
    let took = started.elapsed();
    println!("{}", demo.told);
    assert!(status.success(), "{status}");
    assert!(took < Duration::from_secs(20), "it took {took:?}");

    let (without, with) = acts(&demo.told);
    let late = "invoice-2 with its old token 33:";
    assert!(without.contains(&format!("pays {late} 201 Created")));
    assert_eq!(without.matches("<- stale: paid twice").count(), 1);
    assert!(with.contains(&format!("tries to pay {late} 412 Precondition Failed, stale")));
    assert!(with.contains("token 33 is below the mark 34"));
    assert!(!with.contains("paid twice"));
    assert!(with.contains("Highgate stopped leader A's late payment of invoice-2"));
    assert!(!demo.told.contains('\x1b'), "colours are for terminals");
    demo.assert_nothing_is_left(4);
}

#[test]
fn a_demo_that_is_interrupted_takes_a_stopped_leader_with_it() {
    let mut demo = Demo::start(&["--once"]);
    // In act two there is a gateway to leave behind, too.
    demo.read_to("ACT TWO");
    demo.read_to("SIGSTOP");
    demo.signal(Signal::INT);
    assert_eq!(demo.end().code(), Some(130));
    // Not the number alone: it may be part of a port.
    assert!(!demo.told.contains("412 Precondition"), "{}", demo.told);
    demo.assert_nothing_is_left(4);
}

#[test]
fn the_gateway_goes_on_until_the_demo_is_ended() {
    let mut demo = Demo::start(&[]);
    let page = demo.read_to("Live page: ");
    let command = demo.read_to("curl");
    demo.read_to("Ctrl-C");
    assert!(request(&page, "GET / HTTP/1.1", "").starts_with("HTTP/1.1 200 "));
    let refused = request(&command, "POST /transfer HTTP/1.1", "X-Fencing-Token: 33\r\n");
    assert!(refused.starts_with("HTTP/1.1 412 "), "{refused}");
    let passed = request(&command, "POST /transfer HTTP/1.1", "X-Fencing-Token: 35\r\n");
    assert!(passed.starts_with("HTTP/1.1 201 "), "{passed}");
    demo.signal(Signal::TERM);
    assert!(demo.end().success());
    demo.assert_nothing_is_left(4);
}

/// The answer of the server whose URL is in a line.
fn request(line: &str, request: &str, header: &str) -> String {
    let (_, url) = line.split_once("http://").unwrap();
    let (address, _) = url.split_once('/').unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{request}\r\nHost: {address}\r\n{header}Connection: close\r\nContent-Length: 0\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
