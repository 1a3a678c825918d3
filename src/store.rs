//! Where marks are durable, and the driver that moves them.
//!
//! A store runs the [`crate::replica`] machine on a thread of its own: it commits what the machine proposes,
//! tells it what was committed, and carries its outputs to the [`Ledger`]. Everybody else holds a [`Store`]
//! and sends wishes; what became of them is seen in the ledger.

pub mod elections;
pub mod embedded;
pub mod etcd;
pub mod once;
pub mod overview;
#[cfg(test)]
pub(crate) mod pretend;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use arc_swap::ArcSwap;
use highgate_elector::{Resource, Token};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::config::Naming;
use crate::ledger::{Ledger, NotOpened};
use crate::names::{Names, NamesError};
use crate::replica::{Incarnation, Input, Revision, Unsettled, Want};
use overview::Overview;

/// How many raises may queue before more are turned away. Each is a few dozen bytes.
const MAX_QUEUED: usize = 65_536;

/// The way to the store's driver. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    inbox: Inbox,
    queued: Arc<AtomicUsize>,
    ledger: Arc<Ledger>,
    overview: Arc<ArcSwap<Overview>>,
    /// The store does not answer at present.
    away: Arc<AtomicBool>,
    change_of_names: ChangeOfNames,
}

/// The names of a change that is not finished.
type ChangeOfNames = Arc<Mutex<Option<Arc<Names>>>>;

/// Where a driver hears of wishes.
#[derive(Clone)]
enum Inbox {
    Thread(mpsc::Sender<Command>),
    Task(tokio::sync::mpsc::UnboundedSender<Command>),
}

enum Command {
    Input(Input),
    /// A gate was left by its last request. Checked again before it counts.
    Left(Resource),
    /// Requests may be under way for this long after an end that nobody saw, and be cut after this long.
    Promise {
        lock_delay: Duration,
        drain_timeout: Duration,
        reply: mpsc::Sender<()>,
    },
    Election(elections::Order),
    /// An operator is about to settle what a resource may still wait for.
    AskUnsettled {
        resource: Resource,
        reply: oneshot::Sender<Unsettled>,
    },
    /// The routes are to be replaced by some that name resources like this.
    Name {
        own: Naming,
        reply: mpsc::Sender<Result<(), NamesError>>,
    },
    Override(Override),
    /// Somebody brings a token above the mark that an election is said to have issued.
    Prove {
        resource: Resource,
        token: Token,
        block: Option<bool>,
        reply: Verdict,
    },
    /// The validity of this replica has ended.
    Expired(etcd::Ended),
    /// End: with a clean marker, if nothing is outstanding.
    Stop {
        reply: mpsc::Sender<bool>,
    },
}

/// How a gateway names resources, and what it does when the store's names change.
pub struct OwnNames {
    pub naming: Naming,
    /// When this returns, every request that is claimed from then on is checked under these names. Called by the
    /// driver before anything passes, and with every change.
    pub changed: Box<dyn Fn(Revision, Arc<Names>) + Send>,
}

impl OwnNames {
    /// The same, and keeps what a change is about that is not finished.
    fn remembered(self) -> (Self, ChangeOfNames) {
        let change = ChangeOfNames::default();
        let (kept, told) = (change.clone(), self.changed);
        let changed = Box::new(move |revision, names: Arc<Names>| {
            *kept.lock() = Some(names.clone()).filter(|names| names.next.is_some());
            told(revision, names);
        });
        (Self { naming: self.naming, changed }, change)
    }
}

impl Default for OwnNames {
    /// Of a store without routes before it.
    fn default() -> Self {
        Self { naming: Naming::default(), changed: Box::new(|_, _| ()) }
    }
}

/// How long a gateway waits for the others to be told of new names.
const NAMES_LIMIT: Duration = Duration::from_secs(10);

/// Why a running store stopped.
#[derive(Debug, thiserror::Error)]
pub enum StoreFailed {
    #[error(transparent)]
    Commit(#[from] embedded::CommitError),
    /// The machine was wrong about a gate: a bug. Shut is the only safe state.
    #[error("the fence of {resource} would have opened too early")]
    OpenedEarly { resource: Resource, source: NotOpened },
    #[error("the store's thread has ended by a fault of its own")]
    Died,
}

/// What an operator may order of all replicas at once.
enum Override {
    /// Every token issued so far becomes stale.
    BumpEra { from: Option<u64>, reply: oneshot::Sender<Result<Bumped, OverrideError>> },
    /// Takes a replica out, whatever it does.
    Retire { replica: Incarnation, reply: oneshot::Sender<Result<(), OverrideError>> },
}

/// What became of an order to begin a new era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bumped {
    /// The era now.
    pub era: u64,
    /// False: the era that was to be ended had ended already.
    pub changed: bool,
}

/// Why an operator's order was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverrideError {
    #[error("the embedded store is one process with tokens of its own: it has no eras and no other replicas")]
    Alone,
    #[error("no such replica takes part")]
    NoSuchReplica,
    #[error("the store did not carry it out: {0}")]
    Failed(String),
    #[error(transparent)]
    Stopped(#[from] elections::StoreStopped),
}

/// Who waits to hear whether a token was issued. Fine means: its raise is committed.
type Verdict = oneshot::Sender<Result<(), Unproved>>;

/// Why a token does not become the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unproved {
    /// Nobody was issued it, or whoever was does not lead (any more, or yet).
    NotIssued,
    /// It is of an era that has ended; every token below this is stale.
    Stale { mark: u64 },
    /// Too many ask.
    Overloaded,
    /// The store does not answer, or this replica is fenced.
    Away,
}

