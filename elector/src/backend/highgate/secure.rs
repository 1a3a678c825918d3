//! TLS with one gateway.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use highgate_tls::{Client, Failure, SystemRoots};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::line::Stream;
use crate::ClientTls;

/// What the system trusts, read once for all gateways of a URL.
pub(super) type Roots = SystemRoots;

/// How to have plain HTTP instead.
const PLAIN: &str =
    "a highgate:// URL without ca, cert and key, and without HIGHGATE_CA, HIGHGATE_CERT and HIGHGATE_KEY";

pub(super) struct Secure {
    client: Arc<Client>,
    /// Whether somebody looks at the files right now.
    is_looked_at: Arc<AtomicBool>,
}

impl Secure {
    pub(super) fn new(host: &str, tls: &ClientTls, roots: &Roots) -> Result<Self, String> {
        let client = tls.client(host, roots).map_err(|error| error.to_string())?;
        Ok(Self { client, is_looked_at: Arc::default() })
    }

    /// With the files as they are now.
    pub(super) async fn shake_hands(&self, socket: TcpStream) -> Result<Stream, String> {
        self.look().await;
        match self.client.connect(socket, "http/1.1").await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(Failure::of_handshake(&error).advice(PLAIN)),
        }
    }

    /// Takes files that have changed; bad ones change nothing. In a thread of its own, because they may be on a disk that
    /// hangs, and other leaderships are renewed on this one.
    async fn look(&self) {
        if self.is_looked_at.swap(true, Ordering::AcqRel) {
            return;
        }
        let (client, is_looked_at) = (self.client.clone(), self.is_looked_at.clone());
        let (tell, done) = oneshot::channel::<()>();
        let thread = thread::Builder::new().name("certificates".to_owned()).spawn(move || {
            client.refresh();
            is_looked_at.store(false, Ordering::Release);
            drop(tell);
        });
        if thread.is_err() {
            self.is_looked_at.store(false, Ordering::Release);
        }
        // Without a thread it is dropped already.
        let _ = done.await;
    }

    /// What is wrong with the TLS of a connection, if that is what broke it.
    pub(super) fn trouble(&self, error: &(dyn Error + 'static)) -> Option<String> {
        Some(Failure::among(error)?.advice(PLAIN))
    }
}
