//! One core's share of the gate: its state, its runtime and its sweeper.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::TcpListener as StdListener;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::LocalBoxFuture;
use http::HeaderName;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{Notify, mpsc, watch};

use super::accept::{Clients, Connections, Patience, accept};
use super::forward::flight::Flights;
use super::forward::pool::Pool;
use super::forward::sockets::Sockets;
use super::respond::Answers;
use super::table::{RouteTable, RouteTables};
use crate::config::{Limits, Listen, Proxies, Route};
use crate::door::Door;
use crate::drain::Phase;
use crate::events::Bus;
use crate::grants::InForce;
use crate::ledger::Ledger;
use crate::metrics::{Limit, Metrics, Prospects, RouteMetrics};
use crate::signing::Signing;
use crate::store::Store;

/// How often flights are looked after while there are any: the accuracy of time-outs.
const TICK: Duration = Duration::from_millis(25);
/// How often connections and idle lines are looked after.
const SLOW_TICK: Duration = Duration::from_millis(250);

/// What every worker gets; the same for all.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) listen: Listen,
    pub(crate) door: Arc<Door>,
    pub(crate) answers: Arc<Answers>,
    pub(crate) tables: Arc<RouteTables>,
    pub(crate) access: Arc<InForce>,
    pub(crate) signing: Arc<Signing>,
    pub(crate) store: Store,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) bus: Bus,
    /// What is counted of clients on all cores.
    pub(crate) clients: Arc<Clients>,
    /// Connections on all cores.
    pub(crate) open_connections: Arc<AtomicUsize>,
    /// The gateway is about to leave.
    pub(crate) leaving: Arc<AtomicBool>,
    /// Where upstream connections are to be known, if a fence may have to reset them.
    pub(crate) sockets: Option<Arc<Sockets>>,
}

/// The state of one core. Nothing in here is locked: it never leaves its thread.
pub(crate) struct Worker {
    pub(crate) door: Arc<Door>,
    tables: Arc<RouteTables>,
    /// The table of the last request. None after a while without any.
    table: RefCell<Option<Rc<InUse>>>,
    pub(crate) access: Arc<InForce>,
    pub(crate) signing: Arc<Signing>,
    pub(crate) token_header: HeaderName,
    pub(crate) patience: Patience,
    pub(crate) request_timeout: Duration,
    pub(crate) max_connections: usize,
    pub(crate) limits: Limits,
    pub(crate) proxies: Option<Proxies>,
    pub(crate) clients: Arc<Clients>,
    pub(crate) answers: Arc<Answers>,
    pub(crate) store: Store,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) bus: Bus,
    pub(crate) pool: Pool,
    pub(crate) flights: Flights,
    pub(crate) connections: Connections,
    pub(crate) open_connections: Arc<AtomicUsize>,
    leaving: Arc<AtomicBool>,
    route_metrics: RefCell<HashMap<Box<str>, RouteMetrics, foldhash::fast::RandomState>>,
    errands: mpsc::UnboundedSender<LocalBoxFuture<'static, ()>>,
    stirred: Notify,
}

impl Worker {
    fn new(setup: Setup, errands: mpsc::UnboundedSender<LocalBoxFuture<'static, ()>>) -> Self {
        let Setup {
            listen,
            door,
            answers,
            tables,
            access,
            signing,
            store,
            metrics,
            bus,
            clients,
            open_connections,
            leaving,
            sockets,
        } = setup;
        Self {
            door,
            tables,
            table: RefCell::default(),
            access,
            signing,
            token_header: listen.token_header,
            patience: Patience {
                header: listen.header_timeout,
                idle: listen.idle_timeout,
                send: listen.limits.send_timeout,
            },
            request_timeout: listen.request_timeout,
            max_connections: listen.max_connections,
            limits: listen.limits,
            proxies: listen.proxies,
            clients,
            answers,
            pool: Pool::new(sockets, store.ledger().validity().clone()),
            ledger: store.ledger().clone(),
            store,
            metrics,
            bus,
            flights: Flights::default(),
            connections: Connections::default(),
            open_connections,
            leaving,
            route_metrics: RefCell::default(),
            errands,
            stirred: Notify::new(),
        }
    }

