//! Who takes part: the gateway and its upstream, the zombie, leaders that are measured, and two that listen.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::time::interval_at;

const CONNECTIONS: u32 = 4;
/// A zombie writes evenly, as a job in a loop does, as far as timers go: what it has to write in so long goes out at once.
const TURN: Duration = Duration::from_millis(1);
/// Below what a request's head may have.
const LONG_PATH: usize = 60_000;
/// Each connection of a wild zombie has stale tokens of its own.
const TOKENS_OF_AN_ARM: u64 = 1_000_000;
/// Above every token of a wild zombie.
pub(crate) const HIGHEST_TOKEN: u64 = TOKENS_OF_AN_ARM * (CONNECTIONS as u64 + 1);
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const REFUSED: &[u8] = b"HTTP/1.1 412 Precondition Failed\r\nContent-Length: 7\r\n\r\nrefused";
/// Between two requests of a leader that is measured.
const PAUSE: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_secs(10);

/// The program, with its log in a file. Killed when dropped.
pub(crate) struct Gateway {
    _child: Child,
    log: PathBuf,
    pub(crate) address: SocketAddr,
    admin: SocketAddr,
}

impl Gateway {
    pub(crate) async fn start(folder: &Path) -> Self {
        let log = folder.join("log");
        let config = folder.join("highgate.toml");
        let upstream = upstream().await;
        let text = format!(
            "[log]\naccess = \"refused\"\n[[routes]]\nname = \"all\"\nupstream = \"http://{upstream}\"\n\
             resource = {{ client = true }}\ntokens = \"trusted\"\n"
        );
        std::fs::write(&config, text).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_highgate"))
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config"])
            .arg(&config)
            .arg("--data-dir")
            .arg(folder.join("data"))
            .stdout(Stdio::piped())
            .stderr(File::create(&log).unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut address = async |words: &str| loop {
            let line = lines.next_line().await.unwrap().expect("it says where it listens");
            if let Some((_, rest)) = line.split_once(&format!("{words} http://")) {
                return rest.split(' ').next().unwrap().parse::<SocketAddr>().unwrap();
            }
        };
        let (data, admin) = (address("listening on").await, address("admin on").await);
        Self { _child: child, log, address: data, admin }
    }

    /// What was refused last is told within a second.
    pub(crate) async fn tells_the_rest(&self) {
        tokio::time::sleep(Duration::from_millis(1500)).await;
    }

    pub(crate) fn log_size(&self) -> u64 {
        self.log.metadata().unwrap().len()
    }
}

/// Answers every request at once. Requests have no body, so each ends with its head.
async fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(answer_all(listener, OK));
    address
}

/// A zombie's other target: it refuses everything, on a thread of its own, and fences nothing. A machine on which a
/// zombie writes there is as busy as one on which it writes to the gateway.
pub(crate) fn elsewhere() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { answer_all(TcpListener::from_std(listener).unwrap(), REFUSED).await });
    });
    address
}

async fn answer_all(listener: TcpListener, answer: &'static [u8]) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            while stream.read_line(&mut line).await.is_ok_and(|read| read > 0) {
                if line == "\r\n" && stream.write_all(answer).await.is_err() {
                    return;
                }
                line.clear();
            }
        });
    }
}

fn request(resource: &str, token: u64) -> Vec<u8> {
    request_to("/", resource, token)
}

fn request_to(path: &str, resource: &str, token: u64) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nHost: h\r\nX-Fencing-Resource: {resource}\r\nX-Fencing-Token: {token}\r\n\
         Content-Length: 0\r\n\r\n"
    )
    .into_bytes()
}

/// Reads a whole answer: its status.
async fn answer(stream: &mut (impl AsyncBufRead + Unpin)) -> u16 {
    let (mut status, mut length, mut line) = (0, 0, String::new());
    loop {
        line.clear();
        stream.read_line(&mut line).await.unwrap();
        let line = line.trim_end();
        if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
            status = rest.split(' ').next().unwrap().parse().unwrap();
        } else if let Some(value) = line.to_lowercase().strip_prefix("content-length: ") {
            length = value.parse().unwrap();
        } else if line.is_empty() {
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await.unwrap();
            return status;
        }
    }
}

/// A leader that writes, one request after the other.
pub(crate) struct Leader {
    stream: BufReader<TcpStream>,
    request: Vec<u8>,
}

/// How long requests took.
pub(crate) struct Latency {
    pub(crate) median: Duration,
    /// Nine of ten were faster.
    pub(crate) slow: Duration,
}

impl Leader {
    pub(crate) async fn connect(gateway: &Gateway, resource: &str, token: u64) -> Self {
        let stream = TcpStream::connect(gateway.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream), request: request(resource, token) }
    }

    pub(crate) async fn writes(&mut self) -> Duration {
        let began = Instant::now();
        self.stream.write_all(&self.request).await.unwrap();
        assert_eq!(answer(&mut self.stream).await, 200, "a leader's write passes");
        began.elapsed()
    }

    pub(crate) async fn writes_for(&mut self, duration: Duration) -> Latency {
        let (began, mut took) = (Instant::now(), Vec::new());
        while began.elapsed() < duration {
            took.push(self.writes().await);
            tokio::time::sleep(PAUSE).await;
        }
        took.sort();
        Latency { median: took[took.len() / 2], slow: took[took.len() * 9 / 10] }
    }
}

/// How a zombie writes.
#[derive(Clone, Copy)]
pub(crate) enum Manner {
    /// The same request, again and again.
    Plain,
    /// Paths as long as they may be, and a stale token of its own for every request: nothing is like anything before.
    Wild,
}

