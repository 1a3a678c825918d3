//! One term of leadership, as its guard, its handles and the renewer share it.
//!
//! Everybody asks [`Term::check`]; only the renewer extends. What must stay true: a term that was once seen to be
//! over stays over, whatever answer arrives late, and its deadline is counted from before a renewal was sent,
//! so that it passes before the backend can give the leadership to anybody else. Its work is told to stop one grace
//! earlier, or when the term ends if that is sooner, and once only: a renewal that comes later takes nothing back.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::Lost;
use crate::backend::{Grant, SignedToken};
use crate::metrics::Metrics;
use crate::{Moment, Token};

pub(crate) struct Term {
    pub(crate) grant: Grant,
    /// Until when it is valid, in nanoseconds of [`Moment`]; 0 once it is over. It only ever moves up, then to 0.
    until: AtomicU64,
    /// What the work gets to stop in.
    grace: Duration,
    /// The latest that the backend has issued, if it signs.
    signed: Mutex<Option<SignedToken>>,
    progress: AtomicU64,
    /// The watchdog keeps the renewer from renewing.
    withheld: AtomicBool,
    /// The backend owes an answer to a renewal, or failed to renew.
    unanswered: AtomicBool,
    /// When the work has to have stopped, and why. Written once.
    stop: watch::Sender<Option<Stop>>,
    /// Why it is over. Written once.
    lost: watch::Sender<Option<Lost>>,
    pub(crate) metrics: Arc<Metrics>,
}

/// The word to the work that it has to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) why: Lost,
    /// When it has to have stopped: a grace later, and never after the last moment of the lease.
    pub(crate) by: Moment,
}

impl Term {
    /// The term that a grant begins, counted as an election.
    pub(crate) fn new(grant: Grant, until: Moment, grace: Duration, metrics: Arc<Metrics>) -> Self {
        metrics.won(grant.token);
        Self {
            signed: Mutex::new(grant.signed_token.clone()),
            grant,
            until: AtomicU64::new(until.nanos()),
            grace,
            progress: AtomicU64::new(Moment::now().nanos()),
            withheld: AtomicBool::new(false),
            unanswered: AtomicBool::new(false),
            stop: watch::Sender::new(None),
            lost: watch::Sender::new(None),
            metrics,
        }
    }

    /// The token, if the term is valid now.
    pub(crate) fn check(&self) -> Result<Token, Lost> {
        self.valid_until().map(|_| self.grant.token)
    }

