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
pub(super) const LEADER: &str = "highgate_leader_info";
pub(super) const LEADERLESS: &str = "highgate_leaderless_seconds";
pub(super) const FAILOVER: &str = "highgate_failover_seconds";
pub(super) const ELECTIONS: &str = "highgate_elections_total";
pub(super) const WAITING: &str = "highgate_waiting_candidates";
pub(super) const RESOURCES: &str = "highgate_resources";
pub(super) const RESOURCE_LIMIT: &str = "highgate_resources_limit";
pub(super) const LIMITED: &str = "highgate_limited_total";
pub(super) const CONNECTIONS: &str = "highgate_connections";
pub(super) const CERTIFICATE_END: &str = "highgate_certificate_expiry_timestamp_seconds";
pub(super) const CERTIFICATE_RELOAD: &str = "highgate_certificate_last_reload_successful";
pub(super) const SIGNING_KEYS: &str = "highgate_signing_keys";
pub(super) const UPSTREAM_CERTIFICATE_END: &str = "highgate_upstream_certificate_expiry_timestamp_seconds";
pub(super) const UPSTREAM_CERTIFICATE_RELOAD: &str = "highgate_upstream_certificate_last_reload_successful";
pub(super) const HANDSHAKE_FAILURES: &str = "highgate_tls_handshake_failures_total";
pub(super) const DROPPED_LINES: &str = "highgate_log_lines_dropped_total";
pub(super) const HISTORY_BYTES: &str = "highgate_history_bytes";
pub(super) const HISTORY_LOST: &str = "highgate_history_lost_total";
pub(super) const BUILD: &str = "highgate_build_info";
pub(super) const PROCESS_CPU: &str = "process_cpu_seconds_total";
pub(super) const PROCESS_THREADS: &str = "process_threads";
pub(super) const PROCESS_VIRTUAL: &str = "process_virtual_memory_bytes";
pub(super) const PROCESS_RESIDENT: &str = "process_resident_memory_bytes";
pub(super) const PROCESS_FDS: &str = "process_open_fds";
pub(super) const PROCESS_MAX_FDS: &str = "process_max_fds";
pub(super) const PROCESS_START: &str = "process_start_time_seconds";

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
    Metric { name: LEADER, kind: Kind::Gauge, help: "1 for whoever leads a resource." },
    Metric {
        name: LEADERLESS,
        kind: Kind::Gauge,
        help: "For how long no leader's token has passed; 0 while one does.",
    },
    Metric {
        name: FAILOVER,
        kind: Kind::Histogram(FAILOVER_BUCKETS),
        help: "From the last valid moment of a leader to the open mark of the next.",
    },
    Metric { name: ELECTIONS, kind: Kind::Counter, help: "Terms that began (won) and ended, by cause." },
    Metric { name: WAITING, kind: Kind::Gauge, help: "Candidates that wait behind a leader." },
    Metric { name: RESOURCES, kind: Kind::Gauge, help: "Resources that have a mark, by state." },
    Metric { name: RESOURCE_LIMIT, kind: Kind::Gauge, help: "How many resources requests may make." },
    Metric {
        name: LIMITED,
        kind: Kind::Counter,
        help: "Requests and connections that were refused or cut because they met a limit of the config.",
    },
    Metric { name: CONNECTIONS, kind: Kind::Gauge, help: "Open connections of clients to the data port." },
    Metric {
        name: SIGNING_KEYS,
        kind: Kind::Gauge,
        help: "1 for each key of signed tokens that the gateway knows, with what it is for now.",
    },
    Metric { name: CERTIFICATE_END, kind: Kind::Gauge, help: "When the first certificate of a port ends." },
    Metric {
        name: CERTIFICATE_RELOAD,
        kind: Kind::Gauge,
        help: "1 if a port serves with its certificate files as they are now, 0 if they are bad and the old ones are in force.",
    },
    Metric {
        name: UPSTREAM_CERTIFICATE_END,
        kind: Kind::Gauge,
        help: "When the certificate that a route shows to its upstream ends.",
    },
    Metric {
        name: UPSTREAM_CERTIFICATE_RELOAD,
        kind: Kind::Gauge,
        help: "1 if a route connects with its certificate files as they are now, 0 if they are bad and the old ones are in force.",
    },
    Metric {
        name: HANDSHAKE_FAILURES,
        kind: Kind::Counter,
        help: "TLS handshakes of clients that came to nothing, by reason.",
    },
    Metric {
        name: DROPPED_LINES,
        kind: Kind::Counter,
        help: "Log lines dropped because stderr did not keep up.",
    },
    Metric { name: HISTORY_BYTES, kind: Kind::Gauge, help: "The size of the history on disk." },
    Metric {
        name: HISTORY_LOST,
        kind: Kind::Counter,
        help: "Events that are not in the history because its disk did not take them.",
    },
    Metric { name: BUILD, kind: Kind::Gauge, help: "1, with the version of this gateway as a label." },
    Metric { name: PROCESS_CPU, kind: Kind::Counter, help: "Processor time used, in user and system mode." },
    Metric { name: PROCESS_THREADS, kind: Kind::Gauge, help: "Threads of this process." },
    Metric { name: PROCESS_VIRTUAL, kind: Kind::Gauge, help: "Virtual memory." },
    Metric { name: PROCESS_RESIDENT, kind: Kind::Gauge, help: "Resident memory." },
    Metric { name: PROCESS_FDS, kind: Kind::Gauge, help: "Open file descriptors." },
    Metric { name: PROCESS_MAX_FDS, kind: Kind::Gauge, help: "How many file descriptors may be open." },
    Metric { name: PROCESS_START, kind: Kind::Gauge, help: "When this process started, since 1970." },
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

/// With a waiting candidate and a resigned leader a failover is a seal; a crash of a whole gateway takes its lock-delay
/// as well, and an election without a candidate as long as it takes one to come.
const FAILOVER_BUCKETS: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0];
