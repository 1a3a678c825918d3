//! How many resources there are, and how many requests may make of them.
//!
//! Names come from clients, and a mark is never forgotten, in memory or on disk. What must stay true: a request that finds
//! no room leaves nothing behind, and what the store says is taken in whatever the limit is, for it is durable already.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use highgate_elector::{Resource, Token};

use super::{Cell, Denied, Ledger};

/// Places for cells.
pub(super) struct Room {
    taken: AtomicUsize,
    limit: AtomicUsize,
}

impl Default for Room {
    fn default() -> Self {
        Self { taken: AtomicUsize::new(0), limit: AtomicUsize::new(usize::MAX) }
    }
}

impl Room {
    pub(super) fn take(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn give_back(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes a place, if there is one below the limit. That is one step: of two who want the last place one gets it.
    fn take_below_limit(&self) -> Result<(), Denied> {
        let limit = self.limit.load(Ordering::Relaxed);
        let next = |taken: usize| (taken < limit).then_some(taken + 1);
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        taken.map(|_| ()).map_err(|_| Denied::NoRoom { limit })
    }
}

impl Ledger {
    /// The resource's cell, made if this is the first that is heard of it and there is room. If there is none, why the
    /// token does not pass: one that is stale everywhere is stale here.
    pub fn enter_if_room(&self, resource: &Resource, token: Token) -> Result<Arc<Cell>, Denied> {
        if let Some(cell) = self.get(resource.as_str()) {
            return Ok(cell);
        }
        match self.room.take_below_limit() {
            Ok(()) => Ok(self.insert(resource)),
            Err(no_room) => match self.look(resource, token) {
                Err(denied) if !matches!(denied, Denied::Ahead { .. } | Denied::Raising) => Err(denied),
                _ => Err(no_room),
            },
        }
    }

    /// How a token stands to the mark of a resource, which need not have one yet. Nothing is kept.
    pub fn look(&self, resource: &Resource, token: Token) -> Result<(), Denied> {
        match self.get(resource.as_str()) {
            Some(cell) => cell.look(token),
            None => Cell::new(resource.clone(), self.shared.clone()).look(token),
        }
    }

    /// From now on requests make no more than so many resources.
    pub fn limit_resources(&self, limit: usize) {
        self.room.limit.store(limit, Ordering::Relaxed);
    }

    /// How many resources requests may make.
    pub fn resource_limit(&self) -> usize {
        self.room.limit.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Shut;

    fn name(number: usize) -> Resource {
        Resource::parse(&format!("name/{number}")).unwrap()
    }

    fn token(number: u64) -> Token {
        Token::new(number).unwrap()
    }

    #[test]
    fn of_many_who_want_the_last_places_only_so_many_get_one() {
        let ledger = Ledger::new(|_| {});
        ledger.limit_resources(10);
        let entered = std::thread::scope(|scope| {
            let enter = |first: usize| {
                let ledger = &ledger;
                move || {
                    (0..50)
                        .filter(|number| ledger.enter_if_room(&name(first + number), token(7)).is_ok())
                        .count()
                }
            };
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(enter(thread * 50))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
        assert_eq!((entered, ledger.len()), (10, 10));
    }

    #[test]
    fn a_place_is_free_again_once_its_cell_is_forgotten() {
        let ledger = Ledger::new(|_| {});
        ledger.limit_resources(1);
        drop(ledger.enter_if_room(&name(1), token(7)).unwrap());
        assert!(ledger.enter_if_room(&name(1), token(8)).is_ok(), "it is known");
        assert_eq!(ledger.enter_if_room(&name(2), token(7)).err(), Some(Denied::NoRoom { limit: 1 }));
        ledger.forget_unset(&name(1));
        drop(ledger.enter_if_room(&name(2), token(7)).unwrap());
    }

    #[test]
    fn the_store_is_believed_whatever_the_limit_is() {
        let ledger = Ledger::new(|_| {});
        ledger.limit_resources(1);
        for number in 0..3 {
            let _ = ledger.close(&name(number), 7, Shut::Raised);
        }
        assert_eq!(ledger.len(), 3);
        assert!(ledger.enter_if_room(&name(2), token(8)).is_ok());
        assert!(ledger.enter_if_room(&name(3), token(8)).is_err());
        ledger.limit_resources(4);
        assert!(ledger.enter_if_room(&name(3), token(8)).is_ok());
    }

    #[test]
    fn a_token_that_is_stale_everywhere_is_stale_where_there_is_no_room() {
        let ledger = Ledger::new(|_| {});
        ledger.limit_resources(0);
        ledger.bound(1 << 48, u64::MAX);
        assert_eq!(ledger.enter_if_room(&name(1), token(7)).err(), Some(Denied::Stale { mark: 1 << 48 }));
        ledger.halt();
        assert_eq!(ledger.enter_if_room(&name(1), token(2 << 48)).err(), Some(Denied::Halted));
    }
}
