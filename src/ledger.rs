//! Every resource's mark, on the hot path: the only concurrent map.
//!
//! The gate admits requests here and the admin port reads here; the store's driver, alone, moves marks by
//! [`Ledger::close`] and [`Ledger::open`]. A [`Permit`] is one request in flight: while it lives, no higher
//! token passes. It is deliberately not `Clone`: two owners would be two ends of one request.

pub mod mark;
pub mod validity;

use std::borrow::Borrow;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use dashmap::DashMap;
use highgate_elector::{Resource, Token};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use crate::controls::{Rule, breaks};
use mark::{Drain, Mark, Release, StillHeld};
use validity::{Counted, Validity};

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
}

/// One resource and its gate. There may be millions, so what only a few need is elsewhere.
pub struct Cell {
    resource: Resource,
    mark: Mark,
    shared: Arc<Shared>,
    /// Stale requests refused since the process started.
    refused: AtomicU32,
    /// A [`Shut`]; says nothing while the gate is open.
    shut: AtomicU8,
    /// Everybody knows that unknown outcomes of the mark are left to an operator.
    blocks: AtomicBool,
}

/// Why a gate is shut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Shut {
    /// Its mark waits for lower tokens to drain; the mark itself will pass.
    Raised,
    /// An operator keeps it shut.
    Frozen,
    /// The leader whose token the mark is has gone; the next one's will be higher.
    Vacant,
}

/// What every cell needs of the ledger.
struct Shared {
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

/// Why a request may not pass now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// Below the mark. Final.
    Stale { mark: u64 },
    /// Above the mark: it has to be raised first.
    Ahead { mark: u64 },
    /// At the mark, which is raised but not open yet.
    Raising,
    /// An operator keeps the resource shut.
    Frozen { mark: u64 },
    /// At the mark, whose leader has gone.
    Vacant { mark: u64 },
    /// The resource has as many requests in flight as can be counted.
    Full,
    /// The store failed: no mark can be trusted to be durable, so nothing passes.
    Halted,
    /// This replica is not, or not any more, one of those that may pass requests.
    Fenced,
    /// Of an era that has not begun: nobody can have been issued it.
    Unborn { mark: u64 },
}

/// Why a gate stays shut although the store says that it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOpened {
    #[error(transparent)]
    Held(#[from] StillHeld),
    #[error("the mark is {known} here, and the store says {mark}: it has lost what it had committed")]
    WentBack { known: u64, mark: u64 },
}

