//! Where marks are durable, and the driver that moves them.
//!
//! A store runs the [`crate::replica`] machine on a thread of its own: it commits what the machine proposes,
//! tells it what was committed, and carries its outputs to the [`Ledger`]. Everybody else holds a [`Store`]
//! and sends wishes; what became of them is seen in the ledger.

pub mod elections;
pub mod embedded;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use highgate_elector::{Resource, Token};

use crate::ledger::Ledger;
use crate::replica::Input;

/// How many raises may queue before more are turned away. Each is a few dozen bytes.
const MAX_QUEUED: usize = 65_536;

/// The way to the store's driver. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    commands: mpsc::Sender<Command>,
    queued: Arc<AtomicUsize>,
    ledger: Arc<Ledger>,
}

enum Command {
    Input(Input),
    /// A gate was left by its last request. Checked again before it counts.
    Left(Resource),
    /// Requests may be under way for this long after an end that nobody saw.
    Promise {
        lock_delay: Duration,
        reply: mpsc::Sender<()>,
    },
    Election(elections::Order),
    /// End: with a clean marker, if nothing is outstanding.
    Stop {
        reply: mpsc::Sender<bool>,
    },
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
        self.send(Input::Want { resource, token, block });
        Ok(())
    }

    /// Shuts a resource, or lets it go on and settles the unknown outcomes that block it.
    pub fn freeze(&self, resource: Resource, frozen: bool) {
        if !frozen {
            self.ledger.settle(&resource);
        }
        self.send(Input::Freeze { resource, frozen });
    }

    fn send(&self, input: Input) {
        self.queued.fetch_add(1, Ordering::Relaxed);
        // A driver that has stopped has halted the ledger before: the wish is refused there.
        let _ = self.commands.send(Command::Input(input));
    }

    /// Makes a longer lock-delay durable, for the process after this one. Blocks until it is.
    pub fn promise(&self, lock_delay: Duration) {
        let (reply, answer) = mpsc::channel();
        let _ = self.commands.send(Command::Promise { lock_delay, reply });
        // No answer: the store has failed, and nothing passes any more.
        let _ = answer.recv();
    }

    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Ends the driver. True if the store was left clean: nothing under way, nothing unknown.
    pub fn stop(&self) -> bool {
        let (reply, answer) = mpsc::channel();
        self.commands.send(Command::Stop { reply }).is_ok() && answer.recv().unwrap_or(false)
    }
}
