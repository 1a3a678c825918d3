//! A request in flight. While its permit lives, no higher token passes.
//!
//! Whoever forwards a request holds its permit until the request has certainly ended, and the ledger keeps those of which
//! nobody knows whether they have. What must stay true: a permit is deliberately not `Clone`, because two owners would be
//! two ends of one request, and the first of them would let the next leader in while the request goes on.

use std::sync::Arc;

use highgate_elector::{Resource, Token};

use super::Cell;
use super::validity::Counted;

/// A request in flight under a token. Dropping it says: this request has certainly ended.
pub struct Permit {
    cell: Arc<Cell>,
    token: Token,
    counted: Counted,
    /// The same request under another name of its resource, while a change of names is under way.
    alias: Option<Box<Permit>>,
}

impl Permit {
    /// Of a request that has taken its place in the cell's gate and was counted.
    pub(super) fn new(cell: Arc<Cell>, token: Token, counted: Counted) -> Self {
        Self { cell, token, counted, alias: None }
    }

    pub(super) fn cell(&self) -> &Cell {
        &self.cell
    }

    pub fn resource(&self) -> &Resource {
        self.cell.resource()
    }

    pub fn token(&self) -> Token {
        self.token
    }

    /// Whether the request is in flight under this name.
    pub(super) fn is_under(&self, resource: &Resource) -> bool {
        self.cell.resource() == resource || self.alias.as_ref().is_some_and(|alias| alias.is_under(resource))
    }

    /// The request is in flight under the other permit's name as well: both end together.
    pub fn and(mut self, other: Self) -> Self {
        let mut end = &mut self.alias;
        while let Some(next) = end {
            end = &mut next.alias;
        }
        *end = Some(Box::new(other));
        self
    }

    /// The incarnation that admitted this request.
    pub fn counted(&self) -> Counted {
        self.counted
    }

    /// Whether the incarnation that admitted this request has ended.
    pub fn is_over(&self) -> bool {
        self.cell.validity().is_over(self.counted)
    }

    /// Whether a higher token waits for this request to end.
    pub fn is_superseded(&self) -> bool {
        self.cell.mark() > self.token.get() || self.alias.as_ref().is_some_and(|alias| alias.is_superseded())
    }

    /// Whether another request with its token would be refused, and not only for now: a higher token waits, its leader has
    /// gone, or an operator keeps the resource shut.
    pub fn is_shut_out(&self) -> bool {
        let shut = self.cell.is_frozen() || self.cell.is_vacant();
        shut || self.is_superseded() || self.alias.as_ref().is_some_and(|alias| alias.is_shut_out())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.cell.validity().leave(self.counted);
        self.cell.release();
    }
}
