//! Raising a mark by hand, and how far.

use highgate_elector::{Resource, Token};
use http::StatusCode;
use serde::Deserialize;

use super::{Admin, Done, Given, Outcome, check_running, given, idle, known, stopped, until};
use crate::admin::answer::Problem;
use crate::admin::caller::Caller;
use crate::admin::query;
use crate::metrics::Action;

/// How far above all that is known an order may raise a mark without being told twice: what elections over etcd
/// reach in three years with ten thousand writes a second.
const REACH: u64 = 1 << 40;
/// The highest mark that an order may set, even when told twice: elections go on from a mark, so it has to leave
/// them some numbers.
const HIGHEST: u64 = Token::MAX - REACH;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raise {
    resource: String,
    #[serde(alias = "token")]
    to: u64,
    /// Only if this is the mark still: said by whoever looked first, so that nobody is deposed who came meanwhile.
    from: Option<u64>,
    /// Also above what any election could reach in years.
    #[serde(default)]
    force: bool,
    /// Whether the resource may be one that was never seen. Unsaid, it may.
    new: Option<bool>,
    #[serde(default)]
    dry_run: bool,
}

/// Every lower token is stale from then on.
pub(super) async fn raise(admin: &Admin, caller: &Caller, order: Raise) -> Result<Done, Problem> {
    let resource = query::parse_resource(&order.resource)?;
    caller.check(&resource)?;
    let token = Token::new(order.to)
        .ok_or_else(|| query::bad_request(format!("a token is from 1 to {}", Token::MAX)))?;
    let ledger = admin.store.ledger();
    check_running(ledger)?;
    check_reach(admin, &resource, token, order.force)?;
    let cell = known(ledger, &resource, order.new)?;
    let mark = cell.as_ref().map_or(0, |cell| cell.mark());
    if token.get() < mark {
        let detail = format!("{resource} is at {mark} already, and a mark never goes down");
        return Err(Problem::new(StatusCode::CONFLICT, detail).about(&resource).at(mark));
    }
    if token.get() == mark {
        return Ok(Done::new(resource, cell, idle(order.dry_run, false)));
    }
    if let Some(from) = order.from.filter(|from| *from != mark) {
        let detail = format!(
            "{resource} is at {mark} by now, not at {from}: nothing was changed; look who leads, and raise it again if \
             that is still meant"
        );
        return Err(Problem::new(StatusCode::CONFLICT, detail).about(&resource).at(mark));
    }
    let leader = admin.store.election(resource.clone()).await.map_err(stopped)?.leader;
    let deposed = leader.filter(|leader| leader.token < token);
    if order.dry_run {
        return Ok(Done { deposed, ..Done::new(resource, cell, Outcome::Tried { would_change: true }) });
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
    Ok(Done { deposed, ..Done::new(resource, Some(cell), Outcome::Changed) })
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
