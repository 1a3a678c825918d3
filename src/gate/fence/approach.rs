//! A token before its gates: one, or one for each name while a change of names counts. It waits there until they are open,
//! and has the store raise the mark where it may.
//!
//! What must stay true: the store is asked only for a token that may raise a mark, and no gate is opened for one that
//! may not pass under another of its names.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use highgate_elector::{Resource, Token};
use tokio::time::timeout_at;

use super::refusal;
use crate::config::{OnUnknown, Route, Tokens};
use crate::gate::Worker;
use crate::gate::respond::Refusal;
use crate::ledger::{self, Denied, Permit};
use crate::store::Unproved;

/// A token on its way to an open gate.
struct Approach<'a> {
    worker: &'a Worker,
    route: &'a Route,
    /// The client's.
    address: IpAddr,
    resource: &'a Resource,
    token: Token,
    /// Since when the request waits: the hold time-out counts over all its waits, under whatever names.
    held_since: &'a Cell<Option<Instant>>,
    asked: bool,
    /// The token was found to pass under another name of the resource, so it may raise this one's mark.
    vouched: bool,
    /// The gate had no mark when this came: if it has none when this goes, it need not be kept.
    is_first: bool,
}

impl Drop for Approach<'_> {
    fn drop(&mut self) {
        if self.is_first {
            self.worker.ledger.forget_unset(self.resource);
        }
    }
}

/// A request before its gates.
pub(super) struct Waiting<'a> {
    pub(super) worker: &'a Worker,
    pub(super) route: &'a Route,
    pub(super) address: IpAddr,
    pub(super) token: Token,
    pub(super) held_since: Cell<Option<Instant>>,
}

impl Waiting<'_> {
    pub(super) fn to<'a>(&'a self, resource: &'a Resource, aliases: &'a [Resource]) -> Approaches<'a> {
        let Self { worker, route, address, token, held_since } = self;
        let to = |resource| Approach {
            worker,
            route,
            address: *address,
            resource,
            token: *token,
            held_since,
            asked: false,
            vouched: false,
            is_first: false,
        };
        Approaches { first: to(resource), others: aliases.iter().map(to).collect() }
    }
}

impl Approach<'_> {
    /// Whether any higher token raises the mark. One with a signature is here only if that was good, and then it was
    /// issued: whether its holder still leads is said by the mark, which a departed leader's does not open.
    fn is_trusted(&self) -> bool {
        self.vouched || self.route.tokens != Tokens::Issued
    }

    /// The token was found to pass under another name. That nobody could prove it for this one does not count any more.
    fn vouch(&mut self) {
        self.vouched = true;
        self.asked = false;
    }

    /// Waits, no longer than the route's hold time-out, until the gate is open at this token.
    async fn wait_until_open(&mut self) -> Result<Arc<ledger::Cell>, Refusal> {
        let cell = match self.find()? {
            Some(cell) => cell,
            None => self.prove().await?,
        };
        if let View::Open = self.look(&cell)? {
            return Ok(cell);
        }
        loop {
            let changed = cell.changed();
            match self.look(&cell)? {
                View::Open => return Ok(cell),
                View::Unproved => drop(self.prove().await?),
                View::Shut => {
                    if timeout_at(self.deadline().into(), changed).await.is_err() {
                        return Err(self.late());
                    }
                }
            }
        }
    }

    /// The hold time-out counts over all waits of one request.
    fn deadline(&mut self) -> Instant {
        let since = self.held_since.get().unwrap_or_else(Instant::now);
        self.held_since.set(Some(since));
        since + self.route.hold_timeout
    }

    fn late(&self) -> Refusal {
        if self.worker.store.is_away() { Refusal::StoreUnavailable } else { Refusal::Raising }
    }

    /// The store is not asked for a client of whose tokens too many have failed, unless this one is good for certain: it leads
    /// under another name, or its signature was verified.
    fn check_bucket(&self) -> Result<(), Refusal> {
        let is_good = self.vouched || self.route.tokens == Tokens::Signed;
        if !is_good && self.worker.clients.is_spent(self.address) {
            return Err(Refusal::Throttled);
        }
        Ok(())
    }

    /// The resource's cell. Only a token that may raise makes a new one, for as long as it waits: others cost no memory.
    fn find(&mut self) -> Result<Option<Arc<ledger::Cell>>, Refusal> {
        match self.worker.ledger.get(self.resource.as_str()) {
            Some(cell) => {
                self.is_first = cell.state() == ledger::State::Unset;
                Ok(Some(cell))
            }
            None if self.is_trusted() => {
                let cell = self.worker.ledger.enter_if_room(self.resource, self.token);
                let cell = cell.map_err(|denied| refusal(self.worker, denied))?;
                self.is_first = true;
                Ok(Some(cell))
            }
            None if self.worker.store.proves() => Ok(None),
            None => Err(Refusal::NotIssued { mark: 0 }),
        }
    }

    fn look(&mut self, cell: &ledger::Cell) -> Result<View, Refusal> {
        match cell.look(self.token) {
            Ok(()) if self.route.on_unknown == OnUnknown::Block && !cell.blocks() => {
                // What this request may leave behind has to be known to everybody before it passes.
                self.worker.store.block(self.resource.clone()).map_err(|_| Refusal::Overloaded)?;
                Ok(View::Shut)
            }
            Ok(()) => Ok(View::Open),
            Err(Denied::Raising) => Ok(View::Shut),
            Err(Denied::Ahead { .. }) if self.is_trusted() => self.ask().map(|()| View::Shut),
            Err(Denied::Ahead { .. }) if self.asked => Ok(View::Shut),
            Err(Denied::Ahead { .. }) if self.worker.store.proves() => Ok(View::Unproved),
            // Whoever was elected had the mark raised before it was told its token.
            Err(Denied::Ahead { mark }) => Err(Refusal::NotIssued { mark }),
            Err(denied) => Err(refusal(self.worker, denied)),
        }
    }

    /// Has the store find out whether the token was issued to who leads now, and raise the mark if so.
    async fn prove(&mut self) -> Result<Arc<ledger::Cell>, Refusal> {
        self.check_bucket()?;
        self.asked = true;
        let block = self.route.on_unknown == OnUnknown::Block;
        let proof = self.worker.store.prove(self.resource.clone(), self.token, Some(block));
        let deadline = self.deadline();
        match timeout_at(deadline.into(), proof).await {
            Ok(Ok(())) => Ok(self.worker.ledger.enter(self.resource)),
            Ok(Err(Unproved::NotIssued)) => Err(Refusal::NotIssued { mark: self.mark() }),
            Ok(Err(Unproved::Stale { mark })) => Err(Refusal::Stale { mark }),
            Ok(Err(Unproved::Overloaded)) => Err(Refusal::Overloaded),
            Ok(Err(Unproved::Away)) => Err(refusal(self.worker, Denied::Fenced)),
            Err(_) => Err(self.late()),
        }
    }

    fn mark(&self) -> u64 {
        self.worker.ledger.get(self.resource.as_str()).map_or(0, |cell| cell.mark())
    }

    fn ask(&mut self) -> Result<(), Refusal> {
        if self.asked {
            return Ok(());
        }
        self.check_bucket()?;
        self.asked = true;
        let block = self.route.on_unknown == OnUnknown::Block;
        self.worker
            .store
            .want(self.resource.clone(), self.token, Some(block))
            .map_err(|_| Refusal::Overloaded)
    }
}

