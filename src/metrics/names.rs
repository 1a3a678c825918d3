//! The names, kinds, help texts and buckets of all metrics, in the order of the documentation.

pub(super) const REQUESTS: &str = "highgate_requests_total";
pub(super) const STALE: &str = "highgate_stale_rejections_total";
pub(super) const HIGH_WATER: &str = "highgate_token_high_water";
pub(super) const RAISES: &str = "highgate_token_raises_total";
pub(super) const DECISION: &str = "highgate_decision_duration_seconds";
pub(super) const UPSTREAM: &str = "highgate_upstream_duration_seconds";
pub(super) const SEAL: &str = "highgate_seal_duration_seconds";
pub(super) const IN_FLIGHT: &str = "highgate_inflight_requests";
pub(super) const UNKNOWN: &str = "highgate_unknown_outcomes_total";
pub(super) const REPLICAS: &str = "highgate_replicas";
pub(super) const VALID: &str = "highgate_replica_valid";
pub(super) const LAST_SYNC: &str = "highgate_store_last_sync_timestamp_seconds";
pub(super) const LAST_RELOAD: &str = "highgate_config_last_reload_successful";
pub(super) const OPERATOR: &str = "highgate_operator_actions_total";

pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
}

pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram(&'static [f64]),
}

pub(super) const ALL: &[Metric] = &[
    Metric { name: REQUESTS, kind: Kind::Counter, help: "Requests, by what was decided and why." },
    Metric {
        name: STALE,
        kind: Kind::Counter,
        help: "Requests refused because their token was below the mark: a deposed leader, stopped.",
    },
    Metric {
        name: HIGH_WATER,
        kind: Kind::Gauge,
        help: "The mark of a resource: the highest token it has seen.",
    },
    Metric { name: RAISES, kind: Kind::Counter, help: "How often the mark of a resource was raised." },
    Metric {
        name: DECISION,
        kind: Kind::Histogram(DECISION_BUCKETS),
        help: "From a request's head to its admission or refusal, a wait for a raise included.",
    },
    Metric {
        name: UPSTREAM,
        kind: Kind::Histogram(UPSTREAM_BUCKETS),
        help: "From forwarding a request to the last byte of the upstream's response.",
    },
    Metric {
        name: SEAL,
        kind: Kind::Histogram(SEAL_BUCKETS),
        help: "From raising a mark to opening it: how long requests of lower tokens took to end.",
    },
    Metric {
        name: IN_FLIGHT,
        kind: Kind::Gauge,
        help: "Fenced requests under way, of the current mark or of a superseded one.",
    },
    Metric {
        name: UNKNOWN,
        kind: Kind::Counter,
        help: "Forwarded requests that ended without anybody knowing whether they took effect.",
    },
    Metric {
        name: REPLICAS,
        kind: Kind::Gauge,
        help: "Gateways that share the marks of this one, itself included.",
    },
    Metric {
        name: VALID,
        kind: Kind::Gauge,
        help: "1 while this gateway may admit requests, 0 while it is fenced or after its store has failed.",
    },
    Metric {
        name: LAST_SYNC,
        kind: Kind::Gauge,
        help: "When this gateway last learned of a change of a mark from its store, or started.",
    },
    Metric {
        name: LAST_RELOAD,
        kind: Kind::Gauge,
        help: "1 if the last configuration read was taken, 0 if it was bad and the old one is in force.",
    },
    Metric { name: OPERATOR, kind: Kind::Counter, help: "Operators' orders carried out." },
];

/// A decision on the current token takes microseconds, one that waits for a raise up to the hold time-out.
const DECISION_BUCKETS: &[f64] = &[
    0.000_001,
    0.000_002_5,
    0.000_005,
    0.000_01,
    0.000_025,
    0.000_05,
    0.000_1,
    0.000_25,
    0.001,
    0.005,
    0.01,
    0.05,
    0.1,
    0.5,
    1.0,
    2.5,
    10.0,
];

const UPSTREAM_BUCKETS: &[f64] = &[
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
];

/// With nothing in flight a seal is two commits; else it waits for requests, the drain time-out at the most,
/// or for the lock-delay.
const SEAL_BUCKETS: &[f64] =
    &[0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
