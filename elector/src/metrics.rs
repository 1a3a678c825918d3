//! Every metric of the elector, behind the `metrics` facade: whoever installs a recorder gets them.
//!
//! An [`Elector`](crate::Elector) registers those of its resource when it is built. What must stay true: a token
//! is never a label, and a process with very many elections has a bounded number of series: the renewer names the
//! first thousand resources, the rest counts as `other`.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Unit};
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use crate::{Resource, Token};

const IS_LEADER: &str = "highgate_elector_is_leader";
const TOKEN: &str = "highgate_elector_token";
const ELECTIONS: &str = "highgate_elector_elections_total";
const FAILOVER: &str = "highgate_elector_failover_seconds";
const HEARTBEAT: &str = "highgate_elector_heartbeat_duration_seconds";
const LEADERLESS: &str = "highgate_elector_leaderless_seconds";
const LEASE_REMAINING: &str = "highgate_elector_lease_remaining_seconds";

/// How many resources get series of their own.
const CAP: usize = 1000;
const OTHER: &str = "other";

/// Tells the installed recorder what each metric means. Call it once, after installing the recorder.
pub fn describe() {
    describe_gauge!(IS_LEADER, "Whether this process leads; of `other`, how many of them");
    describe_gauge!(TOKEN, "The token of the latest term of this process");
    describe_counter!(ELECTIONS, "Elections that this process won");
    describe_histogram!(
        FAILOVER,
        Unit::Seconds,
        "From one leader's end to the next one's start, as observed"
    );
    describe_histogram!(HEARTBEAT, Unit::Seconds, "How long a renewal took, failed ones included");
    describe_gauge!(LEADERLESS, Unit::Seconds, "Time without any leader, summed up, as observed");
    describe_gauge!(
        LEASE_REMAINING,
        Unit::Seconds,
        "Validity that was left after the latest renewal or failure"
    );
}

/// Which resources have series of their own.
#[derive(Default)]
pub(crate) struct Labels(Mutex<HashSet<Resource>>);

impl Labels {
    pub(crate) fn label(&self, resource: &Resource) -> String {
        let mut named = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if named.contains(resource) || named.len() < CAP {
            named.insert(resource.clone());
            return resource.to_string();
        }
        OTHER.to_owned()
    }
}

/// The metrics of one resource.
pub(crate) struct Metrics {
    is_leader: Gauge,
    /// Not of `other`: one series for many resources would show the one that spoke last.
    token: Option<Gauge>,
    lease_remaining: Option<Gauge>,
    elections: Counter,
    failover: Histogram,
    heartbeat: Histogram,
    leaderless: Gauge,
}

impl Metrics {
    pub(crate) fn new(label: &str) -> Self {
        let label = label.to_owned();
        let single = label != OTHER;
        Self {
            is_leader: gauge!(IS_LEADER, "resource" => label.clone()),
            token: single.then(|| gauge!(TOKEN, "resource" => label.clone())),
            lease_remaining: single.then(|| gauge!(LEASE_REMAINING, "resource" => label.clone())),
            elections: counter!(ELECTIONS, "resource" => label.clone()),
            failover: histogram!(FAILOVER, "resource" => label.clone()),
            heartbeat: histogram!(HEARTBEAT, "resource" => label.clone()),
            leaderless: gauge!(LEADERLESS, "resource" => label),
        }
    }

    pub(crate) fn won(&self, token: Token) {
        self.elections.increment(1);
        self.is_leader.increment(1.0);
        if let Some(gauge) = &self.token {
            // Exact up to 2^53; beyond, a dashboard shows it rounded.
            gauge.set(token.get() as f64);
        }
    }

    pub(crate) fn ended(&self) {
        self.is_leader.decrement(1.0);
        self.remaining(Duration::ZERO);
    }

    pub(crate) fn beat(&self, took: Duration, remaining: Duration) {
        self.heartbeat.record(took);
        self.remaining(remaining);
    }

    pub(crate) fn failover(&self, gap: Duration) {
        self.failover.record(gap);
    }

    pub(crate) fn leaderless(&self, more: Duration) {
        self.leaderless.increment(more.as_secs_f64());
    }

    fn remaining(&self, remaining: Duration) {
        if let Some(gauge) = &self.lease_remaining {
            gauge.set(remaining.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_resources_than_the_cap_share_one_label() {
        let labels = Labels::default();
        let name = |number: usize| Resource::parse(&format!("job/{number}")).unwrap();
        for number in 0..CAP {
            assert_eq!(labels.label(&name(number)), format!("job/{number}"));
        }
        assert_eq!(labels.label(&name(CAP)), OTHER);
        assert_eq!(labels.label(&name(7)), "job/7", "who has series keeps them");
    }
}
