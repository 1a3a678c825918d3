//! The gateway from the outside: in-process on port 0, and the real program where a process is the point.
#![allow(clippy::unwrap_used)]

mod big;
mod drain;
mod durable;
mod elections;
mod faults;
mod fence;
mod forward;
mod framing;
mod grammar;
mod jobs;
mod limits;
mod noise;
mod paths;
mod reload;
mod storm;
mod support;
mod unknown;
mod unread;
