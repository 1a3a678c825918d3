//! A whole gateway: store, workers and admin port, started together and ended in order.
//!
//! `serve`, the demo and the tests all start one from a [`Config`]; nothing here reads the command line, and
//! there is no global state, so a process can have several.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use rustix::system::uname;
use tokio::sync::{oneshot, watch};

use crate::admin::{self, Admin, Jobs};
use crate::config::{self, Config, Routes, Shutdown};
use crate::controls::{Rule, breaks};
use crate::drain::Phase;
use crate::events::{Bus, Notice};
use crate::gate::{self, Answers, Setup, Sockets};
use crate::ledger::Ledger;
use crate::metrics::Metrics;
use crate::store::embedded::{self, OpenError};
use crate::store::etcd;
use crate::store::overview::Overview;
use crate::store::{Store, StoreFailed};

/// How often refusals that are alike are told together.
const REPORT_PERIOD: Duration = Duration::from_secs(1);
/// How often the end looks whether it has come.
const POLL: Duration = Duration::from_millis(10);

/// A running gateway. Dropped without [`Gateway::stop`], its threads go on until the process ends.
pub struct Gateway {
    address: SocketAddr,
    admin_address: SocketAddr,
    elections_address: Option<SocketAddr>,
    inherited_delay: Option<Duration>,
    routes: Arc<ArcSwap<Routes>>,
    answers: Arc<Answers>,
    store: Store,
    metrics: Arc<Metrics>,
    bus: Bus,
    draining: Arc<AtomicBool>,
    open_connections: Arc<AtomicUsize>,
    phase: watch::Sender<Phase>,
    admin_shutdown: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
    shutdown: Shutdown,
    failed: Option<oneshot::Receiver<StoreFailed>>,
    sockets: Option<Arc<Sockets>>,
}

/// A store that has been started, of either kind.
struct Opened {
    store: Store,
    failed: oneshot::Receiver<StoreFailed>,
    inherited_delay: Option<Duration>,
    /// Known to whoever fences, where somebody does.
    sockets: Option<Arc<Sockets>>,
}

