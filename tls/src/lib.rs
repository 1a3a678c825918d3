//! TLS as the Highgate gateway and its elector share it: PEM files become what a handshake needs, and become it again when
//! they change; and the client's side of a handshake.
//!
//! The gateway's ports are made of [`Contents`] and kept in a [`Live`]; its upstreams, the elector and the commands that speak
//! to a gateway use a [`Client`], and [`Failure`] says why no TLS came about.
//!
//! What must stay true: a bad new file never takes the place of a good old one, nothing here ends a connection that is
//! open, and there is no early data (0-RTT): it could be replayed, and nothing may be sent twice. One provider of
//! cryptography: ring, passed by value, never the process's default.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod client;
pub mod der;
mod failure;
mod files;
mod live;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use tokio_rustls::rustls::crypto::{CryptoProvider, ring};

pub use client::{Client, ClientFiles, NoSystemRoots, SystemRoots};
pub use failure::Failure;
pub use files::{Certified, Contents, KeyPair, TlsError, TlsProblem};
pub use live::{Live, Refresh};

/// The one provider of cryptography.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
