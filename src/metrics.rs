//! Every metric of the gateway: names, labels and what moves them, nowhere else.
//!
//! The gate counts through [`RouteMetrics`], whoever listens to the store calls [`Metrics::fence_event`], and
//! the admin port renders. The recorder is this struct's own, not the process's: two gateways in one process
//! do not mix. What must stay true: labels are bounded (routes and reasons by the configuration and the code,
//! resources by a cap), a token is never a label, and counting on the path of an admitted request is one
//! increment of a counter that was registered before.

mod names;
mod resources;
mod route;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusRecorder};

use crate::ledger::Ledger;
use crate::replica::Event;
use crate::store::overview::Overview;
use names::Kind;
use resources::{Cap, PerResource};
pub use route::{Decision, RouteMetrics};

const METADATA: Metadata<'static> = Metadata::new("highgate", Level::INFO, None);

/// All metrics of one gateway.
pub struct Metrics {
    registry: Arc<Registry>,
    raises: PerResource,
    decision: Histogram,
    seal: Histogram,
    in_flight_current: Gauge,
    in_flight_superseded: Gauge,
    replicas: Gauge,
    valid: Gauge,
    last_sync: Gauge,
    last_reload: Gauge,
    operator: [(Action, Counter); Action::ALL.len()],
}

/// What an operator did to a resource, or to all replicas at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Raise,
    Freeze,
    Thaw,
    Evict,
    BumpEra,
    Retire,
    ResetOnce,
}

/// Where series are registered, and which resources get some of their own.
struct Registry {
    recorder: PrometheusRecorder,
    cap: Cap,
}

impl Metrics {
    /// `max_resources`: how many resources get series of their own; the rest is `other`.
    pub fn new(max_resources: usize) -> Self {
        let registry = Arc::new(Registry { recorder: recorder(), cap: Cap::new(max_resources) });
        let in_flight =
            |generation| registry.gauge(names::IN_FLIGHT, vec![Label::new("generation", generation)]);
        let metrics = Self {
            raises: PerResource::new(&registry, names::RAISES, vec![]),
            decision: registry.histogram(names::DECISION, vec![]),
            seal: registry.histogram(names::SEAL, vec![]),
            in_flight_current: in_flight("current"),
            in_flight_superseded: in_flight("superseded"),
            replicas: registry.gauge(names::REPLICAS, vec![]),
            valid: registry.gauge(names::VALID, vec![]),
            last_sync: registry.gauge(names::LAST_SYNC, vec![]),
            last_reload: registry.gauge(names::LAST_RELOAD, vec![]),
            operator: Action::ALL.map(|action| {
                let label = Label::new("action", action.label());
                (action, registry.counter(names::OPERATOR, vec![label]))
            }),
            registry,
        };
        metrics.synced();
        metrics.reloaded(true);
        metrics
    }

    /// The series of a route. Asking again, after a reload, goes on with the same ones.
    pub fn route(&self, name: &str) -> RouteMetrics {
        RouteMetrics::new(self.registry.clone(), name)
    }

    /// A request was admitted or refused this long after its head had been read.
    pub fn decided(&self, took: Duration) {
        self.decision.record(took);
    }

    /// The store reported a change of a resource.
    pub fn fence_event(&self, event: &Event) {
        self.synced();
        match event {
            Event::Raised { resource, .. } => self.raises.of(&self.registry, resource).increment(1),
            Event::Opened { after, .. } => self.seal.record(*after),
            Event::Frozen { .. }
            | Event::Thawed { .. }
            | Event::Joined { .. }
            | Event::Left { .. }
            | Event::Evicted { .. } => {}
        }
    }

    /// Gives series to the resources that the store already knew at start, if there are enough for all of
    /// them. If not, they are left to the resources that move: an alphabetical choice would help nobody.
    pub fn stored_marks(&self, ledger: &Ledger) {
        if ledger.len() > self.registry.cap.limit() {
            return;
        }
        for cell in ledger.page(None, ledger.len()) {
            self.registry.cap.admits(cell.resource());
        }
    }