    /// The token with its signature, if the term is valid now and the backend signs.
    pub(crate) fn signed_token(&self) -> Result<Option<SignedToken>, Lost> {
        self.check()?;
        Ok(self.signed.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// A renewal may bring a fresh one; else the one before stays.
    pub(crate) fn sign(&self, fresh: Option<SignedToken>) {
        if fresh.is_some() {
            *self.signed.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
        }
    }

    /// Its deadline, if that has not passed.
    pub(crate) fn valid_until(&self) -> Result<Moment, Lost> {
        loop {
            let until = self.until.load(Ordering::Acquire);
            if until == 0 {
                return Err(self.reason());
            }
            if Moment::now() < Moment::from_nanos(until) {
                return Ok(Moment::from_nanos(until));
            }
            // Not by a plain store: the renewer may have extended it since it was read.
            if self.until.compare_exchange(until, 0, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                self.end(self.expiry());
            }
        }
    }

    /// A renewal that was sent at that moment succeeded. Too late, it changes nothing.
    pub(crate) fn renewed(&self, sent: Moment) -> Result<Moment, Lost> {
        let extended = sent + validity(self.grant.ttl);
        loop {
            let held = self.valid_until()?;
            self.unanswered.store(false, Ordering::Relaxed);
            if held >= extended {
                return Ok(held);
            }
            let exchanged = self.until.compare_exchange(
                held.nanos(),
                extended.nanos(),
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            if exchanged.is_ok() {
                return Ok(extended);
            }
        }
    }

    /// It is over, for the first reason that is given.
    pub(crate) fn end(&self, lost: Lost) {
        // All of it before anybody is woken: who hears of the loss also finds the term over.
        self.lost.send_if_modified(|told| {
            let first = told.is_none();
            if first {
                *told = Some(lost);
                // Zero already if the deadline has just passed: then there is no time left to stop in.
                let held = Moment::from_nanos(self.until.swap(0, Ordering::AcqRel));
                self.tell_to_stop(lost, held.min(Moment::now() + self.grace));
                self.metrics.ended();
            }
            first
        });
    }

    /// Returns when it is over.
    pub(crate) async fn lost(&self) -> Lost {
        let mut told = self.lost.subscribe();
        if let Err(lost) = self.check() {
            return lost;
        }
        let lost = told.wait_for(Option::is_some).await.ok().and_then(|lost| *lost);
        lost.unwrap_or(Lost::Expired)
    }

    /// The token, if the work may go on.
    pub(crate) fn proceed(&self) -> Result<Token, Lost> {
        let token = self.check()?;
        self.stop_in_time();
        match self.told() {
            Some(stop) => Err(stop.why),
            None => Ok(token),
        }
    }

    /// Tells the work to stop if no more than its grace remains.
    pub(crate) fn stop_in_time(&self) {
        let Ok(until) = self.valid_until() else { return };
        if Moment::now() >= until.before(self.grace) {
            self.tell_to_stop(self.expiry(), until);
        }
    }

    /// When the work is told to stop unless the term is renewed; none once it was told.
    pub(crate) fn stop_at(&self) -> Option<Moment> {
        let until = self.valid_until().ok()?;
        self.told().is_none().then(|| until.before(self.grace))
    }

    /// Returns when the work has to stop.
    pub(crate) async fn stop(&self) -> Stop {
        let mut told = self.stop.subscribe();
        self.stop_in_time();
        let stop = told.wait_for(Option::is_some).await.ok().and_then(|stop| *stop);
        stop.unwrap_or(Stop { why: Lost::Expired, by: Moment::now() })
    }

    fn told(&self) -> Option<Stop> {
        *self.stop.borrow()
    }

    fn tell_to_stop(&self, why: Lost, by: Moment) {
        self.stop.send_if_modified(|told| {
            let first = told.is_none();
            if first {
                *told = Some(Stop { why, by });
            }
            first
        });
    }

    /// A renewal goes out.
    pub(crate) fn asked(&self) {
        self.unanswered.store(true, Ordering::Relaxed);
    }

    pub(crate) fn progress(&self) {
        self.progress.store(Moment::now().nanos(), Ordering::Relaxed);
    }

    /// Whether the work was silent for longer than this. Remembered: it is why the term ends, if it does.
    pub(crate) fn is_stuck(&self, limit: Duration) -> bool {
        let last = Moment::from_nanos(self.progress.load(Ordering::Relaxed));
        let stuck = Moment::now().since(last) > limit;
        self.withheld.store(stuck, Ordering::Relaxed);
        stuck
    }

    fn expiry(&self) -> Lost {
        if self.withheld.load(Ordering::Relaxed) {
            Lost::Stuck
        } else if self.unanswered.load(Ordering::Relaxed) {
            Lost::BackendAway
        } else {
            Lost::Expired
        }
    }

    fn reason(&self) -> Lost {
        // Nobody has said yet why: then it is the deadline, just now.
        self.lost.borrow().unwrap_or_else(|| self.expiry())
    }
}

/// What a holder may make of a lease of this length. A little less: the backend's clock may run faster than
/// this one (0.5 % at the most), and whoever waits for the end has to be woken before somebody else leads.
pub fn validity(ttl: Duration) -> Duration {
    ttl - (ttl / 100).max(Duration::from_millis(10)).min(ttl / 4)
}
