//! What is spoken on a line: HTTP/1.1 or HTTP/2, driven and asked alike; or, after a 101, something else.
//!
//! The pool checks lines out and in, and flights send, drive and reset them; neither has to know which of the two it is.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;

use super::body::{Passage, Upload};
use super::http2::Http2;
use super::pool::ConnectError;
use super::wire::{Loan, Wire};
use crate::config::UpstreamProtocol;

/// A response head that is waited for.
pub(super) type Responding =
    Pin<Box<dyn Future<Output = Result<Response<Incoming>, TrySendError<Request<Upload>>>>>>;

#[expect(clippy::large_enum_variant, reason = "it lives in the box of its line")]
pub(super) enum Dialect {
    Http1 {
        send: SendRequest<Upload>,
        /// None once it has ended: dropping it makes hyper hand back what it has not sent.
        connection: Option<Connection<TokioIo<Wire>, Upload>>,
        /// What is left of a connection that has ended. It goes with its line, which may have it reset: a 101 that nobody
        /// asked for is no goodbye.
        left: Option<Left>,
    },
    Http2(Http2),
    /// Whatever was agreed on in HTTP's place.
    Switched(Wire),
}

/// A connection at the end of HTTP, and what was read after that.
pub(super) struct Left {
    wire: Wire,
    read: Bytes,
}

impl Dialect {
    pub(super) async fn start(
        protocol: UpstreamProtocol,
        wire: Wire,
        loan: Rc<Loan>,
    ) -> Result<Self, ConnectError> {
        match protocol {
            UpstreamProtocol::Http1 => {
                let handshake = http1::Builder::new().handshake(TokioIo::new(wire));
                let (send, connection) = handshake.await.map_err(ConnectError::Handshake)?;
                Ok(Self::Http1 { send, connection: Some(connection), left: None })
            }
            UpstreamProtocol::H2 => Http2::start(wire, loan).await.map(Self::Http2),
        }
    }

    /// A request is about to be sent; `passage` is told how far it has come.
    pub(super) fn begin(&self, passage: &Passage) {
        if let Self::Http2(line) = self {
            line.seen.begin();
            passage.leaves_in_frames();
        }
    }

    pub(super) fn send(&mut self, request: Request<Upload>) -> Responding {
        match self {
            Self::Http1 { send, .. } => Box::pin(send.try_send_request(request)),
            Self::Http2(line) => Box::pin(line.send.try_send_request(request)),
            Self::Switched(_) => unreachable!("no request goes out where HTTP is not spoken any more"),
        }
    }

    /// HTTP ends here, after a 101: from now on there is only the wire. What the upstream has said on it already; none if
    /// the connection did not end with that response.
    pub(super) fn switch(&mut self) -> Option<Bytes> {
        let Self::Http1 { left, .. } = self else { return None };
        let Left { wire, read } = left.take()?;
        *self = Self::Switched(wire);
        Some(read)
    }

    /// Where HTTP is not spoken any more.
    pub(super) fn wire(&mut self) -> Option<&mut Wire> {
        match self {
            Self::Switched(wire) => Some(wire),
            Self::Http1 { .. } | Self::Http2(_) => None,
        }
    }

    /// Moves bytes in both directions.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        match self {
            Self::Http1 { connection, left, .. } => {
                let Some(driven) = connection else { return };
                let Poll::Ready(ended) = Pin::new(driven).poll(cx) else { return };
                let parts = connection.take().filter(|_| ended.is_ok());
                *left = parts.map(|connection| {
                    let parts = connection.into_parts();
                    Left { wire: parts.io.into_inner(), read: parts.read_buf }
                });
            }
            Self::Http2(line) => line.drive(cx),
            Self::Switched(_) => {}
        }
    }

    /// Whether the next request may go out on it, as far as this side has heard.
    pub(super) fn is_usable(&self) -> bool {
        match self {
            Self::Http1 { send, connection, .. } => connection.is_some() && send.is_ready(),
            Self::Http2(line) => line.is_usable(),
            Self::Switched(_) => false,
        }
    }

    /// Whether a request that got no response has had no effect for certain.
    pub(super) fn is_unprocessed(&self) -> bool {
        match self {
            Self::Http1 { .. } | Self::Switched(_) => false,
            Self::Http2(line) => line.seen.is_unprocessed(),
        }
    }
}
