//! Highgate: the gate that only the highest token passes.
#![cfg_attr(test, allow(clippy::unwrap_used))]
pub mod admin;
pub mod config;
mod drain;
pub mod events;
pub mod gate;
pub mod gateway;
pub mod ledger;
pub mod metrics;
pub mod replica;
pub mod store;
