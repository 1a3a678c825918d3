//! Every resource's mark, on the hot path: the only concurrent map.
//!
//! The gate admits requests here and the admin port reads here; the store's driver, alone, moves marks by
//! [`Ledger::close`] and [`Ledger::open`]. A [`Cell`] is one resource with its gate, a [`Permit`] one request in flight:
//! while it lives, no higher token passes.

mod cell;
mod forget;
mod holders;
pub mod mark;
mod permit;
mod room;
pub mod validity;

use std::borrow::Borrow;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use highgate_elector::{Resource, Token};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::tls::Identity;
pub use cell::{Cell, Denied, Shut, State};
use holders::Holders;
use mark::{Drain, StillHeld};
pub use permit::Permit;
use room::Room;
use validity::Validity;

/// Cells by their own names. Names come from clients, so the hash is keyed.
type Cells = DashMap<ByName, (), foldhash::quality::RandomState>;

/// A cell that is found by its name. The name lies beside the gate's word, so that comparing it brings in
/// what the admission needs next.
struct ByName(Arc<Cell>);

/// Resource to mark.
pub struct Ledger {
    cells: Cells,
    shared: Arc<Shared>,
    /// Requests that ended with unknown outcome on routes that leave the verdict to an operator.
    blocked: Mutex<HashMap<Resource, Vec<Permit>>>,
    holders: Holders,
    room: Room,
}

/// What every cell needs of the ledger.
struct Shared {
    /// How many cells are in each [`State`], but for those that were never in another than the first.
    states: [AtomicU64; State::ALL.len()],
    on_drained: Box<dyn Fn(&Resource) + Send + Sync>,
    halted: AtomicBool,
    validity: Arc<Validity>,
    /// Every token below is of an era that has ended.
    floor: AtomicU64,
    /// Every token from here on is of an era that has not begun.
    ceiling: AtomicU64,
    refused: AtomicU64,
    /// Who waits for a change of a resource. Made by the first waiter, taken by the next change.
    waiters: Mutex<HashMap<Resource, Arc<Notify>>>,
}

impl Shared {
    fn is_unborn(&self, token: Token) -> bool {
        token.get() >= self.ceiling.load(Ordering::Acquire)
    }
}

/// Why a gate stays shut although the store says that it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOpened {
    #[error(transparent)]
    Held(#[from] StillHeld),
    #[error("the mark is {known} here, and the store says {mark}: it has lost what it had committed")]
    WentBack { known: u64, mark: u64 },
}

impl Ledger {
    /// Of a process that is alone. `on_drained` hears of every closed gate that was left by its last request.
    pub fn new(on_drained: impl Fn(&Resource) + Send + Sync + 'static) -> Self {
        Self::with_validity(Arc::new(Validity::always()), on_drained)
    }

    /// Of one of many replicas.
    pub fn with_validity(
        validity: Arc<Validity>,
        on_drained: impl Fn(&Resource) + Send + Sync + 'static,
    ) -> Self {
        let shared = Shared {
            states: Default::default(),
            on_drained: Box::new(on_drained),
            halted: AtomicBool::new(false),
            validity,
            floor: AtomicU64::new(0),
            ceiling: AtomicU64::new(u64::MAX),
            refused: AtomicU64::new(0),
            waiters: Mutex::default(),
        };
        Self {
            cells: Cells::default(),
            shared: Arc::new(shared),
            blocked: Mutex::default(),
            holders: Holders::default(),
            room: Room::default(),
        }
    }

    pub fn get(&self, resource: &str) -> Option<Arc<Cell>> {
        self.cells.get(resource).map(|cell| cell.key().0.clone())
    }

    /// The resource's cell, made shut and without a mark if this is the first that is heard of it.
    pub fn enter(&self, resource: &Resource) -> Arc<Cell> {
        if let Some(cell) = self.get(resource.as_str()) {
            return cell;
        }
        self.room.take();
        self.insert(resource)
    }

