//! A client that speaks TLS, as curl does: `secure(address, &authority).named("b.test").connect()`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{
    ClientConfig, HandshakeKind, ProtocolVersion, RootCertStore, SupportedProtocolVersion, version,
};

use super::PATIENCE;
use super::authority::{Authority, Issued};
use super::client::{Ask, Response};
use super::h2::collect;

/// How a connection is going to be made.
pub(crate) struct Builder {
    address: SocketAddr,
    name: String,
    roots: RootCertStore,
    versions: Vec<&'static SupportedProtocolVersion>,
    alpn: Vec<&'static str>,
    identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
}

/// A client with its memory of sessions, which makes connections.
pub(crate) struct Caller {
    address: SocketAddr,
    name: ServerName<'static>,
    connector: TlsConnector,
}

/// A connection after its handshake.
pub(crate) struct Secure {
    runtime: Runtime,
    sender: Sender,
    pub(crate) resumed: bool,
    pub(crate) version: ProtocolVersion,
    /// What the server has shown.
    pub(crate) certificate: CertificateDer<'static>,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// Trusts this authority, asks for `localhost`, and speaks what the server likes best.
pub(crate) fn secure(address: SocketAddr, authority: &Authority) -> Builder {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(authority.pem().as_bytes()).expect("PEM");
    roots.add(ca).expect("an authority");
    Builder {
        address,
        name: "localhost".to_owned(),
        roots,
        versions: vec![&version::TLS12, &version::TLS13],
        alpn: vec!["h2", "http/1.1"],
        identity: None,
    }
}

impl Builder {
    pub(crate) fn named(mut self, name: &str) -> Self {
        self.name = name.to_owned();
        self
    }

    /// Speaks nothing newer than TLS 1.2.
    pub(crate) fn tls12(mut self) -> Self {
        self.versions = vec![&version::TLS12];
        self
    }

    /// Offers these protocols, or says nothing of any.
    pub(crate) fn alpn(mut self, protocols: &[&'static str]) -> Self {
        self.alpn = protocols.to_vec();
        self
    }

    pub(crate) fn shows(mut self, issued: &Issued) -> Self {
        let key = PrivateKeyDer::from_pem_slice(issued.key.serialize_pem().as_bytes()).expect("PEM");
        self.identity = Some((vec![issued.cert.der().clone()], key));
        self
    }

    pub(crate) fn caller(self) -> Caller {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&self.versions)
            .expect("ring knows both versions")
            .with_root_certificates(self.roots);
        let mut config = match self.identity {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).expect("a key that fits"),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = self.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let name = ServerName::try_from(self.name).expect("a server name");
        Caller { address: self.address, name, connector: TlsConnector::from(Arc::new(config)) }
    }

    pub(crate) fn connect(self) -> io::Result<Secure> {
        self.caller().connect()
    }

    /// Asks on a connection of its own.
    pub(crate) fn ask(self, ask: &Ask) -> io::Result<Response> {
        self.connect()?.ask(ask)
    }
}

impl Caller {
    /// A plain port: what connects there speaks TLS without knowing it.
    pub(crate) fn behind_a_plain_port(self) -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let (to, name, connector) = (self.address, self.name.clone(), self.connector.clone());
                std::thread::spawn(move || relay(stream, to, name, &connector));
            }
        });
        address
    }

    pub(crate) fn connect(&self) -> io::Result<Secure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let stream = runtime.block_on(in_time(async {
            let socket = TcpStream::connect(self.address).await?;
            socket.set_nodelay(true)?;
            self.connector.connect(self.name.clone(), socket).await
        }))?;
        let connection = stream.get_ref().1;
        let certificate = connection.peer_certificates().and_then(<[_]>::first).cloned();
        let (version, kind) = (connection.protocol_version(), connection.handshake_kind());
        Ok(Secure {
            sender: runtime.block_on(in_time(speak(stream)))?,
            runtime,
            resumed: kind == Some(HandshakeKind::Resumed),
            version: version.expect("a handshake that has ended"),
            certificate: certificate.expect("a server shows its certificate, or showed it before"),
        })
    }
}

fn relay(
    plain: std::net::TcpStream,
    to: SocketAddr,
    name: ServerName<'static>,
    connector: &TlsConnector,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        plain.set_nonblocking(true)?;
        let mut plain = TcpStream::from_std(plain)?;
        let mut secure = connector.connect(name, TcpStream::connect(to).await?).await?;
        tokio::io::copy_bidirectional(&mut plain, &mut secure).await.map(|_| ())
    })
}

async fn speak(stream: TlsStream<TcpStream>) -> io::Result<Sender> {
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let stream = TokioIo::new(stream);
    if is_http2 {
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), stream).await.map_err(io::Error::other)?;
        tokio::spawn(connection);
        return Ok(Sender::Http2(sender));
    }
    let (sender, connection) = http1::handshake(stream).await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    Ok(Sender::Http1(sender))
}

impl Secure {
    pub(crate) fn is_http2(&self) -> bool {
        matches!(self.sender, Sender::Http2(_))
    }

    pub(crate) fn ask(&mut self, ask: &Ask) -> io::Result<Response> {
        let is_http2 = self.is_http2();
        self.runtime.block_on(in_time(async {
            let answer = match &mut self.sender {
                Sender::Http1(sender) => sender.send_request(request(ask, is_http2)).await,
                Sender::Http2(sender) => sender.send_request(request(ask, is_http2)).await,
            };
            Ok(collect(answer.map_err(io::Error::other)?).await)
        }))
    }
}

fn request(ask: &Ask, is_http2: bool) -> hyper::Request<Full<Bytes>> {
    let (host, others) = ask.headers.split_first().expect("the host is always there");
    let mut request = hyper::Request::builder().method(ask.method.as_str());
    request = match is_http2 {
        true => request.uri(format!("https://{}{}", host.1, ask.path)),
        false => request.uri(&ask.path).header(&host.0, &host.1),
    };
    for (name, value) in others {
        request = request.header(name, value);
    }
    request.body(Full::new(ask.body.clone().into())).expect("a request that hyper can say")
}

async fn in_time<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(PATIENCE, work).await.expect("it does not hang")
}
