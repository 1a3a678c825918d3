//! What gateways speak to where the recording upstream itself does not: TLS, HTTP/2, or both.
//!
//! It stands before the upstream like a load balancer that is as honest as can be. For each connection or stream of a
//! gateway it has one connection to the upstream, and whatever ends the one ends the other at once and in the same way, so that
//! the upstream records what it would have seen itself.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::header::HOST;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response, Uri, client};
use hyper_util::rt::{TokioExecutor, TokioIo};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ServerConfig, version};
use toml::{Table, Value};

use super::authority::Authority;

/// What the gateways speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Speech {
    pub(crate) tls: bool,
    pub(crate) h2: bool,
}

pub(crate) struct Front {
    address: SocketAddr,
    speech: Speech,
    /// Who has signed its certificate.
    ca: Option<PathBuf>,
}

impl Front {
    /// Before this upstream; what gateways need to know it goes into `folder`. `narrow`: what its kernel takes that it has not
    /// read, if that is to be little.
    pub(crate) fn start(to: SocketAddr, speech: Speech, narrow: Option<usize>, folder: &Path) -> Self {
        let (acceptor, ca) = match speech.tls {
            true => {
                let (acceptor, ca) = acceptor(speech, folder);
                (Some(acceptor), Some(ca))
            }
            false => (None, None),
        };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        if let Some(size) = narrow {
            SockRef::from(&listener).set_recv_buffer_size(size).expect("a socket takes its size");
        }
        listener.set_nonblocking(true).expect("a listener can be non-blocking");
        let address = listener.local_addr().expect("a bound listener has an address");
        thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("a listener for the runtime");
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, acceptor.clone(), speech, to));
                }
            });
        });
        Self { address, speech, ca }
    }

    /// What a route says to lead here, by way of this path.
    pub(crate) fn lead_here(&self, route: &mut Table, path: &str) {
        let scheme = if self.speech.tls { "https" } else { "http" };
        route.insert("upstream".into(), format!("{scheme}://{}/{path}", self.address).into());
        if self.speech.h2 {
            route.insert("upstream_protocol".into(), "h2".into());
        }
        if let Some(ca) = &self.ca {
            let trust = Table::from_iter([("ca".to_owned(), Value::from(ca.to_string_lossy().into_owned()))]);
            route.insert("upstream_tls".into(), trust.into());
        }
    }
}

fn acceptor(speech: Speech, folder: &Path) -> (TlsAcceptor, PathBuf) {
    let authority = Authority::new();
    let issued = authority.server(&["127.0.0.1"]);
    let key = PrivateKeyDer::from_pem_slice(issued.key.serialize_pem().as_bytes()).expect("PEM");
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&version::TLS13])
        .expect("ring knows the version")
        .with_no_client_auth()
        .with_single_cert(vec![issued.cert.der().clone()], key)
        .expect("a key that fits");
    config.alpn_protocols = vec![if speech.h2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    (TlsAcceptor::from(Arc::new(config)), authority.write(folder, "upstream-ca.pem"))
}

async fn serve(stream: TcpStream, acceptor: Option<TlsAcceptor>, speech: Speech, to: SocketAddr) {
    // Whatever goes wrong ends the connection, and the upstream's with it: that is all there is to tell.
    let _: io::Result<()> = async {
        stream.set_nodelay(true)?;
        // Dropped before its time, a connection is reset and not closed.
        SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO))?;
        match acceptor {
            Some(acceptor) => pass_on(acceptor.accept(stream).await?, speech, to).await,
            None => pass_on(stream, speech, to).await,
        }
    }
    .await;
}

async fn pass_on<S>(mut stream: S, speech: Speech, to: SocketAddr) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    if speech.h2 {
        let streams = http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service_fn(move |request| exchange(request, to)));
        return streams.await.map_err(io::Error::other);
    }
    let mut upstream = connect(to).await?;
    copy_bidirectional(&mut stream, &mut upstream).await.map(drop)
}

async fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO))?;
    Ok(stream)
}

/// One stream of HTTP/2 as one connection of HTTP/1.1. Dropped before its end, it resets that connection.
async fn exchange(
    mut request: Request<Incoming>,
    to: SocketAddr,
) -> Result<Response<Attached>, Box<dyn std::error::Error + Send + Sync>> {
    let path = request.uri().path_and_query().expect("a stream has a path").clone();
    *request.uri_mut() = Uri::from(path);
    request.headers_mut().insert(HOST, to.to_string().parse()?);
    let (mut send, connection) = client::conn::http1::handshake(TokioIo::new(connect(to).await?)).await?;
    let connection = AbortOnDrop(tokio::spawn(async move { drop(connection.await) }));
    let response = send.send_request(request).await?;
    Ok(response.map(|body| Attached { body, _connection: connection }))
}

/// A response body and the connection that it comes by.
struct Attached {
    body: Incoming,
    _connection: AbortOnDrop,
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Body for Attached {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Poll::Ready(ready!(Pin::new(&mut self.body).poll_frame(cx)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
