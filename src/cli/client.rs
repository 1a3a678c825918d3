//! A tiny HTTP/1.1 client for the admin port: what `status`, `watch` and the operators' commands share.
//!
//! One connection per request, a time limit on everything but a stream, and errors that name the address: the
//! most likely one is that no gateway runs there. Of several gateways one is chosen before anything is asked, and nothing is
//! sent to a second one: an order whose answer was lost may have been carried out.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use highgate_elector::Resource;
use highgate_elector::secrets::{self, SecretError};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::uri::Authority;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::time::timeout;

/// A request failed, for a reason that is the gateway's or the caller's.
pub(super) const EXIT_FAILED: u8 = 1;
/// The command has to be given in another way.
pub(super) const EXIT_USAGE: u8 = 2;
/// The gateway cannot be reached.
pub(super) const EXIT_UNAVAILABLE: u8 = 69;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long one of several gateways may take to say whether it is ready.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Longer than the gateway itself waits for an order to be in force.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// Where the gateway's admin port is.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Target {
    /// Address of the gateway's admin port, or several with commas between them, of which the first that is ready is
    /// asked
    #[arg(
        long,
        env = "HIGHGATE_ADMIN",
        value_name = "ADDRESS,…",
        value_delimiter = ',',
        default_value = "127.0.0.1:9901"
    )]
    pub(super) admin: Vec<Address>,
    /// File with the secret for the admin port [default: HIGHGATE_ADMIN_TOKEN, or the file that HIGHGATE_TOKEN_FILE names]
    #[arg(long, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address(Authority);

/// A text is no [`Address`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an address is a host and a port, like 127.0.0.1:9901")]
pub(super) struct AddressError;

/// The way to one gateway, which is chosen with the first request.
pub(super) struct Client {
    addresses: Vec<Authority>,
    /// None: none of them answers.
    chosen: OnceCell<Option<usize>>,
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
    Unreachable { address: String, source: io::Error },
    #[error("what answers at {address} broke off")]
    Broken { address: String, source: hyper::Error },
    #[error("the secret for the admin port has characters that no header can carry")]
    BadBearer,
    #[error(transparent)]
    Secret(#[from] SecretError),
}

/// Why a command did not get what it asked for.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failed {
    /// The gateway said no.
    #[error("{0}")]
    Refused(String),
    /// It was not asked: the command has to say more.
    #[error("{0}")]
    Usage(String),
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
    /// A client with the secret of the file or, without one, of the environment. Not of a flag: other users can read those.
    pub(super) fn client(&self) -> Result<Client, ClientError> {
        let bearer = match &self.token_file {
            Some(file) => Some(secrets::from_file(file)?),
            None => secrets::find(secrets::ADMIN_TOKEN)?,
        };
        Client::new(&self.admin, bearer.as_deref())
    }
}

impl Client {
    pub(super) fn new(addresses: &[Address], bearer: Option<&str>) -> Result<Self, ClientError> {
        let value = |bearer| HeaderValue::try_from(format!("Bearer {bearer}"));
        let mut authorization = bearer.map(value).transpose().map_err(|_| ClientError::BadBearer)?;
        if let Some(value) = &mut authorization {
            value.set_sensitive(true);
        }
        let addresses = addresses.iter().map(|address| address.0.clone()).collect();
        Ok(Self { addresses, chosen: OnceCell::new(), authorization })
    }

    /// One for each of the gateways.
    pub(super) fn each(&self) -> impl Iterator<Item = Self> {
        self.addresses.iter().map(|address| Self {
            addresses: vec![address.clone()],
            chosen: OnceCell::new(),
            authorization: self.authorization.clone(),
        })
    }

    /// The gateway that is asked: the first that is ready, else the first that answers, else simply the first.
    async fn address(&self) -> &Authority {
        let choose = async {
            let mut answers = None;
            for (at, address) in self.addresses.iter().enumerate() {
                let asked = timeout(
                    PROBE_TIMEOUT,
                    self.send(address, self.request(Method::GET, "/readyz", Bytes::new())),
                );
                match asked.await {
                    Ok(Ok(answer)) if answer.status().is_success() => return Some(at),
                    Ok(Ok(_)) => answers = answers.or(Some(at)),
                    Ok(Err(_)) | Err(_) => {}
                }
            }
            answers
        };
        let is_one = self.addresses.len() == 1;
        let chosen = if is_one { Some(0) } else { *self.chosen.get_or_init(|| choose).await };
        &self.addresses[chosen.unwrap_or(0)]
    }

    pub(super) async fn get(&self, path: &str) -> Result<Answer, ClientError> {
        self.ask(self.request(Method::GET, path, Bytes::new())).await
    }

    pub(super) async fn post(&self, path: &str, body: &serde_json::Value) -> Result<Answer, ClientError> {
        self.ask(self.request(Method::POST, path, body.to_string().into())).await
    }

    /// Only the head has come; the body goes on for as long as it likes.
    pub(super) async fn stream(&self, path: &str) -> Result<Response<Incoming>, ClientError> {
        let address = self.address().await;
        let sent = self.send(address, self.request(Method::GET, path, Bytes::new()));
        timeout(ANSWER_TIMEOUT, sent).await.map_err(|_| self.too_slow())?
    }

    async fn ask(&self, request: Request<Full<Bytes>>) -> Result<Answer, ClientError> {
        let address = self.address().await;
        let whole = async {
            let (head, body) = self.send(address, request).await?.into_parts();
            Ok(Answer { status: head.status, body: self.collect(body).await? })
        };
        timeout(ANSWER_TIMEOUT, whole).await.map_err(|_| self.too_slow())?
    }

    pub(super) async fn collect(&self, body: Incoming) -> Result<Bytes, ClientError> {
        body.collect().await.map(|body| body.to_bytes()).map_err(|source| self.broken(source))
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> Request<Full<Bytes>> {
        let mut request =
            Request::builder().method(method).uri(path).header(CONTENT_TYPE, "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        request.body(Full::new(body)).expect("paths are constant but for their encoded queries")
    }

    async fn send(
        &self,
        address: &Authority,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, ClientError> {
        let host = HeaderValue::try_from(address.as_str()).expect("an authority is a header value");
        request.headers_mut().insert(HOST, host);
        let unreachable = |source| ClientError::Unreachable { address: self.names(), source };
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(address.as_str()))
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
        ClientError::Broken { address: self.names(), source }
    }

    pub(super) fn too_slow(&self) -> ClientError {
        ClientError::Unreachable { address: self.names(), source: io::ErrorKind::TimedOut.into() }
    }

    /// The gateway that was asked, or all while none is chosen.
    pub(super) fn names(&self) -> String {
        match self.chosen.get().copied().flatten() {
            Some(at) => self.addresses[at].to_string(),
            None => self.addresses.iter().map(Authority::as_str).collect::<Vec<_>>().join(", "),
        }
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
            Self::Secret(_) => EXIT_USAGE,
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
            Self::Refused(detail) => failed(&detail, EXIT_FAILED),
            Self::Usage(detail) => failed(&detail, EXIT_USAGE),
        }
    }
}

fn failed(detail: &str, code: u8) -> ExitCode {
    eprintln!("highgate: {detail}");
    ExitCode::from(code)
}

/// Prints what a command has to say, or why it failed.
pub(super) fn finish(outcome: Result<String, Failed>) -> anyhow::Result<ExitCode> {
    match outcome {
        Ok(text) => Ok(print(&text)?),
        Err(failed) => Ok(failed.report()),
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
pub(super) mod tests;
