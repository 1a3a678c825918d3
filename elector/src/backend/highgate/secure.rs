//! TLS with one gateway.

use std::error::Error;
use std::sync::Arc;

use highgate_tls::{Client, Failure, SystemRoots};
use tokio::net::TcpStream;

use super::line::Stream;
use crate::ClientTls;

/// What the system trusts, read once for all gateways of a URL.
pub(super) type Roots = SystemRoots;

/// How to have plain HTTP instead.
const PLAIN: &str =
    "a highgate:// URL without ca, cert and key, and without HIGHGATE_CA, HIGHGATE_CERT and HIGHGATE_KEY";

pub(super) struct Secure(Arc<Client>);

impl Secure {
    pub(super) fn new(host: &str, tls: &ClientTls, roots: &Roots) -> Result<Self, String> {
        tls.client(host, roots).map(Self).map_err(|error| error.to_string())
    }

    /// With the files as they are now.
    pub(super) async fn shake_hands(&self, socket: TcpStream) -> Result<Stream, String> {
        let client = self.0.clone();
        // Files may be on a disk that hangs, and other leaderships are renewed on this thread. One that fails changes nothing.
        let _ = tokio::task::spawn_blocking(move || client.refresh()).await;
        match self.0.connect(socket, "http/1.1").await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(Failure::of_handshake(&error).advice(PLAIN)),
        }
    }

    /// What is wrong with the TLS of a connection, if that is what broke it.
    pub(super) fn trouble(&self, error: &(dyn Error + 'static)) -> Option<String> {
        Some(Failure::among(error)?.advice(PLAIN))
    }
}
