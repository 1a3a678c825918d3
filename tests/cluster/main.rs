//! Several gateways on one etcd: real processes of the built program, over real clusters of three nodes.
//!
//! They need servers, so they run with `HIGHGATE_TEST_SERVERS=1` only and say SKIPPED otherwise. A recording
//! upstream sees what every gateway forwards, and `support/judge.rs` has the last word on it in almost every test.
//! The numbers that are written down: `scripts/measure`.
#![allow(clippy::unwrap_used)]

mod access;
mod by_hand;
mod candidates;
mod controls;
mod elections;
mod etcd_faults;
mod fresh;
mod handover;
mod history;
mod issued;
mod joins;
mod loss;
mod lost_news;
mod many;
mod numbers;
mod orders;
mod renames;
mod restore;
mod rolling;
mod room;
mod sealed;
mod several;
mod signed;
#[allow(dead_code, reason = "shared with tests/faults, which need more of it")]
mod support;
mod unknown;
mod upkeep;
mod uploads;
