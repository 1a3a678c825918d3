//! Real etcd servers for tests: on free ports, in a folder of their own, ended by their process id.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// One to several etcd nodes that form a cluster.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    bin: PathBuf,
    folder: tempfile::TempDir,
}

pub(crate) struct Node {
    pub(crate) port: u16,
    child: Child,
    /// What it was started with, for another start.
    arguments: Vec<String>,
}

/// The folder with `etcd` and `etcdctl`; without it the test is skipped, and says so even when it passes.
fn find(test: &str) -> Option<PathBuf> {
    if std::env::var_os("HIGHGATE_TEST_SERVERS").is_none() {
        let reason = "it needs a server; scripts/test runs it, or HIGHGATE_TEST_SERVERS=1";
        writeln!(std::io::stderr(), "SKIPPED {test}: {reason}").expect("stderr is open");
        return None;
    }
    let found = Command::new(script()).arg("--find").output().expect("scripts/etcd runs");
    if found.status.success() {
        return Some(PathBuf::from(String::from_utf8_lossy(&found.stdout).trim()));
    }
    let reason = String::from_utf8_lossy(&found.stderr);
    writeln!(std::io::stderr(), "SKIPPED {test}: {}", reason.trim()).expect("stderr is open");
    None
}

/// At the workspace's root, whichever of its packages this is compiled into.
fn script() -> PathBuf {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|folder| folder.join("scripts/etcd"));
    scripts.into_iter().find(|script| script.exists()).expect("scripts/etcd is there")
}

fn spawn(bin: &Path, arguments: &[String]) -> Child {
    let mut etcd = Command::new(bin.join("etcd"));
    etcd.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("etcd starts")
}

impl Cluster {
    pub(crate) fn start(test: &str, size: usize) -> Option<Self> {
        Self::start_with(test, size, &[])
    }

    pub(crate) fn start_with(test: &str, size: usize, more: &[&str]) -> Option<Self> {
        let bin = find(test)?;
        let started = Instant::now();
        loop {
            let folder = tempfile::Builder::new().prefix("etcd-test-").tempdir().unwrap();
            let mut cluster = Self { nodes: Vec::new(), bin: bin.clone(), folder };
            cluster.launch(size, more);
            if cluster.is_healthy_within(Duration::from_secs(20), more.contains(&"--cert-file")) {
                return Some(cluster);
            }
            assert!(started.elapsed() < Duration::from_secs(60), "etcd does not start");
        }
    }

