//! TLS for every port: files in PEM become what a handshake needs, and become it again when they change. The crate
//! `highgate-tls` has what is shared with the clients of a gateway, upstreams included.
//!
//! The configuration names files and gets a [`Server`] or a [`Client`] from them, or a [`TlsError`] that says which file is
//! wrong; so one that exists can be used. Whoever accepts a connection calls [`accept`] and learns, once, whose
//! [`Identity`] the client's certificate has. The gateway's thread `certificates` calls `refresh` every second.
//!
//! What must stay true: a bad new file never takes the place of a good old one, nothing here ends a connection that is
//! open, and there is no early data (0-RTT): it could be replayed, and nothing may be sent twice. This module depends on no
//! other of the gateway.

pub mod dev;
mod handshake;
mod identity;
mod server;
mod sni;
mod stream;
#[cfg(test)]
pub(crate) mod tests;

use std::time::Duration;

pub(crate) use handshake::{Accepted, Failure, accept, hear_out, is_hello};
pub use highgate_tls::{
    Client, ClientFiles, Failure as ClientFailure, KeyPair, NoSystemRoots, Refresh, SystemRoots, TlsError,
    TlsProblem,
};
pub use identity::{Identity, IdentityError};
pub use server::{ClientAuth, Protocols, Server, ServerFiles};
pub(crate) use stream::Stream;

/// A certificate that ends so soon is worth a word.
pub const SOON: Duration = Duration::from_secs(14 * 24 * 60 * 60);
