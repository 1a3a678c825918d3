//! What is fenced, at which mark, and what was refused: `GET /v1/resources` and `GET /v1/resource`.

use highgate_elector::Resource;
use http::StatusCode;
use serde::Serialize;

use super::answer::{Answer, Problem, as_json};
use super::query;
use crate::ledger::{Cell, Ledger};

const DEFAULT_LIMIT: usize = 1000;
const MAX_LIMIT: usize = 10_000;

/// A resource as operators see it.
#[derive(Serialize)]
pub(super) struct View<'a> {
    resource: &'a str,
    mark: u64,
    state: &'static str,
    in_flight: u64,
    refused: u64,
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
    pub(super) fn of(cell: &'a Cell) -> Self {
        let mark = cell.mark();
        Self {
            resource: cell.resource().as_str(),
            mark,
            state: match () {
                () if cell.is_frozen() => "frozen",
                () if mark == 0 => "unset",
                () if cell.is_vacant() => "vacant",
                () if cell.is_open() => "open",
                () => "raising",
            },
            in_flight: cell.in_flight(),
            refused: cell.refused(),
        }
    }
}

pub(super) fn list(ledger: &Ledger, query: Option<&str>) -> Result<Answer, Problem> {
    let limit = limit(query)?;
    let after = query::resource(query, "after")?;
    // One more than is shown tells whether there is a next part.
    let cells = ledger.page(after.as_ref(), limit + 1);
    let shown = &cells[..cells.len().min(limit)];
    let next = shown.last().filter(|_| shown.len() < cells.len()).map(|cell| cell.resource().as_str());
    Ok(as_json(&List {
        resources: shown.iter().map(|cell| View::of(cell)).collect(),
        next,
        total: ledger.len(),
        refused: ledger.refused(),
    }))
}

pub(super) fn show(ledger: &Ledger, query: Option<&str>) -> Result<Answer, Problem> {
    let missing = || query::bad_request("the parameter name says which resource".to_owned());
    let resource = query::resource(query, "name")?.ok_or_else(missing)?;
    let cell = ledger.get(resource.as_str()).ok_or_else(|| unknown(&resource))?;
    Ok(as_json(&View::of(&cell)))
}

pub(super) fn unknown(resource: &Resource) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format!("no token was ever seen for {resource}")).about(resource)
}

fn limit(query: Option<&str>) -> Result<usize, Problem> {
    let Some(text) = query::parameter(query, "limit")? else { return Ok(DEFAULT_LIMIT) };
    let number = text.parse().ok().filter(|number| (1..=MAX_LIMIT).contains(number));
    number.ok_or_else(|| query::bad_request(format!("limit is a number from 1 to {MAX_LIMIT}, not {text:?}")))
}
