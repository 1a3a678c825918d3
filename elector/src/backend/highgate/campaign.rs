//! A candidacy, from gateway to gateway.
//!
//! A place in line is a long request. With one gateway it ends with that request. With several, the candidate itself
//! names its lease: when the connection breaks, the next gateway is asked for the same lease and finds the place in line,
//! or the leadership, that the first one left. What must stay true: a lease is named again only after its connection
//! has broken. A gateway that answered, or may wake up later, withdraws what it was asked for, and would take the
//! leadership away that another gateway has granted on the same lease meanwhile.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::gateways::Gateways;
use super::wire::{Answer, Wire};
use super::{CALL_LIMIT, signed_token, token};
use crate::backend::{BackendError, Candidacy, Grant};

/// How long one request waits for its turn. A place in line does not outlive its request, so this is long; but a
/// connection to the only gateway that died in silence is noticed only then.
const WAIT: Duration = Duration::from_secs(300);

/// What became of one request in line.
enum Turn {
    Answered(Answer),
    /// The gateway does not answer, or is not ready while another one is.
    Silent(BackendError),
    /// The connection ended, and perhaps the gateway's process with it.
    Broken(BackendError),
}

/// Waits in line until it leads. Fails when the gateway does, and with several, when all have in a row.
pub(super) async fn contend(gateways: &Gateways, candidacy: &Candidacy) -> Result<Grant, BackendError> {
    let mut lease = fresh_lease();
    let mut failures = 0;
    loop {
        let at = gateways.current();
        let wire = gateways.wire(at);
        let turn = stand(gateways, at, candidacy, &lease).await;
        // A gateway that lives takes the candidacy back, however late: what it takes back must not be in use elsewhere.
        if !matches!(turn, Turn::Broken(_)) || !wire.is_gone().await {
            lease = fresh_lease();
        }
        let error = match turn {
            Turn::Answered(answer) => match answer.status {
                StatusCode::OK => return granted(wire, candidacy, &answer.body),
                // The wait has ended. A conflict that does not say who leads is one that waiting does not solve.
                StatusCode::CONFLICT if answer.body.get("leader").is_some() => {
                    failures = 0;
                    continue;
                }
                _ => wire.failure(&answer),
            },
            Turn::Silent(error) | Turn::Broken(error) => error,
        };
        gateways.leave(at);
        failures += 1;
        if failures >= gateways.count() || matches!(error, BackendError::Refused { .. }) {
            return Err(error);
        }
    }
}

/// One request in line.
async fn stand(gateways: &Gateways, at: usize, candidacy: &Candidacy, lease: &str) -> Turn {
    let wire = gateways.wire(at);
    let body = wish(candidacy, gateways.are_several().then_some(lease));
    let waited = timeout(WAIT + CALL_LIMIT, wire.wait("/v1/elections/campaign", &body));
    tokio::select! {
        biased;
        waited = waited => match waited {
            Ok(Ok(answer)) => Turn::Answered(answer),
            Ok(Err(error)) => Turn::Broken(error),
            Err(_) => Turn::Silent(wire.unavailable("no answer in time")),
        },
        () = gateways.is_worth_leaving(at) => Turn::Silent(wire.unavailable("it is not ready, and another gateway is")),
    }
}

fn wish(candidacy: &Candidacy, lease: Option<&str>) -> Value {
    let mut wish = json!({
        "resource": candidacy.resource.as_str(),
        "holder": candidacy.holder,
        "ttl_seconds": candidacy.ttl.as_secs_f64(),
        "wait_seconds": WAIT.as_secs_f64(),
    });
    // A gateway whose elections are its own refuses it: then the others hold other elections.
    if let Some(lease) = lease {
        wish["lease"] = lease.into();
    }
    wish
}

/// A number that nobody guesses, as large as a lease of etcd may be and never a small one.
fn fresh_lease() -> String {
    let random = uuid::Uuid::new_v4().as_u64_pair().1;
    format!("{:x}", random & i64::MAX as u64 | 1 << 61)
}

fn granted(wire: &Wire, candidacy: &Candidacy, body: &Value) -> Result<Grant, BackendError> {
    let read = || {
        let ttl = Duration::try_from_secs_f64(body.get("ttl_seconds")?.as_f64()?).ok()?;
        Some(Grant {
            resource: candidacy.resource.clone(),
            holder: candidacy.holder.clone(),
            token: token(body.get("token")?)?,
            lease: body.get("lease")?.as_str()?.to_owned(),
            ttl: if ttl.is_zero() { None } else { Some(ttl) }?,
            signed_token: signed_token(body),
        })
    };
    read().ok_or_else(|| wire.refused("its answer to a campaign is not one"))
}
