//! A whole gateway: store, workers and admin port, started together and ended in order.
//!
//! `serve`, the demo and the tests all start one from a [`Config`]; nothing here reads the command line, and
//! there is no global state, so a process can have several.

mod certificates;
mod looks;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::system::uname;
use tokio::sync::{oneshot, watch};

use crate::admin::{self, Admin, Jobs};
use crate::config::{self, Config, Grants, Naming, Routes, Secrets, Shutdown, is_loopback};
use crate::controls::{Rule, breaks};
use crate::door::Door;
use crate::drain::Phase;
use crate::events::{Bus, Notice, Observer, audit};
use crate::gate::accept::Clients;
use crate::gate::table::RouteTables;
use crate::gate::{self, Answers, Setup, Sockets};
use crate::grants::InForce;
use crate::journal::{Journal, Limits, Writer};
use crate::ledger::Ledger;
use crate::metrics::Metrics;
use crate::names::{Names, NamesError};
use crate::signing::Signing;
use crate::store::embedded::{self, OpenError};
use crate::store::etcd;
use crate::store::overview::Overview;
use crate::store::{OwnNames, Store, StoreFailed};
use crate::tls::Server;

/// How often refusals that are alike are told together.
const REPORT_PERIOD: Duration = Duration::from_secs(1);
/// How often a change of names looks whether anything is under way that lacks the new ones.
const NAMES_PERIOD: Duration = Duration::from_millis(100);
/// How often the end looks whether it has come.
const POLL: Duration = Duration::from_millis(10);

/// A running gateway. Dropped without [`Gateway::stop`], its threads go on until the process ends.
pub struct Gateway {
    doors: Doors,
    inherited_delay: Option<Duration>,
    tables: Arc<RouteTables>,
    access: Arc<InForce>,
    signing: Arc<Signing>,
    answers: Arc<Answers>,
    store: Store,
    metrics: Arc<Metrics>,
    journal: Arc<Journal>,
    /// What the gateway itself has to tell goes the way of what its store tells.
    observer: Observer,
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

/// The ports.
struct Doors {
    data: Arc<Door>,
    admin: Arc<Door>,
    elections: Option<Arc<Door>>,
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
        let Config {
            listen,
            admin,
            elections,
            store,
            max_resources,
            log,
            shutdown,
            metrics,
            once,
            history,
            secrets,
            signing,
            grants,
            routes,
            dev_tls: _,
        } = config;
        let bind_data = gate::accept::bind(listen.address, listen.workers);
        let listeners = bind_data.map_err(|source| StartError::listen("data", listen.address, source))?;
        let address = local_address("data", &listeners[0], listen.address)?;
        let (admin_listener, admin_address) = bind("admin", admin.address)?;
        let elections =
            elections.map(|port| bind("elections", port.address).map(|bound| (bound, port))).transpose()?;

        let metrics = Arc::new(Metrics::new(metrics.max_resources));
        let doors = Doors {
            data: Door::new("data", address, listen.tls.clone(), &metrics),
            admin: Door::new("admin", admin_address, admin.tls, &metrics),
            elections: elections
                .as_ref()
                .map(|((_, address), port)| Door::new("elections", *address, port.tls.clone(), &metrics)),
        };
        let bus = Bus::new();
        let journal = Arc::new(open_journal(&store, &history).map_err(StartError::Thread)?);
        metrics.show_journal(journal.clone());
        let observer = Observer { metrics: metrics.clone(), journal: journal.clone(), bus: bus.clone() };
        let hears = observer.clone();
        let tables = Arc::new(RouteTables::new(routes.clone()));
        let tell = Box::new(move |notice| hears.hear(notice));
        let opened = open_store(store, &routes, address, &tables, tell)?;
        metrics.show_signing_keys(signing.clone());
        metrics.show_certificates(certificates::list(doors.servers(), tables.clone()));
        metrics.stored_marks(opened.store.ledger());
        opened.store.ledger().limit_resources(max_resources);
        opened.store.keep_once(once.keep);