    /// The configuration was read again, and taken or not.
    pub fn reloaded(&self, ok: bool) {
        self.last_reload.set(u8::from(ok));
    }

    /// An operator's order was carried out.
    pub fn operator(&self, action: Action) {
        for (_, counter) in self.operator.iter().filter(|(counted, _)| *counted == action) {
            counter.increment(1);
        }
    }

    /// Moves histogram samples into their buckets. They pile up in memory between two calls.
    pub fn upkeep(&self) {
        self.registry.recorder.handle().run_upkeep();
    }

    /// The Prometheus text form of everything, with what the ledger and the replicas say now.
    pub fn render(&self, ledger: &Ledger, overview: &Overview) -> String {
        let superseded = ledger.superseded();
        self.in_flight_superseded.set(lossy(superseded));
        // Two reads of a moving ledger: the difference must not go below zero.
        self.in_flight_current.set(lossy(ledger.in_flight().saturating_sub(superseded)));
        self.replicas.set(lossy(overview.replicas.len() as u64));
        self.valid.set(u8::from(overview.valid && !ledger.is_halted() && ledger.validity().holds()));
        if let Some(me) = overview.replicas.iter().find(|replica| replica.me && overview.store == "etcd") {
            let heard = SystemTime::now() - me.renewed;
            self.last_sync.set(heard.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
        }
        self.read_marks(ledger);
        self.registry.recorder.handle().render()
    }

    /// Marks are read rather than followed: no lost event can leave a gauge behind.
    fn read_marks(&self, ledger: &Ledger) {
        for resource in self.registry.cap.resources() {
            let mark = ledger.get(resource.as_str()).map_or(0, |cell| cell.mark());
            if mark > 0 {
                let label = Label::new("resource", resource.as_str().to_owned());
                self.registry.gauge(names::HIGH_WATER, vec![label]).set(lossy(mark));
            }
        }
    }

    fn synced(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last_sync.set(now.as_secs_f64());
    }
}

impl Action {
    const ALL: [Self; 7] =
        [Self::Raise, Self::Freeze, Self::Thaw, Self::Evict, Self::BumpEra, Self::Retire, Self::ResetOnce];

    pub fn label(self) -> &'static str {
        match self {
            Self::Raise => "raise",
            Self::Freeze => "freeze",
            Self::Thaw => "thaw",
            Self::Evict => "evict",
            Self::BumpEra => "era-bump",
            Self::Retire => "retire",
            Self::ResetOnce => "once-reset",
        }
    }
}

impl Registry {
    fn counter(&self, name: &'static str, labels: Vec<Label>) -> Counter {
        self.recorder.register_counter(&Key::from_parts(name, labels), &METADATA)
    }

    fn gauge(&self, name: &'static str, labels: Vec<Label>) -> Gauge {
        self.recorder.register_gauge(&Key::from_parts(name, labels), &METADATA)
    }

    fn histogram(&self, name: &'static str, labels: Vec<Label>) -> Histogram {
        self.recorder.register_histogram(&Key::from_parts(name, labels), &METADATA)
    }
}

/// A recorder that knows every metric's help text and buckets.
fn recorder() -> PrometheusRecorder {
    let builder = names::ALL.iter().fold(PrometheusBuilder::new(), |builder, metric| match metric.kind {
        Kind::Histogram(buckets) => builder
            .set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), buckets)
            .expect("a bucket list is not empty"),
        Kind::Counter | Kind::Gauge => builder,
    });
    let recorder = builder.build_recorder();
    for metric in names::ALL {
        let (name, help) = (metric.name.into(), metric.help.into());
        match metric.kind {
            Kind::Counter => recorder.describe_counter(name, None, help),
            Kind::Gauge => recorder.describe_gauge(name, None, help),
            Kind::Histogram(_) => recorder.describe_histogram(name, None, help),
        }
    }
    recorder
}

/// Prometheus knows floats only: a number above 2^53 is shown rounded.
#[expect(clippy::cast_precision_loss, reason = "there is no other form of it")]
fn lossy(number: u64) -> f64 {
    number as f64
}
