//! Every metric of the gateway: names, labels and what moves them, nowhere else.
//!
//! The gate counts through [`RouteMetrics`], whoever listens to the store calls [`Metrics::fence_event`], and
//! the admin port renders. The recorder is this struct's own, not the process's: two gateways in one process
//! do not mix. What must stay true: labels are bounded (routes and reasons by the configuration and the code,
//! resources by a cap), a token is never a label, and counting on the path of an admitted request is one
//! increment of a counter that was registered before.

mod leaders;
mod limits;
mod names;
mod process;
mod resources;
mod route;
#[cfg(test)]
mod tests;
mod text;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use highgate_elector::Resource;
use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusRecorder};

use crate::elections::{self, Standing};
use crate::journal::Journal;
use crate::ledger::Ledger;
use crate::replica::Event;
use crate::signing::{self, Signing};
use crate::store::overview::Overview;
use crate::tls::Failure;
use leaders::Leaders;
pub use limits::Limit;
use limits::Limited;
use names::Kind;
use resources::{Cap, PerResource};
pub use route::{Decision, Prospects, RouteMetrics};
use text::Text;

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
    leaders: Leaders,
    limited: Limited,
    connections: Arc<AtomicUsize>,
    /// What a process has and a test may not.
    journal: OnceLock<Arc<Journal>>,
    dropped_lines: OnceLock<Box<dyn Fn() -> u64 + Send + Sync>>,
    certificates: OnceLock<Box<dyn Fn() -> Vec<Certificate> + Send + Sync>>,
    signing: OnceLock<Arc<Signing>>,
}

/// A certificate of the gateway, as its metrics show it.
pub(crate) struct Certificate {
    pub(crate) of: CertificateOf,
    /// None: there is none, but there are authorities that are trusted.
    pub(crate) expires: Option<SystemTime>,
    /// Whether its files, as they are now, are in force.
    pub(crate) taken: bool,
}

/// Where it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CertificateOf {
    /// To the clients of a port.
    Listener(&'static str),
    /// To the upstream of a route.
    Route(Arc<str>),
}

/// TLS handshakes of one port that came to nothing, by reason.
pub(crate) struct Handshakes([(Failure, Counter); Failure::ALL.len()]);

