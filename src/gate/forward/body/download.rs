//! Response bodies on their way down to the client.
//!
//! A download drives the upstream connection while it is polled. What must stay true: the flight ends when the response
//! has ended to its last byte, whether or not a client is left to read it.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::config::fields::may_trail;
use crate::gate::forward::flight::Flight;
use crate::gate::respond::broken_off;

/// A response body on its way to the client. Drives the upstream connection while it is polled; if the client
/// goes away before the end, a fenced one is read to its end all the same.
pub(crate) struct Download {
    /// Both are there until the end was seen.
    under_way: Option<(Rc<Flight>, Incoming)>,
    /// How it broke off, until the client's side has been told.
    broken: Option<DownloadError>,
    /// The client speaks gRPC, and has a place where it can be told.
    grpc: bool,
}

/// The response broke off; the client sees a body that ends too early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DownloadError {
    #[error("the gateway cut the request: {0}")]
    Cut(&'static str),
    #[error("the upstream's response broke off")]
    Broken(#[source] hyper::Error),
    #[error("the upstream reset the stream of its response")]
    Reset,
}

impl Download {
    pub(in crate::gate::forward) fn new(flight: Rc<Flight>, body: Incoming) -> Self {
        Self { under_way: Some((flight, body)), broken: None, grpc: false }
    }

    /// If it breaks off, the client is told in trailers.
    pub(in crate::gate::forward) fn for_grpc(mut self) -> Self {
        self.grpc = true;
        self
    }

    /// Reads on without a client, so that the end is known.
    pub(in crate::gate::forward) async fn exhaust(mut self) {
        while let Some(Ok(_)) = self.frame().await {}
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = DownloadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, DownloadError>>> {
        let this = &mut *self;
        let Some((flight, body)) = &mut this.under_way else {
            return Poll::Ready(this.broken.take().map(Err));
        };
        let frame = match flight.drive(cx) {
            Err(why) => Some(Err(DownloadError::Cut(why))),
            Ok(()) => match ready!(Pin::new(&mut *body).poll_frame(cx)) {
                Some(Ok(frame)) => Some(Ok(frame)),
                Some(Err(error)) => {
                    flight.lose("the response broke off");
                    Some(Err(DownloadError::Broken(error)))
                }
                // To hyper a stream has ended that was reset without an error.
                None if flight.ends_with_a_frame() && !body.is_end_stream() => {
                    flight.lose("the upstream reset the stream of its response");
                    Some(Err(DownloadError::Reset))
                }
                None => None,
            },
        };
        flight.moved();
        let ended = body.is_end_stream();
        if let Some(trailers) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.trailers_ref()) {
            flight.hear(trailers);
        }
        let frame = frame.and_then(|frame| frame.map(without_hidden_words).transpose());
        match frame {
            Some(Ok(frame)) if !ended => return Poll::Ready(Some(Ok(frame))),
            Some(Err(error)) if this.grpc => {
                this.under_way = None;
                return Poll::Ready(Some(Ok(Frame::trailers(broken_off(&error)))));
            }
            Some(Err(error)) => {
                // hyper drops what it has not written yet when a body fails. Once around, so that the
                // client gets what there was and can tell a broken answer from none.
                this.broken = Some(error);
                this.under_way = None;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            _ => flight.complete(),
        }
        this.under_way = None;
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.under_way.is_none() && self.broken.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.under_way.as_ref().map_or_else(|| SizeHint::with_exact(0), |(_, body)| body.size_hint())
    }
}

/// A frame without the fields that speak for the gateway or would change what was read before them; nothing, if that
/// leaves nothing.
fn without_hidden_words(frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
    let trailers = match frame.into_trailers() {
        Ok(trailers) => trailers,
        Err(frame) => return Some(frame),
    };
    if trailers.keys().all(|name| may_trail(name.as_str())) {
        return Some(Frame::trailers(trailers));
    }
    let mut kept = HeaderMap::new();
    for (name, value) in trailers.iter().filter(|(name, _)| may_trail(name.as_str())) {
        kept.append(name, value.clone());
    }
    (!kept.is_empty()).then(|| Frame::trailers(kept))
}

impl Drop for Download {
    /// The client went away in the middle. The end of a fenced response is waited for all the same.
    fn drop(&mut self) {
        if let Some((flight, body)) = self.under_way.take() {
            flight.go_on_without_client(|flight| Box::pin(Self::new(flight, body).exhaust()));
        }
    }
}
