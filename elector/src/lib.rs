//! Leadership that issues fencing tokens: the companion of the Highgate gateway.
//!
//! A job that must run once campaigns for a resource. Whoever leads gets a [`Token`], higher than every one before,
//! and sends it with what it writes; the gateway in front of the resource refuses all lower ones. So a leader that
//! was paused and deposed without noticing does no harm.
//!
//! ```no_run
//! use highgate_elector::{Elector, LeadError, TokenSource};
//!
//! /// Sends the token with what it writes.
//! async fn write_report(token: TokenSource) {}
//!
//! # async fn nightly() -> Result<(), LeadError> {
//! Elector::named("nightly-report").lead(async |leadership| write_report(leadership.source()).await).await
//! # }
//! ```
//!
//! That campaigns, runs the work when this process leads, and resigns. Work that leads for as long as it can looks whether
//! it may go on, and says what comes next:
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use highgate_elector::{Elector, Next, Token};
//!
//! /// Sends one transfer, with the token as X-Fencing-Token; false when there are no more.
//! async fn transfer(token: Token) -> bool {
//!     token.get() > 0
//! }
//!
//! # async fn lead() -> Result<(), Box<dyn std::error::Error>> {
//! let elector = Elector::named("ledger/acct-7").backend("highgate://127.0.0.1:9902").ttl(Duration::from_secs(30)).build()?;
//! let all_sent = elector.run(|leadership| async move {
//!     while let Ok(token) = leadership.proceed() {
//!         if !transfer(token).await {
//!             return Next::Finish(()); // resigns; `run` returns
//!         }
//!     }
//!     Next::LeadAgain // it was told to stop: campaigns again
//! });
//! all_sent.await?;
//! # Ok(())
//! # }
//! ```
//!
//! The parts: an [`Elector`] campaigns, a [`Leadership`] is the guard of one term, and [`Lost`] says why it ended. A
//! [`Renewer`] renews all leaderships of one backend from its own thread, a [`Backend`] is a coordination system.
//! [`Once`] is a ledger of what was done already. [`header`] has a layer for clients that are tower services. `token` is
//! the wire contract, which the gateway and its clients parse with the same code.
//!
//! Features add backends and TLS and change nothing else; `tls` needs a C compiler, for ring. Building with `etcd` takes a protobuf compiler: `protoc` on the PATH, or
//! another one that the variable PROTOC names, such as `protox`. Of other crates' types the API has those of `http`,
//! `tower-layer` and `tower-service` ([`header`], [`TokenSource::heed`]) and the `Stream` of `futures-core`
//! ([`Elector::observe`]); with the feature `tls`, also those of `highgate-tls` ([`ClientTls::client`]).

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod backend;
mod backoff;
mod clock;
mod connect;
mod elector;
pub mod header;
mod heartbeat;
mod leadership;
pub mod metrics;
pub mod once;
pub mod secrets;
mod stream;
#[cfg(test)]
mod tests;
pub mod tls;

/// The examples of the page about this crate, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../docs/elector.md")]
struct Page;

pub use backend::Backend;
pub use clock::{Alarm, Moment};
pub use connect::{ConnectError, connect, connect_with, connect_with_secret, is_gateway};
pub use elector::{BuildError, Builder, CampaignError, Elector, LeadError, Next, Waiting};
pub use heartbeat::Renewer;
pub use highgate_token::{self as token, Resource, ResourceError, Token, TokenError, headers, timestamp};
pub use leadership::{Leadership, Lost, TokenSource, validity};
pub use once::Once;
pub use tls::ClientTls;