/// What an operator did to a resource, or to all replicas at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
            leaders: Leaders::new(&registry),
            limited: Limited::new(&registry),
            connections: Arc::default(),
            journal: OnceLock::new(),
            dropped_lines: OnceLock::new(),
            certificates: OnceLock::new(),
            signing: OnceLock::new(),
            registry,
        };
        metrics.synced();
        metrics.reloaded(true);
        metrics
    }

    /// The series of a route. Asking again, after a reload, goes on with the same ones.
    pub fn route(&self, name: &str, prospects: Prospects) -> RouteMetrics {
        RouteMetrics::new(self.registry.clone(), name, prospects)
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
            Event::Opened { resource, mark, after } => {
                self.seal.record(*after);
                self.leaders.sealed(resource, *mark);
            }
            // Whoever won while it was frozen leads from now on.
            Event::Thawed { resource, mark } => self.leaders.sealed(resource, *mark),
            Event::Frozen { .. } | Event::Joined { .. } | Event::Left { .. } | Event::Evicted { .. } => {}
        }
    }

    /// The store reported that somebody leads, or does not any more.
    pub fn election_event(&self, event: &elections::Event) {
        self.leaders.hear(&self.registry, event);
    }

    /// The store reported everybody who leads and how many wait, after a start or a gap.
    pub fn stand(&self, standing: &[Standing]) {
        self.leaders.stand(&self.registry, standing);
    }

    /// So many wait for a resource now.
    pub fn line(&self, resource: &Resource, waiting: usize) {
        self.leaders.line(&self.registry, resource, waiting);
    }

    /// Somebody met a limit of the config.
    pub fn limited(&self, limit: Limit) {
        self.limited.count(limit);
    }

    /// Where the data port counts its connections.
    pub fn connections(&self) -> Arc<AtomicUsize> {
        self.connections.clone()
    }

    /// The journal whose size and losses are shown.
    pub fn show_journal(&self, journal: Arc<Journal>) {
        // Told once, by the gateway that both belong to.
        let _ = self.journal.set(journal);
    }

    /// How the process knows what its log has lost.
    pub fn show_dropped_lines(&self, count: impl Fn() -> u64 + Send + Sync + 'static) {
        let _ = self.dropped_lines.set(Box::new(count));
    }

    /// Where a port counts its handshakes. One that has none has no series.
    pub(crate) fn handshakes(&self, listener: &'static str, has_some: bool) -> Handshakes {
        Handshakes(Failure::ALL.map(|failure| {
            let labels = vec![Label::new("listener", listener), Label::new("reason", failure.label())];
            let counter = || self.registry.counter(names::HANDSHAKE_FAILURES, labels);
            (failure, if has_some { counter() } else { Counter::noop() })
        }))
    }

    /// How the gateway knows what its certificates are now.
    pub(crate) fn show_certificates(&self, list: impl Fn() -> Vec<Certificate> + Send + Sync + 'static) {
        let _ = self.certificates.set(Box::new(list));
    }

    /// Which keys of signed tokens are in force.
    pub(crate) fn show_signing_keys(&self, signing: Arc<Signing>) {
        let _ = self.signing.set(signing);
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
        let mut text = Text::after(self.registry.recorder.handle().render());
        self.leaders.write(&mut text);
        self.write_states(ledger, &mut text);
        self.write_self(&mut text);
        process::write(&mut text);
        text.finish()
    }

    /// Counters of the ledger, so that a scrape does not look at every resource.
    fn write_states(&self, ledger: &Ledger, text: &mut Text) {
        let states = ledger.states();
        let series = states.iter().map(|(state, count)| (vec![("state", *state)], lossy(*count)));
        text.metric(names::RESOURCES, series);
        let limit = ledger.resource_limit();
        text.number(names::RESOURCE_LIMIT, (limit < usize::MAX).then(|| lossy(limit as u64)));
    }

    fn write_self(&self, text: &mut Text) {
        let connections = self.connections.load(Ordering::Relaxed) as u64;
        text.number(names::CONNECTIONS, Some(lossy(connections)));
        self.write_signing_keys(text);
        self.write_certificates(text);
        text.number(names::DROPPED_LINES, self.dropped_lines.get().map(|count| lossy(count())));
        text.number(names::HISTORY_BYTES, self.journal.get().map(|journal| lossy(journal.size())));
        text.number(names::HISTORY_LOST, self.journal.get().map(|journal| lossy(journal.lost())));
        text.metric(names::BUILD, [(vec![("version", env!("CARGO_PKG_VERSION"))], 1.0)]);
    }

    fn write_signing_keys(&self, text: &mut Text) {
        let Some(keys) = self.signing.get().map(|signing| signing.keys()) else { return };
        let signer = keys.signer(SystemTime::now()).map(signing::Key::id);
        let states = keys.iter().map(|key| match key.retired() {
            Some(_) => (key.id().to_string(), "retired"),
            None if signer == Some(key.id()) => (key.id().to_string(), "signs"),
            None => (key.id().to_string(), "verifies"),
        });
        let states: Vec<_> = states.collect();
        let series = states.iter().map(|(id, state)| (vec![("key", id.as_str()), ("state", *state)], 1.0));
        text.metric(names::SIGNING_KEYS, series);
    }

    fn write_certificates(&self, text: &mut Text) {
        let certificates = self.certificates.get().map(|list| list()).unwrap_or_default();
        for (kind, end, taken) in [
            ("listener", names::CERTIFICATE_END, names::CERTIFICATE_RELOAD),
            ("route", names::UPSTREAM_CERTIFICATE_END, names::UPSTREAM_CERTIFICATE_RELOAD),
        ] {
            let of = |certificate: &Certificate| match &certificate.of {
                CertificateOf::Listener(name) => (kind == "listener").then(|| (*name).to_owned()),
                CertificateOf::Route(name) => (kind == "route").then(|| name.to_string()),
            };
            let named: Vec<_> = certificates.iter().filter_map(|one| Some((of(one)?, one))).collect();
            let seconds = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
            let ends = named
                .iter()
                .filter_map(|(name, one)| Some((vec![(kind, name.as_str())], seconds(one.expires?))));
            text.metric(end, ends);
            let are_taken =
                named.iter().map(|(name, one)| (vec![(kind, name.as_str())], f64::from(u8::from(one.taken))));
            text.metric(taken, are_taken);
        }
    }

    /// Marks are read rather than followed: no lost event can leave a gauge behind.
    fn read_marks(&self, ledger: &Ledger) {
        for resource in self.registry.cap.resources() {
            let Some(cell) = ledger.get(resource.as_str()) else { continue };
            let mark = cell.mark();
            if cell.is_vacant() {
                self.leaders.is_vacant(&resource);
            }
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

impl Handshakes {
    pub(crate) fn failed(&self, failure: Failure) {
        for (_, counter) in self.0.iter().filter(|(counted, _)| *counted == failure) {
            counter.increment(1);
        }
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
