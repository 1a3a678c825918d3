//! What these tests are told with: etcd, gateways as processes, a line between them that can be cut, writers, and
//! an upstream that records.
//!
//! Clients, the program and etcd are shared with `tests/it` and the elector's tests, and all of this is shared with
//! `tests/faults`. Everything is awaited with a deadline; only `stays` takes its time, because that a thing does
//! not happen cannot be waited for.

#[path = "../../it/support/authority.rs"]
mod authority;
#[path = "../../../elector/tests/etcd/certificates.rs"]
pub(crate) mod certificates;
#[path = "../../it/support/client.rs"]
#[allow(dead_code, reason = "shared with tests/it, which need more of it")]
pub(crate) mod client;
mod deaf;
pub(crate) mod etcd;
pub(crate) mod exchange;
pub(crate) mod front;
pub(crate) mod gateway;
pub(crate) mod judge;
pub(crate) mod line;
pub(crate) mod load;
#[path = "../../it/support/process.rs"]
#[allow(dead_code, reason = "shared with tests/it, which need more of it")]
pub(crate) mod process;
pub(crate) mod record;
#[path = "../../../elector/tests/etcd/relay.rs"]
mod relay;
#[path = "../../../elector/tests/etcd/server.rs"]
#[allow(dead_code, reason = "shared with the elector's tests, which need more of it")]
pub(crate) mod server;
pub(crate) mod trial;
mod turn;
pub(crate) mod upstream;
#[path = "../../it/support/wire.rs"]
#[allow(dead_code, reason = "shared with tests/it, which need more of it")]
pub(crate) mod wire;
pub(crate) mod writer;

use std::thread;
use std::time::{Duration, Instant};

pub(crate) use client::{Client, get, post};
pub(crate) use gateway::Gateway;
pub(crate) use trial::{Timing, Trial, trial};

/// Whether numbers are wanted that are worth writing down: `HIGHGATE_MEASURE=1`. Otherwise what measures does it in short, to
/// see that it works and is not far off.
pub(crate) fn measures() -> bool {
    std::env::var_os("HIGHGATE_MEASURE").is_some()
}

/// How long anything may take before the test gives up on it: longer than any pause that the protocol has.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// How long something is watched that must not happen.
pub(crate) const A_WHILE: Duration = Duration::from_millis(400);

/// What a busy machine may add to a time that the protocol bounds.
pub(crate) const SLACK: Duration = Duration::from_millis(1500);

/// Waits until `done`; fails with `what` if that takes too long.
pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Watches for so long that `holds` goes on to hold.
pub(crate) fn stays(what: &str, time: Duration, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        assert!(holds(), "it did not stay so: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The middle one, the one that 99 of 100 do not exceed, and the largest.
pub(crate) fn quantiles(mut times: Vec<Duration>) -> (Duration, Duration, Duration) {
    assert!(!times.is_empty(), "nothing was measured");
    times.sort();
    let at = |share: usize| times[(times.len() * share).div_ceil(100).max(1) - 1];
    (at(50), at(99), at(100))
}