impl Manner {
    /// Requests that follow each other, the first of them this one.
    fn requests(self, first: u64, count: u32) -> Vec<u8> {
        match self {
            Self::Plain => request("ledger", 7).repeat(count as usize),
            Self::Wild => {
                let path = format!("/{}", "x".repeat(LONG_PATH));
                (first..first + u64::from(count))
                    .flat_map(|token| request_to(&path, "ledger", token))
                    .collect()
            }
        }
    }
}

/// The deposed leader. It runs on a thread of its own, as it is a process of its own in life.
pub(crate) struct Zombie {
    refused: oneshot::Receiver<u64>,
}

impl Zombie {
    /// It writes to this address, which refuses all of it.
    pub(crate) fn rise(address: SocketAddr, manner: Manner, rate: u32, duration: Duration) -> Self {
        let (tell, refused) = oneshot::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let pace = Pace::of(rate);
                let arms: Vec<_> = (0..CONNECTIONS)
                    .map(|arm| tokio::spawn(write_stale(address, manner, arm, pace, duration)))
                    .collect();
                let mut refused = 0;
                for arm in arms {
                    refused += arm.await.unwrap();
                }
                let _ = tell.send(refused);
            });
        });
        Self { refused }
    }

    /// How many of its requests were refused.
    pub(crate) async fn end(self) -> u64 {
        self.refused.await.expect("none of its requests was admitted")
    }
}

/// How one connection of a zombie writes.
#[derive(Clone, Copy)]
struct Pace {
    /// Requests that go out together.
    count: u32,
    every: Duration,
}

impl Pace {
    /// Of so many requests a second on all connections.
    fn of(rate: u32) -> Self {
        let between = Duration::from_secs(1) * CONNECTIONS / rate.max(1);
        let count = u32::try_from(TURN.as_nanos() / between.as_nanos().max(1)).unwrap().max(1);
        Self { count, every: between * count }
    }
}

async fn write_stale(address: SocketAddr, manner: Manner, arm: u32, pace: Pace, duration: Duration) -> u64 {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (receiving, mut sending) = stream.into_split();
    let mut receiving = BufReader::new(receiving);
    let mut requests = manner.requests(1, pace.count);
    let (began, mut refused) = (Instant::now(), 0);
    // Not all connections at the same time.
    let mut turn = interval_at((began + pace.every * arm / CONNECTIONS).into(), pace.every);
    while began.elapsed() < duration {
        turn.tick().await;
        if let Manner::Wild = manner {
            requests = manner.requests(u64::from(arm) * TOKENS_OF_AN_ARM + refused + 1, pace.count);
        }
        // Long requests fill the way there before they are all answered.
        let sends = sending.write_all(&requests);
        let hears = async {
            for _ in 0..pace.count {
                assert_eq!(answer(&mut receiving).await, 412, "a stale write is refused");
                refused += 1;
            }
        };
        tokio::join!(async { sends.await.unwrap() }, hears);
    }
    refused
}

/// What somebody heard of refusals.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heard {
    pub(crate) events: u64,
    /// The sum of their counts.
    pub(crate) counted: u64,
}

impl Heard {
    fn hear(&mut self, event: &Value) {
        assert_ne!(event["type"], "lagged", "events were lost");
        if event["type"] == "stale" || event["type"] == "more-refused" {
            self.events += 1;
            self.counted += event["count"].as_u64().unwrap();
        }
    }
}

/// Hears `/v1/events`.
pub(crate) struct Listener {
    events: mpsc::UnboundedReceiver<Value>,
}

impl Listener {
    pub(crate) async fn connect(gateway: &Gateway) -> Self {
        let mut stream = TcpStream::connect(gateway.admin).await.unwrap();
        stream.write_all(b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await.unwrap();
        let mut lines = BufReader::new(stream).lines();
        while lines.next_line().await.unwrap().as_deref() != Some(": listening") {}
        Self { events: collect(lines, "data: ") }
    }

    pub(crate) fn heard(&mut self) -> Heard {
        heard(&mut self.events)
    }
}

/// Hears `highgate watch ledger`. Killed when dropped.
pub(crate) struct Watcher {
    _child: Child,
    events: mpsc::UnboundedReceiver<Value>,
}

impl Watcher {
    pub(crate) fn start(gateway: &Gateway) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_highgate"))
            .args(["watch", "ledger", "--admin", &gateway.admin.to_string()])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { _child: child, events: collect(lines, "") }
    }

    /// Waits until it is connected. It does not say when, so something is made to happen until it shows.
    pub(crate) async fn is_there(&mut self, mut stir: impl AsyncFnMut()) {
        let began = Instant::now();
        while self.events.try_recv().is_err() {
            assert!(began.elapsed() < PATIENCE, "highgate watch shows nothing");
            stir().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn heard(&mut self) -> Heard {
        heard(&mut self.events)
    }
}

fn heard(events: &mut mpsc::UnboundedReceiver<Value>) -> Heard {
    let mut heard = Heard::default();
    while let Ok(event) = events.try_recv() {
        heard.hear(&event);
    }
    heard
}

/// The events of a stream of lines, as they come.
fn collect<R>(mut lines: tokio::io::Lines<R>, prefix: &'static str) -> mpsc::UnboundedReceiver<Value>
where
    R: AsyncBufRead + Unpin + Send + 'static,
{
    let (heard, events) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            let Some(json) = line.strip_prefix(prefix) else { continue };
            if let Ok(event) = serde_json::from_str(json) {
                let _ = heard.send(event);
            }
        }
    });
    events
}
