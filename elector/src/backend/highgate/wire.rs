//! A tiny HTTP/1.1 client for one gateway's elections.
//!
//! Calls that may safely be sent twice (everything but a campaign) share a few kept connections; a campaign and a
//! stream have one of their own, driven by their own future, so that dropping it closes the connection. `line.rs` is below it.

use std::pin::pin;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::line::{Line, Stream};
use super::url::Security;
use crate::backend::BackendError;

const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// How often it is looked whether a gateway has ended, and how long after one another.
const LOOKS: u32 = 10;
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// An answer of the gateway is some hundred bytes.
const LARGEST_ANSWER: usize = 64 * 1024;
const MOST_KEPT: usize = 32;

type Sender = SendRequest<Full<Bytes>>;
type Socket = TokioIo<Stream>;

/// The way to one gateway.
pub(super) struct Wire {
    line: Line,
    bearer: Option<HeaderValue>,
    kept: Mutex<Vec<Sender>>,
}

/// What the gateway said; the body is null when it is not JSON.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Value,
}

impl Wire {
    pub(super) fn new(address: &str, secret: Option<&str>, security: &Security) -> Result<Self, String> {
        let line = Line::new(address, security)?;
        let header = |secret| {
            let mut value = HeaderValue::try_from(format!("Bearer {secret}")).map_err(|_| {
                "the secret for its elections has characters that no header can carry".to_owned()
            })?;
            value.set_sensitive(true);
            Ok::<_, String>(value)
        };
        Ok(Self { line, bearer: secret.map(header).transpose()?, kept: Mutex::default() })
    }

    /// A request that may be sent twice: on a kept connection if there is one, on a new one if that is dead.
    pub(super) async fn call(&self, path: &str, body: &Value, by: Instant) -> Result<Answer, BackendError> {
        let sent = timeout_at(by, async {
            if let Some(kept) = self.take()
                && let Ok(answer) = self.exchange(kept, path, body).await
            {
                return Ok(answer);
            }
            let (sender, connection) = self.connect().await?;
            tokio::spawn(connection);
            self.exchange(sender, path, body).await
        });
        sent.await.unwrap_or_else(|_| Err(self.unavailable("no answer in time")))
    }

    /// A request that waits for as long as the gateway lets it, on a connection of its own.
    pub(super) async fn wait(&self, path: &str, body: &Value) -> Result<Answer, BackendError> {
        let (mut sender, connection) = self.connect().await?;
        let request = self.request(Method::POST, path, Some(body));
        let answered = async {
            let response = sender.send_request(request).await.map_err(|error| self.broken(&error))?;
            self.read(response).await
        };
        Link(Some(connection)).drive(answered).await
    }

    /// Whether nobody listens there any more, so that the gateway's process has ended.
    pub(super) async fn is_gone(&self) -> bool {
        for _ in 0..LOOKS {
            let connected = timeout(CONNECT_LIMIT, self.line.dial()).await;
            if matches!(&connected, Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused) {
                return true;
            }
            if connected.is_err() || self.open("/healthz").await.is_ok() {
                return false;
            }
            // A process that ends closes its connections first and its port after that.
            sleep(LOOK_AGAIN).await;
        }
        false
    }

    /// Whether the gateway takes part now; one that does not answer does not.
    pub(super) async fn is_ready(&self) -> bool {
        let asked = timeout(CONNECT_LIMIT, async {
            let (response, mut link) = self.open("/readyz").await?;
            link.drive(self.read(response)).await
        });
        matches!(asked.await, Ok(Ok(answer)) if answer.status == StatusCode::OK)
    }

    /// A stream, and the connection that has to be driven for it to go on.
    pub(super) async fn open(&self, path: &str) -> Result<(Response<Incoming>, Link), BackendError> {
        let opened = timeout(CONNECT_LIMIT * 2, async {
            let (mut sender, connection) = self.connect().await?;
            let mut link = Link(Some(connection));
            let request = self.request(Method::GET, path, None);
            let sent = async { sender.send_request(request).await.map_err(|error| self.broken(&error)) };
            Ok((link.drive(sent).await?, link))
        });
        opened.await.unwrap_or_else(|_| Err(self.unavailable("no answer in time")))
    }

