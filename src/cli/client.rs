//! A tiny HTTP/1.1 client for the admin port: what `status`, `watch` and the operators' commands share.
//!
//! One connection per request, a time limit on everything but a stream, and errors that name the address: the
//! most likely one is that no gateway runs there.

use std::io::{self, Write};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use highgate_elector::Resource;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::uri::Authority;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A request failed, for a reason that is the gateway's or the caller's.
pub(super) const EXIT_FAILED: u8 = 1;
/// The gateway cannot be reached.
pub(super) const EXIT_UNAVAILABLE: u8 = 69;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than the gateway itself waits for an order to be in force.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
const BEARER_VARIABLE: &str = "HIGHGATE_ADMIN_TOKEN";

/// Where the gateway's admin port is.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Target {
    /// Address of the gateway's admin port; its token, if it wants one, is taken from HIGHGATE_ADMIN_TOKEN
    #[arg(long, env = "HIGHGATE_ADMIN", value_name = "ADDRESS", default_value = "127.0.0.1:9901")]
    pub(super) admin: Address,
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address(Authority);

/// A text is no [`Address`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an address is a host and a port, like 127.0.0.1:9901")]
pub(super) struct AddressError;

/// The way to one gateway.
pub(super) struct Client {
    address: Authority,
    authorization: Option<HeaderValue>,
}

/// What the gateway said.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    #[error("no gateway answers at {address}")]
    Unreachable { address: Authority, source: io::Error },
    #[error("what answers at {address} broke off")]
    Broken { address: Authority, source: hyper::Error },
    #[error("{BEARER_VARIABLE} is not a token: it has characters that no header can carry")]
    BadBearer,
}

/// Why a command did not get what it asked for.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failed {
    /// The gateway said no.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let authority: Authority = text.parse().map_err(|_| AddressError)?;
        let complete = authority.port_u16().is_some() && !authority.host().is_empty() && !text.contains('@');
        if complete { Ok(Self(authority)) } else { Err(AddressError) }
    }
}

impl Target {
    /// A client with the token of the environment. Not a flag: other users can read those.
    pub(super) fn client(&self) -> Result<Client, ClientError> {
        let bearer = std::env::var_os(BEARER_VARIABLE).filter(|bearer| !bearer.is_empty());
        let bearer =
            bearer.map(|bearer| bearer.into_string().map_err(|_| ClientError::BadBearer)).transpose()?;
        Client::new(&self.admin, bearer.as_deref())
    }
}

impl Client {
    pub(super) fn new(address: &Address, bearer: Option<&str>) -> Result<Self, ClientError> {
        let value = |bearer| HeaderValue::try_from(format!("Bearer {bearer}"));
        let mut authorization = bearer.map(value).transpose().map_err(|_| ClientError::BadBearer)?;
        if let Some(value) = &mut authorization {
            value.set_sensitive(true);
        }
        Ok(Self { address: address.0.clone(), authorization })
    }

    pub(super) async fn get(&self, path: &str) -> Result<Answer, ClientError> {
        self.ask(self.request(Method::GET, path, Bytes::new())).await
    }

    pub(super) async fn post(&self, path: &str, body: &serde_json::Value) -> Result<Answer, ClientError> {
        self.ask(self.request(Method::POST, path, body.to_string().into())).await
    }

    /// Only the head has come; the body goes on for as long as it likes.
    pub(super) async fn stream(&self, path: &str) -> Result<Response<Incoming>, ClientError> {
        let sent = self.send(self.request(Method::GET, path, Bytes::new()));
        timeout(ANSWER_TIMEOUT, sent).await.map_err(|_| self.too_slow())?
    }

    async fn ask(&self, request: Request<Full<Bytes>>) -> Result<Answer, ClientError> {
        let whole = async {
            let (head, body) = self.send(request).await?.into_parts();
            Ok(Answer { status: head.status, body: self.collect(body).await? })
        };
        timeout(ANSWER_TIMEOUT, whole).await.map_err(|_| self.too_slow())?
    }

    pub(super) async fn collect(&self, body: Incoming) -> Result<Bytes, ClientError> {
        body.collect().await.map(|body| body.to_bytes()).map_err(|source| self.broken(source))
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.address.as_str())
            .header(CONTENT_TYPE, "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        request.body(Full::new(body)).expect("paths are constant but for their encoded queries")
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, ClientError> {
        let unreachable = |source| ClientError::Unreachable { address: self.address.clone(), source };
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(self.address.as_str()))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(unreachable)?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|source| self.broken(source))?;
        // What goes wrong with the connection is seen by whoever reads from it.
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(|source| self.broken(source))
    }

    pub(super) fn broken(&self, source: hyper::Error) -> ClientError {
        ClientError::Broken { address: self.address.clone(), source }
    }

    pub(super) fn too_slow(&self) -> ClientError {
        ClientError::Unreachable { address: self.address.clone(), source: io::ErrorKind::TimedOut.into() }
    }
}