    /// The series of a route, or of what none matches.
    pub(crate) fn route_metrics(&self, route: Option<&Route>) -> RouteMetrics {
        let name = route.map_or("none", |route| &route.name);
        if let Some(metrics) = self.route_metrics.borrow().get(name) {
            return metrics.clone();
        }
        let metrics = self.metrics.route(name, Prospects::of(route, self.store.proves()));
        self.route_metrics.borrow_mut().insert(name.into(), metrics.clone());
        metrics
    }

    /// The table in force. Kept by this core until another one is, so that most requests only count one more user of it.
    pub(crate) fn table(&self) -> Rc<InUse> {
        let latest = self.tables.load();
        let mut known = self.table.borrow_mut();
        match known.as_ref().filter(|known| Arc::ptr_eq(&known.0, &latest)) {
            Some(known) => known.clone(),
            None => known.insert(Rc::new(InUse(Arc::clone(&latest)))).clone(),
        }
    }

    /// Whether a table is the one in force.
    pub(crate) fn is_current(&self, table: &InUse) -> bool {
        Arc::ptr_eq(&table.0, &self.tables.load())
    }

    /// Whether a change of names waits until nothing of this table is under way.
    pub(crate) fn is_in_the_way_of_names(&self, table: &InUse) -> bool {
        let latest = self.tables.load();
        !latest.aliases.is_empty() && !Arc::ptr_eq(&table.0, &latest)
    }

    /// Whether clients had better connect anew, to somebody else.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    /// Runs something on this core that no client waits for.
    pub(crate) fn run_apart(&self, errand: LocalBoxFuture<'static, ()>) {
        if let Err(rejected) = self.errands.send(errand) {
            // The worker is being torn down. Dropping the errand would give back permits of requests that
            // have not ended; they go with the process, and the store is not left clean.
            std::mem::forget(rejected);
        }
    }

    /// There is something to sweep again.
    pub(crate) fn stir(&self) {
        self.stirred.notify_one();
    }

    async fn sweep(&self) {
        let mut slow = Instant::now();
        loop {
            if self.flights.is_empty() && self.connections.len() == 0 && self.pool.is_empty() {
                // Nobody would notice here that another table is in force.
                self.table.take();
                self.stirred.notified().await;
            }
            tokio::time::sleep(if self.flights.is_empty() { SLOW_TICK } else { TICK }).await;
            let now = Instant::now();
            self.flights.sweep(now);
            if now.saturating_duration_since(slow) >= SLOW_TICK {
                slow = now;
                for _ in 0..self.connections.sweep(now, &self.patience) {
                    self.metrics.limited(Limit::SendTimeout);
                }
                self.pool.sweep(now);
                let _ = self.table();
            }
        }
    }
}

/// A table that this core has requests of. The last of them gives it back.
pub(crate) struct InUse(Arc<RouteTable>);

impl std::ops::Deref for InUse {
    type Target = RouteTable;

    fn deref(&self) -> &RouteTable {
        &self.0
    }
}

/// Runs a worker on this thread until the phase says that it ends.
pub(crate) fn run(
    setup: Setup,
    listener: StdListener,
    mut phase: watch::Receiver<Phase>,
) -> std::io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    let (errands, mut todo) = mpsc::unbounded_channel();
    let worker = Rc::new(Worker::new(setup, errands));
    runtime.block_on(async {
        let accepting = tokio::task::spawn_local(accept(worker.clone(), TcpListener::from_std(listener)?));
        let sweeping = worker.clone();
        tokio::task::spawn_local(async move { sweeping.sweep().await });
        tokio::task::spawn_local(async move {
            while let Some(errand) = todo.recv().await {
                tokio::task::spawn_local(errand);
            }
        });
        // A sender that is gone means the same as the end.
        let _ = phase.wait_for(|phase| *phase >= Phase::Draining).await;
        accepting.abort();
        while *phase.borrow() == Phase::Draining {
            worker.connections.finish_all();
            let _ = tokio::time::timeout(TICK, phase.wait_for(|phase| *phase == Phase::Ended)).await;
        }
        Ok(())
    })
}
