//! A client of an etcd cluster that fails over by itself.
//!
//! One connection per endpoint. A call that its endpoint does not answer soon is sent to the next one as well,
//! the first answer counts, and an endpoint that fails or keeps silent is ejected for a while: one node of
//! three that is stopped costs a fraction of a second once. Where there is one endpoint only, it is asked again. Every
//! call has a deadline. The elector's backend and the gateway's store use it. What must stay true: whatever is asked may
//! be run twice by etcd, so it is a read, or a transaction whose compares refuse the second run.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::answer::{Alarm, Granted, Listing, Outcome, Room};
use crate::edge::{AuthToken, Edge, LARGEST_ANSWER};
use crate::endpoint::{Connection, Endpoint, Endpoints};
use crate::login::Logins;
use crate::txn::{Range, Txn};
use crate::url::EtcdUrl;

/// How long a call is tried, over all endpoints.
const CALL_DEADLINE: Duration = Duration::from_secs(5);
/// How long an endpoint may think before another one is asked, too.
const PATIENCE: Duration = Duration::from_millis(400);
/// The same when there is no other one: then it is asked again, on a new connection if this one is silent.
const PATIENCE_WITH_ONE: Duration = Duration::from_millis(800);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

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
pub struct OpenError {
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl Client {
    /// No I/O yet. Called within the runtime that is to do it; calls may then come from any.
    pub fn open(url: &EtcdUrl) -> Result<Self, OpenError> {
        let endpoints = Endpoints::open(url).map_err(|error| OpenError { source: error.into() })?;
        Ok(Self { inner: Arc::new(Inner { endpoints, logins: Logins::new(url.login.clone()) }) })
    }

    pub async fn range(&self, range: Range) -> Result<Listing, CallError> {
        self.call(move |edge| edge.range(range.clone())).await
    }

    /// Its compares have to refuse it if it has been run already.
    pub async fn txn(&self, txn: Txn) -> Result<Outcome, CallError> {
        self.call(move |edge| edge.txn(txn.clone())).await
    }

    /// A lease of so many seconds. The id is the caller's choice, so that asking twice grants once: the second time it
    /// exists.
    pub async fn grant(&self, id: i64, ttl: i64) -> Result<Granted, CallError> {
        self.call(move |edge| edge.grant(id, ttl)).await
    }

    /// What a lease was granted, which lives.
    pub async fn granted(&self, id: i64) -> Result<Granted, CallError> {
        self.call(move |edge| edge.granted(id)).await
    }

    /// Extends a lease.
    pub async fn keep_alive(&self, id: i64) -> Result<Granted, CallError> {
        self.call(move |edge| edge.keep_alive(id)).await
    }

    /// Ends a lease, and all keys on it.
    pub async fn revoke(&self, id: i64) -> Result<(), CallError> {
        self.call(move |edge| edge.revoke(id)).await
    }

    /// Forgets every revision below this one, of all keys; what they are now stays.
    pub async fn compact(&self, revision: i64) -> Result<(), CallError> {
        self.call(move |edge| edge.compact(revision)).await
    }

    /// Of the node that is asked.
    pub async fn room(&self) -> Result<Room, CallError> {
        self.call(Edge::room).await
    }

    /// Of all nodes.
    pub async fn alarms(&self) -> Result<Vec<Alarm>, CallError> {
        self.call(Edge::alarms).await
    }

    /// Asks, and asks elsewhere when that takes long. etcd may run the request more than once.
    async fn call<A, F>(&self, ask: impl Fn(Edge) -> F + Send + Sync + 'static) -> Result<A, CallError>
    where
        A: Send + 'static,
        F: Future<Output = Result<A, CallError>> + Send + 'static,
    {
        let ask = Arc::new(ask);
        let deadline = Instant::now() + CALL_DEADLINE;
        let mut attempts = JoinSet::new();
        let mut last = CallError::Unavailable("silence".to_owned());
        let mut pause = LONGEST_PAUSE / 16;
        let mut patience = self.patience();
        while Instant::now() < deadline {
            let endpoint = self.inner.endpoints.pick();
            let (connection, sent) = (endpoint.connection(), std::time::Instant::now());
            let way = (Arc::clone(&endpoint), connection.clone());
            attempts.spawn(attempt(self.clone(), way, Arc::clone(&ask), deadline));
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

    pub(crate) fn pick(&self) -> Arc<Endpoint> {
        self.inner.endpoints.pick()
    }

    /// The login's token for the next request, fetched when there is none.
    pub(crate) async fn token(&self, endpoint: &Arc<Endpoint>) -> Result<AuthToken, CallError> {
        self.inner.logins.token(endpoint).await
    }

    /// etcd has refused this token: the next request logs in again, if nobody has since.
    pub(crate) fn forget_token(&self, refused: &AuthToken) {
        self.inner.logins.forget(refused);
    }
}

/// One request to one endpoint, which is judged by it.
async fn attempt<A, F>(
    client: Client,
    (endpoint, connection): (Arc<Endpoint>, Connection),
    ask: Arc<impl Fn(Edge) -> F>,
    deadline: Instant,
) -> Result<A, CallError>
where
    F: Future<Output = Result<A, CallError>>,
{
    let answer = timeout_at(deadline, log_in_and_ask(&client, &endpoint, &connection, &*ask)).await;
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
async fn log_in_and_ask<A, F>(
    client: &Client,
    endpoint: &Arc<Endpoint>,
    connection: &Connection,
    ask: &impl Fn(Edge) -> F,
) -> Result<A, CallError>
where
    F: Future<Output = Result<A, CallError>>,
{
    let token = client.token(endpoint).await?;
    match ask(connection.edge(&token).await?).await {
        Err(CallError::TokenRefused) if client.inner.logins.is_needed() => client.forget_token(&token),
        answer => return answer,
    }
    let token = client.token(endpoint).await?;
    match ask(connection.edge(&token).await?).await {
        Err(error @ CallError::TokenRefused) => {
            // It was fetched just now: a node that is behind does not know it yet, or it ran out on the way.
            client.forget_token(&token);
            Err(CallError::Unavailable(error.to_string()))
        }
        answer => answer,
    }
}