    async fn connect(&self) -> Result<(Sender, Connection<Socket, Full<Bytes>>), BackendError> {
        let opened = timeout(CONNECT_LIMIT, self.line.open()).await;
        let socket = opened
            .map_err(|_| self.unavailable("no connection in time"))?
            .map_err(|why| self.unavailable(&why))?;
        http1::handshake(TokioIo::new(socket)).await.map_err(|error| self.broken(&error))
    }

    async fn exchange(&self, mut sender: Sender, path: &str, body: &Value) -> Result<Answer, BackendError> {
        sender.ready().await.map_err(|error| self.broken(&error))?;
        let request = self.request(Method::POST, path, Some(body));
        let response = sender.send_request(request).await.map_err(|error| self.broken(&error))?;
        let answer = self.read(response).await?;
        self.keep(sender);
        Ok(answer)
    }

    fn request(&self, method: Method, path: &str, body: Option<&Value>) -> Request<Full<Bytes>> {
        let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let mut request = Request::new(Full::new(bytes));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().expect("paths are written here and queries escaped");
        let headers = request.headers_mut();
        let host = HeaderValue::try_from(self.line.address.as_str()).expect("an authority is a header value");
        headers.insert(HOST, host);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(bearer) = &self.bearer {
            headers.insert(AUTHORIZATION, bearer.clone());
        }
        request
    }

    pub(super) async fn read(&self, response: Response<Incoming>) -> Result<Answer, BackendError> {
        let status = response.status();
        let body = Limited::new(response.into_body(), LARGEST_ANSWER).collect().await;
        let bytes = body.map_err(|error| self.unavailable(&self.line.words(error.as_ref())))?.to_bytes();
        Ok(Answer { status, body: serde_json::from_slice(&bytes).unwrap_or(Value::Null) })
    }

    /// What an answer that is no success means.
    pub(super) fn failure(&self, answer: &Answer) -> BackendError {
        let detail = answer.body.get("detail").or_else(|| answer.body.get("title")).and_then(Value::as_str);
        if let Some(advice) = detail.and_then(|detail| self.line.advice(detail)) {
            return self.refused(advice);
        }
        let detail = match detail {
            Some(detail) => format!("{}: {detail}", answer.status),
            None => answer.status.to_string(),
        };
        if answer.is_unavailable() { self.unavailable(&detail) } else { self.refused(&detail) }
    }

    pub(super) fn unavailable(&self, detail: &str) -> BackendError {
        BackendError::Unavailable { backend: self.name(), detail: detail.to_owned() }
    }

    pub(super) fn refused(&self, detail: &str) -> BackendError {
        BackendError::Refused { backend: self.name(), detail: detail.to_owned() }
    }

    fn broken(&self, error: &hyper::Error) -> BackendError {
        self.unavailable(&self.line.words(error))
    }

    pub(super) fn name(&self) -> String {
        self.line.name()
    }

    pub(super) fn is_to(&self, other: &Self) -> bool {
        self.line.address == other.line.address
    }

    fn take(&self) -> Option<Sender> {
        let mut kept = self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        kept.retain(|sender| !sender.is_closed());
        kept.pop()
    }

    fn keep(&self, sender: Sender) {
        let mut kept = self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if kept.len() < MOST_KEPT {
            kept.push(sender);
        }
    }
}

impl Answer {
    /// Whether it may be another one later, or from another gateway.
    pub(super) fn is_unavailable(&self) -> bool {
        let later = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
        self.status.is_server_error() || later.contains(&self.status)
    }
}

/// A connection that moves only while somebody waits for something on it.
pub(super) struct Link(Option<Connection<Socket, Full<Bytes>>>);

impl Link {
    /// Drives the connection until this is done.
    pub(super) async fn drive<T>(&mut self, waited_for: impl Future<Output = T>) -> T {
        let mut waited_for = pin!(waited_for);
        if let Some(connection) = &mut self.0 {
            tokio::select! {
                biased;
                done = &mut waited_for => return done,
                _ = connection => {}
            }
            // It has ended and must not be polled again. What it had read is still an answer; else whoever
            // waits learns of the end now.
            self.0 = None;
        }
        waited_for.await
    }
}
