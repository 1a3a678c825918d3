//! One incarnation of this replica, from its join to its fence.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use highgate_elector::Resource;
use tokio::task::AbortHandle;

use super::proofs::Proofs;
use super::queues::Queues;
use super::retell::Told;
use crate::config::Naming;
use crate::ledger::validity::Counted;
use crate::names::{Names, NamesError};
use crate::replica::{Incarnation, Proposal, Replica, Revision};

/// What is known and under way in this incarnation. Ends the watch when it is dropped.
pub(super) struct Session {
    /// Counts joins: answers to an older session's questions are dropped.
    pub(super) number: u64,
    pub(super) me: Incarnation,
    pub(super) created: Revision,
    /// The highest revision of a renewal that etcd has confirmed, the join included.
    pub(super) confirmed: Revision,
    pub(super) replica: Replica,
    /// How resources are named, and the revision of that.
    pub(super) names: (Revision, Arc<Names>),
    /// A gateway that waits for its own names to be known to all.
    pub(super) renaming: Option<Renaming>,
    /// None until requests pass.
    pub(super) counted: Option<Counted>,
    pub(super) queues: Queues,
    /// The last revision whose candidates are in the queues.
    pub(super) seen: Revision,
    pub(super) told: Told,
    pub(super) proofs: Proofs,
    /// Not sent yet.
    pub(super) proposals: BTreeMap<Resource, Proposal>,
    /// Transactions with proposals that are not answered yet.
    pub(super) sending: usize,
    /// Resources that are open for everybody, but have requests of an earlier incarnation under way here.
    pub(super) held_back: HashSet<Resource>,
    /// Everything is being read again.
    pub(super) listing: bool,
    /// Longer lock-delays that somebody waits to see in etcd.
    pub(super) promises: Vec<Promise>,
    /// When everything was last begun to be read again.
    pub(super) listed_at: Option<Instant>,
    pub(super) watch: AbortHandle,
    /// Changes of an older watch of this session are out of date.
    pub(super) watch_number: u64,
    pub(super) joined_at: Instant,
}

/// New names that are on their way.
pub(super) struct Renaming {
    pub(super) own: Naming,
    pub(super) reply: mpsc::Sender<Result<(), NamesError>>,
}

/// A lock-delay that may be used once etcd has it.
pub(super) struct Promise {
    pub(super) lock_delay: Duration,
    pub(super) reply: mpsc::Sender<()>,
}

/// An incarnation that is over, but has requests under way. When they have ended it leaves, so that nobody has to
/// wait for its tombstone.
pub(super) struct Leaver {
    pub(super) incarnation: Incarnation,
    /// None of one that never passed a request.
    pub(super) counted: Option<Counted>,
    /// Somebody is about to tell etcd.
    pub(super) leaving: bool,
    /// Not before this.
    pub(super) retry_at: Option<Instant>,
}

impl Leaver {
    pub(super) fn new(incarnation: Incarnation, counted: Option<Counted>) -> Self {
        Self { incarnation, counted, leaving: false, retry_at: None }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.watch.abort();
        self.proofs.clear();
        if let Some(renaming) = self.renaming.take() {
            let _ = renaming.reply.send(Err(NamesError::Away));
        }
        for promise in self.promises.drain(..) {
            // The next join carries it, and nothing passes before that.
            let _ = promise.reply.send(());
        }
    }
}
