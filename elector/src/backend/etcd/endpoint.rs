//! One etcd node as a client sees it: its channel, and whether it is worth asking.
//!
//! Used by [`super::client`]. A node that failed or kept silent is ejected for a while, longer each time; a
//! node that answered is good again. What must stay true: with every node ejected one is still tried, so that
//! a cluster that comes back is found without anybody's help.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};

use super::url::{EtcdUrl, Tls};

const FIRST_EJECTION: Duration = Duration::from_millis(500);
const LONGEST_EJECTION: Duration = Duration::from_secs(8);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// etcd hangs up on clients that ping more often than every 5 s, or without a stream.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(6);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(3);

/// The endpoints of a cluster, and the one that is asked now.
pub(super) struct Endpoints {
    all: Vec<Arc<Endpoint>>,
    current: AtomicUsize,
}

pub(super) struct Endpoint {
    pub(super) name: String,
    pub(super) channel: Channel,
    health: Mutex<Health>,
}

#[derive(Default)]
struct Health {
    failures: u32,
    ejected_until: Option<Instant>,
}

impl Endpoints {
    /// Connects lazily: no I/O yet. Called within the runtime that is to do the I/O.
    pub(super) fn open(url: &EtcdUrl) -> Result<Self, tonic::transport::Error> {
        let tls = url.tls.as_ref().map(client_tls);
        let open = |name: &String| {
            let channel = channel(name, tls.as_ref())?;
            Ok(Arc::new(Endpoint { name: name.clone(), channel, health: Mutex::default() }))
        };
        let all = url.endpoints.iter().map(open).collect::<Result<Vec<_>, tonic::transport::Error>>()?;
        // Clients of one cluster begin at different nodes.
        let start = uuid::Uuid::new_v4().as_fields().0 as usize % all.len();
        Ok(Self { all, current: AtomicUsize::new(start) })
    }

    /// Whether there is another one to turn to.
    pub(super) fn is_one(&self) -> bool {
        self.all.len() == 1
    }

    pub(super) fn all_ejected(&self) -> bool {
        self.all.iter().all(|endpoint| endpoint.is_ejected())
    }

    /// The endpoint to ask now: the current one while it is good, else the next good one, else simply the next.
    pub(super) fn pick(&self) -> Arc<Endpoint> {
        let current = self.current.load(Ordering::Relaxed);
        let count = self.all.len();
        let good = (0..count).map(|step| (current + step) % count).find(|at| !self.all[*at].is_ejected());
        let at = good.unwrap_or((current + 1) % count);
        self.current.store(at, Ordering::Relaxed);
        Arc::clone(&self.all[at])
    }
}

impl Endpoint {
    pub(super) fn is_ejected(&self) -> bool {
        self.health().ejected_until.is_some_and(|until| Instant::now() < until)
    }

    pub(super) fn worked(&self) {
        *self.health() = Health::default();
    }

    pub(super) fn eject(&self) {
        let mut health = self.health();
        let pause = FIRST_EJECTION * 2u32.saturating_pow(health.failures.min(8));
        health.failures += 1;
        health.ejected_until = Some(Instant::now() + pause.min(LONGEST_EJECTION));
    }

    fn health(&self) -> std::sync::MutexGuard<'_, Health> {
        self.health.lock().expect("nothing panics while it holds this lock")
    }
}

fn channel(name: &str, tls: Option<&ClientTlsConfig>) -> Result<Channel, tonic::transport::Error> {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let mut endpoint = tonic::transport::Endpoint::from_shared(format!("{scheme}://{name}"))?
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(false);
    if let Some(tls) = tls {
        endpoint = endpoint.tls_config(tls.clone())?;
    }
    Ok(endpoint.connect_lazy())
}

fn client_tls(tls: &Tls) -> ClientTlsConfig {
    let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.ca));
    match &tls.identity {
        Some((cert, key)) => config.identity(Identity::from_pem(cert, key)),
        None => config,
    }
}
