//! HTTP/2 to an upstream: one exchange at a time on a connection, polled by the request that has it.
//!
//! Streams are not multiplexed. Every write to an upstream is made for one permit, and a cut is the reset of a socket,
//! which would take the requests of others with it; a RST_STREAM asks the upstream to stop and is no end. hyper wants an
//! executor for its parts of a connection: here they stay with the line, so that nothing runs in the background and
//! dropping the line closes the socket.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use http::uri::{PathAndQuery, Scheme};
use http::{HeaderValue, Request, Uri, Version, header};
use hyper::client::conn::http2::{Builder, Connection, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;

use super::body::Upload;
use super::frames::{Followed, Seen};
use super::pool::ConnectError;
use super::wire::{Loan, Wire};
use crate::config::Upstream;

/// How much of a response is read ahead of its client.
const STREAM_WINDOW: u32 = 256 << 10;
/// How much of a request is taken from its client ahead of the upstream.
const SEND_BUFFER: usize = 64 << 10;
/// The largest response head.
const MAX_HEAD: u32 = 64 << 10;

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// An HTTP/2 connection with at most one stream.
pub(super) struct Http2 {
    pub(super) send: SendRequest<Upload>,
    /// Turns requests into streams; none once it has ended.
    dispatch: Option<Connection<TokioIo<Followed<Wire>>, Upload, Tasks>>,
    /// Reads and writes the socket; none once it has ended.
    socket: Option<Task>,
    /// What belongs to the stream: its upload, and the wait for its response.
    stream: Vec<Task>,
    tasks: Tasks,
    pub(super) seen: Rc<Seen>,
}

/// Where hyper puts what it wants to be polled. A line takes it out again at once: a task that stayed in here would hold
/// itself alive.
#[derive(Clone, Default)]
struct Tasks(Rc<RefCell<Vec<Task>>>);

impl<F: Future<Output = ()> + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.0.borrow_mut().push(Box::pin(task));
    }
}

impl Http2 {
    /// Begins HTTP/2 and waits for the upstream to do so, too: what speaks something else is found out before a request
    /// is sent to it.
    pub(super) async fn start(wire: Wire, loan: Rc<Loan>) -> Result<Self, ConnectError> {
        let seen = Rc::new(Seen::default());
        let tasks = Tasks::default();
        let io = TokioIo::new(Followed::new(wire, seen.clone(), loan));
        let (send, dispatch) = Builder::new(tasks.clone())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(STREAM_WINDOW)
            .max_send_buf_size(SEND_BUFFER)
            .max_header_list_size(MAX_HEAD)
            .handshake(io)
            .await
            .map_err(ConnectError::Handshake)?;
        let socket = tasks.0.borrow_mut().pop();
        let mut line = Self { send, dispatch: Some(dispatch), socket, stream: Vec::new(), tasks, seen };
        std::future::poll_fn(|cx| line.poll_greeting(cx)).await?;
        Ok(line)
    }

    fn poll_greeting(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        self.drive(cx);
        match (self.seen.is_greeted(), self.has_ended()) {
            (_, true) => Poll::Ready(Err(ConnectError::NotHttp2)),
            (true, false) => Poll::Ready(Ok(())),
            (false, false) => Poll::Pending,
        }
    }

    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        if self.dispatch.as_mut().is_some_and(|dispatch| Pin::new(dispatch).poll(cx).is_ready()) {
            self.dispatch = None;
        }
        self.stream.append(&mut self.tasks.0.borrow_mut());
        // The stream first, so that what it has to say is written; and once more for what was read for it.
        self.drive_stream(cx);
        if self.socket.as_mut().is_some_and(|socket| socket.as_mut().poll(cx).is_ready()) {
            self.socket = None;
        }
        self.drive_stream(cx);
    }

    fn drive_stream(&mut self, cx: &mut Context<'_>) {
        self.stream.retain_mut(|task| task.as_mut().poll(cx).is_pending());
    }

    fn has_ended(&self) -> bool {
        self.dispatch.is_none() || self.socket.is_none()
    }

    /// Whether nothing of an earlier exchange is left, and the next one may begin.
    pub(super) fn is_usable(&self) -> bool {
        !self.has_ended() && self.stream.is_empty() && self.send.is_ready()
    }
}

/// Turns a head of HTTP/1.1 into one of HTTP/2: the host goes into the target. False if there is no such target.
pub(super) fn translate<B>(request: &mut Request<B>, upstream: &Upstream) -> bool {
    let host = request.headers_mut().remove(header::HOST);
    let authority = host.as_ref().map_or(upstream.to.authority.as_str().as_bytes(), HeaderValue::as_bytes);
    let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
    let scheme = if upstream.to.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
    let target = Uri::builder().scheme(scheme).authority(authority).path_and_query(path).build();
    let Ok(target) = target else { return false };
    *request.uri_mut() = target;
    *request.version_mut() = Version::HTTP_2;
    true
}