/// A request in flight under a token. Dropping it says: this request has certainly ended.
pub struct Permit {
    cell: Arc<Cell>,
    token: Token,
    counted: Counted,
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
            on_drained: Box::new(on_drained),
            halted: AtomicBool::new(false),
            validity,
            floor: AtomicU64::new(0),
            ceiling: AtomicU64::new(u64::MAX),
            refused: AtomicU64::new(0),
            waiters: Mutex::default(),
        };
        Self { cells: Cells::default(), shared: Arc::new(shared), blocked: Mutex::default() }
    }

    pub fn get(&self, resource: &str) -> Option<Arc<Cell>> {
        self.cells.get(resource).map(|cell| cell.key().0.clone())
    }

    /// The resource's cell, made shut and without a mark if this is the first that is heard of it.
    pub fn enter(&self, resource: &Resource) -> Arc<Cell> {
        if let Some(cell) = self.get(resource.as_str()) {
            return cell;
        }
        let fresh = ByName(Arc::new(Cell::new(resource.clone(), self.shared.clone())));
        self.cells.entry(fresh).or_insert(()).key().0.clone()
    }

    /// Shuts a resource under a mark. A mark never goes down, whatever the store has lost. The store's driver
    /// only.
    pub fn close(&self, resource: &Resource, mark: u64, shut: Shut) -> Drain {
        self.enter(resource).close(mark, shut)
    }

    /// Opens a resource at this mark, which it has. `blocks`: everybody knows that unknown outcomes of it are left
    /// to an operator. The store's driver only.
    pub fn open(&self, resource: &Resource, mark: u64, blocks: bool) -> Result<(), NotOpened> {
        let cell = self.enter(resource);
        let known = cell.mark();
        if known != mark && !breaks(Rule::SealCompare) && !breaks(Rule::LoadAfterJoin) {
            return Err(NotOpened::WentBack { known, mark });
        }
        if known != mark {
            let _ = cell.close(mark, Shut::Raised);
        }
        cell.shut.store(Shut::Raised as u8, Ordering::Release);
        cell.blocks.store(blocks, Ordering::Release);
        cell.mark.open()?;
        cell.wake();
        Ok(())
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

    /// Whether a token is of an era that has not begun.
    pub fn is_unborn(&self, token: Token) -> bool {
        self.shared.is_unborn(token)
    }

    /// Shuts every gate: the replica is fenced, and knows nothing for certain until it has joined anew. The
    /// store's driver only.
    pub fn close_all(&self) {
        let cells: Vec<_> = self.cells.iter().map(|cell| cell.key().0.clone()).collect();
        for cell in cells {
            // Nobody waits for these drains: the incarnation they were for is over.
            let _ = cell.mark.close(cell.mark());
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
        let settled = self.blocked.lock().remove(resource);
        // Dropped outside the lock: giving permits back calls the driver.
        drop(settled);
    }

    /// Requests kept in flight until an operator settles them.
    pub fn blocked(&self) -> u64 {
        self.blocked.lock().values().map(|permits| permits.len() as u64).sum()
    }

    /// Fenced requests in flight whose resource waits for them at a higher mark.
    pub fn superseded(&self) -> u64 {
        let cells = self.cells.iter().map(|cell| cell.key().0.clone());
        cells
            .filter(|cell| !cell.is_open() && !cell.is_frozen() && !cell.is_vacant())
            .map(|cell| cell.in_flight())
            .sum()
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
        let mut first = BinaryHeap::with_capacity(limit + 1);
        for cell in &self.cells {
            let cell = cell.key();
            if after.is_none_or(|after| cell.0.resource > *after) {
                first.push(ByName(cell.0.clone()));
            }
            if first.len() > limit {
                first.pop();
            }
        }
        first.into_sorted_vec().into_iter().map(|cell| cell.0).collect()
    }

    /// Stale requests refused on all resources since the process started.
    pub fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }
}

impl Cell {
    fn new(resource: Resource, shared: Arc<Shared>) -> Self {
        Self {
            resource,
            mark: Mark::shut_at(shared.floor.load(Ordering::SeqCst)),
            shared,
            refused: AtomicU32::new(0),
            shut: AtomicU8::new(Shut::Raised as u8),
            blocks: AtomicBool::new(false),
        }
    }

    /// Admits a request, or says why not. Local and synchronous: this is the hot path.
    pub fn admit(self: Arc<Self>, token: Token) -> Result<Permit, Denied> {
        // Read before the place is taken: a gate that was open before a fence does not count after it.
        let incarnation = self.shared.validity.incarnation();
        if let Err(denied) = self.mark.admit(token) {
            return Err(self.explain(denied));
        }
        // Asked after the place was taken: who fences and then sees nothing in flight is right.
        let Some(counted) = self.shared.validity.enter(incarnation) else {
            self.release();
            return Err(Denied::Fenced);
        };
        let permit = Permit { cell: self, token, counted };
        // The same for who halts the ledger.
        if permit.cell.shared.halted.load(Ordering::SeqCst) { Err(Denied::Halted) } else { Ok(permit) }
    }

    fn close(&self, mark: u64, shut: Shut) -> Drain {
        self.shut.store(shut as u8, Ordering::Release);
        let mark = if breaks(Rule::SealCompare) { mark } else { mark.max(self.mark.token()) };
        let drain = self.mark.close(mark);
        self.wake();
        drain
    }

    fn release(&self) {
        if self.mark.release() == Release::Drained {
            (self.shared.on_drained)(&self.resource);
        }
    }

