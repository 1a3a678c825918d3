//! Bodies on their way: up to the upstream, and down to the client.

use std::cell::Cell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Version;
use http::header::TRAILER;
use http::request::Parts;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::flight::Flight;

/// Bodies up to this size are read before admission, so that a slow client cannot hold a place in flight.
pub(crate) const SMALL: u64 = 64 << 10;

/// How far a request has come on its way to the upstream. Shared by the upload, which hands its body to hyper, the
/// wire, which sees hyper's last byte leave, and the flight, which asks.
pub(super) struct Passage {
    /// When a byte last moved; the flight watches for a standstill.
    progress: Cell<Instant>,
    /// hyper has got the body to its end.
    handed_over: Cell<bool>,
    /// The kernel has got the request to its end.
    sent_whole: Cell<bool>,
}

impl Passage {
    fn new() -> Rc<Self> {
        let progress = Cell::new(Instant::now());
        Rc::new(Self { progress, handed_over: Cell::new(false), sent_whole: Cell::new(false) })
    }

    pub(super) fn moved(&self) {
        self.progress.set(Instant::now());
    }

    pub(super) fn moved_at(&self) -> Instant {
        self.progress.get()
    }

    /// hyper has nothing left to write of what it got.
    pub(super) fn flushed(&self) {
        self.sent_whole.set(self.handed_over.get());
    }

    pub(super) fn is_sent_whole(&self) -> bool {
        self.sent_whole.get()
    }
}

/// A request body as it goes to the upstream.
pub(crate) struct Upload {
    /// What was read before admission.
    ready: VecDeque<Frame<Bytes>>,
    /// What the client is still sending.
    rest: Option<Incoming>,
    passage: Rc<Passage>,
    /// Trailers are to follow, and HTTP/1.1 has a place for them only after chunks.
    trailers: bool,
    /// HTTP/2: a stream that was reset politely looks ended to hyper, but has no end.
    needs_end: bool,
}

/// The client's body did not arrive.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UploadError {
    #[error("the client did not send its body in time")]
    Slow,
    #[error("the client's body broke off")]
    Broken(#[source] hyper::Error),
    #[error("the client's stream was reset")]
    Reset,
}

impl Upload {
    /// Reads a small body whole. Of a larger one, or one that does not say its size, takes only what is
    /// there already: a streaming client may be waiting for the answer before it sends more.
    pub(crate) async fn prepare(
        mut body: Incoming,
        head: &Parts,
        limit: Duration,
    ) -> Result<Self, UploadError> {
        let mut upload = Self {
            ready: VecDeque::new(),
            rest: None,
            passage: Passage::new(),
            trailers: head.headers.contains_key(TRAILER),
            needs_end: head.version == Version::HTTP_2,
        };
        if body.is_end_stream() {
            return Ok(upload);
        }
        if body.size_hint().exact().is_some_and(|size| size <= SMALL) {
            let whole = tokio::time::timeout(limit, body.collect());
            let whole = whole.await.map_err(|_| UploadError::Slow)?.map_err(UploadError::Broken)?;
            let trailers = whole.trailers().cloned();
            upload.ready.push_back(Frame::data(whole.to_bytes()));
            upload.ready.extend(trailers.map(Frame::trailers));
            return Ok(upload);
        }
        let ended = std::future::poll_fn(|cx| upload.take_what_is_there(&mut body, cx)).await?;
        upload.rest = (!ended).then_some(body);
        Ok(upload)
    }

