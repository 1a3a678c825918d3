//! One etcd node as a client sees it: its connection, and whether it is worth asking.
//!
//! Used by [`crate::client`]. A node that failed or kept silent is ejected for a while, longer each time; a
//! node that answered is good again. A connection on which a question was not answered, nor any other since it was
//! sent, is left for a new one: the network may have lost it without telling, and behind one address (a Kubernetes
//! Service) the next one may lead to another node. What must stay true: with every node ejected one is still tried, so
//! that a cluster that comes back is found without anybody's help.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};

use crate::client::CallError;
use crate::edge::{AuthToken, Edge};
use crate::url::{EtcdUrl, Tls};

const FIRST_EJECTION: Duration = Duration::from_millis(500);
const LONGEST_EJECTION: Duration = Duration::from_secs(8);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// etcd hangs up on clients that ping more often than every 5 s, or without a stream.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(6);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(3);

/// The endpoints of a cluster, and the one that is asked now.
pub(crate) struct Endpoints {
    all: Vec<Arc<Endpoint>>,
    current: AtomicUsize,
}

pub(crate) struct Endpoint {
    pub(crate) name: String,
    address: tonic::transport::Endpoint,
    connection: Mutex<Connection>,
    /// Does the I/O of every connection, whoever asks for one.
    runtime: Handle,
    health: Mutex<Health>,
}

/// A way to a node; clones share it. Requests that were sent on it may still be answered when there is a newer one.
#[derive(Clone)]
pub(crate) struct Connection {
    channel: Channel,
    /// When the last answer came by it; None before the first.
    heard: Arc<Mutex<Option<Instant>>>,
    /// The client of this connection, and the token that its requests show: another token takes another client.
    edge: Arc<Mutex<Option<(AuthToken, Edge)>>>,
}

#[derive(Default)]
struct Health {
    failures: u32,
    ejected_until: Option<Instant>,
}

impl Endpoints {
    /// Connects lazily: no I/O yet. Called within the runtime that is to do the I/O.
    pub(crate) fn open(url: &EtcdUrl) -> Result<Self, tonic::transport::Error> {
        let tls = url.tls.as_ref().map(client_tls);
        let open = |name: &String| Endpoint::open(name, tls.as_ref()).map(Arc::new);
        let all = url.endpoints.iter().map(open).collect::<Result<Vec<_>, tonic::transport::Error>>()?;
        // Clients of one cluster begin at different nodes.
        let start = uuid::Uuid::new_v4().as_fields().0 as usize % all.len();
        Ok(Self { all, current: AtomicUsize::new(start) })
    }

    /// Whether there is no other one to turn to.
    pub(crate) fn is_one(&self) -> bool {
        self.all.len() == 1
    }

    pub(crate) fn all_ejected(&self) -> bool {
        self.all.iter().all(|endpoint| endpoint.is_ejected())
    }

    /// The endpoint to ask now: the current one while it is good, else the next good one, else simply the next.
    pub(crate) fn pick(&self) -> Arc<Endpoint> {
        let current = self.current.load(Ordering::Relaxed);
        let count = self.all.len();
        let good = (0..count).map(|step| (current + step) % count).find(|at| !self.all[*at].is_ejected());
        let at = good.unwrap_or((current + 1) % count);
        self.current.store(at, Ordering::Relaxed);
        Arc::clone(&self.all[at])
    }
}

impl Endpoint {
    fn open(name: &str, tls: Option<&ClientTlsConfig>) -> Result<Self, tonic::transport::Error> {
        let address = address(name, tls)?;
        let connection = Mutex::new(Connection::to(&address));
        let (name, runtime, health) = (name.to_owned(), Handle::current(), Mutex::default());
        Ok(Self { name, address, connection, runtime, health })
    }

    /// What the next request is sent on.
    pub(crate) fn connection(&self) -> Connection {
        self.current().clone()
    }

    /// Whether requests are still sent on this one.
    pub(crate) fn is_at(&self, connection: &Connection) -> bool {
        self.current().is(connection)
    }

    /// A question that was sent at `since` is not answered. If nothing else was either, the next ones go out on a new
    /// connection.
    pub(crate) fn is_silent(&self, connection: &Connection, since: Instant) {
        let mut current = self.current();
        if current.is(connection) && connection.heard().is_none_or(|heard| heard < since) {
            let _within = self.runtime.enter();
            *current = Connection::to(&self.address);
        }
    }

    fn current(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().expect("nothing panics while it holds this lock")
    }

    pub(crate) fn is_ejected(&self) -> bool {
        self.health().ejected_until.is_some_and(|until| Instant::now() < until)
    }

    pub(crate) fn worked(&self) {
        *self.health() = Health::default();
    }

    pub(crate) fn eject(&self) {
        let mut health = self.health();
        let pause = FIRST_EJECTION * 2u32.saturating_pow(health.failures.min(8));
        health.failures += 1;
        health.ejected_until = Some(Instant::now() + pause.min(LONGEST_EJECTION));
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().expect("nothing panics while it holds this lock")
    }
}

impl Connection {
    /// Connects when it is first used.
    fn to(address: &tonic::transport::Endpoint) -> Self {
        Self { channel: address.connect_lazy(), heard: Arc::default(), edge: Arc::default() }
    }

    /// The client of this connection for requests that show this token.
    pub(crate) async fn edge(&self, token: &AuthToken) -> Result<Edge, CallError> {
        if let Some((shown, edge)) = &*self.kept()
            && shown == token
        {
            return Ok(edge.clone());
        }
        let edge = Edge::over(self.channel.clone(), token.clone()).await?;
        *self.kept() = Some((token.clone(), edge.clone()));
        Ok(edge)
    }

    fn kept(&self) -> MutexGuard<'_, Option<(AuthToken, Edge)>> {
        self.edge.lock().expect("nothing panics while it holds this lock")
    }

    /// Something was answered on it.
    pub(crate) fn worked(&self) {
        *self.heard() = Some(Instant::now());
    }

    fn heard(&self) -> MutexGuard<'_, Option<Instant>> {
        self.heard.lock().expect("nothing panics while it holds this lock")
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.heard, &other.heard)
    }
}

fn address(
    name: &str,
    tls: Option<&ClientTlsConfig>,
) -> Result<tonic::transport::Endpoint, tonic::transport::Error> {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let mut endpoint = tonic::transport::Endpoint::from_shared(format!("{scheme}://{name}"))?
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(false);
    if let Some(tls) = tls {
        endpoint = endpoint.tls_config(tls.clone())?;
    }
    Ok(endpoint)
}

fn client_tls(tls: &Tls) -> ClientTlsConfig {
    let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.ca));
    match &tls.identity {
        Some((cert, key)) => config.identity(Identity::from_pem(cert, key)),
        None => config,
    }
}
