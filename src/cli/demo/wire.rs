//! As much HTTP as the demo's parts need among themselves: a small server and a small client.
//!
//! The ledger and the lease are served here, and the leaders call them and the gateway.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use highgate_elector::headers;
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{client, server};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

const MAX_BODY: usize = 64 * 1024;
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Between attempts to accept, when the system has no more to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves on a free port of this machine until it is dropped.
pub(super) struct Server {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Server {
    pub(super) async fn start(
        handle: impl Fn(Request<Bytes>) -> Response<Full<Bytes>> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        Ok(Self { address, accepting: tokio::spawn(accept(listener, Arc::new(handle))) })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(
    listener: TcpListener,
    handle: Arc<impl Fn(Request<Bytes>) -> Response<Full<Bytes>> + Send + Sync + 'static>,
) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let handle = handle.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let handle = handle.clone();
            async move { Ok::<_, Infallible>(answer(request, &*handle).await) }
        });
        // A client that breaks off has nobody to be told.
        tokio::spawn(server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn answer(
    request: Request<Incoming>,
    handle: &impl Fn(Request<Bytes>) -> Response<Full<Bytes>>,
) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => handle(Request::from_parts(head, body.to_bytes())),
        Err(_) => status(StatusCode::PAYLOAD_TOO_LARGE),
    }
}

pub(super) fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

pub(super) fn json(code: StatusCode, body: &impl Serialize) -> Response<Full<Bytes>> {
    let text = serde_json::to_string(body).expect("strings and numbers always serialise");
    let mut response = status(code).map(|_| Full::from(text + "\n"));
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

pub(super) async fn get(address: SocketAddr, path: &str) -> anyhow::Result<Response<Bytes>> {
    send(address, request(address, Method::GET, path).body(Full::default())?).await
}

pub(super) async fn post(
    address: SocketAddr,
    path: &str,
    token: Option<u64>,
    body: &impl Serialize,
) -> anyhow::Result<Response<Bytes>> {
    let mut request = request(address, Method::POST, path).header(CONTENT_TYPE, "application/json");
    if let Some(token) = token {
        request = request.header(headers::TOKEN, token);
    }
    send(address, request.body(Full::from(serde_json::to_string(body)?))?).await
}

fn request(address: SocketAddr, method: Method, path: &str) -> http::request::Builder {
    Request::builder().method(method).uri(path).header(HOST, address.to_string())
}

/// One connection per request; nothing is sent twice.
async fn send(address: SocketAddr, request: Request<Full<Bytes>>) -> anyhow::Result<Response<Bytes>> {
    let exchange = async {
        let stream = TokioIo::new(TcpStream::connect(address).await?);
        let (mut sender, connection) = client::conn::http1::handshake(stream).await?;
        // What goes wrong with the connection is seen by whoever reads from it.
        tokio::spawn(connection);
        let (head, body) = sender.send_request(request).await?.into_parts();
        anyhow::Ok(Response::from_parts(head, body.collect().await?.to_bytes()))
    };
    let answer =
        timeout(CALL_TIMEOUT, exchange).await.with_context(|| format!("{address} did not answer"))?;
    answer.with_context(|| format!("no answer from {address}"))
}
