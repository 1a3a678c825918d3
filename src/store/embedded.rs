//! The default store: one process, marks in a redb file, durable before the first forward under them.
//!
//! Raises of many resources that arrive together share one commit, and so one fsync. The file is locked by
//! the process that has it open. The clean marker is written only by [`Store::stop`] with nothing
//! outstanding; a start that does not find it makes the process before a tombstone, and for the lock-delay
//! nothing opens that was not open. A failed write halts the ledger: what may not be durable does not count.

mod ballot;
mod driver;
mod file;
mod names;
mod once;

use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::oneshot;

use super::overview::Overview;
use super::{Command, Inbox, OwnNames, Store, StoreFailed};
use crate::events::Notice;
use crate::ledger::Ledger;
use driver::Driver;
use file::File;
pub use file::{CommitError, OpenError};

/// A running embedded store.
pub struct Embedded {
    pub store: Store,
    /// Completes if the store fails; nothing passes from then on.
    pub failed: oneshot::Receiver<StoreFailed>,
    /// Some if the process before this one ended uncleanly: for this long no raise opens.
    pub inherited_delay: Option<Duration>,
}

/// Opens (or makes) the store in this folder and starts its driver.
///
/// `lock_delay` is the longest of all routes. It is kept in the file, so that a later start with a shorter
/// one still honours what the process before had promised. `tell` hears of every change, on the driver's
/// thread.
pub fn start(
    folder: &Path,
    lock_delay: Duration,
    own: OwnNames,
    tell: impl Fn(Notice) + Send + 'static,
) -> Result<Embedded, OpenError> {
    let (mut file, mut found) = File::open(folder, lock_delay)?;
    let (own, change_of_names) = own.remembered();
    let names = names::agree(&mut file, &mut found, own)?;
    let inherited_delay = found.inherited_delay;
    let (commands, inbox) = mpsc::channel();
    let left = commands.clone();
    let ledger = Arc::new(Ledger::new(move |resource| {
        // Without a driver the ledger is halted, and nobody waits for this drain.
        let _ = left.send(Command::Left(resource.clone()));
    }));
    let queued = Arc::new(AtomicUsize::new(0));
    let overview = Overview::alone(folder.display().to_string(), found.incarnation, found.revision);
    let driver = Driver::join(file, ledger.clone(), Box::new(tell), queued.clone(), found, names)
        .map_err(|failed| OpenError::Join(Box::new(failed)))?;
    let (fail, failed) = oneshot::channel();
    thread::Builder::new()
        .name("store".into())
        .spawn(move || driver.run(&inbox, fail))
        .map_err(OpenError::Thread)?;
    let overview = Arc::new(ArcSwap::from_pointee(overview));
    let inbox = Inbox::Thread(commands);
    let store = Store { inbox, queued, ledger, overview, away: Arc::default(), change_of_names };
    Ok(Embedded { store, failed, inherited_delay })
}

#[cfg(test)]
mod tests;
