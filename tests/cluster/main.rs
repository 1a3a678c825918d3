//! Several gateways on one etcd: real processes of the built program, over real clusters of three nodes.
//!
//! They need servers, so they run with `HIGHGATE_TEST_SERVERS=1` only and say SKIPPED otherwise. A recording
//! upstream sees what every gateway forwards, and `support/judge.rs` has the last word on it in almost every test.
//! The numbers: `HIGHGATE_TEST_SERVERS=1 cargo test --test cluster numbers:: -- --nocapture`.
#![allow(clippy::unwrap_used)]

mod access;
mod controls;
mod elections;
mod etcd_faults;
mod handover;
mod issued;
mod joins;
mod loss;
mod many;
mod numbers;
mod restore;
mod rolling;
mod sealed;
#[allow(dead_code, reason = "shared with tests/faults, which need more of it")]
mod support;
mod unknown;
mod upkeep;
mod uploads;
