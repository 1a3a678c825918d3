//! Shutting out: everybody until further notice (freeze, thaw), or whoever leads now (evict).

use std::sync::Arc;

use highgate_elector::Resource;
use http::StatusCode;
use serde::Deserialize;

use super::{Admin, Done, Given, Outcome, check_running, given, idle, known, stopped, until};
use crate::admin::answer::Problem;
use crate::admin::caller::Caller;
use crate::admin::query;
use crate::admin::resources::unknown;
use crate::ledger::Cell;
use crate::metrics::Action;
use crate::replica::Unsettled;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Freeze {
    resource: String,
    new: Option<bool>,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Thaw {
    resource: String,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Evict {
    resource: String,
    /// Only the leader with this token. Said again, the order deposes nobody else.
    token: Option<u64>,
    #[serde(default)]
    dry_run: bool,
}

/// Lets nothing pass.
pub(super) async fn freeze(admin: &Admin, caller: &Caller, order: Freeze) -> Result<Done, Problem> {
    let resource = query::parse_resource(&order.resource)?;
    caller.check(&resource)?;
    let ledger = admin.store.ledger();
    check_running(ledger)?;
    let cell = known(ledger, &resource, order.new)?;
    // Marked as frozen comes a moment before shut.
    let is_shut = |cell: &Cell| cell.is_frozen() && !cell.is_open();
    let would_change = !cell.as_deref().is_some_and(is_shut);
    if order.dry_run || !would_change {
        return Ok(Done::new(resource, cell, idle(order.dry_run, would_change)));
    }
    let cell = shut(admin, caller, Action::Freeze, &resource);
    until(ledger, &cell, is_shut).await?;
    Ok(Done::new(resource, Some(cell), Outcome::Changed))
}

/// Lets a frozen resource go on, and settles the unknown outcomes that block it.
pub(super) async fn thaw(admin: &Admin, caller: &Caller, order: Thaw) -> Result<Done, Problem> {
    let resource = query::parse_resource(&order.resource)?;
    caller.check(&resource)?;
    let ledger = admin.store.ledger();
    check_running(ledger)?;
    let cell = ledger.get(resource.as_str()).ok_or_else(|| unknown(&resource))?;
    let unsettled = admin.store.unsettled(resource.clone()).await.map_err(stopped)?;
    let would_change = cell.is_frozen() || ledger.is_blocked(&resource) || unsettled == Unsettled::Something;
    // Another replica may keep an unknown outcome that this one has not heard of, so it is told even so.
    let is_idle = !would_change && unsettled == Unsettled::Nothing;
    if order.dry_run || is_idle {
        return Ok(Done::new(resource, Some(cell), idle(order.dry_run, would_change)));
    }
    let cell = shut(admin, caller, Action::Thaw, &resource);
    until(ledger, &cell, |cell| !cell.is_frozen()).await?;
    Ok(Done::new(resource, Some(cell), Outcome::of(would_change)))
}

fn shut(admin: &Admin, caller: &Caller, action: Action, resource: &Resource) -> Arc<Cell> {
    admin.store.freeze(resource.clone(), action == Action::Freeze);
    given(&admin.metrics, caller, action, &Given { resource: Some(resource), ..Given::default() });
    admin.store.ledger().enter(resource)
}

/// Deposes the leader: its token passes no longer, and the next in line is elected.
pub(super) async fn evict(admin: &Admin, caller: &Caller, order: Evict) -> Result<Done, Problem> {
    let resource = query::parse_resource(&order.resource)?;
    caller.check(&resource)?;
    let ledger = admin.store.ledger();
    check_running(ledger)?;
    let leader = admin.store.election(resource.clone()).await.map_err(stopped)?.leader;
    let cell = ledger.get(resource.as_str());
    if leader.is_none() && cell.is_none() {
        return Err(unknown(&resource));
    }
    if order.dry_run {
        let leader = leader.filter(|leader| order.token.is_none_or(|token| token == leader.token.get()));
        let outcome = Outcome::Tried { would_change: leader.is_some() };
        return Ok(Done { evicted: leader, ..Done::new(resource, cell, outcome) });
    }
    let evicted = admin.store.evict(resource.clone(), order.token).await.map_err(stopped)?;
    let Some(leader) = evicted else {
        if order.token.is_some() {
            return Ok(Done::new(resource, cell, Outcome::Unchanged));
        }
        let detail = format!("nobody leads {resource}");
        return Err(Problem::new(StatusCode::NOT_FOUND, detail).about(&resource).led_by(None));
    };
    let (holder, token) = (Some(leader.holder.as_str()), Some(leader.token.get()));
    let about = Given { resource: Some(&resource), holder, token, ..Given::default() };
    given(&admin.metrics, caller, Action::Evict, &about);
    let cell = ledger.enter(&resource);
    Ok(Done { evicted: Some(leader), ..Done::new(resource, Some(cell), Outcome::Changed) })
}
