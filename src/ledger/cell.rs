//! One resource and its gate: admits requests, says why one may not pass, and knows in which state it is.
//!
//! Workers admit here and the admin port looks. Only the ledger, on the store's behalf, closes and opens. What must stay
//! true: a request that passes has taken its place in the gate's word first, and asked for the validity second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use highgate_elector::{Resource, Token};
use tokio::sync::futures::OwnedNotified;

use super::mark::{self, Drain, Mark, Release};
use super::validity::Validity;
use super::{NotOpened, Permit, Shared};
use crate::controls::{Rule, breaks};

/// One resource and its gate. There may be millions, so what only a few need is elsewhere.
pub struct Cell {
    resource: Resource,
    mark: Mark,
    shared: Arc<Shared>,
    /// Requests refused since the process started.
    refused: AtomicU32,
    /// A [`Shut`]; says nothing while the gate is open.
    shut: AtomicU8,
    /// The [`State`] that it is counted under.
    counted: AtomicU8,
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

/// A resource as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// No token has been seen yet.
    Unset,
    /// Requests with the mark pass.
    Open,
    Raising,
    Frozen,
    Vacant,
}

impl State {
    pub(super) const ALL: [Self; 5] = [Self::Unset, Self::Open, Self::Raising, Self::Frozen, Self::Vacant];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unset => "unset",
            Self::Open => "open",
            Self::Raising => "raising",
            Self::Frozen => "frozen",
            Self::Vacant => "vacant",
        }
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
    /// The resource is new, and there are as many as there may be.
    NoRoom { limit: usize },
}

impl Cell {
    pub(super) fn new(resource: Resource, shared: Arc<Shared>) -> Self {
        Self {
            resource,
            mark: Mark::shut_at(shared.floor.load(Ordering::SeqCst)),
            shared,
            refused: AtomicU32::new(0),
            shut: AtomicU8::new(Shut::Raised as u8),
            counted: AtomicU8::new(State::Unset as u8),
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
        let permit = Permit::new(self, token, counted);
        // The same for who halts the ledger.
        if permit.cell().is_halted() { Err(Denied::Halted) } else { Ok(permit) }
    }

    fn is_halted(&self) -> bool {
        self.shared.halted.load(Ordering::SeqCst)
    }

    pub(super) fn validity(&self) -> &Validity {
        &self.shared.validity
    }

    pub(super) fn close(&self, mark: u64, shut: Shut) -> Drain {
        self.shut.store(shut as u8, Ordering::Release);
        let mark = if breaks(Rule::SealCompare) { mark } else { mark.max(self.mark.token()) };
        let drain = self.mark.close(mark);
        self.recount();
        self.wake();
        drain
    }

    /// For [`super::Ledger::open`].
    pub(super) fn open(&self, mark: u64, blocks: bool) -> Result<(), NotOpened> {
        let known = self.mark();
        if known != mark && !breaks(Rule::SealCompare) && !breaks(Rule::LoadAfterJoin) {
            return Err(NotOpened::WentBack { known, mark });
        }
        if known != mark {
            let _ = self.close(mark, Shut::Raised);
        }
        self.shut.store(Shut::Raised as u8, Ordering::Release);
        self.blocks.store(blocks, Ordering::Release);
        let opened = self.mark.open();
        self.recount();
        opened?;
        self.wake();
        Ok(())
    }

    /// For a replica that is fenced. Nobody waits for the drain: the incarnation it was for is over.
    pub(super) fn shut_at_its_mark(&self) {
        let _ = self.mark.close(self.mark());
        self.recount();
    }

    /// After the gate has changed. The swap makes it right whoever comes first.
    fn recount(&self) {
        let state = self.state();
        let before = self.counted.swap(state as u8, Ordering::AcqRel);
        if before != state as u8 {
            if before != State::Unset as u8 {
                self.shared.states[usize::from(before)].fetch_sub(1, Ordering::Relaxed);
            }
            self.shared.states[state as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A request has left. The last one out of a closed gate reports it.
    pub(super) fn release(&self) {
        if self.mark.release() == Release::Drained {
            (self.shared.on_drained)(&self.resource);
        }
    }

    /// What [`Cell::admit`] would say, without taking a place. A stale answer is final.
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
            mark::Denied::Stale { mark } => Denied::Stale { mark },
            _ if self.is_halted() => Denied::Halted,
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

    pub fn state(&self) -> State {
        match () {
            () if self.is_frozen() => State::Frozen,
            // Below every token of the era: none has been seen yet.
            () if self.mark().trailing_zeros() >= 48 => State::Unset,
            () if self.is_vacant() => State::Vacant,
            () if self.is_open() => State::Open,
            () => State::Raising,
        }
    }

    /// Whether everybody knows that unknown outcomes of the open mark are left to an operator.
    pub fn blocks(&self) -> bool {
        self.blocks.load(Ordering::Acquire)
    }

    pub fn in_flight(&self) -> u64 {
        self.mark.in_flight()
    }

    pub(super) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed).into()
    }
}
