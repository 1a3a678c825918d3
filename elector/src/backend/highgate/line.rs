//! The line to one gateway: TCP, with TLS above it where that is meant.
//!
//! What must stay true: a gateway for which TLS is meant gets nothing in the clear, and every failure says what to do.

use std::error::Error;
use std::io;

use http::uri::Authority;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

#[cfg(not(feature = "tls"))]
use super::no_tls::Secure;
#[cfg(feature = "tls")]
use super::secure::Secure;
use super::url::Security;
use crate::token::SPEAKS_TLS;

/// Bytes in both directions.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

pub(super) type Stream = Box<dyn Duplex>;

pub(super) struct Line {
    pub(super) address: Authority,
    secure: Option<Secure>,
}

impl Line {
    pub(super) fn new(address: &str, security: &Security) -> Result<Self, String> {
        let authority: Authority = address.parse().map_err(|_| "it names no host and port".to_owned())?;
        if authority.port_u16().is_none() || authority.host().is_empty() || address.contains('@') {
            return Err("each gateway is a host and a port, like highgate://127.0.0.1:9901".to_owned());
        }
        let secure = security
            .tls
            .as_ref()
            .map(|tls| Secure::new(authority.host(), tls, &security.roots))
            .transpose()?;
        Ok(Self { address: authority, secure })
    }

    /// Without TLS: whether anybody listens there.
    pub(super) async fn dial(&self) -> io::Result<TcpStream> {
        TcpStream::connect(self.address.as_str()).await
    }

    pub(super) async fn open(&self) -> Result<Stream, String> {
        let socket = self.dial().await.map_err(|error| error.to_string())?;
        // Without it, small requests on a kept connection may wait for the other side's acknowledgements.
        socket.set_nodelay(true).map_err(|error| error.to_string())?;
        match &self.secure {
            Some(secure) => secure.shake_hands(socket).await,
            None => Ok(Box::new(socket)),
        }
    }

    /// What broke a connection that was open.
    pub(super) fn words(&self, error: &(dyn Error + 'static)) -> String {
        let trouble = self.secure.as_ref().and_then(|secure| secure.trouble(error));
        trouble.unwrap_or_else(|| error.to_string())
    }

    /// What to do about an answer that complains of plain HTTP.
    pub(super) fn advice(&self, detail: &str) -> Option<&'static str> {
        (self.secure.is_none() && detail == SPEAKS_TLS).then_some(
            "it speaks TLS: name it highgates://, and the authority that signed its certificate with --ca FILE or \
             HIGHGATE_CA",
        )
    }

    pub(super) fn name(&self) -> String {
        let scheme = if self.secure.is_some() { "highgates" } else { "highgate" };
        format!("{scheme}://{}", self.address)
    }
}
