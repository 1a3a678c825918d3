//! Leadership that issues fencing tokens: the companion of the Highgate gateway.
//!
//! A job that must run once campaigns for a resource. Whoever leads gets a [`Token`], higher than every one before,
//! and sends it with what it writes; the gateway in front of the resource refuses all lower ones. So a leader that
//! was paused and deposed without noticing does no harm.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//! use std::time::Duration;
//!
//! use highgate_elector::{Elector, Token, connect};
//!
//! /// Sends one transfer, with the token as X-Fencing-Token; false when there are no more.
//! async fn transfer(token: Token) -> bool {
//!     token.get() > 0
//! }
//!
//! # async fn lead() -> Result<(), Box<dyn std::error::Error>> {
//! let backend = connect("highgate://127.0.0.1:9901")?;
//! let elector = Elector::builder(backend, "ledger/acct-7".parse()?).ttl(Duration::from_secs(15)).build()?;
//! let lead = elector.run(|leadership| async move {
//!     while let Ok(token) = leadership.check() {
//!         if !transfer(token).await {
//!             return ControlFlow::Break(()); // resigns; `run` returns
//!         }
//!     }
//!     ControlFlow::Continue(()) // campaigns again
//! });
//! lead.await?;
//! # Ok(())
//! # }
//! ```
//!
//! The parts: an [`Elector`] campaigns, a [`Leadership`] is the guard of one term, a [`Heart`] renews all of a
//! process's leaderships from its own thread, a [`Backend`] is a coordination system. [`Once`] is a ledger of what
//! was done already. `token` is the wire contract, which the gateway and its clients parse with the same code.

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
pub mod timestamp;
pub mod token;

pub use backend::Backend;
pub use clock::{Alarm, Moment};
pub use connect::{ConnectError, connect, connect_with_secret};
pub use elector::{BuildError, Builder, CampaignError, Elector, Waiting};
pub use heartbeat::Heart;
pub use leadership::{Leadership, Lost, TokenSource, validity};
pub use once::Once;
pub use token::{Resource, ResourceError, Token, TokenError, headers};
