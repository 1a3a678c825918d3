//! What every test here is told with: a recording origin, clients that send exact bytes, a gateway on port 0.
//!
//! Nothing has a fixed port and nothing sleeps for luck: a test waits for something that it names, with a
//! deadline. Only `stays` takes its time, because that a thing does not happen cannot be waited for.

mod client;
mod gate;
mod h2;
mod log;
mod origin;
mod process;
mod reply;
mod wire;

use std::thread;
use std::time::{Duration, Instant};

pub(crate) use client::{Ask, Client, Pending, Response, ask, delete, get, post, put};
pub(crate) use gate::{Running, gateway, gateway_to, json_post};
pub(crate) use h2::H2;
pub(crate) use log::What;
pub(crate) use origin::{Origin, origin};
pub(crate) use process::{Highgate, config_for, highgate};
pub(crate) use reply::{Reply, raw, reply};

/// How long anything may take before the test gives up on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// How long something is watched that must not happen.
pub(crate) const A_WHILE: Duration = Duration::from_millis(150);

/// Waits until `done`; fails with `what` if that takes too long.
pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Watches for a while that `holds` goes on to hold.
pub(crate) fn stays(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + A_WHILE;
    while Instant::now() < end {
        assert!(holds(), "it did not stay so: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