    /// What [`Cell::admit`] would say, without taking a place. A stale answer is final, and counted as refused.
    pub fn look(&self, token: Token) -> Result<(), Denied> {
        let mark = self.mark.token();
        let denied = match token.get().cmp(&mark) {
            std::cmp::Ordering::Less => mark::Denied::Stale { mark },
            std::cmp::Ordering::Greater if self.shared.is_unborn(token) => {
                return Err(Denied::Unborn { mark });
            }
            std::cmp::Ordering::Greater => mark::Denied::Ahead { mark },
            std::cmp::Ordering::Equal if self.mark.is_open() => return Ok(()),
            std::cmp::Ordering::Equal => mark::Denied::Closed,
        };
        Err(self.explain(denied))
    }

    /// Stale first, whatever else holds: a deposed leader must not be told to try again.
    fn explain(&self, denied: mark::Denied) -> Denied {
        match denied {
            mark::Denied::Stale { mark } => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                self.shared.refused.fetch_add(1, Ordering::Relaxed);
                Denied::Stale { mark }
            }
            _ if self.shared.halted.load(Ordering::SeqCst) => Denied::Halted,
            _ if !self.shared.validity.holds() => Denied::Fenced,
            _ if self.is_frozen() => Denied::Frozen { mark: self.mark.token() },
            mark::Denied::Ahead { mark } => Denied::Ahead { mark },
            mark::Denied::Closed if self.is_vacant() => Denied::Vacant { mark: self.mark.token() },
            mark::Denied::Closed => Denied::Raising,
            mark::Denied::Full => Denied::Full,
        }
    }

    /// Completes at the next change of this cell. Subscribe first, look second, wait third.
    pub fn changed(&self) -> OwnedNotified {
        self.shared.waiters.lock().entry(self.resource.clone()).or_default().clone().notified_owned()
    }

    fn wake(&self) {
        let waiters = self.shared.waiters.lock().remove(&self.resource);
        if let Some(waiters) = waiters {
            waiters.notify_waiters();
        }
    }

    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// The mark, 0 before the first token.
    pub fn mark(&self) -> u64 {
        self.mark.token()
    }

    pub fn is_open(&self) -> bool {
        self.mark.is_open()
    }

    pub fn is_frozen(&self) -> bool {
        self.shut.load(Ordering::Acquire) == Shut::Frozen as u8
    }

    /// Whether the leader whose token the mark is has gone.
    pub fn is_vacant(&self) -> bool {
        self.shut.load(Ordering::Acquire) == Shut::Vacant as u8
    }

    /// Whether everybody knows that unknown outcomes of the open mark are left to an operator.
    pub fn blocks(&self) -> bool {
        self.blocks.load(Ordering::Acquire)
    }

    pub fn in_flight(&self) -> u64 {
        self.mark.in_flight()
    }

    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed).into()
    }
}

impl Borrow<str> for ByName {
    fn borrow(&self) -> &str {
        self.0.resource.as_str()
    }
}

impl Hash for ByName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.resource.as_str().hash(state);
    }
}

impl PartialEq for ByName {
    fn eq(&self, other: &Self) -> bool {
        self.0.resource == other.0.resource
    }
}

impl Eq for ByName {}

impl Ord for ByName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.resource.cmp(&other.0.resource)
    }
}

impl PartialOrd for ByName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Permit {
    pub fn resource(&self) -> &Resource {
        &self.cell.resource
    }

    pub fn token(&self) -> Token {
        self.token
    }

    /// The incarnation that admitted this request.
    pub fn counted(&self) -> Counted {
        self.counted
    }

    /// Whether the incarnation that admitted this request has ended.
    pub fn is_over(&self) -> bool {
        self.cell.shared.validity.is_over(self.counted)
    }

    /// Whether a higher token waits for this request to end.
    pub fn is_superseded(&self) -> bool {
        self.cell.mark() > self.token.get()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.cell.shared.validity.leave(self.counted);
        self.cell.release();
    }
}

#[cfg(test)]
mod tests;
