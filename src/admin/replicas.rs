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
use super::caller::Caller;
use super::operator::{Given, Outcome, given, parse};
use super::{Admin, query};
use crate::config::Naming;
use crate::metrics::Action;
use crate::replica::Incarnation;
use crate::store::OverrideError;
use crate::store::overview::{Overview, incarnation_text};

/// Shorter than the patience of `highgate era bump` and `highgate retire`.
const WAIT: Duration = Duration::from_secs(10);

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Bump {
    /// Only if this is the era still. Said again, the order bumps no other.
    from: Option<u64>,
    dry_run: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Retire {
    replica: String,
    #[serde(default)]
    dry_run: bool,
}

pub(super) fn show(admin: &Admin) -> Answer {
    let mut overview = json!(&*admin.store.overview());
    overview["listeners"] = admin.doors.iter().map(|door| door.show()).collect();
    if let Some(names) = admin.store.change_of_names() {
        let next = names.next.as_ref().map(Naming::to_json);
        overview["change_of_names"] = json!({"from": names.current.to_json(), "to": next});
    }
    as_json(&overview)
}

/// Makes every token issued so far stale.
pub(super) async fn bump_era(admin: &Admin, caller: Caller, body: &[u8]) -> Result<Answer, Problem> {
    let order = bump(body)?;
    let overview = admin.store.overview();
    let would_change = order.from.is_none_or(|from| from == overview.era);
    if order.dry_run || !would_change {
        check_shared(&overview)?;
        return Ok(told(json!({ "era": overview.era }), order.dry_run, would_change));
    }
    let (store, metrics) = (admin.store.clone(), admin.metrics.clone());
    let bumped = carry_out(async move {
        let bumped = store.bump_era(order.from).await?;
        if bumped.changed {
            given(&metrics, &caller, Action::BumpEra, &Given { era: Some(bumped.era), ..Given::default() });
        }
        Ok(bumped)
    })
    .await?;
    Ok(told(json!({ "era": bumped.era }), false, bumped.changed))
}

/// An order of one word may be empty. A list is none, though serde would take it for one.
fn bump(body: &[u8]) -> Result<Bump, Problem> {
    if body.trim_ascii().is_empty() {
        return Ok(Bump::default());
    }
    parse::<Map<String, Value>>(body)?;
    parse(body)
}

/// Takes a replica out, whatever it does.
pub(super) async fn retire(admin: &Admin, caller: Caller, body: &[u8]) -> Result<Answer, Problem> {
    let order: Retire = parse(body)?;
    let replica = incarnation(&order.replica).ok_or_else(|| {
        query::bad_request(format!("{:?} is not a replica's id of 32 hex digits", order.replica))
    })?;
    let (id, overview) = (incarnation_text(replica), admin.store.overview());
    let takes_part = overview.replicas.iter().any(|known| known.id == replica);
    let is_out = !takes_part && overview.tombstones.iter().any(|tombstone| tombstone.id == id);
    if order.dry_run || is_out {
        check_shared(&overview)?;
        if !takes_part && !is_out {
            return Err(refused(&OverrideError::NoSuchReplica));
        }
        return Ok(told(json!({ "replica": id }), order.dry_run, takes_part));
    }
    let (store, metrics, named) = (admin.store.clone(), admin.metrics.clone(), id.clone());
    carry_out(async move {
        store.retire(replica).await?;
        given(&metrics, &caller, Action::Retire, &Given { replica: Some(&named), ..Given::default() });
        Ok(())
    })
    .await?;
    Ok(told(json!({ "replica": id }), false, true))
}

/// An answer with what the order has changed, or would have.
fn told(mut answer: Value, dry_run: bool, would_change: bool) -> Answer {
    let outcome = if dry_run { Outcome::Tried { would_change } } else { Outcome::of(would_change) };
    outcome.tell(&mut answer);
    as_json(&answer)
}

/// What the store itself says of an order that is carried out.
fn check_shared(overview: &Overview) -> Result<(), Problem> {
    if overview.store == "embedded" { Err(refused(&OverrideError::Alone)) } else { Ok(()) }
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
