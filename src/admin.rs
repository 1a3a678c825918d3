//! The admin port for operators (health, metrics, what is fenced, orders, the live page) and the elections port for
//! jobs, each on a listener of its own; `access` says who may ask what where, and `caller` how far that reaches.
//!
//! `main` binds the socket and owns the shutdown; [`serve`] and
//! [`serve_elections`] run until told to stop and then let answers under way end. Orders go to the store and are answered when the ledger shows them, so a 200 means durable.
//! What must stay true: an accept error never ends the loop, health depends on nothing, and no number of
//! clients or event streams takes more than its share of connections.

mod access;
mod answer;
mod caller;
mod dispatch;
mod elections;
mod history;
mod once;
mod operator;
mod page;
mod query;
mod refusals;
mod replicas;
mod resources;
mod stream;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::config::Secret;
use crate::door::Door;
use crate::events::Bus;
use crate::grants::InForce;
use crate::journal::Journal;
use crate::metrics::Metrics;
use crate::signing::Signing;
use crate::store::Store;
use crate::tls::{Accepted, Identity};
use refusals::Refusals;

const MAX_CONNECTIONS: usize = 10_240;
/// Streams and waiting candidates. Fewer than connections: probes and operators get through however many
/// people watch and jobs wait.
const MAX_STREAMS: usize = 10_000;
/// For a request's head, and so also between two requests.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_HEAD: usize = 64 * 1024;
/// How long answers under way may take at the end.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Out of file descriptors, for one: trying again at once would only burn the processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const UPKEEP_PERIOD: Duration = Duration::from_secs(2);

/// What the admin port shows and moves.
pub struct Admin {
    pub store: Store,
    pub metrics: Arc<Metrics>,
    pub bus: Bus,
    pub journal: Arc<Journal>,
    /// Set when the gateway is leaving: not ready any more.
    pub draining: Arc<AtomicBool>,
    /// The operators' secret.
    pub auth: Option<Secret>,
    pub access: Arc<InForce>,
    /// The keys that sign what elections issue.
    pub signing: Arc<Signing>,
    pub jobs: Jobs,
    /// All ports of the gateway, to be shown.
    pub doors: Vec<Arc<Door>>,
}

/// Where jobs hold their elections, as the admin port knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Jobs {
    /// On the admin port: it is on loopback and has no secret that would make every job an operator.
    #[default]
    Here,
    /// On a port of their own, and only there.
    At(SocketAddr),
    /// Nowhere: the admin port is not for them, and there is no other.
    Nowhere,
}

/// Which of the two ports a connection came to.
enum Port {
    Admin,
    Elections { auth: Option<Secret> },
}

/// What every connection needs.
struct Server {
    admin: Arc<Admin>,
    door: Arc<Door>,
    port: Port,
    streams: Arc<Semaphore>,
    /// Whoever reads the journal.
    histories: Arc<Semaphore>,
    refusals: Refusals,
    shutdown: watch::Receiver<bool>,
}

/// Who is at the other end of a connection.
#[derive(Clone)]
struct Peer {
    address: SocketAddr,
    /// By its certificate.
    identity: Option<Identity>,
}

/// Serves the admin port until `shutdown` turns true (or its sender is gone), then lets answers under way end.
pub async fn serve(
    listener: TcpListener,
    door: Arc<Door>,
    admin: Arc<Admin>,
    shutdown: watch::Receiver<bool>,
) {
    serve_with(listener, door, admin, Port::Admin, shutdown, MAX_STREAMS).await;
}

/// The same for the elections port, whose secret is the jobs'.
pub async fn serve_elections(
    listener: TcpListener,
    door: Arc<Door>,
    admin: Arc<Admin>,
    auth: Option<Secret>,
    shutdown: watch::Receiver<bool>,
) {
    serve_with(listener, door, admin, Port::Elections { auth }, shutdown, MAX_STREAMS).await;
}

async fn serve_with(
    listener: TcpListener,
    door: Arc<Door>,
    admin: Arc<Admin>,
    port: Port,
    mut shutdown: watch::Receiver<bool>,
    max_streams: usize,
) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let streams = Arc::new(Semaphore::new(max_streams));
    let histories = Arc::new(Semaphore::new(1));
    let refusals = Refusals::new();
    let server =
        Arc::new(Server { admin, door, port, streams, histories, refusals, shutdown: shutdown.clone() });
    let mut connections = JoinSet::new();
    let mut upkeep = interval(UPKEEP_PERIOD);
    upkeep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stopped(&mut shutdown) => break,
            (stream, peer, slot) = accept(&listener, &slots) => {
                connections.spawn(connection(server.clone(), stream, peer, slot));
            }
            Some(_) = connections.join_next() => {}
            _ = upkeep.tick(), if matches!(server.port, Port::Admin) => {
                server.admin.metrics.upkeep();
                server.refusals.tell_repeated();
            }
        }
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout(END_TIMEOUT, ended).await.is_err() {
        tracing::debug!("connections of the admin or the elections port were still busy at the end");
    }
}

/// The next connection within the limit. Cancelling it loses none.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> (TcpStream, SocketAddr, OwnedSemaphorePermit) {
    let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => return (stream, peer, slot),
            Err(error) => {
                tracing::warn!(%error, "the admin or the elections port could not accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(
    server: Arc<Server>,
    stream: TcpStream,
    address: SocketAddr,
    _slot: OwnedSemaphorePermit,
) {
    let mut shutdown = server.shutdown.clone();
    let opened = tokio::select! {
        opened = server.door.open(stream, address, HEADER_TIMEOUT) => opened,
        () = stopped(&mut shutdown) => None,
    };
    let Some(Accepted { stream, identity, .. }) = opened else { return };
    let peer = Peer { address, identity };
    let service = service_fn(move |request| {
        let (server, peer) = (server.clone(), peer.clone());
        async move { dispatch::answer(&server, &peer, request).await }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(&mut shutdown) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an admin connection broke");
    }
}

async fn stopped(shutdown: &mut watch::Receiver<bool>) {
    // An error says that the sender is gone: nobody could stop us any more, so that is the end, too.
    let _ = shutdown.wait_for(|stop| *stop).await;
}

impl Admin {
    /// Why no requests should be sent here now.
    fn unready(&self) -> Option<Cow<'static, str>> {
        // A drain ends with a halted ledger, so it is asked first.
        if self.draining.load(Ordering::Relaxed) {
            return Some("draining: this gateway is shutting down".into());
        }
        let overview = self.store.overview();
        if !overview.valid {
            let why = overview.fenced_because.as_deref().unwrap_or("this replica does not take part now");
            let causes: Vec<&str> =
                std::iter::once(why).chain(overview.warnings.iter().map(String::as_str)).collect();
            return Some(format!("fenced: {}", causes.join("; ")).into());
        }
        let ledger = self.store.ledger();
        if !ledger.validity().holds() && !ledger.is_halted() {
            // The overview is a moment old, or whoever makes it is stuck.
            return Some("fenced: its validity has ended".into());
        }
        let halted = ledger.is_halted();
        halted.then_some("store failed: nothing passes until a restart, see the log".into())
    }
}
