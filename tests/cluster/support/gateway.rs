//! One gateway of several: a process of the built program that can be stopped, killed, cut off and started again.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::client::{Ask, Response, get, post};
use super::exchange::exchange;
use super::line::Line;
use super::process::{self, Highgate};
use super::writer::{Answers, Write};
use super::{PATIENCE, eventually};

/// How long a probe waits for a gateway that may be stopped.
const PROBE: Duration = Duration::from_secs(1);

/// How long an order waits for one that may be.
const ORDER: Duration = Duration::from_secs(2);

/// Where a gateway is now: it moves when it is started again.
pub(crate) struct Door {
    addresses: Mutex<(SocketAddr, SocketAddr)>,
    /// Whether a balancer would send to it, kept by whoever probes.
    pub(crate) is_ready: AtomicBool,
}

pub(crate) struct Gateway {
    pub(crate) name: String,
    command: process::Builder,
    /// None while it is dead.
    process: Option<Highgate>,
    pub(crate) door: Arc<Door>,
    pub(crate) answers: Arc<Answers>,
    /// To etcd, if it can be cut.
    line: Option<Line>,
    /// What its earlier processes have said.
    history: String,
}

impl Door {
    /// Of a gateway that listens on these ports, for requests and for operators.
    pub(crate) fn at(data: SocketAddr, admin: SocketAddr) -> Self {
        Self { addresses: Mutex::new((data, admin)), is_ready: AtomicBool::new(true) }
    }

    pub(crate) fn moves(&self, data: SocketAddr, admin: SocketAddr) {
        *self.addresses.lock().unwrap_or_else(PoisonError::into_inner) = (data, admin);
    }

    fn addresses(&self) -> (SocketAddr, SocketAddr) {
        *self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn data(&self) -> SocketAddr {
        self.addresses().0
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.addresses().1
    }

    /// Asks the admin port; none if nobody answers soon.
    pub(crate) fn probe(&self, path: &str) -> Option<Response> {
        exchange(self.admin(), &get(path).header("Connection", "close"), PROBE).ok()
    }

    /// Gives the admin port an order; none if nobody answers soon.
    pub(crate) fn order(&self, path: &str, body: &Value) -> Option<Response> {
        let ask = post(path).header("Content-Type", "application/json").header("Connection", "close");
        exchange(self.admin(), &ask.body(body.to_string()), ORDER).ok()
    }

    pub(crate) fn says_ready(&self) -> bool {
        self.probe("/readyz").is_some_and(|answer| answer.status == 200)
    }
}

impl Gateway {
    /// Starts it. It need not be ready yet.
    pub(crate) fn start(
        name: String,
        command: process::Builder,
        line: Option<Line>,
        answers: Arc<Answers>,
    ) -> Self {
        let process = command.clone().start();
        let door = Arc::new(Door::at(process.address(), process.admin_address()));
        Self { name, command, process: Some(process), door, answers, line, history: String::new() }
    }

    /// Starts it again after its process has ended. It need not be ready yet.
    pub(crate) fn start_again(&mut self) {
        assert!(self.process.is_none(), "{} still runs", self.name);
        let process = self.command.clone().start();
        self.door.moves(process.address(), process.admin_address());
        self.process = Some(process);
    }

    fn process(&self) -> &Highgate {
        self.process.as_ref().expect("a gateway that runs")
    }

    pub(crate) fn write(&self, resource: &str, token: u64) -> Write {
        Write::new(self.door.clone(), self.answers.clone(), resource, token)
    }

    pub(crate) fn becomes_ready(&self) {
        eventually(&format!("{} is ready", self.name), || self.door.says_ready());
        self.door.is_ready.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.door.probe("/healthz").is_some_and(|answer| answer.status == 200)
    }

    /// Asks the admin port, which has to answer.
    pub(crate) fn admin(&self, path: &str) -> Response {
        self.ask_admin(&get(path))
    }

    pub(crate) fn post_admin(&self, path: &str, body: &Value) -> Response {
        let ask = post(path).header("Content-Type", "application/json");
        self.ask_admin(&ask.body(body.to_string()))
    }

    fn ask_admin(&self, ask: &Ask) -> Response {
        let ask = ask.clone().header("Connection", "close");
        let answer = exchange(self.door.admin(), &ask, PATIENCE);
        answer.unwrap_or_else(|error| panic!("{} does not answer {ask:?}: {error}", self.name))
    }

    /// What it shows of all replicas.
    pub(crate) fn overview(&self) -> Value {
        let answer = self.admin("/v1/replicas");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// Which incarnation it is, while it is one.
    pub(crate) fn incarnation(&self) -> Option<String> {
        self.overview()["me"].as_str().map(str::to_owned)
    }

    /// The mark of a resource and its state; 0 and nothing if it was never seen.
    pub(crate) fn mark(&self, resource: &str) -> (u64, String) {
        let answer = self.admin(&format!("/v1/resource?name={resource}"));
        if answer.status != 200 {
            return (0, String::new());
        }
        let view = answer.json();
        (view["mark"].as_u64().expect("a number"), view["state"].as_str().expect("a word").to_owned())
    }

    /// Waits until it passes this token.
    pub(crate) fn opens(&self, resource: &str, token: u64) {
        let open = (token, "open".to_owned());
        eventually(&format!("{} opens {resource} at {token}", self.name), || self.mark(resource) == open);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process().signal(signal);
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process().pid()
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        let process = self.process.take().expect("a gateway that runs");
        self.history.push_str(&process.said());
        process.kill();
    }

    /// Waits for the end that a signal has asked for; its exit code.
    pub(crate) fn ends(&mut self) -> i32 {
        let mut process = self.process.take().expect("a gateway that runs");
        let code = process.exit_code();
        self.history.push_str(&process.said());
        code
    }

    pub(crate) fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Whether its process has ended without having been asked to.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| process.exit_status().is_some())
    }

    /// Its line to etcd.
    pub(crate) fn line(&self) -> &Line {
        self.line.as_ref().expect("the trial is relayed")
    }

    /// All that it and its earlier processes have said.
    pub(crate) fn words(&self) -> String {
        let now = self.process.as_ref().map(Highgate::said).unwrap_or_default();
        format!("{}{now}", self.history)
    }

    /// The last lines of that.
    pub(crate) fn last_words(&self) -> String {
        let all = self.words();
        let lines: Vec<_> = all.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }
}
