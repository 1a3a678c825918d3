//! A client of an etcd cluster that fails over by itself.
//!
//! One channel per endpoint. A call that its endpoint does not answer soon is sent to the next one as well,
//! the first answer counts, and an endpoint that fails or keeps silent is ejected for a while: one node of
//! three that is stopped costs a fraction of a second once. Where there is one endpoint only, it is asked again. Every call has a deadline. The elector's backend
//! and the gateway's store use it. What must stay true: whatever is passed to [`Client::call`] may be run
//! twice by etcd, so it is a read, or a transaction whose compares refuse the second run.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use super::endpoint::{Connection, Endpoint, Endpoints};
use super::login::{AuthToken, Logins};
use super::url::EtcdUrl;
use super::wire::Call;

/// How long a call is tried, over all endpoints.
const CALL_DEADLINE: Duration = Duration::from_secs(5);
/// How long an endpoint may think before another one is asked, too.
const PATIENCE: Duration = Duration::from_millis(400);
/// The same when there is no other one: then it is asked again, on a new connection if this one is silent.
const PATIENCE_WITH_ONE: Duration = Duration::from_millis(800);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
const LARGEST_ANSWER: usize = 64 << 20;

/// A handle to a cluster; clones share it.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    endpoints: Endpoints,
    logins: Arc<Logins>,
}

/// A call that was not answered with what it asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("no endpoint answered in time: {0}")]
    Unavailable(String),
    #[error("{0}")]
    Refused(String),
    #[error("etcd does not know the lease")]
    LeaseNotFound,
    #[error("the lease exists already")]
    LeaseExists,
    #[error("the revision is compacted away")]
    Compacted,
    #[error("etcd has not come to the revision")]
    NotReached,
    #[error("the answer is larger than {} MiB", LARGEST_ANSWER >> 20)]
    TooLarge,
    #[error("etcd does not accept the login's token any more")]
    TokenRefused,
}

