//! One core's share of the gate: its state, its runtime and its sweeper.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::TcpListener as StdListener;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures_util::future::LocalBoxFuture;
use http::HeaderName;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{Notify, mpsc, watch};

use super::accept::{Connections, accept};
use super::forward::flight::Flights;
use super::forward::pool::Pool;
use super::forward::sockets::Sockets;
use super::respond::Answers;
use crate::config::{Listen, Routes};
use crate::drain::Phase;
use crate::events::Bus;
use crate::ledger::Ledger;
use crate::metrics::{Metrics, RouteMetrics};
use crate::store::Store;

/// How often flights are looked after while there are any: the accuracy of time-outs.
const TICK: Duration = Duration::from_millis(25);
/// How often connections and idle lines are looked after.
const SLOW_TICK: Duration = Duration::from_millis(250);

/// What every worker gets; the same for all.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) listen: Listen,
    pub(crate) answers: Arc<Answers>,
    pub(crate) routes: Arc<ArcSwap<Routes>>,
    pub(crate) store: Store,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) bus: Bus,
    /// Connections on all cores.
    pub(crate) open_connections: Arc<AtomicUsize>,
    /// Where upstream connections are to be known, if a fence may have to reset them.
    pub(crate) sockets: Option<Arc<Sockets>>,
}

/// The state of one core. Nothing in here is locked: it never leaves its thread.
pub(crate) struct Worker {
    pub(crate) routes: Arc<ArcSwap<Routes>>,
    pub(crate) token_header: HeaderName,
    pub(crate) header_timeout: Duration,
    pub(crate) request_timeout: Duration,
    idle_timeout: Duration,
    pub(crate) max_connections: usize,
    pub(crate) answers: Arc<Answers>,
    pub(crate) store: Store,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) bus: Bus,
    pub(crate) pool: Pool,
    pub(crate) flights: Flights,
    pub(crate) connections: Connections,
    pub(crate) open_connections: Arc<AtomicUsize>,
    route_metrics: RefCell<HashMap<Box<str>, RouteMetrics, foldhash::fast::RandomState>>,
    errands: mpsc::UnboundedSender<LocalBoxFuture<'static, ()>>,
    stirred: Notify,
}

impl Worker {
    fn new(setup: Setup, errands: mpsc::UnboundedSender<LocalBoxFuture<'static, ()>>) -> Self {
        let Setup { listen, answers, routes, store, metrics, bus, open_connections, sockets } = setup;
        Self {
            routes,
            token_header: listen.token_header,
            header_timeout: listen.header_timeout,
            request_timeout: listen.request_timeout,
            idle_timeout: listen.idle_timeout,
            max_connections: listen.max_connections,
            answers,
            pool: Pool::new(sockets, store.ledger().validity().clone()),
            ledger: store.ledger().clone(),
            store,
            metrics,
            bus,
            flights: Flights::default(),
            connections: Connections::default(),
            open_connections,
            route_metrics: RefCell::default(),
            errands,
            stirred: Notify::new(),
        }
    }

    pub(crate) fn route_metrics(&self, route: &str) -> RouteMetrics {
        if let Some(metrics) = self.route_metrics.borrow().get(route) {
            return metrics.clone();
        }
        let metrics = self.metrics.route(route);
        self.route_metrics.borrow_mut().insert(route.into(), metrics.clone());
        metrics
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
                self.stirred.notified().await;
            }
            tokio::time::sleep(if self.flights.is_empty() { SLOW_TICK } else { TICK }).await;
            let now = Instant::now();
            self.flights.sweep(now);
            if now.saturating_duration_since(slow) >= SLOW_TICK {
                slow = now;
                self.connections.sweep(now, self.header_timeout, self.idle_timeout);
                self.pool.sweep(now);
            }
        }
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
