//! A door: one of the gateway's ports, from the accepted socket to the first byte of the first request.
//!
//! The data port, the admin port and the elections port each have one; it knows its name, its address and its TLS, and is
//! what `highgate status` and the metrics show of a port. What must stay true: a connection that comes to nothing here is
//! counted by its reason and never reaches a request, and how often strangers knock does not fill the log.

pub mod proxy;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use highgate_elector::timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::config::is_loopback;
use crate::metrics::{Handshakes, Metrics};
use crate::tls::{Accepted, Failure, Server, Stream, accept, is_hello};

/// How often it is told that somebody speaks TLS to a port that does not.
const TELL_AGAIN: Duration = Duration::from_secs(1);

pub struct Door {
    name: &'static str,
    address: SocketAddr,
    tls: Option<Arc<Server>>,
    handshakes: Handshakes,
    /// When it was last told that somebody speaks TLS here in vain.
    told: Mutex<Option<Instant>>,
}

impl Door {
    /// `name` is a label of metrics: `data`, `admin` or `elections`.
    pub fn new(
        name: &'static str,
        address: SocketAddr,
        tls: Option<Arc<Server>>,
        metrics: &Metrics,
    ) -> Arc<Self> {
        let handshakes = metrics.handshakes(name, tls.is_some());
        Arc::new(Self { name, address, tls, handshakes, told: Mutex::default() })
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn tls(&self) -> Option<&Arc<Server>> {
        self.tls.as_ref()
    }

    /// Whether others than this machine can listen to what is said here.
    pub(crate) fn is_insecure(&self) -> bool {
        self.tls.is_none() && !is_loopback(self.address)
    }

    /// Waits for a connection's first byte, and shakes hands where the port speaks TLS. None: it came to nothing.
    pub(crate) async fn open(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        limit: Duration,
    ) -> Option<Accepted> {
        if let Some(server) = &self.tls {
            return self.shake_hands(server, stream, peer, limit).await;
        }
        let mut first = [0];
        match timeout(limit, stream.peek(&mut first)).await {
            Ok(Ok(1..)) if is_hello(first[0]) => self.tell_of_hello(peer),
            Ok(Ok(1..)) => {
                return Some(Accepted { stream: Stream::Plain(stream), http2: false, identity: None });
            }
            _ => {}
        }
        None
    }

    pub(crate) async fn shake_hands(
        &self,
        server: &Server,
        stream: TcpStream,
        peer: SocketAddr,
        limit: Duration,
    ) -> Option<Accepted> {
        let late = || (Failure::Timeout, std::io::ErrorKind::TimedOut.into());
        match timeout(limit, accept(stream, server)).await.unwrap_or_else(|_| Err(late())) {
            Ok(accepted) => Some(accepted),
            Err((failure, error)) => {
                self.handshakes.failed(failure);
                tracing::debug!(%peer, listener = self.name, reason = failure.label(), %error, "no TLS handshake");
                None
            }
        }
    }

    /// Somebody speaks TLS to this port, which does not: its own error would not say so.
    pub(crate) fn tell_of_hello(&self, peer: SocketAddr) {
        let mut told = self.told.lock();
        if told.is_some_and(|at| at.elapsed() < TELL_AGAIN) {
            return;
        }
        *told = Some(Instant::now());
        tracing::warn!(
            %peer, listener = self.name, address = %self.address,
            "a client speaks TLS to this port, which speaks plain HTTP: the client has to use http://, or the port needs tls"
        );
    }

    /// The port as operators see it.
    pub(crate) fn show(&self) -> Value {
        let tls = self.tls.as_deref();
        json!({
            "name": self.name,
            "address": self.address.to_string(),
            "tls": tls.is_some(),
            "insecure": self.is_insecure(),
            "certificate_expires": tls.map(|tls| timestamp::format(tls.expires())),
            "certificate_trouble": tls.and_then(Server::trouble),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_strangers_can_listen_to_shows_it() {
        let metrics = Metrics::new(1);
        for (address, insecure) in
            [("127.0.0.1:1", false), ("[::1]:1", false), ("0.0.0.0:1", true), ("10.0.0.5:1", true)]
        {
            let door = Door::new("data", address.parse().unwrap(), None, &metrics);
            assert_eq!(door.show()["insecure"], insecure, "{address}");
        }
    }
}
