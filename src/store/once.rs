//! The run-once ledger: what leaders have begun and completed, by resource and key, and what operators ask of it.

use std::time::{Duration, SystemTime};

use highgate_elector::{Resource, Token};
use tokio::sync::oneshot;

use super::Store;
use super::elections::{Order, StoreStopped};
use crate::elections::{Actor, Lease, NotHeld};

/// Which entry of the ledger. A key belongs to its resource: the same key of another resource is another entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub resource: Resource,
    pub key: String,
}

/// A leader's step in the ledger.
#[derive(Clone, Debug)]
pub struct OnceOrder {
    pub place: Place,
    pub lease: Lease,
    pub actor: Actor,
    pub complete: bool,
}

/// What the ledger says of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnceEntry {
    /// Else somebody is running it, or was when it was deposed.
    pub completed: bool,
    pub holder: String,
    pub token: Token,
    /// By the clock of who wrote it.
    pub at: SystemTime,
}

/// A part of the ledger, in the order in which the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// None: of all resources.
    pub resource: Option<Resource>,
    /// Only what comes after this entry.
    pub after: Option<Place>,
    pub limit: usize,
}

/// What the driver is asked about the ledger.
pub(super) enum Question {
    Step { order: OnceOrder, reply: oneshot::Sender<Result<OnceEntry, NotHeld>> },
    List { wanted: Wanted, reply: oneshot::Sender<Vec<(Place, OnceEntry)>> },
    Show { place: Place, reply: oneshot::Sender<Option<OnceEntry>> },
    Reset { place: Place, reply: oneshot::Sender<Option<OnceEntry>> },
    Keep { age: Duration },
}

impl Store {
    /// A leader's step: what the ledger says now.
    pub async fn once(&self, order: OnceOrder) -> Result<Result<OnceEntry, NotHeld>, StoreStopped> {
        self.ask(|reply| Order::Once(Question::Step { order, reply })).await
    }

    pub async fn list_once(&self, wanted: Wanted) -> Result<Vec<(Place, OnceEntry)>, StoreStopped> {
        self.ask(|reply| Order::Once(Question::List { wanted, reply })).await
    }

    pub async fn show_once(&self, place: Place) -> Result<Option<OnceEntry>, StoreStopped> {
        self.ask(|reply| Order::Once(Question::Show { place, reply })).await
    }

    /// Forgets an entry, so that the next leader runs it again. What it was; none if there was none.
    pub async fn reset_once(&self, place: Place) -> Result<Option<OnceEntry>, StoreStopped> {
        self.ask(|reply| Order::Once(Question::Reset { place, reply })).await
    }

    /// Has the store forget entries that are older than this, now and then.
    pub fn keep_once(&self, age: Duration) {
        self.order(Order::Once(Question::Keep { age }));
    }
}
