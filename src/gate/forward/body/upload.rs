//! Request bodies on their way up to the upstream.
//!
//! What must stay true: nothing reaches the upstream after a body but the fields that its route lets through, and
//! nothing at all on a method whose body the upstream is not known to read.

use std::cell::Cell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::TRAILER;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::config::Route;
use crate::config::fields::{may_trail, reads_as};
use crate::gate::respond::is_grpc;

/// Bodies up to this size are read before admission, so that a slow client cannot hold a place in flight.
pub(crate) const SMALL: u64 = 64 << 10;

/// How far a request has come on its way to the upstream. Shared by the upload, which hands its body to hyper, the
/// wire, which sees hyper's last byte leave, and the flight, which asks.
pub(in crate::gate::forward) struct Passage {
    /// When a byte last moved; the flight watches for a standstill.
    progress: Cell<Instant>,
    /// hyper has got the body to its end or, over HTTP/2, has passed its last frame on.
    handed_over: Cell<bool>,
    /// Over HTTP/2 the body waits in queues of its own after hyper got it.
    in_frames: Cell<bool>,
    /// The kernel has got the request to its end.
    sent_whole: Cell<bool>,
}

impl Passage {
    fn new() -> Rc<Self> {
        let progress = Cell::new(Instant::now());
        let [handed_over, in_frames, sent_whole] = [const { Cell::new(false) }; 3];
        Rc::new(Self { progress, handed_over, in_frames, sent_whole })
    }

    /// What hyper has got says nothing: the last frame does, to whoever sees it leave.
    pub(in crate::gate::forward) fn leaves_in_frames(&self) {
        self.in_frames.set(true);
        self.handed_over.set(false);
    }

    pub(in crate::gate::forward) fn is_in_frames(&self) -> bool {
        self.in_frames.get()
    }

    /// hyper has got the body to its end.
    fn taken(&self) {
        if !self.in_frames.get() {
            self.handed_over.set(true);
        }
    }

    /// The last frame has been passed on.
    pub(in crate::gate::forward) fn left(&self) {
        self.handed_over.set(true);
    }

    pub(in crate::gate::forward) fn moved(&self) {
        self.progress.set(Instant::now());
    }

    pub(in crate::gate::forward) fn moved_at(&self) -> Instant {
        self.progress.get()
    }

    /// hyper has nothing left to write of what it got.
    pub(in crate::gate::forward) fn flushed(&self) {
        self.sent_whole.set(self.handed_over.get());
    }

    pub(in crate::gate::forward) fn is_sent_whole(&self) -> bool {
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
    /// The fields that may follow. HTTP/1.1 has a place for them only after chunks.
    trailers: Vec<HeaderName>,
    /// How many bytes it may have, and how many have come.
    max: Option<u64>,
    come: u64,
    /// HTTP/2: a stream that was reset politely looks ended to hyper, but has no end.
    needs_end: bool,
}

/// The client's body did not arrive, or should not have.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UploadError {
    #[error("the client did not send its body in time")]
    Slow,
    #[error("the client's body broke off")]
    Broken(#[source] hyper::Error),
    #[error("the client's stream was reset")]
    Reset,
    #[error("the request has a body, and its method should have none")]
    Unwanted,
    #[error("the request's body is larger than {0} bytes")]
    TooLarge(u64),
}

impl Upload {
    /// Reads a small body whole. Of a larger one, or one that does not say its size, takes only what is
    /// there already: a streaming client may be waiting for the answer before it sends more.
    pub(crate) async fn prepare(
        mut body: Incoming,
        head: &Parts,
        route: &Route,
        token_header: &HeaderName,
        limit: Duration,
    ) -> Result<Self, UploadError> {
        let mut upload = Self {
            ready: VecDeque::new(),
            rest: None,
            passage: Passage::new(),
            trailers: Vec::new(),
            max: route.bodies.max,
            come: 0,
            needs_end: head.version == Version::HTTP_2,
        };
        if body.is_end_stream() {
            return Ok(upload);
        }
        if !route.bodies.allow(&head.method) {
            let empty = tokio::time::timeout(limit, upload.expect_nothing(body));
            empty.await.map_err(|_| UploadError::Slow)??;
            return Ok(upload);
        }
        if head.headers.contains_key(TRAILER) {
            upload.trailers = permitted_trailers(head, route, token_header);
        }
        if body.size_hint().exact().is_some_and(|size| size <= SMALL) {
            let whole = tokio::time::timeout(limit, body.collect());
            let whole = whole.await.map_err(|_| UploadError::Slow)?.map_err(UploadError::Broken)?;
            let trailers = whole.trailers().cloned();
            upload.ready.push_back(Frame::data(whole.to_bytes()));
            upload.ready.extend(trailers.and_then(|trailers| upload.keep(Frame::trailers(trailers))));
            return Ok(upload);
        }
        // A body whose limit is that of a small one is a small one.
        let small = upload.max.is_some_and(|max| max <= SMALL) && !is_grpc(&head.headers);
        let taking = std::future::poll_fn(|cx| upload.take(&mut body, small, cx));
        let ended = tokio::time::timeout(limit, taking).await.map_err(|_| UploadError::Slow)??;
        upload.rest = (!ended).then_some(body);
        Ok(upload)
    }

