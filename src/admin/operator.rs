//! Operators' orders: raise, freeze, thaw, evict. Each is answered when the ledger shows it, which is after it became
//! durable, and each is logged and counted when it is given: one whose answer is late still happens. Those that
//! concern all replicas are in [`replicas`].

use std::net::SocketAddr;
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
use crate::metrics::{Action, Metrics};
use crate::store::elections::StoreStopped;

const WAIT: Duration = Duration::from_secs(5);

/// How far above all that is known an order may raise a mark without being told twice: what elections over etcd
/// reach in three years with ten thousand writes a second.
const REACH: u64 = 1 << 40;
/// The highest mark that an order may set, even when told twice: elections go on from a mark, so it has to leave
/// them some numbers.
const HIGHEST: u64 = Token::MAX - REACH;

/// Who gives an order, for the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    address: SocketAddr,
    /// By what right.
    identity: &'static str,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raise {
    resource: String,
    #[serde(alias = "token")]
    to: u64,
    /// Also above what any election could reach in years.
    #[serde(default)]
    force: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shut {
    resource: String,
}

impl Caller {
    pub(super) fn new(admin: &Admin, address: SocketAddr) -> Self {
        Self { address, identity: if admin.auth.is_some() { "operator" } else { "anybody" } }
    }
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
pub(super) fn given(metrics: &Metrics, caller: Caller, action: Action, given: &Given<'_>) {
    metrics.operator(action);
    let Given { resource, from, to, holder, token, era, replica, key } = given;
    let resource = resource.map(Resource::as_str);
    let (client, identity, action) = (caller.address, caller.identity, action.label());
    tracing::warn!(
        action, resource, from, to, holder, token, era, replica, key, %client, identity, "an operator's order"
    );
}

pub(super) async fn order(
    admin: &Admin,
    caller: Caller,
    action: Action,
    body: &[u8],
) -> Result<Answer, Problem> {
    let cell = match action {
        Action::Raise => raise(admin, caller, parse(body)?).await,
        Action::Freeze | Action::Thaw => shut(admin, caller, action, parse(body)?).await,
        Action::Evict => evict(admin, caller, parse(body)?).await,
        Action::BumpEra => return replicas::bump_era(admin, caller, body).await,
        Action::Retire => return replicas::retire(admin, caller, body).await,
        Action::ResetOnce => return once::reset(admin, caller, body).await,
    }?;
    Ok(view(admin, cell).await)
}

async fn raise(admin: &Admin, caller: Caller, order: Raise) -> Result<Arc<Cell>, Problem> {
    let resource = query::parse_resource(&order.resource)?;
    let token = Token::new(order.to)
        .ok_or_else(|| query::bad_request(format!("a token is from 1 to {}", Token::MAX)))?;
    let ledger = admin.store.ledger();
    check_running(ledger)?;
    check_reach(admin, &resource, token, order.force)?;
    let mark = ledger.get(resource.as_str()).map_or(0, |cell| cell.mark());
    if token.get() <= mark {
        let detail = format!("{resource} is at {mark} already, and a mark never goes down");
        return Err(Problem::new(StatusCode::CONFLICT, detail).about(&resource).at(mark));
    }
    admin
        .store
        .want(resource.clone(), token, None)
        .map_err(|overloaded| Problem::new(StatusCode::SERVICE_UNAVAILABLE, overloaded.to_string()))?;
    let (from, to) = (Some(mark), Some(token.get()));
    let about = Given { resource: Some(&resource), from, to, ..Given::default() };
    given(&admin.metrics, caller, Action::Raise, &about);
    let cell = ledger.enter(&resource);
    until(ledger, &cell, |cell| cell.mark() >= token.get()).await?;
    Ok(cell)
}

/// A mark that no election reaches shuts everybody out until the era is bumped, so it is not set by a slip of the hand.
fn check_reach(admin: &Admin, resource: &Resource, token: Token, force: bool) -> Result<(), Problem> {
    let (ledger, overview) = (admin.store.ledger(), admin.store.overview());
    let conflict = |detail| Err(Problem::new(StatusCode::CONFLICT, detail).about(resource));
    if ledger.is_unborn(token) {
        let era = overview.era;
        return conflict(format!(
            "{token} is not of the current era {era}: its tokens are from {} on",
            era << 48
        ));
    }
    if token.get() > HIGHEST {
        return conflict(format!(
            "{token} leaves the elections after it no numbers: a mark is raised to {HIGHEST} at the most; to shut \
             {resource}, freeze it"
        ));
    }
    let mark = ledger.get(resource.as_str()).map_or(0, |cell| cell.mark());
    let known = mark.max((overview.era << 48).saturating_add(overview.watermark));
    if token.get() - known.min(token.get()) > REACH && !force {
        return conflict(format!(
            "{token} is more than 2^40 above all that is known ({known}): no election could reach it in years, and \
             every leader before would be shut out of {resource}; if that is meant, force it"
        ));
    }
    Ok(())
}

async fn shut(admin: &Admin, caller: Caller, action: Action, order: Shut) -> Result<Arc<Cell>, Problem> {
    let resource = query::parse_resource(&order.resource)?;
    let frozen = action == Action::Freeze;
    let ledger = admin.store.ledger();
    check_running(ledger)?;
    if !frozen && ledger.get(resource.as_str()).is_none() {
        return Err(unknown(&resource));
    }
    admin.store.freeze(resource.clone(), frozen);
    let about = Given { resource: Some(&resource), ..Given::default() };
    given(&admin.metrics, caller, action, &about);
    let cell = ledger.enter(&resource);
    // Marked as frozen comes a moment before shut.
    until(ledger, &cell, |cell| cell.is_frozen() == frozen && !(frozen && cell.is_open())).await?;
    Ok(cell)
}

/// Deposes the leader: its token passes no longer, and the next in line is elected.
async fn evict(admin: &Admin, caller: Caller, order: Shut) -> Result<Arc<Cell>, Problem> {
    let resource = query::parse_resource(&order.resource)?;
    let ledger = admin.store.ledger();
    check_running(ledger)?;
    let evicted = admin.store.evict(resource.clone()).await.map_err(stopped)?;
    let Some(leader) = evicted else {
        let detail = format!("nobody leads {resource}");
        return Err(Problem::new(StatusCode::NOT_FOUND, detail).about(&resource));
    };
    let (holder, token) = (Some(leader.holder.as_str()), Some(leader.token.get()));
    let about = Given { resource: Some(&resource), holder, token, ..Given::default() };
    given(&admin.metrics, caller, Action::Evict, &about);
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