    /// Never pending. True if the body has ended.
    fn take_what_is_there(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Result<bool, UploadError>> {
        let mut taken = 0;
        while taken < SMALL {
            match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    taken += frame.data_ref().map_or(0, |data| data.len() as u64);
                    self.ready.push_back(frame);
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(UploadError::Broken(error))),
                Poll::Ready(None) => return Poll::Ready(self.check_end(body).map(|()| true)),
                Poll::Pending => return Poll::Ready(Ok(false)),
            }
        }
        Poll::Ready(Ok(false))
    }

    fn check_end(&self, body: &Incoming) -> Result<(), UploadError> {
        if self.needs_end && !body.is_end_stream() { Err(UploadError::Reset) } else { Ok(()) }
    }

    /// What was read before admission, once more.
    #[cfg(feature = "controls")]
    pub(super) fn copy(&self) -> Self {
        let ready = self.ready.iter().filter_map(Frame::data_ref).cloned().map(Frame::data).collect();
        Self { ready, rest: None, passage: Passage::new(), trailers: false, needs_end: false }
    }

    /// From now on the body may be taken.
    pub(super) fn depart(&self) -> Rc<Passage> {
        self.passage.moved();
        self.note_end();
        self.passage.clone()
    }

    /// hyper does not ask for more once it has as many bytes as were announced, or was told of the end.
    fn note_end(&self) {
        if self.is_end_stream() || self.size_hint().exact() == Some(0) {
            self.passage.handed_over.set(true);
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        if let Some(frame) = self.ready.pop_front() {
            return Poll::Ready(Some(Ok(frame)));
        }
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(&mut *rest).poll_frame(cx));
        self.passage.moved();
        Poll::Ready(match (frame, &self.rest) {
            (Some(frame), _) => Some(frame.map_err(UploadError::Broken)),
            (None, Some(rest)) => self.check_end(rest).err().map(Err),
            (None, None) => None,
        })
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let frame = ready!(self.poll_next(cx));
        match &frame {
            None => self.passage.handed_over.set(true),
            Some(Ok(_)) => self.note_end(),
            Some(Err(_)) => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.ready.is_empty() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let ready: u64 = self.ready.iter().filter_map(Frame::data_ref).map(|data| data.len() as u64).sum();
        let rest = self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        let mut hint = SizeHint::new();
        hint.set_lower(ready + rest.lower());
        if let Some(upper) = rest.upper().filter(|_| !self.trailers) {
            hint.set_upper(ready + upper);
        }
        hint
    }
}

/// A response body on its way to the client. Drives the upstream connection while it is polled; if the client
/// goes away before the end, a fenced one is read to its end all the same.
pub(crate) struct Download {
    /// Both are there until the end was seen.
    under_way: Option<(Rc<Flight>, Incoming)>,
    /// How it broke off, until the client's side has been told.
    broken: Option<DownloadError>,
}

/// The response broke off; the client sees a body that ends too early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DownloadError {
    #[error("the gateway cut the request: {0}")]
    Cut(&'static str),
    #[error("the upstream's response broke off")]
    Broken(#[source] hyper::Error),
}

impl Download {
    pub(super) fn new(flight: Rc<Flight>, body: Incoming) -> Self {
        Self { under_way: Some((flight, body)), broken: None }
    }

    /// Reads on without a client, so that the end is known.
    pub(super) async fn exhaust(mut self) {
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
        let Some((flight, body)) = &mut self.under_way else {
            return Poll::Ready(self.broken.take().map(Err));
        };
        let frame = match flight.drive(cx) {
            Err(why) => Some(Err(DownloadError::Cut(why))),
            Ok(()) => ready!(Pin::new(&mut *body).poll_frame(cx)).map(|frame| {
                frame.map_err(|error| {
                    flight.lose("the response broke off");
                    DownloadError::Broken(error)
                })
            }),
        };
        flight.moved();
        let ended = body.is_end_stream();
        match frame {
            Some(Ok(frame)) if !ended => return Poll::Ready(Some(Ok(frame))),
            Some(Err(error)) => {
                // hyper drops what it has not written yet when a body fails. Once around, so that the
                // client gets what there was and can tell a broken answer from none.
                self.broken = Some(error);
                self.under_way = None;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            _ => flight.complete(),
        }
        self.under_way = None;
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.under_way.is_none() && self.broken.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.under_way.as_ref().map_or_else(|| SizeHint::with_exact(0), |(_, body)| body.size_hint())
    }
}

impl Drop for Download {
    /// The client went away in the middle. The end of a fenced response is waited for all the same.
    fn drop(&mut self) {
        if let Some((flight, body)) = self.under_way.take() {
            flight.go_on_without_client(|flight| Box::pin(Self::new(flight, body).exhaust()));
        }
    }
}
