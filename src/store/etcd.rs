//! Marks in etcd, shared by any number of replicas: the store that drives [`crate::replica`] over etcd's log.
//!
//! One thread with a runtime of its own is the driver: it watches everything below the prefix, proposes, renews
//! and carries out what the machine says. A second thread, the warden, ends the validity on time whatever the
//! first one does. No request asks etcd anything: a mark that is open here is open until the watch says
//! otherwise or the validity ends, and nobody seals a higher one before this replica has acknowledged it or is
//! certainly fenced.

mod answers;
mod ballot;
mod base;
mod campaign;
mod driver;
mod endings;
mod leaders;
mod link;
mod load;
mod memory;
mod names;
mod once;
mod overrides;
mod pages;
mod prepare;
mod proofs;
mod queues;
mod requests;
mod retell;
mod revoke;
mod serve;
mod session;
mod terms;
mod upkeep;
mod values;
mod view;
mod warden;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;
use highgate_etcd::keys::Keys;
use highgate_etcd::{Client, OpenError};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};

pub(super) use self::ballot::as_lease;
use self::driver::{Driver, Shared};
use self::link::Link;
use self::memory::Memory;
pub use self::memory::MemoryError;
pub use self::prepare::{PrepareError, Prepared, prepare};
use self::upkeep::Upkeep;
pub(crate) use self::warden::Ended;
use self::warden::Watched;
use super::{Command, Inbox, OwnNames, Store, StoreFailed};
use crate::config::Etcd;
use crate::events::Notice;
use crate::ledger::Ledger;
use crate::ledger::validity::Validity;
use crate::replica::Timing;

/// What the store needs to know of its replica.
pub struct Setup {
    pub config: Etcd,
    /// What this replica calls itself.
    pub name: String,
    /// The longest of all routes.
    pub lock_delay: Duration,
    pub drain_timeout: Duration,
    /// Resets every upstream connection that carries a fenced request, now.
    pub cut: Arc<dyn Fn() + Send + Sync>,
    /// How this replica names resources.
    pub names: OwnNames,
    /// Hears of every change, on the driver's thread.
    pub tell: Box<dyn Fn(Notice) + Send>,
}

/// Why the store could not be started. That etcd does not answer is not among it: the replica waits for it.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error("cannot use the etcd endpoints or certificates")]
    Client(#[from] OpenError),
    #[error("cannot start the store's threads")]
    Thread(#[from] std::io::Error),
}

/// Starts the driver and the warden. The replica joins as soon as etcd answers; until then nothing passes.
pub fn start(setup: Setup) -> Result<(Store, oneshot::Receiver<StoreFailed>), StartError> {
    let Setup { config, name, lock_delay, drain_timeout, cut, names, tell } = setup;
    let (names, change_of_names) = names.remembered();
    let memory = Arc::new(Memory::open(&config.path)?);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let client = {
        let _within = runtime.enter();
        Client::open(&config.url)?
    };
    let timing = Timing { validity: config.validity, lock_delay, drain_timeout };
    let validity = Arc::new(Validity::fenced(config.validity / 20));
    let (commands, inbox) = mpsc::unbounded_channel();
    let left = commands.clone();
    let ledger = Arc::new(Ledger::with_validity(validity.clone(), move |resource| {
        // Without a driver the ledger is halted, and nobody waits for this drain.
        let _ = left.send(Command::Left(resource.clone()));
    }));
    let watched = Arc::new(Watched::new(validity));
    let link = Link { client, keys: Arc::new(Keys::new(&config.url.prefix)), memory };
    let shared = Shared {
        ledger: ledger.clone(),
        watched: watched.clone(),
        cut: cut.clone(),
        queued: Arc::new(AtomicUsize::new(0)),
        away: Arc::new(AtomicBool::new(false)),
        own_names: names,
        overview: Arc::new(ArcSwap::from_pointee(view::outside(
            &config.url.to_string(),
            "it has not joined yet",
        ))),
    };
    let store = Store {
        inbox: Inbox::Task(commands.clone()),
        queued: shared.queued.clone(),
        ledger,
        overview: shared.overview.clone(),
        away: shared.away.clone(),
        change_of_names,
    };
    start_warden(watched, cut, commands)?;
    let save = start_memory(link.memory.clone())?;
    let mut driver = Driver::new(link, config.url.to_string(), name, timing, shared, tell, save);
    driver.upkeep = Upkeep::new(config.compact);
    let failed = start_driver(runtime, driver, inbox, store.ledger.clone())?;
    Ok((store, failed))
}

/// Writes what is remembered whenever it is asked to, until nobody can ask any more.
fn start_memory(memory: Arc<Memory>) -> std::io::Result<std::sync::mpsc::Sender<()>> {
    let (save, asked) = std::sync::mpsc::channel();
    let run = move || {
        while asked.recv().is_ok() {
            while asked.try_recv().is_ok() {}
            if let Err(error) = memory.save() {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "cannot remember how far etcd has come");
            }
        }
    };
    thread::Builder::new().name("memory".into()).spawn(run)?;
    Ok(save)
}

fn start_warden(
    watched: Arc<Watched>,
    cut: Arc<dyn Fn() + Send + Sync>,
    commands: mpsc::UnboundedSender<Command>,
) -> std::io::Result<()> {
    let run = move || {
        warden::run(&watched, |why| {
            cut();
            // Without a driver there is nothing left to fence.
            let _ = commands.send(Command::Expired(why));
        });
    };
    thread::Builder::new().name("warden".into()).spawn(run).map(drop)
}

/// A driver that dies takes everything with it: the warden would fence anyway, but nobody would join again.
fn start_driver(
    runtime: Runtime,
    driver: Driver,
    inbox: mpsc::UnboundedReceiver<Command>,
    ledger: Arc<Ledger>,
) -> std::io::Result<oneshot::Receiver<StoreFailed>> {
    let (fail, failed) = oneshot::channel();
    let run = move || {
        let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(driver.run(inbox))));
        if ended.is_err() {
            ledger.halt();
            let _ = fail.send(StoreFailed::Died);
        } else {
            // A stop is no failure, and whoever waits for one goes on waiting.
            std::mem::forget(fail);
        }
    };
    thread::Builder::new().name("store".into()).spawn(run)?;
    Ok(failed)
}
