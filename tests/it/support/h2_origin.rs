//! An upstream that speaks HTTP/2 and nothing else: answers as it is told, step by step, and records what it is sent.
//!
//! One thread, one runtime. A request's first byte is the arrival of its head, and every byte that a connection is sent
//! belongs to the request that came on it last: the gateway has one exchange at a time on each.

use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::server::{self, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

use super::log::{Log, Request, What};
use super::wire::Head;

/// How much of a body may be sent before the origin has read any of it.
pub(crate) const WINDOW: u32 = 10_000;

/// No request has come on the connection yet.
const NONE: usize = usize::MAX;

/// What the origin does next with a request.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Reads the request to its end.
    Read,
    /// Sends the response head, which is also the end if there is nothing more.
    Head(u16, Vec<(&'static str, &'static str)>),
    Data(&'static str),
    /// Sends back each piece of the request's body as it comes, to its end.
    Echo,
    /// Goes on once the test releases this name.
    Hold(&'static str),
    /// The end, with these fields.
    Trailers(Vec<(&'static str, &'static str)>),
    /// The end.
    End,
    Reset(Reason),
    /// Never a frame more.
    Silence,
}

pub(crate) struct H2Origin {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

type Script = dyn Fn(&Request) -> Vec<Step> + Send + Sync;

struct Shared {
    log: Log,
    script: Box<Script>,
    released: Mutex<Vec<&'static str>>,
}

/// Answers that most tests need: 200 with a short body, after the request was read.
pub(crate) fn ok() -> Vec<Step> {
    vec![Step::Read, Step::Head(200, vec![]), Step::Data("ok"), Step::End]
}

/// An origin that follows this script for each request.
pub(crate) fn h2_origin(script: impl Fn(&Request) -> Vec<Step> + Send + Sync + 'static) -> H2Origin {
    let listener = StdListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("a listener can be non-blocking");
    let address = listener.local_addr().expect("a bound listener has an address");
    let shared =
        Arc::new(Shared { log: Log::default(), script: Box::new(script), released: Mutex::default() });
    let origin = H2Origin { address, shared: shared.clone() };
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).expect("a listener for the runtime");
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, shared.clone()));
            }
        });
    });
    origin
}

impl H2Origin {
    /// Lets go on what is held under this name, now and later.
    pub(crate) fn release(&self, name: &'static str) {
        self.shared.released.lock().expect("no holder panics").push(name);
    }

    /// Waits until a request of this token has come.
    pub(crate) fn receives_token(&self, token: u64) {
        self.wait(&format!("token {token}"), |seen| !seen.with_token(token).is_empty());
    }

    pub(crate) fn has_token(&self, token: u64) -> bool {
        !self.seen().with_token(token).is_empty()
    }
}

impl Deref for H2Origin {
    type Target = Log;

