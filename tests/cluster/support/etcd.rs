//! A cluster of three real etcd nodes, and what an operator or a fate does to it.

use std::ops::{Deref, DerefMut};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::client::{Client, post};
use super::eventually;
use super::server::Cluster;

/// Below which the gateways of these tests keep their keys.
pub(crate) const PREFIX: &str = "/highgate/test";

pub(crate) struct Etcd(Cluster);

/// How often etcd was asked, over all its nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requests {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
}

/// A key as etcd shows it.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) created: u64,
    pub(crate) lease: u64,
}

/// `etcdctl elect`: a candidate that knows nothing of Highgate. Killed when dropped.
pub(crate) struct Candidate {
    process: Child,
    /// The create revision of its key.
    pub(crate) token: u64,
}

impl Etcd {
    pub(crate) fn start(test: &str) -> Option<Self> {
        Self::start_with(test, &[])
    }

    /// Every node has these flags besides its own.
    pub(crate) fn start_with(test: &str, flags: &[&str]) -> Option<Self> {
        Cluster::start_with(test, 3, flags).map(Self)
    }

    pub(crate) fn ports(&self) -> Vec<u16> {
        self.nodes.iter().map(|node| node.port).collect()
    }

    /// The number of the node that leads the others.
    pub(crate) fn raft_leader(&self) -> usize {
        let mut leader = None;
        eventually("etcd has a leader", || {
            leader = self.nodes.iter().position(|node| node.is_raft_leader());
            leader.is_some()
        });
        leader.expect("it was awaited")
    }

    pub(crate) fn signal_all(&self, signal: Signal) {
        self.nodes.iter().for_each(|node| node.signal(signal));
    }

    pub(crate) fn requests(&self) -> Requests {
        let kv = |method: &str| format!("grpc_method=\"{method}\",grpc_service=\"etcdserverpb.KV\"");
        let handled = |methods: &[&str]| {
            let labels: Vec<_> = methods.iter().map(|method| kv(method)).collect();
            let labels: Vec<_> = labels.iter().map(String::as_str).collect();
            self.nodes.iter().map(|node| node.counter("grpc_server_handled_total", &labels)).sum()
        };
        Requests { reads: handled(&["Range"]), writes: handled(&["Put", "Txn", "DeleteRange"]) }
    }

    /// The newest revision.
    pub(crate) fn revision(&self) -> u64 {
        let answer: Value = json_of(&self.ask(&["get", "-w", "json", "x"]));
        answer["header"]["revision"].as_u64().expect("every answer has one")
    }

    /// Forgets every revision but the latest, as operators have it done from time to time.
    pub(crate) fn compact(&self) -> u64 {
        let revision = self.revision();
        self.ask(&["compact", &revision.to_string()]);
        revision
    }

    /// The same; false if there was nothing to forget.
    pub(crate) fn tries_to_compact(&self) -> bool {
        let revision = self.revision().to_string();
        self.ctl(&["compact", &revision]).output().expect("etcdctl runs").status.success()
    }

    /// Whether this revision is not known any more.
    pub(crate) fn has_forgotten(&self, revision: u64) -> bool {
        let output = self.ctl(&["get", "x", "--rev", &revision.to_string()]).output().expect("etcdctl runs");
        String::from_utf8_lossy(&output.stderr).contains("compacted")
    }

    /// Puts a key; false if etcd does not take it.
    pub(crate) fn put(&self, key: &str, value: &str) -> bool {
        self.ctl(&["put", key, value]).output().expect("etcdctl runs").status.success()
    }

    /// The size of the first node's database in bytes, with free pages and without.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let answer = json_of(&self.ask(&["endpoint", "status", "-w", "json"]));
        let number = |name: &str| answer[0]["Status"][name].as_u64().expect("every node says so");
        (number("dbSize"), number("dbSizeInUse"))
    }

    /// A key by its name below the prefix.
    pub(crate) fn key(&self, name: &str) -> Option<Key> {
        self.key_at(&format!("{PREFIX}/{name}"))
    }

    /// What a key holds.
    pub(crate) fn value(&self, key: &str) -> String {
        self.ask(&["get", "--print-value-only", key])
    }

    fn key_at(&self, key: &str) -> Option<Key> {
        let answer = json_of(&self.ask(&["get", "-w", "json", key]));
        let number = |name: &str| answer["kvs"][0][name].as_u64();
        Some(Key { created: number("create_revision")?, lease: number("lease").unwrap_or(0) })
    }

    /// How long it takes to commit one small write, as etcd's own HTTP API sees it.
    pub(crate) fn commit_times(&self, count: usize) -> Vec<Duration> {
        let mut client = Client::connect(([127, 0, 0, 1], self.nodes[0].port).into());
        // A key and a value of one byte each, in base64.
        let ask = post("/v3/kv/put").body(json!({ "key": "eA==", "value": "eA==" }).to_string());
        let time = |_| {
            let began = Instant::now();
            assert_eq!(client.ask(&ask).status, 200);
            began.elapsed()
        };
        (0..count).map(time).collect()
    }

    /// Stands for election in the layout of etcd's own tools. Returns once it is in line, leading or not.
    pub(crate) fn elect(&self, resource: &str, name: &str) -> Candidate {
        let election = format!("{PREFIX}/e/{resource}");
        let before = self.keys(&format!("{election}/"));
        let mut command = self.ctl(&["elect", &election, name]);
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("etcdctl runs");
        let mut key = None;
        eventually("the candidate is in line", || {
            key = self.keys(&format!("{election}/")).into_iter().find(|key| !before.contains(key));
            key.is_some()
        });
        let key = key.expect("it was awaited");
        let token = self.key_at(&key).expect("it is in line").created;
        Candidate { process, token }
    }
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

impl Requests {
    pub(crate) fn since(self, before: Self) -> Self {
        Self { reads: self.reads - before.reads, writes: self.writes - before.writes }
    }

    pub(crate) fn all(self) -> u64 {
        self.reads + self.writes
    }
}

impl Candidate {
    /// Leaves in order, as at Ctrl-C.
    pub(crate) fn resign(mut self) {
        kill_process(Pid::from_child(&self.process), Signal::INT).expect("a running child");
        self.process.wait().expect("a child of ours");
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        // Either fails only for a process that has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Deref for Etcd {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}

impl DerefMut for Etcd {
    fn deref_mut(&mut self) -> &mut Cluster {
        &mut self.0
    }
}
