//! A tiny HTTP/1.1 client for the admin port: what `status`, `watch` and the operators' commands share.
//!
//! One connection per request, a time limit on everything but a stream, and errors that name the address: the
//! most likely one is that no gateway runs there. Of several gateways one is chosen before anything is asked, and nothing is
//! sent to a second one: an order whose answer was lost may have been carried out.

mod place;
mod target;
#[cfg(test)]
pub(super) mod tests;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use highgate_elector::secrets::SecretError;
use highgate_elector::tls::TlsSettingsError;
use highgate_elector::token::SPEAKS_TLS;
use highgate_elector::{ClientTls, Resource};
use highgate_tls::SystemRoots;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use place::Place;
use target::Address;
pub(super) use target::Target;

/// A request failed, for a reason that is the gateway's or the caller's.
pub(super) const EXIT_FAILED: u8 = 1;
/// The command has to be given in another way.
pub(super) const EXIT_USAGE: u8 = 2;
/// The gateway cannot be reached.
pub(super) const EXIT_UNAVAILABLE: u8 = 69;

/// How long one of several gateways may take to say whether it is ready.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Longer than the gateway itself waits for an order to be in force.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// The way to one gateway, which is chosen with the first request.
pub(super) struct Client {
    places: Vec<Place>,
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
    #[error("no TLS with {address}: {detail}")]
    NoTls { address: String, detail: String },
    #[error(
        "{address} speaks TLS: use --admin https://{address}, and name the authority that signed its certificate with --ca \
         FILE or HIGHGATE_CA"
    )]
    SpeaksTls { address: String },
    #[error("--ca, --cert and --key are for TLS, and http://{address} has none: make it https://{address}")]
    Contradiction { address: String },
    #[error(transparent)]
    BadTls(#[from] TlsSettingsError),
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

impl Client {
    pub(super) fn new(
        addresses: &[Address],
        bearer: Option<&str>,
        tls: &ClientTls,
    ) -> Result<Self, ClientError> {
        let value = |bearer| HeaderValue::try_from(format!("Bearer {bearer}"));
        let mut authorization = bearer.map(value).transpose().map_err(|_| ClientError::BadBearer)?;
        if let Some(value) = &mut authorization {
            value.set_sensitive(true);
        }
        let roots = SystemRoots::default();
        let places = addresses.iter().map(|address| Place::new(address, tls, &roots));
        Ok(Self { places: places.collect::<Result<_, _>>()?, chosen: OnceCell::new(), authorization })
    }

    /// One for each of the gateways.
    pub(super) fn each(&self) -> impl Iterator<Item = Self> {
        self.places.iter().map(|place| Self {
            places: vec![place.clone()],
            chosen: OnceCell::new(),
            authorization: self.authorization.clone(),
        })
    }

    /// The gateway that is asked: the first that is ready, else the first that answers, else simply the first.
    async fn place(&self) -> &Place {
        let choose = async {
            let mut answers = None;
            for (at, place) in self.places.iter().enumerate() {
                let asked = timeout(
                    PROBE_TIMEOUT,
                    self.send(place, self.request(Method::GET, "/readyz", Bytes::new())),
                );
                match asked.await {
                    Ok(Ok(answer)) if answer.status().is_success() => return Some(at),
                    Ok(Ok(_)) => answers = answers.or(Some(at)),
                    Ok(Err(_)) | Err(_) => {}
                }
            }
            answers
        };
        let is_one = self.places.len() == 1;
        let chosen = if is_one { Some(0) } else { *self.chosen.get_or_init(|| choose).await };
        &self.places[chosen.unwrap_or(0)]
    }

    pub(super) async fn get(&self, path: &str) -> Result<Answer, ClientError> {
        self.ask(self.request(Method::GET, path, Bytes::new())).await
    }

    pub(super) async fn post(&self, path: &str, body: &serde_json::Value) -> Result<Answer, ClientError> {
        self.ask(self.request(Method::POST, path, body.to_string().into())).await
    }

    /// Only the head has come; the body goes on for as long as it likes.
    pub(super) async fn stream(&self, path: &str) -> Result<Response<Incoming>, ClientError> {
        let place = self.place().await;
        let sent = self.send(place, self.request(Method::GET, path, Bytes::new()));
        timeout(ANSWER_TIMEOUT, sent).await.map_err(|_| self.too_slow())?
    }

    async fn ask(&self, request: Request<Full<Bytes>>) -> Result<Answer, ClientError> {
        let place = self.place().await;
        let whole = async {
            let (head, body) = self.send(place, request).await?.into_parts();
            let answer = Answer { status: head.status, body: self.collect(body).await? };
            if place.is_plain() && answer.says_that_it_speaks_tls() {
                return Err(ClientError::SpeaksTls { address: place.to_string() });
            }
            Ok(answer)
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
        place: &Place,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, ClientError> {
        request.headers_mut().insert(HOST, place.host());
        let stream = place.connect().await.map_err(|error| match error {
            // While none is chosen, none has answered.
            ClientError::Unreachable { source, .. } => {
                ClientError::Unreachable { address: self.names(), source }
            }
            other => other,
        })?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|source| place.broken(source))?;
        // What goes wrong with the connection is seen by whoever reads from it.
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(|source| place.broken(source))
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
            Some(at) => self.places[at].to_string(),
            None => self.places.iter().map(Place::to_string).collect::<Vec<_>>().join(", "),
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

    /// Whether it was said in plain HTTP where nothing but that is.
    fn says_that_it_speaks_tls(&self) -> bool {
        self.status == StatusCode::BAD_REQUEST && self.detail() == SPEAKS_TLS
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
            Self::Secret(_) | Self::BadTls(_) | Self::Contradiction { .. } => EXIT_USAGE,
            Self::Unreachable { .. } | Self::Broken { .. } | Self::NoTls { .. } | Self::SpeaksTls { .. } => {
                EXIT_UNAVAILABLE
            }
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
