//! Which terms the renewer renews, and when: the schedule without the clock, the thread and the backend.
//!
//! What must stay true: renewals that may go together do, so that a process with thousands of elections calls its
//! backend once a heartbeat; and a term whose renewal is under way is not sent a second time meanwhile.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::Moment;
use crate::backend::{RenewError, Renewed};
use crate::backoff::jittered;
use crate::leadership::Lost;
use crate::leadership::term::Term;

/// How often a term is renewed, and when it is not.
#[derive(Clone, Copy)]
pub(super) struct Rhythm {
    pub(super) heartbeat: Duration,
    /// Without progress for that long, it is not renewed.
    pub(super) watchdog: Option<Duration>,
}

struct Entry {
    term: Arc<Term>,
    rhythm: Rhythm,
    due: Moment,
    under_way: bool,
}

/// All terms, by the address of their shared state, which is theirs alone as long as they are here.
#[derive(Default)]
pub(super) struct Table(HashMap<usize, Entry>);

impl Table {
    pub(super) fn adopt(&mut self, term: Arc<Term>, rhythm: Rhythm) {
        // With the next round of the others, so that there is one round and not one for each term.
        let next_round = self.0.values().filter(|entry| !entry.under_way).map(|entry| entry.due).min();
        let own = Moment::now() + rhythm.heartbeat;
        let due = next_round.map_or(own, |round| round.min(own));
        self.0.insert(key(&term), Entry { term, rhythm, due, under_way: false });
    }

    pub(super) fn forget(&mut self, term: &Arc<Term>) {
        self.0.remove(&key(term));
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// When there is something to do.
    pub(super) fn next(&self) -> Option<Moment> {
        self.0.values().map(Entry::next).min()
    }

    /// Drops the terms that are over, tells the work of those that are about to be, and takes those that are to be renewed now.
    pub(super) fn round(&mut self, now: Moment) -> Vec<Arc<Term>> {
        self.0.retain(|_, entry| entry.term.check().is_ok());
        self.0.values().for_each(|entry| entry.term.stop_in_time());
        if !self.0.values().any(|entry| entry.is_due(now)) {
            return Vec::new();
        }
        self.0.values_mut().filter_map(|entry| entry.take(now)).collect()
    }

    /// What became of a renewal.
    pub(super) fn settle(&mut self, term: &Arc<Term>, sent: Moment, answer: Result<Renewed, RenewError>) {
        let Some(entry) = self.0.get_mut(&key(term)) else { return };
        entry.under_way = false;
        match answer {
            Ok(Renewed { signed_token }) => {
                entry.due = sent + entry.rhythm.heartbeat;
                term.sign(signed_token);
                // Too late, it is over; the next round drops it.
                let _valid = term.renewed(sent);
            }
            Err(RenewError::Gone) => {
                term.end(Lost::Deposed);
                self.forget(term);
            }
            Err(RenewError::Failed(_)) => entry.due = Moment::now() + jittered(entry.rhythm.heartbeat / 4),
        }
    }

    /// Nobody renews them any more.
    pub(super) fn abandon(&mut self) {
        for (_, entry) in self.0.drain() {
            entry.term.end(Lost::Expired);
        }
    }
}

impl Entry {
    fn is_due(&self, now: Moment) -> bool {
        !self.under_way && self.due <= now
    }

    fn next(&self) -> Moment {
        let end = self.term.valid_until().unwrap_or_else(|_| Moment::now());
        let stop = self.term.stop_at().unwrap_or(end);
        if self.under_way { end.min(stop) } else { end.min(stop).min(self.due) }
    }

    /// Takes it into a round that goes off now, if it is due until the middle to the next one.
    fn take(&mut self, now: Moment) -> Option<Arc<Term>> {
        if !self.is_due(now + self.rhythm.heartbeat / 2) {
            return None;
        }
        if self.rhythm.watchdog.is_some_and(|limit| self.term.is_stuck(limit)) {
            // Asked again soon: work that goes on in time keeps its leadership.
            self.due = now + self.rhythm.heartbeat / 4;
            return None;
        }
        self.under_way = true;
        self.term.asked();
        Some(self.term.clone())
    }
}

fn key(term: &Arc<Term>) -> usize {
    Arc::as_ptr(term).addr()
}
