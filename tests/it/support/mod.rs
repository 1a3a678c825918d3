//! What every test here is told with: a recording origin, clients that send exact bytes, a gateway on port 0.
//!
//! Nothing has a fixed port and nothing sleeps for luck: a test waits for something that it names, with a
//! deadline. Only `stays` takes its time, because that a thing does not happen cannot be waited for.

mod authority;
mod client;
mod front;
mod gate;
mod h2;
mod h2_origin;
pub(crate) mod h2_raw;
mod h2_stream;
mod log;
mod origin;
mod process;
mod reply;
mod secure;
mod upstream;
mod wire;

use std::thread;
use std::time::{Duration, Instant};

pub(crate) use authority::{Authority, Issued, replace};
pub(crate) use client::{Ask, Client, Pending, Response, ask, delete, get, post, put};
pub(crate) use front::{Front, front, front_of};
pub(crate) use gate::{Builder as GateBuilder, Running, gateway, gateway_to, json_post};
pub(crate) use h2::H2;
pub(crate) use h2_origin::{H2Origin, Step, WINDOW, h2_origin, ok};
pub(crate) use h2_stream::{Event, Stream};
pub(crate) use log::{Request, What};
pub(crate) use origin::{Origin, origin};
pub(crate) use process::{Highgate, config_for, highgate};
pub(crate) use reply::{Reply, raw, reply};
pub(crate) use secure::{Secure, secure};
pub(crate) use upstream::{End, Upstream};
pub(crate) use wire::{Head, Wire};

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
