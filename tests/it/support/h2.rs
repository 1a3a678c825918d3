//! An HTTP/2 client with prior knowledge, on a thread and runtime of its own so that tests stay plain code.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::client::{Ask, Pending, Response};
use super::wire::Head;

type Frames = StreamBody<UnboundedReceiverStream<Result<Frame<Bytes>, Infallible>>>;

/// A request for the connection's thread, and where its answer goes.
struct Job {
    request: hyper::Request<Frames>,
    answer: mpsc::Sender<Option<Response>>,
    /// Ends the stream early when its other side is dropped.
    kept: tokio::sync::oneshot::Receiver<()>,
}

/// A connection.
pub(crate) struct H2 {
    jobs: UnboundedSender<Job>,
}

/// A request whose body the test still feeds. Dropping it without `finish` resets the stream.
pub(crate) struct Upload {
    /// Nothing once the body has ended.
    frames: Option<UnboundedSender<Result<Frame<Bytes>, Infallible>>>,
    keep: tokio::sync::oneshot::Sender<()>,
    answer: mpsc::Receiver<Option<Response>>,
}

impl H2 {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let (jobs, inbox) = unbounded_channel();
        thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(run(address, inbox));
        });
        Self { jobs }
    }

    pub(crate) fn ask(&self, ask: &Ask) -> Response {
        self.upload(ask).finish().answer()
    }

    /// Starts a request and leaves its body open.
    pub(crate) fn upload(&self, ask: &Ask) -> Upload {
        let (frames, stream) = unbounded_channel();
        let (keep, kept) = tokio::sync::oneshot::channel();
        let (answer, answered) = mpsc::channel();
        let request = request(ask, StreamBody::new(UnboundedReceiverStream::new(stream)));
        assert!(self.jobs.send(Job { request, answer, kept }).is_ok(), "the connection is there");
        let upload = Upload { frames: Some(frames), keep, answer: answered };
        if !ask.body.is_empty() {
            upload.send(&ask.body);
        }
        upload
    }
}

impl Upload {
    pub(crate) fn send(&self, data: &[u8]) {
        self.send_frame(Frame::data(Bytes::copy_from_slice(data)));
    }

    pub(crate) fn send_trailer(&self, name: &'static str, value: &'static str) {
        let mut trailers = hyper::HeaderMap::new();
        trailers.insert(name, value.parse().expect("a header value"));
        self.send_frame(Frame::trailers(trailers));
    }

    fn send_frame(&self, frame: Frame<Bytes>) {
        let frames = self.frames.as_ref().expect("a body that has not ended");
        // What is sent after the gateway has answered is lost, and that is nobody's fault.
        let _ = frames.send(Ok(frame));
    }

    /// Ends the body and leaves the rest to whoever holds this.
    pub(crate) fn end_body(&mut self) {
        self.frames = None;
    }

    /// Ends the body; the answer may take its time.
    pub(crate) fn finish(mut self) -> Pending {
        self.end_body();
        let Self { keep, answer, .. } = self;
        Pending::new(move || {
            let response = answer.recv_timeout(super::PATIENCE).expect("an answer in time");
            drop(keep);
            response.expect("an answer rather than a reset")
        })
    }
}

fn request(ask: &Ask, body: Frames) -> hyper::Request<Frames> {
    let host = ask.headers.first().map_or("ledger.test", |(_, host)| host.as_str());
    let mut request =
        hyper::Request::builder().method(ask.method.as_str()).uri(format!("http://{host}{}", ask.path));
    for (name, value) in ask.headers.iter().skip(1) {
        request = request.header(name, value);
    }
    request.body(body).expect("a request that hyper can say")
}

async fn run(address: SocketAddr, mut inbox: UnboundedReceiver<Job>) {
    let stream = TcpStream::connect(address).await.expect("the gateway listens");
    stream.set_nodelay(true).expect("a connected socket takes TCP_NODELAY");
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("an HTTP/2 handshake");
    tokio::spawn(connection);
    while let Some(job) = inbox.recv().await {
        tokio::spawn(carry_out(sender.clone(), job));
    }
}

async fn carry_out(mut sender: SendRequest<Frames>, job: Job) {
    let Job { request, answer, kept } = job;
    let exchange = async {
        let response = sender.send_request(request).await.ok()?;
        Some(collect(response).await)
    };
    tokio::select! {
        response = exchange => {
            // A test that has dropped its upload does not want to know.
            let _ = answer.send(response);
        }
        _ = kept => {}
    }
}

pub(super) async fn collect(response: hyper::Response<Incoming>) -> Response {
    let (parts, mut incoming) = response.into_parts();
    let named = |(name, value): (&hyper::header::HeaderName, &hyper::header::HeaderValue)| {
        (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let head = Head { headers: parts.headers.iter().map(named).collect(), ..Head::default() };
    let status = parts.status.as_u16();
    let mut response = Response { status, head, body: Vec::new(), trailers: Vec::new(), complete: true };
    while let Some(frame) = incoming.frame().await {
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => response.body.extend(&data),
            Ok(Err(frame)) => response.trailers.extend(frame.trailers_ref().into_iter().flatten().map(named)),
            Err(_) => response.complete = false,
        }
    }
    response
}
