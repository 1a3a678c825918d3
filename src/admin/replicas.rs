//! The replicas that share the marks, and the orders that concern all of them: era bump and retire.
//!
//! An order is carried out by a task of its own: it is logged and counted when it is done, even if whoever gave
//! it has hung up. Neither asks whether this replica passes requests: after a restored etcd none of them
//! does, and the bump is the way out.

use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::answer::{Answer, Problem, as_json};
use super::operator::{Caller, Given, given, parse};
use super::{Admin, query};
use crate::metrics::Action;
use crate::replica::Incarnation;
use crate::store::OverrideError;
use crate::store::overview::incarnation_text;

/// Shorter than the patience of `highgate era bump` and `highgate retire`.
const WAIT: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Retire {
    replica: String,
}

pub(super) fn show(admin: &Admin) -> Answer {
    as_json(&*admin.store.overview())
}

/// Makes every token issued so far stale.
pub(super) async fn bump_era(admin: &Admin, caller: Caller, body: &[u8]) -> Result<Answer, Problem> {
    let empty = body.trim_ascii().is_empty() || parse::<Map<String, Value>>(body)?.is_empty();
    if !empty {
        return Err(query::bad_request("an era bump has nothing to say but {}".to_owned()));
    }
    let (store, metrics) = (admin.store.clone(), admin.metrics.clone());
    let era = carry_out(async move {
        let era = store.bump_era().await?;
        given(&metrics, caller, Action::BumpEra, &Given { era: Some(era), ..Given::default() });
        Ok(era)
    })
    .await?;
    Ok(as_json(&json!({ "era": era })))
}

/// Takes a replica out, whatever it does.
pub(super) async fn retire(admin: &Admin, caller: Caller, body: &[u8]) -> Result<Answer, Problem> {
    let order: Retire = parse(body)?;
    let replica = incarnation(&order.replica).ok_or_else(|| {
        query::bad_request(format!("{:?} is not a replica's id of 32 hex digits", order.replica))
    })?;
    let (store, metrics) = (admin.store.clone(), admin.metrics.clone());
    carry_out(async move {
        store.retire(replica).await?;
        let id = incarnation_text(replica);
        given(&metrics, caller, Action::Retire, &Given { replica: Some(&id), ..Given::default() });
        Ok(())
    })
    .await?;
    Ok(as_json(&json!({ "replica": incarnation_text(replica) })))
}

async fn carry_out<T: Send + 'static>(
    order: impl Future<Output = Result<T, OverrideError>> + Send + 'static,
) -> Result<T, Problem> {
    let Ok(done) = timeout(WAIT, tokio::spawn(order)).await else {
        let detail = format!("the store did not answer within {} s; it may still do it", WAIT.as_secs());
        return Err(Problem::new(StatusCode::GATEWAY_TIMEOUT, detail));
    };
    done.expect("the order does not panic, and nobody aborts it").map_err(|error| refused(&error))
}

fn refused(error: &OverrideError) -> Problem {
    let status = match error {
        OverrideError::Alone => StatusCode::CONFLICT,
        OverrideError::NoSuchReplica => StatusCode::NOT_FOUND,
        OverrideError::Failed(_) | OverrideError::Stopped(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    Problem::new(status, error.to_string())
}

fn incarnation(text: &str) -> Option<Incarnation> {
    let is_id = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_id.then(|| Incarnation::from_str_radix(text, 16).ok()).flatten()
}
