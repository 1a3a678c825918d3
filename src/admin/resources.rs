//! What is fenced, at which mark, and what was refused: `GET /v1/resources` and `GET /v1/resource`.

use std::sync::Arc;

use highgate_elector::Resource;
use http::StatusCode;
use serde::Serialize;

use super::answer::{Answer, Problem, as_json};
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
    /// Of all resources, not only of these.
    total: usize,
    refused: u64,
}

impl<'a> View<'a> {
    fn of(cell: &'a Cell, leader: Option<Leader>) -> Self {
        let mark = cell.mark();
        Self {
            resource: cell.resource().as_str(),
            mark,
            state: match () {
                () if cell.is_frozen() => "frozen",
                // Below every token of the era: none has been seen yet.
                () if mark.trailing_zeros() >= 48 => "unset",
                () if cell.is_vacant() => "vacant",
                () if cell.is_open() => "open",
                () => "raising",
            },
            in_flight: cell.in_flight(),
            refused: cell.refused(),
            leader: leader.map(|leader| leader.holder),
        }
    }
}

pub(super) async fn list(admin: &Admin, query: Option<&str>) -> Result<Answer, Problem> {
    let ledger = admin.store.ledger();
    let limit = query::limit(query)?;
    let after = query::resource(query, "after")?;
    // One more than is shown tells whether there is a next part.
    let cells = ledger.page(after.as_ref(), limit + 1);
    let shown = &cells[..cells.len().min(limit)];
    let next = shown.last().filter(|_| shown.len() < cells.len()).map(|cell| cell.resource().as_str());
    let leaders = leaders(admin, shown).await;
    Ok(as_json(&List {
        resources: shown.iter().zip(leaders).map(|(cell, leader)| View::of(cell, leader)).collect(),
        next,
        total: ledger.len(),
        refused: ledger.refused(),
    }))
}

pub(super) async fn show(admin: &Admin, query: Option<&str>) -> Result<Answer, Problem> {
    let missing = || query::bad_request("the parameter name says which resource".to_owned());
    let resource = query::resource(query, "name")?.ok_or_else(missing)?;
    let cell = admin.store.ledger().get(resource.as_str()).ok_or_else(|| unknown(&resource))?;
    Ok(view(admin, cell).await)
}

/// One resource as it stands.
pub(super) async fn view(admin: &Admin, cell: Arc<Cell>) -> Answer {
    let leader = leaders(admin, std::slice::from_ref(&cell)).await.pop().flatten();
    as_json(&View::of(&cell, leader))
}

/// Who leads each of them. A store that has stopped knows of nobody; the marks are still worth showing.
async fn leaders(admin: &Admin, cells: &[Arc<Cell>]) -> Vec<Option<Leader>> {
    let resources = cells.iter().map(|cell| cell.resource().clone()).collect();
    admin.store.leaders(resources).await.unwrap_or_else(|_| vec![None; cells.len()])
}

pub(super) fn unknown(resource: &Resource) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format!("no token was ever seen for {resource}")).about(resource)
}
