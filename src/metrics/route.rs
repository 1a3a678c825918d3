//! What is counted for one route.

use std::sync::Arc;
use std::time::Duration;

use highgate_elector::Resource;
use metrics::{Counter, Histogram, Label};

use super::resources::PerResource;
use super::{Registry, names};
use crate::config::{MissingToken, Route, Tokens};

/// The `reason` of what needs none.
const NO_REASON: &str = "none";

/// Every other decision that is known beforehand. Its series starts at 0, so that its first increment is an
/// increase and not a new series.
const EXPECTED: [(Decision, &str); 17] = [
    (Decision::Refused, "stale"),
    (Decision::Refused, "missing"),
    (Decision::Refused, "malformed"),
    (Decision::Refused, "not-issued"),
    (Decision::Refused, "forbidden"),
    (Decision::Refused, "no-route"),
    (Decision::Refused, "frozen"),
    (Decision::Refused, "request-timeout"),
    (Decision::Refused, "too-large"),
    (Decision::Refused, "raising"),
    (Decision::Refused, "store-unavailable"),
    (Decision::Refused, "fenced"),
    (Decision::Refused, "overloaded"),
    (Decision::Failed, "upstream"),
    (Decision::Failed, "malformed"),
    (Decision::Failed, "too-large"),
    (Decision::Allowed, "missing"),
];

/// What can become of the requests of a route. A series that cannot move would only be noise.
#[derive(Clone, Copy, Debug)]
pub struct Prospects {
    /// It is a route, and not what stands for none.
    matched: bool,
    /// A token may be refused because nobody was issued it.
    issues: bool,
    refuses_missing: bool,
    limits_bodies: bool,
    /// This gateway is one of several, and may be fenced.
    replicas: bool,
}

impl Prospects {
    /// `none`: of requests that no route matches.
    pub fn of(route: Option<&Route>, replicas: bool) -> Self {
        let refuses_missing = route.is_some_and(|route| route.missing_token == MissingToken::Refuse);
        // With replicas a trusted token may be of an era that has not begun.
        let issues = route.is_some_and(|route| route.tokens != Tokens::Trusted || replicas);
        let limits_bodies = route.is_some_and(|route| route.bodies.max.is_some());
        Self { matched: route.is_some(), issues, refuses_missing, limits_bodies, replicas }
    }

    fn has(self, (decision, reason): (Decision, &str)) -> bool {
        match (decision, reason) {
            (Decision::Refused, "no-route") => !self.matched,
            // What is wrong with a request before its route is known.
            (Decision::Refused, "malformed" | "overloaded" | "request-timeout") => true,
            (Decision::Refused, "missing") => self.matched && self.refuses_missing,
            (Decision::Allowed, "missing") => self.matched && !self.refuses_missing,
            (Decision::Refused, "not-issued") => self.issues,
            (_, "too-large") => self.limits_bodies,
            (Decision::Refused, "fenced") => self.matched && self.replicas,
            _ => self.matched,
        }
    }
}

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
    /// None of what is not expected: it is registered when it happens all the same.
    expected: [Option<Counter>; EXPECTED.len()],
    /// None of requests that no route matches.
    forwarded: Option<Forwarded>,
}

/// What only happens to requests that have a route.
struct Forwarded {
    admitted: Counter,
    unfenced: Counter,
    stale: PerResource,
    unknown: Counter,
    upstream: Histogram,
}

impl RouteMetrics {
    pub(super) fn new(registry: Arc<Registry>, name: &str, prospects: Prospects) -> Self {
        let route = Label::new("route", name.to_owned());
        let requests = |(decision, reason)| requests(&registry, &route, decision, reason);
        let forwarded = prospects.matched.then(|| Forwarded {
            admitted: requests((Decision::Admitted, NO_REASON)),
            unfenced: requests((Decision::Unfenced, NO_REASON)),
            stale: PerResource::new(&registry, names::STALE, vec![route.clone()]),
            unknown: registry.counter(names::UNKNOWN, vec![route.clone()]),
            upstream: registry.histogram(names::UPSTREAM, vec![route.clone()]),
        });
        let expected = EXPECTED.map(|known| prospects.has(known).then(|| requests(known)));
        Self { series: Arc::new(Series { registry, route, expected, forwarded }) }
    }

    /// Counts a request. What was admitted or unfenced has no reason.
    pub fn count(&self, decision: Decision, reason: &'static str) {
        match (decision, &self.series.forwarded) {
            (Decision::Admitted, Some(forwarded)) => forwarded.admitted.increment(1),
            (Decision::Unfenced, Some(forwarded)) => forwarded.unfenced.increment(1),
            _ => self.count_by(decision, reason),
        }
    }

    fn count_by(&self, decision: Decision, reason: &'static str) {
        let Series { registry, route, expected, .. } = &*self.series;
        let at = EXPECTED.iter().position(|known| *known == (decision, reason));
        match at.and_then(|at| expected[at].as_ref()) {
            Some(counter) => counter.increment(1),
            None => requests(registry, route, decision, reason).increment(1),
        }
    }

    /// A token below the mark was refused.
    pub fn stale(&self, resource: &Resource) {
        if let Some(forwarded) = &self.series.forwarded {
            forwarded.stale.of(&self.series.registry, resource).increment(1);
        }
    }

    /// A forward ended, and nobody knows how.
    pub fn unknown(&self) {
        if let Some(forwarded) = &self.series.forwarded {
            forwarded.unknown.increment(1);
        }
    }

    /// The upstream took this long to answer.
    pub fn upstream(&self, took: Duration) {
        if let Some(forwarded) = &self.series.forwarded {
            forwarded.upstream.record(took);
        }
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
