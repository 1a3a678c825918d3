//! What is counted for one route.

use std::sync::Arc;
use std::time::Duration;

use highgate_elector::Resource;
use metrics::{Counter, Histogram, Label};

use super::resources::PerResource;
use super::{Registry, names};

/// The `reason` of what needs none.
const NO_REASON: &str = "none";

/// Every other decision that is known beforehand. Its series starts at 0, so that its first increment is an
/// increase and not a new series.
const EXPECTED: [(Decision, &str); 13] = [
    (Decision::Refused, "stale"),
    (Decision::Refused, "missing"),
    (Decision::Refused, "malformed"),
    (Decision::Refused, "not-issued"),
    (Decision::Refused, "no-route"),
    (Decision::Refused, "frozen"),
    (Decision::Refused, "request-timeout"),
    (Decision::Refused, "raising"),
    (Decision::Refused, "store-unavailable"),
    (Decision::Refused, "fenced"),
    (Decision::Refused, "overloaded"),
    (Decision::Failed, "upstream"),
    (Decision::Allowed, "missing"),
];

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Its token is the mark.
    Admitted,
    /// Its method is not fenced on this route.
    Unfenced,
    /// It has no token, and the route lets it pass.
    Allowed,
    Refused,
    /// It was admitted, and the upstream did not answer.
    Failed,
}

/// The series of one route. Cheap to clone.
#[derive(Clone)]
pub struct RouteMetrics {
    series: Arc<Series>,
}

struct Series {
    registry: Arc<Registry>,
    route: Label,
    admitted: Counter,
    unfenced: Counter,
    expected: [Counter; EXPECTED.len()],
    stale: PerResource,
    unknown: Counter,
    upstream: Histogram,
}

impl RouteMetrics {
    pub(super) fn new(registry: Arc<Registry>, name: &str) -> Self {
        let route = Label::new("route", name.to_owned());
        let requests = |(decision, reason)| requests(&registry, &route, decision, reason);
        let series = Series {
            admitted: requests((Decision::Admitted, NO_REASON)),
            unfenced: requests((Decision::Unfenced, NO_REASON)),
            expected: EXPECTED.map(requests),
            stale: PerResource::new(&registry, names::STALE, vec![route.clone()]),
            unknown: registry.counter(names::UNKNOWN, vec![route.clone()]),
            upstream: registry.histogram(names::UPSTREAM, vec![route.clone()]),
            registry,
            route,
        };
        Self { series: Arc::new(series) }
    }

    /// Counts a request. What was admitted or unfenced has no reason.
    pub fn count(&self, decision: Decision, reason: &'static str) {
        match decision {
            Decision::Admitted => self.series.admitted.increment(1),
            Decision::Unfenced => self.series.unfenced.increment(1),
            Decision::Allowed | Decision::Refused | Decision::Failed => self.count_by(decision, reason),
        }
    }

    fn count_by(&self, decision: Decision, reason: &'static str) {
        let Series { registry, route, expected, .. } = &*self.series;
        match EXPECTED.iter().position(|known| *known == (decision, reason)) {
            Some(at) => expected[at].increment(1),
            None => requests(registry, route, decision, reason).increment(1),
        }
    }

    /// A token below the mark was refused.
    pub fn stale(&self, resource: &Resource) {
        self.series.stale.of(&self.series.registry, resource).increment(1);
    }

    /// A forward ended, and nobody knows how.
    pub fn unknown(&self) {
        self.series.unknown.increment(1);
    }

    /// The upstream took this long to answer.
    pub fn upstream(&self, took: Duration) {
        self.series.upstream.record(took);
    }
}

fn requests(registry: &Registry, route: &Label, decision: Decision, reason: &'static str) -> Counter {
    let labels = vec![route.clone(), Label::new("decision", decision.label()), Label::new("reason", reason)];
    registry.counter(names::REQUESTS, labels)
}

impl Decision {
    pub fn label(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Unfenced => "unfenced",
            Self::Allowed => "allowed",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}