/// A token on its way to all the gates that its request has to pass: one, but for changes of names.
pub(super) struct Approaches<'a> {
    first: Approach<'a>,
    others: Vec<Approach<'a>>,
}

impl Approaches<'_> {
    pub(super) async fn wait_until_open(&mut self) -> Result<Cells, Refusal> {
        let mut others = Vec::new();
        let first = match self.others.as_mut_slice() {
            [] => self.first.wait_until_open().await?,
            aliases => {
                let first = wait_under_every_name(&mut self.first, aliases).await?;
                for alias in aliases {
                    alias.vouch();
                    others.push(alias.wait_until_open().await?);
                }
                first
            }
        };
        Ok(Cells { first, others })
    }
}

/// The gate under the first name, for a token that is stale under none and leads under one of them. Who leads under
/// the old name goes on until somebody leads under the new one: the higher token wins.
async fn wait_under_every_name(
    first: &mut Approach<'_>,
    aliases: &mut [Approach<'_>],
) -> Result<Arc<ledger::Cell>, Refusal> {
    for approach in std::iter::once(&*first).chain(&*aliases) {
        // Before any gate is opened for it: whoever may not pass under one of the names raises the mark of none.
        let looked = approach.worker.ledger.look(approach.resource, approach.token);
        if let Err(denied @ (Denied::Stale { .. } | Denied::Vacant { .. } | Denied::Frozen { .. })) = looked {
            return Err(refusal(approach.worker, denied));
        }
    }
    let not_issued = match first.wait_until_open().await {
        Err(refusal @ (Refusal::NotIssued { .. } | Refusal::Throttled)) if !first.vouched => refusal,
        decided => return decided,
    };
    for alias in aliases {
        match alias.wait_until_open().await {
            Ok(_) => {
                first.vouch();
                return first.wait_until_open().await;
            }
            Err(Refusal::NotIssued { .. } | Refusal::Throttled) => {}
            // It may pass later, or is frozen: that is not for good.
            Err(refusal) => return Err(refusal),
        }
    }
    Err(not_issued)
}

/// Gates that were all seen open.
pub(super) struct Cells {
    first: Arc<ledger::Cell>,
    others: Vec<Arc<ledger::Cell>>,
}

impl Cells {
    /// Admits the request under every name, or under none.
    pub(super) fn admit(self, token: Token) -> Result<Permit, Denied> {
        let permit = self.first.admit(token)?;
        self.others.into_iter().try_fold(permit, |permit, other| Ok(permit.and(other.admit(token)?)))
    }
}

/// What a token sees of its gate.
enum View {
    Open,
    /// It may open by waiting.
    Shut,
    /// The token is above the mark, and nobody has checked that it was issued.
    Unproved,
}