/// Why a gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot open the store")]
    Store(#[from] OpenError),
    #[error("cannot start the store over etcd")]
    Etcd(#[from] etcd::StartError),
    #[error("cannot listen on {address} (the {port} port)")]
    Listen { port: &'static str, address: SocketAddr, source: io::Error },
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

impl Gateway {
    /// Starts everything; when this returns, requests are served.
    pub fn start(config: Config) -> Result<Self, StartError> {
        let Config { listen, admin, elections, store, log, shutdown, metrics, once, routes } = config;
        let bind_data = gate::accept::bind(listen.address, listen.workers);
        let listeners = bind_data.map_err(|source| StartError::listen("data", listen.address, source))?;
        let address = local_address("data", &listeners[0], listen.address)?;
        let (admin_listener, admin_address) = bind("admin", admin.address)?;
        let elections = elections
            .map(|port| bind("elections", port.address).map(|bound| (bound, port.auth)))
            .transpose()?;
        let elections_address = elections.as_ref().map(|((_, address), _)| *address);

        let metrics = Arc::new(Metrics::new(metrics.max_resources));
        let bus = Bus::new();
        let (told, bus_of_store) = (metrics.clone(), bus.clone());
        let tell = move |notice: Notice| {
            if let Notice::Fence(event) = &notice {
                told.fence_event(event);
            }
            bus_of_store.publish(notice);
        };
        let opened = open_store(store, &routes, address, Box::new(tell))?;
        metrics.stored_marks(opened.store.ledger());
        opened.store.keep_once(once.keep);

        let mut gateway = Self {
            address,
            admin_address,
            elections_address,
            inherited_delay: opened.inherited_delay,
            routes: Arc::new(ArcSwap::from_pointee(routes)),
            answers: Arc::new(Answers::new(log.access, bus.clone())),
            store: opened.store,
            metrics,
            bus,
            draining: Arc::new(AtomicBool::new(false)),
            open_connections: Arc::default(),
            phase: watch::Sender::new(Phase::Serving),
            admin_shutdown: watch::Sender::new(false),
            threads: Vec::new(),
            shutdown,
            failed: Some(opened.failed),
            sockets: opened.sockets,
        };
        let admin = gateway.admin(admin.auth);
        let shutdown = gateway.admin_shutdown.subscribe();
        gateway.start_port("admin", admin_listener, {
            let admin = admin.clone();
            |listener| admin::serve(listener, admin, shutdown)
        })?;
        if let Some(((listener, _), auth)) = elections {
            let shutdown = gateway.admin_shutdown.subscribe();
            gateway.start_port("elections", listener, |listener| {
                admin::serve_elections(listener, admin, auth, shutdown)
            })?;
        }
        gateway.start_workers(listeners, listen)?;
        gateway.start_reports()?;
        Ok(gateway)
    }

    fn start_workers(
        &mut self,
        listeners: Vec<std::net::TcpListener>,
        listen: config::Listen,
    ) -> Result<(), StartError> {
        let setup = Setup {
            listen,
            answers: self.answers.clone(),
            routes: self.routes.clone(),
            store: self.store.clone(),
            metrics: self.metrics.clone(),
            bus: self.bus.clone(),
            open_connections: self.open_connections.clone(),
            sockets: self.sockets.clone(),
        };
        for (number, listener) in listeners.into_iter().enumerate() {
            let (setup, phase) = (setup.clone(), self.phase.subscribe());
            self.start_thread(format!("worker-{number}"), move || {
                if let Err(error) = gate::run(setup, listener, phase) {
                    tracing::error!(%error, "a worker could not start");
                }
            })?;
        }
        Ok(())
    }

    /// Says once a second what was left to say together, and a last time at the end.
    fn start_reports(&mut self) -> Result<(), StartError> {
        let (answers, mut phase) = (self.answers.clone(), self.phase.subscribe());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(StartError::Thread)?;
        self.start_thread("reports".to_owned(), move || {
            runtime.block_on(async {
                let mut period = tokio::time::interval(REPORT_PERIOD);
                let mut ended = std::pin::pin!(phase.wait_for(|phase| *phase == Phase::Ended));
                loop {
                    tokio::select! {
                        _ = &mut ended => break,
                        _ = period.tick() => answers.tell_repeated(),
                    }
                }
            });
            answers.tell_repeated();
        })
    }

    /// What the admin port and the elections port share.
    fn admin(&self, auth: Option<config::Secret>) -> Arc<Admin> {
        let for_jobs = auth.is_none() && self.admin_address.ip().to_canonical().is_loopback();
        let jobs = match self.elections_address {
            _ if for_jobs => Jobs::Here,
            Some(address) => Jobs::At(address),
            None => Jobs::Nowhere,
        };
        Arc::new(Admin {
            store: self.store.clone(),
            metrics: self.metrics.clone(),
            bus: self.bus.clone(),
            draining: self.draining.clone(),
            auth,
            jobs,
        })
    }

    /// Serves a listener on a thread of its own, so that many jobs do not keep operators waiting.
    fn start_port<F: Future<Output = ()>>(
        &mut self,
        name: &str,
        listener: std::net::TcpListener,
        serve: impl FnOnce(tokio::net::TcpListener) -> F + Send + 'static,
    ) -> Result<(), StartError> {
        let (started, starting) = mpsc::channel();
        self.start_thread(name.to_owned(), move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(error))),
            };
            runtime.block_on(async {
                let listener =
                    listener.set_nonblocking(true).and_then(|()| tokio::net::TcpListener::from_std(listener));
                match listener {
                    Ok(listener) => {
                        let _ = started.send(Ok(()));
                        serve(listener).await;
                    }
                    Err(error) => drop(started.send(Err(error))),
                }
            });
        })?;
        let started = starting.recv().unwrap_or_else(|_| Err(io::Error::other("the port's thread ended")));
        started.map_err(StartError::Thread)
    }

    fn start_thread(&mut self, name: String, run: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
        let thread = thread::Builder::new().name(name).spawn(run).map_err(StartError::Thread)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Where requests are served.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn admin_address(&self) -> SocketAddr {
        self.admin_address
    }

    /// Where jobs campaign, if they have a port of their own.
    pub fn elections_address(&self) -> Option<SocketAddr> {
        self.elections_address
    }

    pub fn ledger(&self) -> &Arc<Ledger> {
        self.store.ledger()
    }

    /// The replicas that share the marks.
    pub fn overview(&self) -> Arc<Overview> {
        self.store.overview()
    }

    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    /// Some if the process before ended uncleanly: for this long no raise opens.
    pub fn inherited_delay(&self) -> Option<Duration> {
        self.inherited_delay
    }

    /// Completes if the store fails; to be taken once. The process should end then: nothing passes any more.
    pub fn failed(&mut self) -> Option<oneshot::Receiver<StoreFailed>> {
        self.failed.take()
    }

    /// Replaces the routes; requests under way keep the ones they came in by.
    pub fn reload(&self, routes: Routes) {
        self.store.promise(routes.longest_lock_delay(), routes.longest_drain_timeout());
        let count = routes.iter().count();
        self.routes.store(Arc::new(routes));
        self.metrics.reloaded(true);
        self.bus.publish(Notice::Reloaded { routes: count });
    }

    /// Changes how long the run-once ledger keeps its entries.
    pub fn keep_once(&self, age: Duration) {
        self.store.keep_once(age);
    }

    /// From now on these requests get a line in the log.
    pub fn log_access(&self, wanted: config::AccessLog) {
        self.answers.want(wanted);
    }

    /// New routes could not be read; the old ones stay.
    pub fn reload_failed(&self, error: String) {
        self.metrics.reloaded(false);
        self.bus.publish(Notice::ReloadFailed { error });
    }

    /// Unready; then nothing new; then what is under way to its end; then the store. Blocks for that long.
    /// True if the store was left clean, so that the next start need not wait.
    pub fn stop(self) -> bool {
        self.draining.store(true, Ordering::SeqCst);
        self.bus.publish(Notice::Draining);
        thread::sleep(self.shutdown.unready_delay);
        self.phase.send_replace(Phase::Draining);
        let deadline = Instant::now() + self.shutdown.drain_limit;
        while self.is_busy() && Instant::now() < deadline && !breaks(Rule::LeaveEmpty) {
            thread::sleep(POLL);
        }
        let clean = self.store.stop();
        self.phase.send_replace(Phase::Ended);
        self.admin_shutdown.send_replace(true);
        for thread in self.threads {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
        clean
    }

    /// Whether waiting could still end something. What only an operator can settle is not waited for.
    fn is_busy(&self) -> bool {
        let ledger = self.store.ledger();
        self.open_connections.load(Ordering::Relaxed) > 0 || ledger.in_flight() > ledger.blocked()
    }
}

fn open_store(
    store: config::Store,
    routes: &Routes,
    address: SocketAddr,
    tell: Box<dyn Fn(Notice) + Send>,
) -> Result<Opened, StartError> {
    let config = match store {
        config::Store::Embedded { path } => {
            let embedded = embedded::start(&path, routes.longest_lock_delay(), tell)?;
            let (store, failed) = (embedded.store, embedded.failed);
            return Ok(Opened { store, failed, inherited_delay: embedded.inherited_delay, sockets: None });
        }
        config::Store::Etcd(config) => config,
    };
    let sockets = Arc::new(Sockets::default());
    let cut = sockets.clone();
    let (store, failed) = etcd::start(etcd::Setup {
        config,
        name: format!("{}:{}", uname().nodename().to_string_lossy(), address.port()),
        lock_delay: routes.longest_lock_delay(),
        drain_timeout: routes.longest_drain_timeout(),
        cut: Arc::new(move || {
            if !breaks(Rule::Cut) {
                cut.reset_fenced();
            }
        }),
        tell,
    })?;
    Ok(Opened { store, failed, inherited_delay: None, sockets: Some(sockets) })
}

impl StartError {
    fn listen(port: &'static str, address: SocketAddr, source: io::Error) -> Self {
        Self::Listen { port, address, source }
    }
}

fn bind(port: &'static str, asked: SocketAddr) -> Result<(std::net::TcpListener, SocketAddr), StartError> {
    let bound = std::net::TcpListener::bind(asked);
    let listener = bound.map_err(|source| StartError::listen(port, asked, source))?;
    let address = local_address(port, &listener, asked)?;
    Ok((listener, address))
}

fn local_address(
    port: &'static str,
    listener: &std::net::TcpListener,
    asked: SocketAddr,
) -> Result<SocketAddr, StartError> {
    listener.local_addr().map_err(|source| StartError::listen(port, asked, source))
}