/// The cluster's URL is no use.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the endpoints or the certificates")]
pub struct OpenError(#[from] tonic::transport::Error);

impl Client {
    /// No I/O yet. Called within the runtime that is to do it; calls may then come from any.
    pub fn open(url: &EtcdUrl) -> Result<Self, OpenError> {
        let inner = Inner { endpoints: Endpoints::open(url)?, logins: Logins::new(url.login.clone()) };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Asks, and asks elsewhere when that takes long. etcd may run the request more than once.
    pub async fn call<C: Call>(&self, request: C) -> Result<C::Answer, CallError> {
        let deadline = Instant::now() + CALL_DEADLINE;
        let mut attempts = JoinSet::new();
        let mut last = CallError::Unavailable("silence".to_owned());
        let mut pause = LONGEST_PAUSE / 16;
        let mut patience = self.patience();
        while Instant::now() < deadline {
            let endpoint = self.inner.endpoints.pick();
            let (connection, sent) = (endpoint.connection(), std::time::Instant::now());
            let way = (Arc::clone(&endpoint), connection.clone());
            attempts.spawn(attempt(self.clone(), way, request.clone(), deadline));
            match timeout_at(deadline.min(Instant::now() + patience), attempts.join_next()).await {
                Ok(Some(Ok(Err(CallError::Unavailable(detail))))) => {
                    last = CallError::Unavailable(detail);
                    if self.inner.endpoints.all_ejected() {
                        sleep(pause).await;
                        pause = LONGEST_PAUSE.min(pause * 2);
                    }
                }
                Ok(Some(Ok(answer))) => return answer,
                // An attempt that panicked or was cancelled with its runtime.
                Ok(Some(Err(_)) | None) => {}
                Err(_) => {
                    endpoint.eject();
                    endpoint.is_silent(&connection, sent);
                    // If all of them are slow, more questions make them slower.
                    patience *= 2;
                }
            }
        }
        Err(last)
    }

    fn patience(&self) -> Duration {
        if self.inner.endpoints.is_one() { PATIENCE_WITH_ONE } else { PATIENCE }
    }

    pub(super) fn pick(&self) -> Arc<Endpoint> {
        self.inner.endpoints.pick()
    }

    /// The login's token for the next request, fetched when there is none.
    pub(super) async fn token(&self, endpoint: &Arc<Endpoint>) -> Result<AuthToken, CallError> {
        self.inner.logins.token(endpoint).await
    }

    /// etcd has refused this token: the next request logs in again, if nobody has since.
    pub(super) fn forget_token(&self, refused: &AuthToken) {
        self.inner.logins.forget(refused);
    }
}

/// One request to one endpoint, which is judged by it.
async fn attempt<C: Call>(
    client: Client,
    (endpoint, connection): (Arc<Endpoint>, Connection),
    request: C,
    deadline: Instant,
) -> Result<C::Answer, CallError> {
    let answer = timeout_at(deadline, log_in_and_send(&client, &endpoint, &connection, request)).await;
    let answer = answer.unwrap_or_else(|_| Err(CallError::Unavailable("silence".to_owned())));
    match &answer {
        Err(CallError::Unavailable(_)) => endpoint.eject(),
        _ => {
            endpoint.worked();
            connection.worked();
        }
    }
    answer.map_err(|error| match error {
        CallError::Unavailable(detail) => CallError::Unavailable(format!("{}: {detail}", endpoint.name)),
        CallError::TokenRefused => CallError::Refused(error.to_string()),
        error => error,
    })
}

/// A token that etcd refused did nothing, so the request goes out again with a new one.
async fn log_in_and_send<C: Call>(
    client: &Client,
    endpoint: &Arc<Endpoint>,
    connection: &Connection,
    request: C,
) -> Result<C::Answer, CallError> {
    let token = client.token(endpoint).await?;
    match send(connection, request.clone(), token.clone()).await.map_err(judge) {
        Err(CallError::TokenRefused) if client.inner.logins.is_needed() => {
            client.forget_token(&token);
            let token = client.token(endpoint).await?;
            match send(connection, request, token.clone()).await.map_err(judge) {
                Err(error @ CallError::TokenRefused) => {
                    // It was fetched just now: a node that is behind does not know it yet, or it ran out on the way.
                    client.forget_token(&token);
                    Err(CallError::Unavailable(error.to_string()))
                }
                answer => answer,
            }
        }
        answer => answer,
    }
}

pub(super) async fn send<C: Call>(
    connection: &Connection,
    request: C,
    token: AuthToken,
) -> Result<C::Answer, Status> {
    let mut grpc = ready(connection).await?;
    let path = PathAndQuery::from_static(C::PATH);
    let codec = ProstCodec::<C, C::Answer>::default();
    if !C::STREAMED {
        return Ok(grpc.unary(with_metadata(request, token), path, codec).await?.into_inner());
    }
    let request = with_metadata(tokio_stream::once(request), token);
    let mut answers = grpc.streaming(request, path, codec).await?.into_inner();
    answers.message().await?.ok_or_else(|| Status::unavailable("the stream ended without an answer"))
}

/// The connection, once it is made.
pub(super) async fn ready(
    connection: &Connection,
) -> Result<tonic::client::Grpc<tonic::transport::Channel>, Status> {
    let grpc = tonic::client::Grpc::new(connection.channel.clone());
    let mut grpc = grpc.max_decoding_message_size(LARGEST_ANSWER);
    grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
    Ok(grpc)
}

/// A node that lost its cluster says so at once instead of waiting for it.
pub(super) fn with_metadata<T>(message: T, token: AuthToken) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    if let Some(token) = token {
        request.metadata_mut().insert("token", token);
    }
    request
}

/// What a status of etcd or of the channel means for the caller.
pub(super) fn judge(status: Status) -> CallError {
    let message = status.message();
    match status.code() {
        Code::NotFound if message.contains("lease not found") => CallError::LeaseNotFound,
        Code::FailedPrecondition if message.contains("lease already exists") => CallError::LeaseExists,
        Code::OutOfRange if message.contains("compacted") => CallError::Compacted,
        Code::OutOfRange if message.contains("future revision") => CallError::NotReached,
        // The channel's own word: etcd has answered, with more than is taken at once.
        Code::OutOfRange if message.contains("message length too large") => CallError::TooLarge,
        Code::Unauthenticated => CallError::TokenRefused,
        Code::InvalidArgument
            if message.contains("auth store is old") || message.contains("user name is empty") =>
        {
            CallError::TokenRefused
        }
        Code::InvalidArgument | Code::PermissionDenied | Code::FailedPrecondition | Code::Unimplemented => {
            CallError::Refused(message.to_owned())
        }
        _ => CallError::Unavailable(with_causes(&status)),
    }
}

/// What the status says and, where the channel failed, what that was caused by.
fn with_causes(status: &Status) -> String {
    let mut line = status.message().to_owned();
    let mut cause = status.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.contains(&text) {
            line.push_str(&format!(": {text}"));
        }
        cause = error.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_never_works_is_a_refusal() {
        let judged = |code, message: &str| judge(Status::new(code, message));
        let refused = |message: &str| CallError::Refused(message.to_owned());
        assert_eq!(judged(Code::PermissionDenied, "no"), refused("no"));
        assert_eq!(judged(Code::InvalidArgument, "too many operations"), refused("too many operations"));
        assert_eq!(judged(Code::NotFound, "etcdserver: requested lease not found"), CallError::LeaseNotFound);
        let future = "etcdserver: mvcc: required revision is a future revision";
        assert_eq!(judged(Code::OutOfRange, future), CallError::NotReached);
        let large = "Error, decoded message length too large: found 70 bytes, the limit is: 60 bytes";
        assert_eq!(judged(Code::OutOfRange, large), CallError::TooLarge);
        assert_eq!(judged(Code::Unauthenticated, "invalid auth token"), CallError::TokenRefused);
        for code in [Code::Unavailable, Code::DeadlineExceeded, Code::Unknown, Code::ResourceExhausted] {
            assert!(matches!(judged(code, "later"), CallError::Unavailable(_)), "{code:?}");
        }
    }
}
