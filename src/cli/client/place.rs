//! One gateway, and the connection to it: plain, or with TLS.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use highgate_elector::ClientTls;
use highgate_tls::{Client as Tls, Failure, SystemRoots};
use http::HeaderValue;
use http::uri::Authority;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::ClientError;
use super::target::Address;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes in both directions.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Where a gateway is, and how it is spoken to.
#[derive(Clone)]
pub(super) struct Place {
    authority: Authority,
    tls: Option<Arc<Tls>>,
}

impl Place {
    pub(super) fn new(address: &Address, tls: &ClientTls, roots: &SystemRoots) -> Result<Self, ClientError> {
        let wanted = address.wants_tls(tls).then(|| tls.client(address.authority.host(), roots));
        Ok(Self { authority: address.authority.clone(), tls: wanted.transpose()? })
    }

    pub(super) fn is_plain(&self) -> bool {
        self.tls.is_none()
    }

    pub(super) fn host(&self) -> HeaderValue {
        HeaderValue::try_from(self.authority.as_str()).expect("an authority is a header value")
    }

    pub(super) async fn connect(&self) -> Result<Box<dyn Duplex>, ClientError> {
        let unreachable = |source| ClientError::Unreachable { address: self.to_string(), source };
        let connected = timeout(CONNECT_TIMEOUT, async {
            let stream = TcpStream::connect(self.authority.as_str()).await.map_err(unreachable)?;
            let Some(tls) = &self.tls else { return Ok(Box::new(stream) as Box<dyn Duplex>) };
            match tls.connect(stream, "http/1.1").await {
                Ok(stream) => Ok(Box::new(stream) as Box<dyn Duplex>),
                Err(error) => Err(self.no_tls(&Failure::of_handshake(&error))),
            }
        });
        connected.await.unwrap_or_else(|_| Err(unreachable(io::ErrorKind::TimedOut.into())))
    }

    /// A connection that was open has failed.
    pub(super) fn broken(&self, source: hyper::Error) -> ClientError {
        match Failure::among(&source).filter(|_| self.tls.is_some()) {
            Some(failure) => self.no_tls(&failure),
            None => ClientError::Broken { address: self.to_string(), source },
        }
    }

    fn no_tls(&self, failure: &Failure) -> ClientError {
        let detail = failure.advice(&format!("--admin http://{}", self.authority));
        ClientError::NoTls { address: self.authority.to_string(), detail }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_plain() { "" } else { "https://" };
        write!(f, "{scheme}{}", self.authority)
    }
}