    /// Waits for the end of a stream that has not said yet whether a body follows.
    async fn expect_nothing(&self, mut body: Incoming) -> Result<(), UploadError> {
        while let Some(frame) = body.frame().await {
            if frame.map_err(UploadError::Broken)?.data_ref().is_some_and(|data| !data.is_empty()) {
                return Err(UploadError::Unwanted);
            }
        }
        self.check_end(&body)
    }

    /// Takes all of a body or, without ever being pending, what is there of it. True if it has ended.
    fn take(
        &mut self,
        body: &mut Incoming,
        all: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<bool, UploadError>> {
        while all || self.come < SMALL {
            match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.count(&frame)?;
                    self.ready.extend(self.keep(frame));
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(UploadError::Broken(error))),
                Poll::Ready(None) => return Poll::Ready(self.check_end(body).map(|()| true)),
                Poll::Pending if all => return Poll::Pending,
                Poll::Pending => return Poll::Ready(Ok(false)),
            }
        }
        Poll::Ready(Ok(false))
    }

    fn count(&mut self, frame: &Frame<Bytes>) -> Result<(), UploadError> {
        self.come += frame.data_ref().map_or(0, |data| data.len() as u64);
        match self.max.filter(|max| self.come > *max) {
            Some(max) => Err(UploadError::TooLarge(max)),
            None => Ok(()),
        }
    }

    /// A frame without the fields that must not follow the body; nothing, if that leaves nothing.
    fn keep(&self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        let trailers = match frame.into_trailers() {
            Ok(trailers) => trailers,
            Err(frame) => return Some(frame),
        };
        let mut kept = HeaderMap::new();
        for name in &self.trailers {
            kept.extend(trailers.get_all(name).iter().map(|value| (name.clone(), value.clone())));
        }
        (!kept.is_empty()).then(|| Frame::trailers(kept))
    }

    fn check_end(&self, body: &Incoming) -> Result<(), UploadError> {
        if self.needs_end && !body.is_end_stream() { Err(UploadError::Reset) } else { Ok(()) }
    }

    /// What was read before admission, once more.
    #[cfg(feature = "controls")]
    pub(in crate::gate::forward) fn copy(&self) -> Self {
        let ready = self.ready.iter().filter_map(Frame::data_ref).cloned().map(Frame::data).collect();
        let trailers = Vec::new();
        Self { ready, rest: None, passage: Passage::new(), trailers, max: None, come: 0, needs_end: false }
    }

    /// What the upstream is told in `Trailer`.
    pub(in crate::gate::forward) fn announcement(&self) -> Option<HeaderValue> {
        let names: Vec<_> = self.trailers.iter().map(HeaderName::as_str).collect();
        HeaderValue::from_str(&names.join(", ")).ok().filter(|_| !names.is_empty())
    }

    /// From now on the body may be taken.
    pub(in crate::gate::forward) fn depart(&self) -> Rc<Passage> {
        self.passage.moved();
        self.note_end();
        self.passage.clone()
    }

    /// hyper does not ask for more once it has as many bytes as were announced, or was told of the end.
    fn note_end(&self) {
        if self.is_end_stream() || self.size_hint().exact() == Some(0) {
            self.passage.taken();
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        if let Some(frame) = self.ready.pop_front() {
            return Poll::Ready(Some(Ok(frame)));
        }
        while let Some(rest) = &mut self.rest {
            let frame = ready!(Pin::new(&mut *rest).poll_frame(cx));
            self.passage.moved();
            match frame.transpose().map_err(UploadError::Broken) {
                Err(error) => return Poll::Ready(Some(Err(error))),
                Ok(Some(frame)) => {
                    self.count(&frame)?;
                    if let Some(frame) = self.keep(frame) {
                        return Poll::Ready(Some(Ok(frame)));
                    }
                }
                Ok(None) => {
                    let end = self.rest.as_ref().map_or(Ok(()), |rest| self.check_end(rest));
                    return Poll::Ready(end.err().map(Err));
                }
            }
        }
        Poll::Ready(None)
    }
}

/// The fields that a request announces and that may follow its body: those that the route lists, and of a gRPC request all
/// that change nothing else about it. The token is never one of them.
fn permitted_trailers(head: &Parts, route: &Route, token_header: &HeaderName) -> Vec<HeaderName> {
    let grpc = is_grpc(&head.headers);
    let lists = head.headers.get_all(TRAILER).iter().filter_map(|value| value.to_str().ok());
    let announced = lists.flat_map(|list| list.split(',')).filter_map(|name| name.trim().parse().ok());
    let mut names: Vec<HeaderName> = Vec::new();
    for name in announced {
        let wanted = route.bodies.trailers.contains(&name) || grpc && may_trail(name.as_str());
        let token = reads_as(name.as_str().as_bytes(), token_header.as_str());
        if wanted && !token && !names.contains(&name) {
            names.push(name);
        }
    }
    names
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
            None => self.passage.taken(),
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
        if let Some(upper) = rest.upper().filter(|_| self.trailers.is_empty()) {
            hint.set_upper(ready + upper);
        }
        hint
    }
}
