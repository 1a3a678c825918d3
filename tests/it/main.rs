//! The gateway from the outside: in-process on port 0, and the real program where a process is the point.
#![allow(clippy::unwrap_used)]

mod audit;
mod big;
mod content;
mod drain;
mod durable;
mod elections;
mod faults;
mod fence;
mod forward;
mod framing;
mod grammar;
mod granted;
mod grants;
mod greeting;
mod grpc;
mod history;
mod hostile;
mod http2;
mod jobs;
mod leaders;
mod led;
mod limits;
mod noise;
mod orders;
mod paths;
mod reload;
mod renames;
mod sizes;
mod storm;
mod support;
mod tls;
mod trailers;
mod unknown;
mod unread;
