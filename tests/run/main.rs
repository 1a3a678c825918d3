//! `highgate run` as a user runs it: real processes, a real gateway, real signals.
//!
//! `ends.rs` is about how a run ends, `guarded.rs` about what happens to its command when `run` itself is stopped
//! or killed.
#![allow(clippy::unwrap_used)]

mod ends;
mod guarded;
mod support;
