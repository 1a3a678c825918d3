//! What the upstream has been sent, by whom, and what it did about it.
//!
//! A request's first byte is timed after it was read, and a response's last byte before it is written: so the
//! record never shows an overlap that was not there.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::PATIENCE;

/// One request that was forwarded.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// What its writer calls it; no two writes have the same.
    pub(crate) id: String,
    pub(crate) resource: String,
    pub(crate) token: u64,
    /// Which gateway sent it, by the path that only this one adds.
    pub(crate) gateway: String,
    pub(crate) received: Instant,
    /// How many bytes of its body have come.
    pub(crate) body: usize,
    pub(crate) effect: Option<Instant>,
    pub(crate) responded: Option<Instant>,
    /// When and how its connection ended before there was an answer to the write itself.
    pub(crate) cut: Option<(Instant, Cut)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    Closed,
    Reset,
    /// By no fault of the gateway's: a load balancer answered 504 instead of the upstream.
    GivenUp,
}

/// All that was forwarded, in the order in which it came. Shared by the upstream's connections and the test.
#[derive(Default)]
pub(crate) struct Record {
    entries: Mutex<Vec<Entry>>,
    changed: Condvar,
}

impl Record {
    pub(crate) fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        // A test that fails with the record in its hands is no reason for the upstream to fail, too.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write<R>(&self, change: impl FnOnce(&mut Vec<Entry>) -> R) -> R {
        let result = change(&mut self.entries());
        self.changed.notify_all();
        result
    }

    /// Waits until an entry is like this, and returns when it was received.
    pub(crate) fn sees(&self, what: &str, is_it: impl Fn(&Entry) -> bool) -> Entry {
        let waited =
            self.changed.wait_timeout_while(self.entries(), PATIENCE, |entries| !entries.iter().any(&is_it));
        let (entries, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let found = entries.iter().find(|entry| is_it(entry)).cloned();
        drop(entries);
        found.unwrap_or_else(|| panic!("the upstream never saw: {what}"))
    }

    pub(crate) fn has_token(&self, resource: &str, token: u64) -> bool {
        self.entries().iter().any(|entry| entry.resource == resource && entry.token == token)
    }
}
