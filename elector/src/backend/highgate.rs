//! Elections of a Highgate gateway, over its elections port (`highgate://127.0.0.1:9902`), or over its admin port while
//! that is on loopback and has no secret (`highgate://127.0.0.1:9901`). Gateways that share an etcd hold the same
//! elections, and any of them speaks for all (`highgate://a:9902,b:9902,c:9902`).
//!
//! A translation of the five methods to the gateway's JSON; `url.rs` takes the URL apart, `wire.rs` is the HTTP to one
//! gateway, `line.rs` with `secure.rs` what it is written to, `gateways.rs` says which one is asked, `campaign.rs` stands in line and `events.rs` follows the stream. What must stay true: every call
//! has a time limit, a candidacy is one connection at a time that closes with its future (which withdraws it), and
//! only 410 is [`RenewError::Gone`]. When the answer of a single gateway is lost, a lease may have been granted that
//! nobody knows of: it runs out by itself.

mod campaign;
mod events;
mod gateways;
mod line;
#[cfg(not(feature = "tls"))]
mod no_tls;
#[cfg(feature = "tls")]
mod secure;
mod url;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::{
    Backend, BackendError, BoxFuture, Candidacy, Grant, Observation, OnceError, OnceState, OnceStep,
    RenewError, Renewed, SignedToken,
};
use crate::connect::shown;
use crate::{ClientTls, ConnectError, Resource, Token, timestamp};
use gateways::Gateways;
use wire::Answer;

/// What a call may take, beyond what it was told to wait.
const CALL_LIMIT: Duration = Duration::from_secs(5);
/// How many renewals are on their way at once.
const RENEWALS_AT_ONCE: usize = 32;

/// A gateway's elections.
pub struct Highgate {
    gateways: Arc<Gateways>,
}

impl Highgate {
    /// Takes a URL like `highgate://host:port` or `highgate://host:port,host:port`, and the secret for the elections if the
    /// gateways want one. They speak TLS if it is `highgates://`, or if it or `tls` names a file. Nothing is sent yet.
    pub fn connect(url: &str, secret: Option<&str>, tls: &ClientTls) -> Result<Self, ConnectError> {
        let bad = |detail| ConnectError::BadUrl { url: shown(url), detail };
        let parsed = url::parse(url, tls.clone()).map_err(bad)?;
        Ok(Self { gateways: Arc::new(Gateways::new(&parsed, secret).map_err(bad)?) })
    }
}

impl Backend for Highgate {
    fn campaign<'a>(&'a self, candidacy: &'a Candidacy) -> BoxFuture<'a, Result<Grant, BackendError>> {
        Box::pin(campaign::contend(&self.gateways, candidacy))
    }

    fn renew<'a>(&'a self, grants: &'a [Grant]) -> BoxFuture<'a, Vec<Result<Renewed, RenewError>>> {
        Box::pin(renew_all(&self.gateways, grants))
    }

    fn resign<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<(), BackendError>> {
        Box::pin(async move {
            let sent = self.gateways.call("/v1/elections/resign", &named(grant), limit(CALL_LIMIT)).await;
            let (wire, answer) = sent?;
            match answer.status {
                StatusCode::NO_CONTENT | StatusCode::OK | StatusCode::GONE => Ok(()),
                _ => Err(wire.failure(&answer)),
            }
        })
    }

    fn observe(&self, resource: &Resource) -> Observation {
        events::observe(self.gateways.clone(), resource)
    }

    fn once<'a>(
        &'a self,
        grant: &'a Grant,
        key: &'a str,
        step: OnceStep,
    ) -> BoxFuture<'a, Result<OnceState, OnceError>> {
        Box::pin(async move {
            let path = match step {
                OnceStep::Begin => "/v1/once/begin",
                OnceStep::Complete => "/v1/once/complete",
            };
            let mut body = named(grant);
            body["key"] = key.into();
            let (wire, answer) = self.gateways.call(path, &body, limit(CALL_LIMIT)).await?;
            match answer.status {
                StatusCode::OK => Ok(once_state(&answer)
                    .ok_or_else(|| wire.refused("its answer on a run-once key is not one"))?),
                StatusCode::GONE => Err(OnceError::Deposed),
                _ => Err(wire.failure(&answer).into()),
            }
        })
    }
}

/// Each on its own, some at once; those that take too long fail alone.
async fn renew_all(gateways: &Arc<Gateways>, grants: &[Grant]) -> Vec<Result<Renewed, RenewError>> {
    let shortest = grants.iter().map(|grant| grant.ttl).min().unwrap_or(CALL_LIMIT);
    // Just under the third of a ttl that the elector gives to all of them.
    let limit = limit((shortest * 3 / 10).min(CALL_LIMIT));
    let places = Arc::new(Semaphore::new(RENEWALS_AT_ONCE));
    let mut tasks = JoinSet::new();
    for (at, grant) in grants.iter().enumerate() {
        let (gateways, places, body) = (gateways.clone(), places.clone(), named(grant));
        tasks.spawn(async move {
            let _place = timeout_at(limit, places.acquire()).await;
            (at, renew(&gateways, &body, limit).await)
        });
    }
    let mut answers: Vec<_> = grants.iter().map(|_| None).collect();
    while let Some(done) = tasks.join_next().await {
        if let Ok((at, answer)) = done {
            answers[at] = Some(answer);
        }
    }
    let unanswered = || Err(gateways.wire(gateways.current()).unavailable("a renewal was not sent").into());
    answers.into_iter().map(|answer| answer.unwrap_or_else(unanswered)).collect()
}

async fn renew(gateways: &Gateways, body: &Value, limit: Instant) -> Result<Renewed, RenewError> {
    let (wire, answer) = gateways.call("/v1/elections/renew", body, limit).await?;
    match answer.status {
        StatusCode::OK | StatusCode::NO_CONTENT => Ok(Renewed { signed_token: signed_token(&answer.body) }),
        StatusCode::GONE => Err(RenewError::Gone),
        _ => Err(wire.failure(&answer).into()),
    }
}

fn once_state(answer: &Answer) -> Option<OnceState> {
    let body = &answer.body;
    match body.get("state")?.as_str()? {
        "running" => Some(OnceState::Running),
        "completed" => Some(OnceState::Completed {
            holder: body.get("holder")?.as_str()?.to_owned(),
            token: token(body.get("token")?)?,
            at: timestamp::parse(body.get("at")?.as_str()?)?,
        }),
        _ => None,
    }
}

/// A leadership as the gateway knows it.
fn named(grant: &Grant) -> Value {
    json!({ "resource": grant.resource.as_str(), "lease": grant.lease })
}

fn token(number: &Value) -> Option<Token> {
    number.as_u64().and_then(Token::new)
}

/// What a gateway with a key that signs adds to its answers.
fn signed_token(body: &Value) -> Option<SignedToken> {
    SignedToken::parse(body.get("signed_token")?.as_str()?)
}

fn limit(span: Duration) -> Instant {
    Instant::now() + span
}
