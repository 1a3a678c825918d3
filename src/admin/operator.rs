//! Operators' orders: raise, freeze, thaw, evict. Each is answered when the ledger shows it, which is after it became
//! durable, and each is logged and counted when it is given: one whose answer is late still happens. One that would
//! change nothing, or is only tried (`dry_run`), is neither; the answer says `changed`. `raise.rs` and `shut.rs` are the
//! orders; those that concern all replicas are in [`replicas`].

mod raise;
mod shut;

use std::sync::Arc;
use std::time::Duration;

use highgate_elector::Resource;
use http::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::answer::{Answer, Problem, as_json};
use super::caller::Caller;
use super::resources::view;
use super::{Admin, once, query, replicas};
use crate::events::short_holder;
use crate::ledger::{Cell, Ledger};
use crate::metrics::{Action, Metrics};
use crate::store::elections::{Leader, StoreStopped};

const WAIT: Duration = Duration::from_secs(5);

/// What became of an order.
struct Done {
    resource: Resource,
    /// None of a resource that was never seen, by an order that was only tried.
    cell: Option<Arc<Cell>>,
    outcome: Outcome,
    evicted: Option<Leader>,
    /// Whose token a raise has left below the mark.
    deposed: Option<Leader>,
}

/// Whether an order changes something.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Changed,
    /// Everything was as ordered.
    Unchanged,
    /// It was only tried: whether it would have changed something.
    Tried {
        would_change: bool,
    },
}

/// What an order was about, for the log.
#[derive(Default)]
pub(super) struct Given<'a> {
    pub(super) resource: Option<&'a Resource>,
    pub(super) from: Option<u64>,
    pub(super) to: Option<u64>,
    pub(super) holder: Option<&'a str>,
    pub(super) token: Option<u64>,
    pub(super) era: Option<u64>,
    pub(super) replica: Option<&'a str>,
    pub(super) key: Option<&'a str>,
}

/// The one place where an order that is being carried out is counted and logged, with who gave it.
pub(super) fn given(metrics: &Metrics, caller: &Caller, action: Action, given: &Given<'_>) {
    metrics.operator(action);
    let Given { resource, from, to, holder, token, era, replica, key } = given;
    let (resource, holder) = (resource.map(Resource::as_str), holder.map(short_holder));
    let holder = holder.as_deref();
    let (client, identity, action) = (caller.address, caller.name(), action.label());
    tracing::warn!(
        target: "audit", event = "order", action, resource, from, to, holder, token, era, replica, key, %client, identity, "an operator's order"
    );
}

pub(super) async fn order(
    admin: &Admin,
    caller: Caller,
    action: Action,
    body: &[u8],
) -> Result<Answer, Problem> {
    let done = match action {
        Action::Raise => raise::raise(admin, &caller, parse(body)?).await,
        Action::Freeze => shut::freeze(admin, &caller, parse(body)?).await,
        Action::Thaw => shut::thaw(admin, &caller, parse(body)?).await,
        Action::Evict => shut::evict(admin, &caller, parse(body)?).await,
        Action::BumpEra => return replicas::bump_era(admin, caller, body).await,
        Action::Retire => return replicas::retire(admin, caller, body).await,
        Action::ResetOnce => return once::reset(admin, &caller, body).await,
    }?;
    Ok(as_json(&done.told(admin).await))
}

impl Done {
    fn new(resource: Resource, cell: Option<Arc<Cell>>, outcome: Outcome) -> Self {
        Self { resource, cell, outcome, evicted: None, deposed: None }
    }

    /// The resource as it stands, and what the order has changed.
    async fn told(&self, admin: &Admin) -> Value {
        let mut told = match &self.cell {
            Some(cell) => json!(view(admin, cell).await),
            None => json!({ "resource": self.resource.as_str(), "mark": 0, "state": "unset" }),
        };
        self.outcome.tell(&mut told);
        for (key, leader) in [("evicted", &self.evicted), ("deposed", &self.deposed)] {
            if let Some(Leader { holder, token, .. }) = leader {
                told[key] = json!({ "holder": holder, "token": token.get() });
            }
        }
        told
    }
}

impl Outcome {
    pub(super) fn of(changed: bool) -> Self {
        if changed { Self::Changed } else { Self::Unchanged }
    }

    /// Adds it to an answer.
    pub(super) fn tell(self, answer: &mut Value) {
        answer["changed"] = (self == Self::Changed).into();
        if let Self::Tried { would_change } = self {
            answer["dry_run"] = true.into();
            answer["would_change"] = would_change.into();
        }
    }
}

/// The resource's cell. None of one that was never seen, if the order may be about such a one.
fn known(ledger: &Ledger, resource: &Resource, new: Option<bool>) -> Result<Option<Arc<Cell>>, Problem> {
    let cell = ledger.get(resource.as_str());
    if cell.is_none() && new == Some(false) {
        let detail = format!(
            "no token was ever seen for {resource}; if it is not a slip of the hand, say that it is new (--new, or \
             \"new\": true)"
        );
        return Err(Problem::new(StatusCode::NOT_FOUND, detail).about(resource));
    }
    Ok(cell)
}

/// The outcome of an order that is not carried out.
fn idle(dry_run: bool, would_change: bool) -> Outcome {
    if dry_run { Outcome::Tried { would_change } } else { Outcome::Unchanged }
}

pub(super) fn stopped(error: StoreStopped) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}

pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body)
        .map_err(|error| query::bad_request(format!("the body is no such order: {error}")))
}

fn check_running(ledger: &Ledger) -> Result<(), Problem> {
    if ledger.is_halted() {
        return Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the store has stopped: nothing changes any more",
        ));
    }
    Ok(())
}

/// Waits until the ledger shows what was ordered.
async fn until(ledger: &Ledger, cell: &Cell, holds: impl Fn(&Cell) -> bool) -> Result<(), Problem> {
    let deadline = Instant::now() + WAIT;
    loop {
        let changed = cell.changed();
        if holds(cell) {
            return Ok(());
        }
        check_running(ledger)?;
        if timeout_at(deadline, changed).await.is_err() {
            return Err(late(cell.resource()));
        }
    }
}

fn late(resource: &Resource) -> Problem {
    let detail = format!("{resource} did not change within {} s; it may still do so", WAIT.as_secs());
    Problem::new(StatusCode::GATEWAY_TIMEOUT, detail).about(resource)
}
