//! What is fenced, at which mark, and what was refused: `GET /v1/resources` and `GET /v1/resource`.

use std::sync::Arc;

use highgate_elector::Resource;
use http::StatusCode;
use serde::Serialize;

use super::answer::{Answer, Problem, as_json};
use super::caller::Caller;
use super::{Admin, query};
use crate::ledger::Cell;
use crate::store::elections::Leader;

/// A resource as operators see it.
#[derive(Serialize)]
pub(super) struct View<'a> {
    resource: &'a str,
    mark: u64,
    state: &'static str,
    in_flight: u64,
    refused: u64,
    /// Who was elected here and leads; null where nobody does, or somebody elected elsewhere.
    leader: Option<String>,
}

/// A part of all resources, in the order of their names.
#[derive(Serialize)]
struct List<'a> {
    resources: Vec<View<'a>>,
    /// Pass it as `after` for the next part; null at the end.
    next: Option<&'a str>,
    /// Of all resources that may be seen, not only of these.
    total: usize,
    /// How many requests may make.
    max_resources: usize,
    refused: u64,
}

impl<'a> View<'a> {
    fn of(cell: &'a Cell, leader: Option<Leader>) -> Self {
        Self {
            resource: cell.resource().as_str(),
            mark: cell.mark(),
            state: cell.state().as_str(),
            in_flight: cell.in_flight(),
            refused: cell.refused(),
            leader: leader.map(|leader| leader.holder),
        }
    }
}

/// Those that the caller may see, and no word of the others.
pub(super) async fn list(admin: &Admin, caller: &Caller, query: Option<&str>) -> Result<Answer, Problem> {
    let ledger = admin.store.ledger();
    let sees_all = caller.may_use_everything();
    let is_seen = |resource: &Resource| sees_all || caller.may_use(resource);
    let limit = query::limit(query)?;
    let after = query::resource(query, "after")?;
    // One more than is shown tells whether there is a next part.
    let cells = ledger.page_of(after.as_ref(), limit + 1, is_seen);
    let shown = &cells[..cells.len().min(limit)];
    let next = shown.last().filter(|_| shown.len() < cells.len()).map(|cell| cell.resource().as_str());
    let leaders = leaders(admin, shown).await;
    let (total, refused) = if sees_all { (ledger.len(), ledger.refused()) } else { ledger.count_of(is_seen) };
    Ok(as_json(&List {
        resources: shown.iter().zip(leaders).map(|(cell, leader)| View::of(cell, leader)).collect(),
        next,
        total,
        max_resources: ledger.resource_limit(),
        refused,
    }))
}

pub(super) async fn show(admin: &Admin, caller: &Caller, query: Option<&str>) -> Result<Answer, Problem> {
    let missing = || query::bad_request("the parameter name says which resource".to_owned());
    let resource = query::resource(query, "name")?.ok_or_else(missing)?;
    caller.check(&resource)?;
    let cell = admin.store.ledger().get(resource.as_str()).ok_or_else(|| unknown(&resource))?;
    Ok(as_json(&view(admin, &cell).await))
}

/// One resource as it stands.
pub(super) async fn view<'a>(admin: &Admin, cell: &'a Arc<Cell>) -> View<'a> {
    let leader = leaders(admin, std::slice::from_ref(cell)).await.pop().flatten();
    View::of(cell, leader)
}

/// Who leads each of them. A store that has stopped knows of nobody; the marks are still worth showing.
async fn leaders(admin: &Admin, cells: &[Arc<Cell>]) -> Vec<Option<Leader>> {
    let resources = cells.iter().map(|cell| cell.resource().clone()).collect();
    admin.store.leaders(resources).await.unwrap_or_else(|_| vec![None; cells.len()])
}

pub(super) fn unknown(resource: &Resource) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format!("no token was ever seen for {resource}")).about(resource)
}