    /// The cell of a place that was taken in the room.
    fn insert(&self, resource: &Resource) -> Arc<Cell> {
        let fresh = ByName(Arc::new(Cell::new(resource.clone(), self.shared.clone())));
        match self.cells.entry(fresh) {
            Entry::Vacant(place) => place.insert(()).key().0.clone(),
            Entry::Occupied(known) => {
                // Somebody else has just made it.
                self.room.give_back();
                known.key().0.clone()
            }
        }
    }

    /// Shuts a resource under a mark. A mark never goes down, whatever the store has lost. The store's driver
    /// only.
    pub fn close(&self, resource: &Resource, mark: u64, shut: Shut) -> Drain {
        self.enter(resource).close(mark, shut)
    }

    /// Opens a resource at this mark, which it has. `blocks`: everybody knows that unknown outcomes of it are left
    /// to an operator. The store's driver only.
    pub fn open(&self, resource: &Resource, mark: u64, blocks: bool) -> Result<(), NotOpened> {
        self.enter(resource).open(mark, blocks)
    }

    /// Every token below `floor` is stale and none from `ceiling` on was issued, on every resource, known or not.
    /// The store's driver only.
    pub fn bound(&self, floor: u64, ceiling: u64) {
        self.shared.floor.fetch_max(floor, Ordering::SeqCst);
        self.shared.ceiling.store(ceiling, Ordering::SeqCst);
        let below: Vec<_> =
            self.cells.iter().map(|cell| cell.key().0.clone()).filter(|cell| cell.mark() < floor).collect();
        for cell in below {
            // Whoever waits for the drain of a mark of an older era waits for nothing: it never opens.
            let _ = cell.close(floor, Shut::Raised);
        }
    }

    /// Who leads a resource now, by token and identity; none: nobody, or somebody of whom nothing is known. The store's
    /// driver only, before the gate opens at the token.
    pub fn note_holder(&self, resource: &Resource, holder: Option<(Token, &str)>) {
        self.holders.note(resource, holder);
    }

    /// Whether the token was issued to who has this identity; none if nobody knows to whom it was.
    pub fn is_held_by(&self, resource: &Resource, token: Token, identity: Option<&Identity>) -> Option<bool> {
        self.holders.ask(resource, token, |owner| identity.is_some_and(|identity| identity.is(owner)))
    }

    /// Whether a token is of an era that has not begun.
    pub fn is_unborn(&self, token: Token) -> bool {
        self.shared.is_unborn(token)
    }

    /// Shuts every gate: the replica is fenced, and knows nothing for certain until it has joined anew. The
    /// store's driver only.
    pub fn close_all(&self) {
        let cells: Vec<_> = self.cells.iter().map(|cell| cell.key().0.clone()).collect();
        for cell in cells {
            cell.shut_at_its_mark();
        }
        self.wake_all();
    }

    pub fn validity(&self) -> &Arc<Validity> {
        &self.shared.validity
    }

