//! Operators' orders: raise, freeze, thaw, evict. Each is answered when the ledger shows it, which is after it became
//! durable, and each is logged and counted when it is given: one whose answer is late still happens. Those that
//! concern all replicas are in [`replicas`].

use std::sync::Arc;
use std::time::Duration;

use highgate_elector::{Resource, Token};
use http::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use super::answer::{Answer, Problem};
use super::resources::{unknown, view};
use super::{Admin, once, query, replicas};
use crate::ledger::{Cell, Ledger};
use crate::metrics::Action;
use crate::store::elections::StoreStopped;

const WAIT: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raise {
    resource: String,
    #[serde(alias = "token")]
    to: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shut {
    resource: String,
}

pub(super) async fn order(admin: &Admin, action: Action, body: &[u8]) -> Result<Answer, Problem> {
    let cell = match action {
        Action::Raise => raise(admin, parse(body)?).await,
        Action::Freeze | Action::Thaw => shut(admin, action, parse(body)?).await,
        Action::Evict => evict(admin, parse(body)?).await,
        Action::BumpEra => return replicas::bump_era(admin, body).await,
        Action::Retire => return replicas::retire(admin, body).await,
        Action::ResetOnce => return once::reset(admin, body).await,
    }?;
    Ok(view(admin, cell).await)
}

async fn raise(admin: &Admin, order: Raise) -> Result<Arc<Cell>, Problem> {
    let resource = query::parse_resource(&order.resource)?;
    let token = Token::new(order.to)
        .ok_or_else(|| query::bad_request(format!("a token is from 1 to {}", Token::MAX)))?;
    let ledger = admin.store.ledger();
    check_running(ledger)?;
    if ledger.is_unborn(token) {
        let era = admin.store.overview().era;
        let detail = format!("{token} is not of the current era {era}: its tokens are from {} on", era << 48);
        return Err(Problem::new(StatusCode::CONFLICT, detail).about(&resource));
    }
    let mark = ledger.get(resource.as_str()).map_or(0, |cell| cell.mark());
    if token.get() <= mark {
        let detail = format!("{resource} is at {mark} already, and a mark never goes down");
        return Err(Problem::new(StatusCode::CONFLICT, detail).about(&resource).at(mark));
    }
    admin
        .store
        .want(resource.clone(), token, None)
        .map_err(|overloaded| Problem::new(StatusCode::SERVICE_UNAVAILABLE, overloaded.to_string()))?;
    admin.metrics.operator(Action::Raise);
    tracing::warn!(action = "raise", %resource, from = mark, to = token.get(), "an operator's order");
    let cell = ledger.enter(&resource);
    until(ledger, &cell, |cell| cell.mark() >= token.get()).await?;
    Ok(cell)
}

async fn shut(admin: &Admin, action: Action, order: Shut) -> Result<Arc<Cell>, Problem> {
    let resource = query::parse_resource(&order.resource)?;
    let frozen = action == Action::Freeze;
    let ledger = admin.store.ledger();
    check_running(ledger)?;
    if !frozen && ledger.get(resource.as_str()).is_none() {
        return Err(unknown(&resource));
    }
    admin.store.freeze(resource.clone(), frozen);
    admin.metrics.operator(action);
    tracing::warn!(action = action.label(), %resource, "an operator's order");
    let cell = ledger.enter(&resource);
    // Marked as frozen comes a moment before shut.
    until(ledger, &cell, |cell| cell.is_frozen() == frozen && !(frozen && cell.is_open())).await?;
    Ok(cell)
}

/// Deposes the leader: its token passes no longer, and the next in line is elected.
async fn evict(admin: &Admin, order: Shut) -> Result<Arc<Cell>, Problem> {
    let resource = query::parse_resource(&order.resource)?;
    let ledger = admin.store.ledger();
    check_running(ledger)?;
    let evicted = admin.store.evict(resource.clone()).await.map_err(stopped)?;
    let Some(leader) = evicted else {
        let detail = format!("nobody leads {resource}");
        return Err(Problem::new(StatusCode::NOT_FOUND, detail).about(&resource));
    };
    admin.metrics.operator(Action::Evict);
    let (holder, token) = (&leader.holder, leader.token.get());
    tracing::warn!(action = "evict", %resource, holder, token, "an operator's order");
    Ok(ledger.enter(&resource))
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
