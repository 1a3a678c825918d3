//! What people build first: a proxy that compares the token with the highest one so far, and forwards.
//!
//! Each replica has that number in memory, or all of them have it in etcd, with compare-and-swap. Either way the
//! check and the effect are two moments. It runs under the same writers and faults as Highgate, to show what those
//! do to it; `main` starts it as a process of its own, which says where it listens in Highgate's words.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use highgate_etcd::url::EtcdUrl;
use highgate_etcd::{Client, Compare, Put, Range, Txn};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use crate::support::client::post;
use crate::support::exchange::{Failure, exchange};
use crate::support::process::{self, stand_in};
use crate::support::trial::Place;
use crate::support::wire::{Head, Wire};

/// The first argument of a process that is such a proxy.
pub(crate) const ROLE: &str = "--as-naive";

/// What the upstream has to know: the same as from any other proxy.
const FORWARDED: [&str; 8] = [
    "x-fencing-token",
    "x-fencing-resource",
    "x-request",
    "x-delay-ms",
    "x-head-first",
    "x-breaks-off",
    "x-given-up",
    "x-slow-read-ms",
];

/// How long an upstream may take.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Serialize, Deserialize)]
struct Setup {
    upstream: String,
    /// The URL of the etcd that has the highest tokens; else they are in memory.
    etcd: Option<String>,
}

pub(crate) fn in_memory(place: &Place) -> process::Builder {
    command(&Setup { upstream: place.upstream.clone(), etcd: None })
}

pub(crate) fn in_etcd(place: &Place) -> process::Builder {
    let nodes: Vec<_> = place.etcd.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let etcd = Some(format!("etcd://{}/naive", nodes.join(",")));
    command(&Setup { upstream: place.upstream.clone(), etcd })
}

fn command(setup: &Setup) -> process::Builder {
    let setup = serde_json::to_string(setup).expect("plain data");
    stand_in(std::env::current_exe().expect("a program knows where it is"), vec![ROLE.to_owned(), setup])
}

struct Proxy {
    upstream: SocketAddr,
    path: String,
    highest: Highest,
}

/// The highest token of each resource.
enum Highest {
    InMemory(Mutex<HashMap<String, u64>>),
    InEtcd(Client, Handle),
}

pub(crate) fn main() -> ExitCode {
    let setup = std::env::args().nth(2).expect("what it stands before");
    let setup: Setup = serde_json::from_str(&setup).expect("the harness writes what it reads");
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .expect("a process may ask to die with its parent");
    let (upstream, path) = setup.upstream["http://".len()..].split_once('/').expect("a path of its own");
    let highest = setup.etcd.as_deref().map_or_else(|| Highest::InMemory(Mutex::default()), Highest::in_etcd);
    let upstream = upstream.parse().expect("an address");
    let proxy = Arc::new(Proxy { upstream, path: format!("/{path}/"), highest });
    let listen = || TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (data, admin) = (listen(), listen());
    let address = |listener: &TcpListener| listener.local_addr().expect("a bound listener has an address");
    println!("listening on http://{}\nadmin on http://{}\n", address(&data), address(&admin));
    thread::spawn(move || admin.incoming().flatten().for_each(|stream| drop(serve_probe(stream))));
    for stream in data.incoming().flatten() {
        let proxy = proxy.clone();
        thread::spawn(move || proxy.serve(stream));
    }
    ExitCode::SUCCESS
}

/// It is alive, which is all that it knows of itself.
fn serve_probe(stream: TcpStream) -> std::io::Result<()> {
    let mut wire = Wire::new(stream);
    wire.head()?;
    wire.send(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
}

impl Highest {
    fn in_etcd(url: &str) -> Self {
        let url = EtcdUrl::parse(url).expect("a sound URL");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let handle = runtime.handle().clone();
        let client = handle.block_on(async { Client::open(&url) }).expect("sound endpoints");
        thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
        Self::InEtcd(client, handle)
    }

    /// Whether this token may pass; the reason if not.
    fn check(&self, resource: &str, token: u64) -> Result<(), &'static str> {
        match self {
            Self::InMemory(highest) => {
                let mut highest = highest.lock().unwrap_or_else(PoisonError::into_inner);
                let highest = highest.entry(resource.to_owned()).or_default();
                *highest = token.max(*highest);
                if token < *highest { Err("stale") } else { Ok(()) }
            }
            Self::InEtcd(client, handle) => handle.block_on(swap(client, resource, token)),
        }
    }
}

/// Compare-and-swap until this token is the highest, or is not.
async fn swap(client: &Client, resource: &str, token: u64) -> Result<(), &'static str> {
    let key = format!("/naive/{resource}");
    loop {
        let found = client.range(Range::key(key.clone())).await.map_err(|_| "store-unavailable")?;
        let (value, changed) = found.kvs.first().map_or((0, 0), |kv| {
            let value = std::str::from_utf8(&kv.value).ok().and_then(|value| value.parse().ok());
            (value.expect("a number was put there"), kv.mod_revision)
        });
        match token.cmp(&value) {
            std::cmp::Ordering::Less => return Err("stale"),
            std::cmp::Ordering::Equal => return Ok(()),
            std::cmp::Ordering::Greater => {}
        }
        let put = Put::new(key.clone(), token.to_string());
        let swap = Txn::when([Compare::changed_at(key.clone(), changed)]).then(put);
        client.txn(swap).await.map_err(|_| "store-unavailable")?;
    }
}

impl Proxy {
    /// One request: its clients close their connections.
    fn serve(&self, stream: TcpStream) {
        let mut wire = Wire::new(stream);
        // A client that breaks off has no use for an answer.
        let _ = self.answer(&mut wire);
    }

    fn answer(&self, wire: &mut Wire) -> std::io::Result<()> {
        let head = wire.head()?.ok_or(ErrorKind::UnexpectedEof)?;
        let mut body = Vec::new();
        wire.exactly(head.length().unwrap_or(0), &mut |piece| body.extend(piece))?;
        let text = |name| head.get(name).unwrap_or_default();
        let token = text("x-fencing-token").parse().map_err(|_| ErrorKind::InvalidData)?;
        match self.highest.check(text("x-fencing-resource"), token) {
            Ok(()) => wire.send(self.forward(&head, body).as_bytes()),
            Err("stale") => wire.send(refusal("412 Precondition Failed", "stale").as_bytes()),
            Err(reason) => wire.send(refusal("503 Service Unavailable", reason).as_bytes()),
        }
    }

    fn forward(&self, head: &Head, body: Vec<u8>) -> String {
        let headers = FORWARDED.iter().filter_map(|name| Some((*name, head.get(name)?)));
        let ask = headers.fold(post(&self.path), |ask, (name, value)| ask.header(name, value));
        match exchange(self.upstream, &ask.body(body), PATIENCE) {
            Ok(answer) => format!("HTTP/1.1 {} Whatever\r\ncontent-length: 0\r\n\r\n", answer.status),
            Err(Failure::NotSent(_)) => refusal("502 Bad Gateway\r\nx-fencing-outcome: not-sent", "upstream"),
            Err(Failure::Broken(_)) => refusal("502 Bad Gateway\r\nx-fencing-outcome: unknown", "upstream"),
        }
    }
}

fn refusal(status: &str, reason: &str) -> String {
    format!("HTTP/1.1 {status}\r\nx-fencing-reason: {reason}\r\ncontent-length: 0\r\n\r\n")
}