    /// Nothing passes any more, on any resource, for as long as the process lives.
    pub fn halt(&self) {
        self.shared.halted.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    /// Whoever waits at a gate looks again.
    pub fn wake_all(&self) {
        for (_, waiters) in self.shared.waiters.lock().drain() {
            waiters.notify_waiters();
        }
    }

    pub fn is_halted(&self) -> bool {
        self.shared.halted.load(Ordering::SeqCst)
    }

    /// Keeps a request in flight, as far as the fence is concerned, until [`Ledger::settle`].
    pub fn block(&self, permit: Permit) {
        self.blocked.lock().entry(permit.resource().clone()).or_default().push(permit);
    }

    /// An operator says that everything blocked on this resource has ended.
    pub fn settle(&self, resource: &Resource) {
        let mut settled = Vec::new();
        self.blocked.lock().retain(|_, permits| {
            settled.extend(permits.extract_if(.., |permit| permit.is_under(resource)));
            !permits.is_empty()
        });
        // Dropped outside the lock: giving permits back calls the driver.
        drop(settled);
    }

    /// Whether requests of this resource are kept in flight here until an operator settles them.
    pub fn is_blocked(&self, resource: &Resource) -> bool {
        self.blocked.lock().values().flatten().any(|permit| permit.is_under(resource))
    }

    /// Requests kept in flight until an operator settles them.
    pub fn blocked(&self) -> u64 {
        self.blocked.lock().values().map(|permits| permits.len() as u64).sum()
    }

    /// Fenced requests in flight whose resource waits for them at a higher mark.
    pub fn superseded(&self) -> u64 {
        if self.shared.states[State::Raising as usize].load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let in_flight = |cell: &Cell| if cell.state() == State::Raising { cell.in_flight() } else { 0 };
        self.cells.iter().map(|cell| in_flight(&cell.key().0)).sum()
    }

    /// How many resources are in each state. Those that wait for an operator to settle an unknown outcome are `blocked`,
    /// and nothing else.
    pub fn states(&self) -> Vec<(&'static str, u64)> {
        let count = |state: State| self.shared.states[state as usize].load(Ordering::Relaxed);
        let mut states: Vec<_> =
            State::ALL[1..].iter().map(|state| (state.as_str(), count(*state))).collect();
        let blocked: Vec<Resource> = self.blocked.lock().keys().cloned().collect();
        for cell in blocked.iter().filter_map(|resource| self.get(resource.as_str())) {
            for (_, count) in states.iter_mut().filter(|(state, _)| *state == cell.state().as_str()) {
                *count = count.saturating_sub(1);
            }
        }
        states.push(("blocked", blocked.len() as u64));
        states
    }

    /// Fenced requests in flight on all resources.
    pub fn in_flight(&self) -> u64 {
        self.shared.validity.in_flight()
    }

    pub fn len(&self) -> usize {
        self.cells.len()
    }

    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// The first `limit` cells by name, of those whose names come after `after`. For the admin port.
    pub fn page(&self, after: Option<&Resource>, limit: usize) -> Vec<Arc<Cell>> {
        self.page_of(after, limit, |_| true)
    }

    /// The same of those resources that are wanted.
    pub fn page_of(
        &self,
        after: Option<&Resource>,
        limit: usize,
        wanted: impl Fn(&Resource) -> bool,
    ) -> Vec<Arc<Cell>> {
        let mut first = BinaryHeap::with_capacity(limit + 1);
        for cell in &self.cells {
            let cell = cell.key();
            if after.is_none_or(|after| cell.0.resource() > after) && wanted(cell.0.resource()) {
                first.push(ByName(cell.0.clone()));
            }
            if first.len() > limit {
                first.pop();
            }
        }
        first.into_sorted_vec().into_iter().map(|cell| cell.0).collect()
    }

    /// How many of the wanted resources there are, and how many of their requests were refused.
    pub fn count_of(&self, wanted: impl Fn(&Resource) -> bool) -> (usize, u64) {
        let cells = self.cells.iter();
        let refused = cells.filter(|cell| wanted(cell.key().0.resource())).map(|cell| cell.key().0.refused());
        refused.fold((0, 0), |(count, sum), refused| (count + 1, sum + refused))
    }

    /// Requests refused since the process started, those that named no resource included.
    pub fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }

    /// Counts a request that was refused. A resource that was never seen gets no cell by that.
    pub fn count_refused(&self, resource: Option<&Resource>) {
        self.shared.refused.fetch_add(1, Ordering::Relaxed);
        if let Some(cell) = resource.and_then(|resource| self.get(resource.as_str())) {
            cell.count_refused();
        }
    }
}

impl Borrow<str> for ByName {
    fn borrow(&self) -> &str {
        self.0.resource().as_str()
    }
}

impl Hash for ByName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.resource().as_str().hash(state);
    }
}

impl PartialEq for ByName {
    fn eq(&self, other: &Self) -> bool {
        self.0.resource() == other.0.resource()
    }
}

impl Eq for ByName {}

impl Ord for ByName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.resource().cmp(other.0.resource())
    }
}

impl PartialOrd for ByName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests;