    fn deref(&self) -> &Log {
        &self.shared.log
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    stream.set_nodelay(true).expect("a connected socket takes TCP_NODELAY");
    shared.log.write(|seen| seen.connections += 1);
    let current = Arc::new(AtomicUsize::new(NONE));
    let io = Recorded { stream, current: current.clone(), shared: shared.clone() };
    let handshake = server::Builder::new().initial_window_size(WINDOW).handshake(io);
    let Ok(mut connection) = handshake.await else { return };
    let ended = loop {
        match connection.accept().await {
            Some(Ok((request, respond))) => {
                let (head, body) = request.into_parts();
                let index = shared.log.write(|seen| {
                    seen.requests.push(received(&head));
                    let index = seen.requests.len() - 1;
                    seen.note(Some(index), What::FirstByte);
                    seen.note(Some(index), What::Head);
                    index
                });
                current.store(index, Ordering::SeqCst);
                let play = Play { shared: shared.clone(), index, body, ended: false };
                tokio::spawn(play.run(respond));
            }
            Some(Err(error)) => break error.is_io(),
            None => break false,
        }
    };
    let request = current.load(Ordering::SeqCst);
    let what = if ended { What::Reset } else { What::Closed };
    shared.log.write(|seen| seen.note((request != NONE).then_some(request), what));
}

/// The head as the log keeps it: the pseudo-headers are its start line.
fn received(head: &http::request::Parts) -> Request {
    let named = |(name, value): (&HeaderName, &HeaderValue)| {
        (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let start = format!("{} {}", head.method, head.uri);
    let headers = head.headers.iter().map(named).collect();
    Request { head: Head { start, headers, raw: Vec::new() }, ..Request::default() }
}

/// One request being answered.
struct Play {
    shared: Arc<Shared>,
    index: usize,
    body: RecvStream,
    ended: bool,
}

impl Play {
    async fn run(mut self, mut respond: SendResponse<Bytes>) {
        let request = self.shared.log.seen().requests[self.index].clone();
        let steps = (self.shared.script)(&request);
        let mut answer: Option<SendStream<Bytes>> = None;
        for (at, step) in steps.iter().enumerate() {
            match (step, &mut answer) {
                (Step::Read, _) => self.read().await,
                (Step::Hold(name), _) => self.hold(name).await,
                (Step::Silence, _) => std::future::pending().await,
                (Step::Reset(reason), Some(stream)) => stream.send_reset(*reason),
                (Step::Reset(reason), None) => respond.send_reset(*reason),
                (Step::Head(status, headers), _) => {
                    let last = at + 1 == steps.len();
                    if last {
                        self.note(What::Ended);
                    }
                    answer = respond.send_response(head(*status, headers), last).ok();
                    self.note(What::Started);
                }
                (step, Some(stream)) => self.speak(step, stream).await,
                (step, None) => panic!("{step:?} before a head"),
            }
        }
        // Dropping what is left of the body would reset the stream.
        if !self.ended {
            self.read().await;
        }
    }

    async fn speak(&mut self, step: &Step, stream: &mut SendStream<Bytes>) {
        // What is sent after the gateway has hung up is lost, and that is nobody's fault.
        let _ = match step {
            Step::Data(data) => stream.send_data(Bytes::from_static(data.as_bytes()), false),
            Step::End => {
                self.note(What::Ended);
                stream.send_data(Bytes::new(), true)
            }
            Step::Trailers(fields) => {
                self.note(What::Ended);
                stream.send_trailers(fields_of(fields))
            }
            Step::Echo => {
                while let Some(piece) = self.piece().await {
                    let _ = stream.send_data(piece, false);
                }
                Ok(())
            }
            step => panic!("{step:?} is not said on a stream"),
        };
    }

    async fn read(&mut self) {
        while self.piece().await.is_some() {}
    }

    /// The next piece of the request's body; at its end, its trailers.
    async fn piece(&mut self) -> Option<Bytes> {
        match self.body.data().await {
            Some(Ok(piece)) => {
                let _ = self.body.flow_control().release_capacity(piece.len());
                self.shared.log.write(|seen| {
                    seen.requests[self.index].received += piece.len() as u64;
                    seen.requests[self.index].body.extend_from_slice(&piece);
                });
                Some(piece)
            }
            Some(Err(_)) => {
                self.ended = true;
                None
            }
            None => {
                if !std::mem::replace(&mut self.ended, true) {
                    self.take_trailers().await;
                }
                None
            }
        }
    }

    async fn take_trailers(&mut self) {
        let Ok(trailers) = poll_fn(|cx| self.body.poll_trailers(cx)).await else { return };
        let trailers = trailers.unwrap_or_default();
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        self.shared.log.write(|seen| {
            seen.requests[self.index].trailers =
                trailers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
            seen.note(Some(self.index), What::Complete);
        });
    }

    async fn hold(&self, name: &'static str) {
        while !self.shared.released.lock().expect("no holder panics").contains(&name) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    fn note(&self, what: What) {
        self.shared.log.write(|seen| seen.note(Some(self.index), what));
    }
}

fn head(status: u16, headers: &[(&'static str, &'static str)]) -> http::Response<()> {
    let mut response = http::Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(()).expect("a head that HTTP/2 can say")
}

fn fields_of(fields: &[(&'static str, &'static str)]) -> HeaderMap {
    let field = |(name, value): &(&'static str, &'static str)| {
        (HeaderName::from_static(name), HeaderValue::from_static(value))
    };
    fields.iter().map(field).collect()
}

/// A socket that notes when its request was last sent a byte.
struct Recorded {
    stream: TcpStream,
    current: Arc<AtomicUsize>,
    shared: Arc<Shared>,
}

impl AsyncRead for Recorded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let had = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let request = self.current.load(Ordering::SeqCst);
        if buffer.filled().len() > had && request != NONE {
            self.shared.log.write(|seen| seen.requests[request].last_byte = Some(Instant::now()));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Recorded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
