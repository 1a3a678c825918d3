//! Cells that say nothing, dropped by whoever leaves them last.
//!
//! A mark is never forgotten. But a request makes a cell before it is known whether its token will become the mark, and may
//! be refused: the store is away, too many wait, the token is of an era that has not begun. Clients choose the names,
//! so such cells would fill the memory. What must stay true: a cell is dropped only if a new one would be the same, and
//! nobody holds it. That nobody can come to hold it meanwhile is the map's own lock.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use highgate_elector::Resource;

use super::{Ledger, State};

impl Ledger {
    /// Drops the resource's cell if no token was ever seen there, no operator has shut it, and nobody holds it: to be called by
    /// whoever has let go of such a cell.
    pub fn forget_unset(&self, resource: &Resource) {
        let says_nothing = |cell: &super::ByName| {
            let is_held = Arc::strong_count(&cell.0) > 1;
            // Counting orders nothing by itself: what the last holder did to the cell is to be seen below.
            fence(Ordering::Acquire);
            !is_held && cell.0.state() == State::Unset && cell.0.in_flight() == 0
        };
        if self.cells.remove_if(resource.as_str(), |cell, ()| says_nothing(cell)).is_none() {
            return;
        }
        self.room.give_back();
        let mut waiters = self.shared.waiters.lock();
        // Who waits for the resource again has its own entry, or holds this one.
        if waiters.get(resource).is_some_and(|waiters| Arc::strong_count(waiters) == 1) {
            waiters.remove(resource);
        }
    }
}

#[cfg(test)]
mod tests {
    use highgate_elector::Token;

    use super::*;
    use crate::ledger::Shut;

    fn resource() -> Resource {
        Resource::parse("ledger").unwrap()
    }

    #[test]
    fn a_cell_without_a_mark_is_dropped_by_whoever_leaves_it_last() {
        let ledger = Ledger::new(|_| {});
        let (first, second) = (ledger.enter(&resource()), ledger.enter(&resource()));
        drop((first.changed(), first));
        ledger.forget_unset(&resource());
        assert_eq!(ledger.len(), 1, "somebody holds it");
        let waits = second.changed();
        drop((waits, second));
        ledger.forget_unset(&resource());
        assert!(ledger.is_empty() && ledger.shared.waiters.lock().is_empty());
    }

    #[test]
    fn a_mark_is_never_forgotten_nor_what_an_operator_said() {
        let ledger = Ledger::new(|_| {});
        for (mark, shut) in [(7, Shut::Raised), (7, Shut::Vacant), (0, Shut::Frozen), (7, Shut::Frozen)] {
            let _ = ledger.close(&resource(), mark, shut);
            ledger.forget_unset(&resource());
            assert_eq!(ledger.len(), 1, "{mark} {shut:?}");
        }
    }

    #[test]
    fn a_mark_of_an_era_that_has_ended_is_what_every_new_cell_has() {
        let ledger = Ledger::new(|_| {});
        let _ = ledger.close(&resource(), 7, Shut::Raised);
        ledger.bound(1 << 48, 2 << 48);
        ledger.forget_unset(&resource());
        assert!(ledger.is_empty());
        let stale = ledger.enter(&resource()).look(Token::new(8).unwrap());
        assert_eq!(stale, Err(crate::ledger::Denied::Stale { mark: 1 << 48 }));
    }

    #[test]
    fn who_waits_hears_of_a_change_whichever_cell_it_came_from() {
        let ledger = Ledger::new(|_| {});
        let waits = ledger.enter(&resource()).changed();
        ledger.forget_unset(&resource());
        let _ = ledger.close(&resource(), 7, Shut::Raised);
        let heard = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let limit = std::time::Duration::from_secs(5);
        assert!(heard.block_on(async { tokio::time::timeout(limit, waits).await }).is_ok());
    }
}
