//! TLS in front of an origin: `front(&origin, &issued).asking(&authority).start()`.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;

use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, version};

use super::Origin;
use super::authority::{Authority, Issued};

pub(crate) struct Builder {
    origin: SocketAddr,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    clients: Option<RootCertStore>,
}

/// A running front.
pub(crate) struct Front {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Caller>>>,
}

/// Who has connected.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) certificate: Option<Vec<u8>>,
    /// The server name that was asked for.
    pub(crate) name: Option<String>,
    pub(crate) protocol: Option<Vec<u8>>,
}

/// Shows this certificate, and passes on what it is sent.
pub(crate) fn front(origin: &Origin, issued: &Issued) -> Builder {
    front_of(origin.address, issued)
}

/// The same for an origin of any kind.
pub(crate) fn front_of(origin: SocketAddr, issued: &Issued) -> Builder {
    Builder {
        origin,
        chain: vec![issued.cert.der().clone()],
        key: PrivateKeyDer::from_pem_slice(issued.key.serialize_pem().as_bytes()).expect("PEM"),
        clients: None,
    }
}

impl Builder {
    /// Wants to see a certificate that this authority has signed.
    pub(crate) fn asking(mut self, authority: &Authority) -> Self {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(authority.pem().as_bytes()).expect("PEM");
        roots.add(ca).expect("an authority");
        self.clients = Some(roots);
        self
    }

    pub(crate) fn start(self) -> Front {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&version::TLS12, &version::TLS13])
            .expect("ring knows both versions");
        let builder = match self.clients {
            Some(roots) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().expect("an authority"))
            }
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(self.chain, self.key).expect("a key that fits");
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let seen = Arc::new(Mutex::default());
        let front = Front { address, seen: seen.clone() };
        let origin = self.origin;
        thread::spawn(move || serve(listener, &TlsAcceptor::from(Arc::new(config)), origin, &seen));
        front
    }
}

impl Front {
    /// Everybody who has made a handshake.
    pub(crate) fn callers(&self) -> Vec<Caller> {
        self.seen.lock().expect("no connection panics").clone()
    }
}

fn serve(
    listener: std::net::TcpListener,
    acceptor: &TlsAcceptor,
    origin: SocketAddr,
    seen: &Arc<Mutex<Vec<Caller>>>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        listener.set_nonblocking(true).expect("a listener of ours");
        let listener = TcpListener::from_std(listener).expect("a listener of ours");
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(pass_on(acceptor.clone(), stream, origin, seen.clone()));
        }
    });
}

async fn pass_on(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    origin: SocketAddr,
    seen: Arc<Mutex<Vec<Caller>>>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = acceptor.accept(stream).await?;
    let connection = stream.get_ref().1;
    let certificate = connection.peer_certificates().and_then(<[_]>::first);
    let caller = Caller {
        certificate: certificate.map(|certificate| certificate.to_vec()),
        name: connection.server_name().map(str::to_owned),
        protocol: connection.alpn_protocol().map(<[u8]>::to_vec),
    };
    seen.lock().expect("no connection panics").push(caller);
    let mut origin = TcpStream::connect(origin).await?;
    origin.set_nodelay(true)?;
    tokio::io::copy_bidirectional(&mut stream, &mut origin).await.map(|_| ())
}