/// The queue of raises is full: the store is slower than the demand.
#[derive(Debug, thiserror::Error)]
#[error("too many raises are queued")]
pub struct Overloaded;

impl Store {
    /// Asks for a mark to be raised. Watch the resource's cell for what becomes of it.
    pub fn want(&self, resource: Resource, token: Token, block: Option<bool>) -> Result<(), Overloaded> {
        if self.queued.load(Ordering::Relaxed) >= MAX_QUEUED {
            return Err(Overloaded);
        }
        self.send(Input::Want(Want { resource, token, block, proof: None, patient: false }));
        Ok(())
    }

    /// Has everybody know that an unknown outcome under the mark is left to an operator. The resource's cell shows
    /// when they do.
    pub fn block(&self, resource: Resource) -> Result<(), Overloaded> {
        if self.queued.load(Ordering::Relaxed) >= MAX_QUEUED {
            return Err(Overloaded);
        }
        self.send(Input::Block { resource });
        Ok(())
    }

    /// Whether a token above the mark may have been issued without the mark having been raised for it already.
    pub fn proves(&self) -> bool {
        matches!(self.inbox, Inbox::Task(_))
    }

    /// Asks for a mark to be raised to a token, if an election issued it to who leads now.
    pub async fn prove(&self, resource: Resource, token: Token, block: Option<bool>) -> Result<(), Unproved> {
        if self.queued.load(Ordering::Relaxed) >= MAX_QUEUED {
            return Err(Unproved::Overloaded);
        }
        let (reply, answer) = oneshot::channel();
        self.inbox.send(Command::Prove { resource, token, block, reply });
        answer.await.unwrap_or(Err(Unproved::Away))
    }

    /// Whether the store does not answer at present.
    pub fn is_away(&self) -> bool {
        self.away.load(Ordering::Relaxed)
    }

    /// Shuts a resource, or lets it go on and settles the unknown outcomes that block it, on every replica.
    pub fn freeze(&self, resource: Resource, frozen: bool) {
        self.send(Input::Freeze { resource, frozen });
    }

    /// Whether a process other than this one may have left unknown outcomes of a resource to an operator.
    pub async fn unsettled(&self, resource: Resource) -> Result<Unsettled, elections::StoreStopped> {
        let (reply, answer) = oneshot::channel();
        self.inbox.send(Command::AskUnsettled { resource, reply });
        answer.await.map_err(|_| elections::StoreStopped)
    }

    fn send(&self, input: Input) {
        self.queued.fetch_add(1, Ordering::Relaxed);
        // A driver that has stopped has halted the ledger before: the wish is refused there.
        self.inbox.send(Command::Input(input));
    }

    /// Makes a longer lock-delay durable, for the process after this one and for other replicas. Blocks until it is.
    pub fn promise(&self, lock_delay: Duration, drain_timeout: Duration) {
        let (reply, answer) = mpsc::channel();
        self.inbox.send(Command::Promise { lock_delay, drain_timeout, reply });
        // No answer: the store has failed, and nothing passes any more.
        let _ = answer.recv();
    }

    /// Has everybody know that resources are to be named like this, before the routes that do so are put into force.
    /// Blocks until they may be.
    pub fn rename(&self, own: Naming) -> Result<(), NamesError> {
        let (reply, answer) = mpsc::channel();
        self.inbox.send(Command::Name { own, reply });
        answer.recv_timeout(NAMES_LIMIT).unwrap_or(Err(NamesError::Away))
    }

    /// The names of a change that is not finished: requests are checked under those of before and those of after it.
    pub fn change_of_names(&self) -> Option<Arc<Names>> {
        self.change_of_names.lock().clone()
    }

    /// Everything under way here has the names that were announced at this revision.
    pub fn names_known(&self, revision: Revision) {
        self.send(Input::NamesKnown { revision });
    }

    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Ends the driver. True if the store was left clean: nothing under way, nothing unknown.
    pub fn stop(&self) -> bool {
        let (reply, answer) = mpsc::channel();
        self.inbox.send(Command::Stop { reply });
        answer.recv().unwrap_or(false)
    }

    /// The replicas that share the marks, as they were a moment ago.
    pub fn overview(&self) -> Arc<Overview> {
        self.overview.load_full()
    }

    /// Makes every token issued so far stale; `from`: only if that is the era now.
    pub async fn bump_era(&self, from: Option<u64>) -> Result<Bumped, OverrideError> {
        self.override_with(|reply| Override::BumpEra { from, reply }).await
    }

    /// Takes a replica out. If it lives, it fences itself and joins anew.
    pub async fn retire(&self, replica: Incarnation) -> Result<(), OverrideError> {
        self.override_with(|reply| Override::Retire { replica, reply }).await
    }

    async fn override_with<T>(
        &self,
        order: impl FnOnce(oneshot::Sender<Result<T, OverrideError>>) -> Override,
    ) -> Result<T, OverrideError> {
        let (reply, answer) = oneshot::channel();
        self.inbox.send(Command::Override(order(reply)));
        answer.await.map_err(|_| elections::StoreStopped)?
    }
}

impl Inbox {
    /// To a driver that has stopped, nothing is said: whoever waits for an answer sees its sender dropped.
    fn send(&self, command: Command) {
        match self {
            Self::Thread(sender) => drop(sender.send(command)),
            Self::Task(sender) => drop(sender.send(command)),
        }
    }
}