    fn launch(&mut self, size: usize, more: &[&str]) {
        let ports = free_ports(2 * size);
        let (clients, peers) = ports.split_at(size);
        let members: Vec<String> =
            peers.iter().enumerate().map(|(at, port)| format!("n{at}=http://127.0.0.1:{port}")).collect();
        let scheme = if more.contains(&"--cert-file") { "https" } else { "http" };
        for at in 0..size {
            let client = format!("{scheme}://127.0.0.1:{}", clients[at]);
            let peer = format!("http://127.0.0.1:{}", peers[at]);
            let (name, folder) = (format!("n{at}"), self.data_folder(at).display().to_string());
            let fixed = ["--name", &name, "--log-level", "error", "--data-dir", &folder];
            let client_urls = ["--listen-client-urls", &client, "--advertise-client-urls", &client];
            let peer_urls = ["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer];
            let cluster = ["--initial-cluster", &members.join(",")];
            let all = fixed.iter().chain(&client_urls).chain(&peer_urls).chain(&cluster).chain(more);
            let arguments: Vec<String> = all.map(|argument| (*argument).to_owned()).collect();
            let child = spawn(&self.bin, &arguments);
            self.nodes.push(Node { port: clients[at], child, arguments });
        }
    }

    /// Kills every node and starts it again with what it has on disk.
    pub(crate) fn restart(&mut self) {
        for at in 0..self.nodes.len() {
            self.nodes[at].kill();
            self.start_node(at);
        }
        self.awaits_health();
    }

    /// Starts a node that was killed, with what it has on disk.
    pub(crate) fn start_node(&mut self, at: usize) {
        self.nodes[at].child = spawn(&self.bin, &self.nodes[at].arguments);
    }

    pub(crate) fn save_snapshot(&self, file: &Path) {
        self.ask(&["snapshot", "save", &file.display().to_string()]);
    }

    /// All nodes are killed and come back with nothing but the snapshot, on their old addresses.
    pub(crate) fn restore(&mut self, snapshot: &Path) {
        self.restore_with(snapshot, &[]);
    }

    /// The same with more flags for the restore.
    pub(crate) fn restore_with(&mut self, snapshot: &Path, more: &[&str]) {
        let tool = if self.has_tool("etcdutl") { "etcdutl" } else { "etcdctl" };
        for at in 0..self.nodes.len() {
            self.nodes[at].kill();
            let folder = self.data_folder(at);
            std::fs::remove_dir_all(&folder).expect("it has data");
            let mut restore = self.tool(tool);
            restore.args(["snapshot", "restore"]).arg(snapshot).arg("--data-dir").arg(&folder);
            restore.args(more);
            for flag in ["--name", "--initial-cluster", "--initial-advertise-peer-urls"] {
                restore.args([flag, self.nodes[at].argument(flag)]);
            }
            printed(restore);
        }
        for at in 0..self.nodes.len() {
            self.start_node(at);
        }
        self.awaits_health();
    }

    /// Waits until every node takes part.
    pub(crate) fn awaits_health(&mut self) {
        assert!(self.is_healthy_within(Duration::from_secs(20), false), "etcd does not start again");
    }

    fn is_healthy_within(&mut self, limit: Duration, tls: bool) -> bool {
        let started = Instant::now();
        while started.elapsed() < limit {
            if self.nodes.iter_mut().any(|node| node.child.try_wait().unwrap().is_some()) {
                return false;
            }
            let healthy = |node: &Node| match tls {
                // Without TLS of our own, an open port has to do.
                true => TcpStream::connect(("127.0.0.1", node.port)).is_ok(),
                false => node.http("/health").is_some_and(|answer| answer.contains("true")),
            };
            if self.nodes.iter().all(healthy) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }

    pub(crate) fn data_folder(&self, node: usize) -> PathBuf {
        self.folder.path().join(format!("n{node}"))
    }

    pub(crate) fn url(&self) -> String {
        let endpoints: Vec<String> =
            self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        format!("etcd://{}/test", endpoints.join(","))
    }

    /// `etcdctl`, talking to the first node.
    pub(crate) fn ctl(&self, arguments: &[&str]) -> Command {
        self.ctl_at(0, arguments)
    }

    /// `etcdctl`, talking to this node.
    pub(crate) fn ctl_at(&self, node: usize, arguments: &[&str]) -> Command {
        let mut command = self.tool("etcdctl");
        command.arg(format!("--endpoints=127.0.0.1:{}", self.nodes[node].port)).args(arguments);
        command
    }

    /// A program that came with etcd.
    pub(crate) fn tool(&self, name: &str) -> Command {
        let mut command = Command::new(self.bin.join(name));
        command.env("ETCDCTL_API", "3");
        command
    }

    pub(crate) fn has_tool(&self, name: &str) -> bool {
        self.bin.join(name).exists()
    }

    /// What `etcdctl` prints.
    pub(crate) fn ask(&self, arguments: &[&str]) -> String {
        printed(self.ctl(arguments))
    }

    /// The keys below a prefix.
    pub(crate) fn keys(&self, prefix: &str) -> Vec<String> {
        let keys = self.ask(&["get", "--prefix", "--keys-only", prefix]);
        keys.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// A counter of the first node, summed over its labels when one of `labels` is among them.
    pub(crate) fn counter(&self, name: &str, labels: &[&str]) -> u64 {
        self.nodes[0].counter(name, labels)
    }

    /// Requests for keys so far: reads, transactions, puts and deletes.
    pub(crate) fn requests(&self) -> u64 {
        self.counter("grpc_server_started_total", &["grpc_service=\"etcdserverpb.KV\""])
    }
}

/// What a command prints, if it goes well.
pub(crate) fn printed(mut command: Command) -> String {
    let output = command.output().expect("it is a program");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Node {
    /// A counter of this node, summed over its labels when one of `labels` is among them.
    pub(crate) fn counter(&self, name: &str, labels: &[&str]) -> u64 {
        let metrics = self.http("/metrics").expect("etcd answers");
        let counts = metrics.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
                && (labels.is_empty() || labels.iter().any(|label| line.contains(label)))
        });
        counts.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum::<f64>() as u64
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a running node");
        self.child.wait().expect("a killed node");
    }

    /// What it was told with this flag.
    pub(crate) fn argument(&self, flag: &str) -> &str {
        let at = self.arguments.iter().position(|argument| argument == flag).expect("a flag of every node");
        &self.arguments[at + 1]
    }

    #[allow(dead_code, reason = "for the gateways' tests, which share this file")]
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGSTOP, SIGCONT or SIGKILL for this process.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).expect("the process is there");
    }

    pub(crate) fn is_raft_leader(&self) -> bool {
        self.http("/metrics").is_some_and(|metrics| metrics.contains("etcd_server_is_leader 1"))
    }

    fn http(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(3))).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        Some(String::from_utf8_lossy(&answer).into_owned())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Ends a stopped process, too; one that has ended already is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Held all at once, so that they differ.
fn free_ports(count: usize) -> Vec<u16> {
    let listeners: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}
