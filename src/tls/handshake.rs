//! From a connection's first byte to the first byte of its first request, on a port that speaks TLS.
//!
//! A client that speaks plain HTTP there is told so in plain HTTP. What must stay true: every failure has one
//! reason from a bounded list, and whoever calls bounds the time.

use std::io;
use std::time::{Duration, SystemTime};

use highgate_elector::token::SPEAKS_TLS;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::rustls::Error as RustlsError;
use tokio_rustls::{TlsAcceptor, rustls};

use super::{Identity, Server, Stream};

/// The first byte of every TLS connection: a record of the handshake. No HTTP request begins with it.
const HANDSHAKE_RECORD: u8 = 0x16;
/// How long a client that speaks plain HTTP is heard out, so that it can read what it is told.
const HEAR_OUT: Duration = Duration::from_millis(500);

/// A connection whose client has said something.
pub(crate) struct Accepted {
    pub(crate) stream: Stream,
    /// Whether HTTP/2 was agreed on.
    pub(crate) http2: bool,
    /// None: no certificate was asked for or shown, or it has no name.
    pub(crate) identity: Option<Identity>,
}

/// Why a handshake came to nothing: a label of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    PlainHttp,
    Timeout,
    /// The client hung up.
    Closed,
    NoCertificate,
    BadCertificate,
    /// The client did not like what it got, most often because it does not trust the certificate.
    Alert,
    /// No version, cipher suite or protocol that both speak.
    Incompatible,
    /// What came is not TLS, or breaks its rules.
    Malformed,
}

impl Failure {
    pub(crate) const ALL: [Self; 8] = [
        Self::PlainHttp,
        Self::Timeout,
        Self::Closed,
        Self::NoCertificate,
        Self::BadCertificate,
        Self::Alert,
        Self::Incompatible,
        Self::Malformed,
    ];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::PlainHttp => "plain-http",
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::NoCertificate => "no-certificate",
            Self::BadCertificate => "bad-certificate",
            Self::Alert => "alert",
            Self::Incompatible => "incompatible",
            Self::Malformed => "malformed",
        }
    }

    fn of(error: &io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<RustlsError>()) {
            None => Self::Closed,
            Some(RustlsError::NoCertificatesPresented) => Self::NoCertificate,
            Some(RustlsError::InvalidCertificate(_)) => Self::BadCertificate,
            Some(RustlsError::AlertReceived(_)) => Self::Alert,
            Some(RustlsError::PeerIncompatible(_) | RustlsError::NoApplicationProtocol) => Self::Incompatible,
            Some(_) => Self::Malformed,
        }
    }
}

/// Whether a connection that begins with this byte wants to speak TLS.
pub(crate) fn is_hello(first: u8) -> bool {
    first == HANDSHAKE_RECORD
}

/// Whether it rather speaks HTTP: a method, or one of the empty lines that may come before it.
fn is_plain_http(first: u8) -> bool {
    first.is_ascii_graphic() || matches!(first, b'\r' | b'\n')
}

/// Shakes hands, and waits for the client's first byte after that: until then nobody else looks at the clock.
pub(crate) async fn accept(stream: TcpStream, server: &Server) -> Result<Accepted, (Failure, io::Error)> {
    let failed = |error| (Failure::of(&error), error);
    let mut first = [0];
    match stream.peek(&mut first).await.map_err(failed)? {
        0 => return Err((Failure::Closed, io::ErrorKind::UnexpectedEof.into())),
        _ if is_plain_http(first[0]) => {
            answer_plain_http(stream).await;
            return Err((Failure::PlainHttp, io::Error::other("the client speaks plain HTTP")));
        }
        _ => {}
    }
    let mut stream = TlsAcceptor::from(server.config()).accept(stream).await.map_err(failed)?;
    let identity = identity(stream.get_ref().1)?;
    if stream.fill_buf().await.map_err(failed)?.is_empty() {
        return Err((Failure::Closed, io::ErrorKind::UnexpectedEof.into()));
    }
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    Ok(Accepted { stream: Stream::Tls(Box::new(stream)), http2, identity })
}

fn identity(connection: &rustls::ServerConnection) -> Result<Option<Identity>, (Failure, io::Error)> {
    let Some(certificate) = connection.peer_certificates().and_then(<[_]>::first) else { return Ok(None) };
    Identity::of(certificate, SystemTime::now())
        .map_err(|error| (Failure::BadCertificate, io::Error::new(io::ErrorKind::InvalidData, error)))
}

/// Says what this port speaks, in the one form that needs no request to be read.
async fn answer_plain_http(mut stream: TcpStream) {
    let body = format!(
        r#"{{"type":"urn:highgate:problem:malformed","title":"Malformed request","status":400,"detail":"{SPEAKS_TLS}","reason":"malformed"}}"#
    );
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: application/problem+json\r\nContent-Length: {}\r\n\
         X-Fencing-Reason: malformed\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    hear_out(&mut stream, &answer).await;
}

/// Writes an answer to a request that is not read, and lets the client read it.
pub(crate) async fn hear_out(stream: &mut TcpStream, answer: &str) {
    let heard = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        tokio::io::copy(stream, &mut tokio::io::sink()).await
    };
    let _ = tokio::time::timeout(HEAR_OUT, heard).await;
}