        let open_connections = metrics.connections();
        let mut gateway = Self {
            doors,
            inherited_delay: opened.inherited_delay,
            tables,
            access: Arc::new(InForce::new(grants, secrets)),
            signing,
            answers: Arc::new(Answers::new(log.access, bus.clone())),
            store: opened.store,
            metrics,
            journal,
            observer,
            bus,
            draining: Arc::new(AtomicBool::new(false)),
            open_connections,
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
            let (admin, door) = (admin.clone(), gateway.doors.admin.clone());
            |listener| admin::serve(listener, door, admin, shutdown)
        })?;
        if let (Some(((listener, _), port)), Some(door)) = (elections, gateway.doors.elections.clone()) {
            let shutdown = gateway.admin_shutdown.subscribe();
            gateway.start_port("elections", listener, |listener| {
                admin::serve_elections(listener, door, admin, port.auth, shutdown)
            })?;
        }
        gateway.start_workers(listeners, listen)?;
        gateway.start_reports()?;
        gateway.start_signing_keys()?;
        gateway.start_certificates()?;
        audit::started(gateway.overview().store, gateway.inherited_delay);
        for door in gateway.doors.all().filter(|door| door.is_insecure()) {
            audit::insecure(door.name(), door.address());
        }
        Ok(gateway)
    }

    fn start_workers(
        &mut self,
        listeners: Vec<std::net::TcpListener>,
        listen: config::Listen,
    ) -> Result<(), StartError> {
        let setup = Setup {
            clients: Clients::new(&listen.limits),
            listen,
            door: self.doors.data.clone(),
            answers: self.answers.clone(),
            tables: self.tables.clone(),
            access: self.access.clone(),
            signing: self.signing.clone(),
            store: self.store.clone(),
            metrics: self.metrics.clone(),
            bus: self.bus.clone(),
            open_connections: self.open_connections.clone(),
            leaving: self.draining.clone(),
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
        let (tables, store) = (self.tables.clone(), self.store.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(StartError::Thread)?;
        self.start_thread("reports".to_owned(), move || {
            runtime.block_on(async {
                let mut period = tokio::time::interval(REPORT_PERIOD);
                let mut names = tokio::time::interval(NAMES_PERIOD);
                let mut ended = std::pin::pin!(phase.wait_for(|phase| *phase == Phase::Ended));
                loop {
                    tokio::select! {
                        _ = &mut ended => break,
                        _ = period.tick() => answers.tell_repeated(),
                        _ = names.tick() => {
                            if let Some(revision) = tables.settled(store.ledger()) {
                                store.names_known(revision);
                            }
                        }
                    }
                }
            });
            answers.tell_repeated();
        })
    }

    /// What the admin port and the elections port share.
    fn admin(&self, auth: Option<config::Secret>) -> Arc<Admin> {
        let for_jobs = auth.is_none() && is_loopback(self.admin_address());
        let jobs = match self.elections_address() {
            _ if for_jobs => Jobs::Here,
            Some(address) => Jobs::At(address),
            None => Jobs::Nowhere,
        };
        Arc::new(Admin {
            store: self.store.clone(),
            metrics: self.metrics.clone(),
            bus: self.bus.clone(),
            journal: self.journal.clone(),
            draining: self.draining.clone(),
            auth,
            access: self.access.clone(),
            signing: self.signing.clone(),
            jobs,
            doors: self.doors.all().cloned().collect(),
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
        self.doors.data.address()
    }

    pub fn admin_address(&self) -> SocketAddr {
        self.doors.admin.address()
    }

    /// Where jobs campaign, if they have a port of their own.
    pub fn elections_address(&self) -> Option<SocketAddr> {
        self.doors.elections.as_ref().map(|door| door.address())
    }

    pub fn ledger(&self) -> &Arc<Ledger> {
        self.store.ledger()
    }

    /// Has the metrics show how many lines the log of the process has dropped.
    pub fn count_dropped_lines(&self, count: impl Fn() -> u64 + Send + Sync + 'static) {
        self.metrics.show_dropped_lines(count);
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

    /// Replaces the routes; requests under way keep the ones they came in by. Requests that get another name are
    /// checked under both for a while; where the marks cannot be carried over, the old routes stay.
    pub fn reload(&self, routes: Routes) -> Result<(), NamesError> {
        self.store.promise(routes.longest_lock_delay(), routes.longest_drain_timeout());
        self.store.rename(Naming::of(&routes))?;
        let count = routes.iter().count();
        self.tables.set_routes(routes);
        self.metrics.reloaded(true);
        self.observer.hear(Notice::Reloaded { routes: count });
        Ok(())
    }

    /// Replaces grants and secrets. Whoever waits is judged by the new ones before it goes on; what is under way to its
    /// upstream ends by the old ones.
    pub fn grant(&self, grants: Grants, secrets: Secrets) {
        self.access.set(grants, secrets);
    }

    /// The names of a change that is not finished: requests are checked under those of before and those of after it.
    pub fn change_of_names(&self) -> Option<Arc<Names>> {
        self.store.change_of_names()
    }

    /// Changes how long the run-once ledger keeps its entries.
    pub fn keep_once(&self, age: Duration) {
        self.store.keep_once(age);
    }

    /// Changes how many resources requests may make.
    pub fn limit_resources(&self, limit: usize) {
        self.store.ledger().limit_resources(limit);
    }

    /// From now on these requests get a line in the log.
    pub fn log_access(&self, wanted: config::AccessLog) {
        self.answers.want(wanted);
    }

    /// New routes could not be read; the old ones stay.
    pub fn reload_failed(&self, error: String) {
        self.metrics.reloaded(false);
        self.observer.hear(Notice::ReloadFailed { error });
    }

    /// Unready; then nothing new; then what is under way to its end; then the store. Blocks for that long.
    /// True if the store was left clean, so that the next start need not wait.
    pub fn stop(self) -> bool {
        self.draining.store(true, Ordering::SeqCst);
        self.observer.hear(Notice::Draining);
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
        self.journal.close();
        audit::stopped(clean);
        clean
    }

    /// Whether waiting could still end something. What only an operator can settle is not waited for.
    fn is_busy(&self) -> bool {
        let ledger = self.store.ledger();
        self.open_connections.load(Ordering::Relaxed) > 0 || ledger.in_flight() > ledger.blocked()
    }
}

/// In the folder of the store. With etcd nothing may wait for a disk, so the journal's own thread writes.
fn open_journal(store: &config::Store, history: &config::History) -> io::Result<Journal> {
    let limits = Limits { keep: history.keep, max_size: history.max_size };
    match store {
        config::Store::Embedded { path } => Journal::open(path, limits, Writer::Caller),
        config::Store::Etcd(etcd) => Journal::open(&etcd.path, limits, Writer::Thread),
    }
}

fn open_store(
    store: config::Store,
    routes: &Routes,
    address: SocketAddr,
    tables: &Arc<RouteTables>,
    tell: Box<dyn Fn(Notice) + Send>,
) -> Result<Opened, StartError> {
    let told = tables.clone();
    let names = OwnNames {
        naming: tables.naming(),
        changed: Box::new(move |revision, names| told.set_names(revision, names)),
    };
    let config = match store {
        config::Store::Embedded { path } => {
            let embedded = embedded::start(&path, routes.longest_lock_delay(), names, tell)?;
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
        names,
        tell,
    })?;
    Ok(Opened { store, failed, inherited_delay: None, sockets: Some(sockets) })
}

impl Doors {
    fn all(&self) -> impl Iterator<Item = &Arc<Door>> {
        [&self.data, &self.admin].into_iter().chain(&self.elections)
    }

    /// Those that speak TLS, by name.
    fn servers(&self) -> Vec<(&'static str, Arc<Server>)> {
        self.all().filter_map(|door| Some((door.name(), door.tls()?.clone()))).collect()
    }
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
