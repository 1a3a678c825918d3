//! `highgate run` as a user runs it: real processes, a real gateway, real signals.
//!
//! `ends.rs` is about how a run ends, `guarded.rs` about what happens to its command when `run` itself is stopped
//! or killed, `metrics.rs` about what `--metrics` shows, `scattered.rs` about commands whose processes leave the group or the session,
//! `secrets.rs` about who may campaign and what the command gets to know of it, `signed.rs` about signed
//! tokens, and `tls.rs` about certificates.
#![allow(clippy::unwrap_used)]

#[path = "../it/support/authority.rs"]
mod authority;
mod ends;
mod guarded;
mod metrics;
mod scattered;
mod secrets;
mod signed;
mod support;
mod tls;
