//! Highgate: a fencing-token gateway. The gate that only the highest token passes.
//!
//! A reverse proxy in front of a shared resource that cannot check fencing tokens itself. It keeps the highest
//! token per resource, refuses every lower one, and lets a higher one through only after the requests of the
//! lower ones have certainly ended.
//!
//! ```text
//!   client ──► accept ──► claim ──► fence ──► forward ──► upstream
//!                │          │         │          │
//!                │          │         │          └─ one line, one write, one certain end
//!                │          │         └─ ledger: one compare-and-swap at the mark
//!                │          └─ route, resource, token: pure
//!                └─ limits, time-outs, strict framing
//!   client ◄── respond ◄──────────────┘ every refusal from one table
//! ```
//!
//! The modules, from the wire inwards: [`gate`] is a request's way; [`ledger`] holds every mark with its gate;
//! [`store`] makes marks durable and drives [`replica`], the fence protocol as a pure state machine;
//! [`gateway`] starts and ends it all; [`admin`], [`metrics`], [`events`] and [`journal`] let people see; [`config`] says
//! what was asked for; [`signing`] is tokens with a signature, and the keys of them.
//!
//! What must stay true:
//! - **A mark never goes down**, and is on disk before the first request under it is forwarded.
//! - **A token passes only where the gate is open at exactly that token**, and a gate opens only when no
//!   request of a lower token is under way.
//! - **A permit ends with a complete response, or with certainty that nothing was sent.** Every other end keeps
//!   it for the route's lock-delay; a client that hangs up ends nothing.
//! - **Nothing is sent twice** by the gateway's own decision.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod admin;
#[cfg(test)]
mod captured;
pub mod config;
pub mod controls;
pub mod door;
mod drain;
pub mod elections;
pub mod events;
mod fold;
pub mod gate;
pub mod gateway;
pub mod grants;
pub mod journal;
pub mod ledger;
pub mod metrics;
pub mod names;
pub mod replica;
mod shorten;
pub mod signing;
pub mod store;
pub mod tls;