impl Answer {
    /// What was asked for, if the gateway said yes.
    pub(super) fn json(&self) -> Result<serde_json::Value, Failed> {
        if !self.status.is_success() {
            return Err(Failed::Refused(self.detail()));
        }
        serde_json::from_slice(&self.body)
            .map_err(|_| Failed::Refused("what answers there is not a Highgate admin port".to_owned()))
    }

    /// What a problem says about itself, or else the status.
    pub(super) fn detail(&self) -> String {
        let problem: Option<serde_json::Value> = serde_json::from_slice(&self.body).ok();
        let detail = problem.as_ref().and_then(|problem| problem["detail"].as_str());
        detail.map_or_else(|| format!("the gateway answered {}", self.status), str::to_owned)
    }
}

impl ClientError {
    /// Says it on stderr, with its causes.
    pub(super) fn report(self) -> ExitCode {
        let code = match self {
            Self::BadBearer => EXIT_FAILED,
            Self::Unreachable { .. } | Self::Broken { .. } => EXIT_UNAVAILABLE,
        };
        eprintln!("highgate: {:#}", anyhow::Error::from(self));
        ExitCode::from(code)
    }
}

impl Failed {
    /// Says it on stderr.
    pub(super) fn report(self) -> ExitCode {
        match self {
            Self::Client(error) => error.report(),
            Self::Refused(detail) => {
                eprintln!("highgate: {detail}");
                ExitCode::from(EXIT_FAILED)
            }
        }
    }
}

/// Prints a result. Whoever reads it may have had enough, like `head`.
pub(super) fn print(text: &str) -> io::Result<ExitCode> {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// The value of a query parameter.
pub(super) fn encoded(resource: &Resource) -> String {
    // A canonical name is plain but for these: a percent sign that is part of it, and what forms give a
    // meaning of their own.
    resource.as_str().replace('%', "%25").replace('+', "%2B").replace('=', "%3D")
}

/// Any text as the value of a query parameter.
pub(super) fn percent_encoded(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use highgate::admin::{Admin, serve};
    use highgate::events::Bus;
    use highgate::metrics::Metrics;
    use highgate::store::embedded;
    use tempfile::TempDir;
    use tokio::net::TcpListener;
    use tokio::sync::watch;
    use tokio::task::JoinHandle;

    use super::*;

    /// An admin port over a real store, for the tests of every command.
    pub(crate) struct Running {
        pub(crate) admin: Arc<Admin>,
        pub(crate) address: SocketAddr,
        pub(crate) stop: watch::Sender<bool>,
        pub(crate) served: JoinHandle<()>,
        _folder: TempDir,
    }

    pub(crate) async fn gateway() -> Running {
        let folder = tempfile::tempdir().unwrap();
        let admin = Arc::new(Admin {
            store: embedded::start(folder.path(), Duration::ZERO, |_| ()).unwrap().store,
            metrics: Arc::new(Metrics::new(10)),
            bus: Bus::new(),
            draining: Arc::default(),
            auth: None,
            jobs: highgate::admin::Jobs::Here,
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, shutdown) = watch::channel(false);
        let served = tokio::spawn(serve(listener, admin.clone(), shutdown));
        Running { admin, address, stop, served, _folder: folder }
    }

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for text in ["127.0.0.1:9901", "[::1]:9901", "gate.internal:80"] {
            assert_eq!(text.parse::<Address>().unwrap().0.as_str(), text);
        }
        for text in
            ["", "9901", ":9901", "gate", "gate:", "gate:x", "gate:99999", "http://gate:80", "a@gate:80"]
        {
            assert_eq!(text.parse::<Address>(), Err(AddressError), "{text:?}");
        }
    }

    #[test]
    fn a_name_survives_its_way_through_a_query() {
        let name = |text| encoded(&Resource::parse(text).unwrap());
        assert_eq!(name("a/b%2Fc"), "a/b%252Fc");
        assert_eq!(name("a+b=c"), "a%2Bb%3Dc");
    }

    #[test]
    fn a_bearer_with_a_line_break_is_refused() {
        let address = "127.0.0.1:1".parse().unwrap();
        assert!(matches!(Client::new(&address, Some("a\nb")), Err(ClientError::BadBearer)));
    }

    #[tokio::test]
    async fn a_gateway_that_is_not_there_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let client = Client::new(&address.parse().unwrap(), None).unwrap();
        let error = client.get("/readyz").await.err().unwrap();
        assert_eq!(error.to_string(), format!("no gateway answers at {address}"));
    }
}
