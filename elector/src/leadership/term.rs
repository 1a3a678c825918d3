//! One term of leadership, as its guard, its handles and the heart share it.
//!
//! Everybody asks [`Term::check`]; only the heart extends. What must stay true: a term that was once seen to be
//! over stays over, whatever answer arrives late, and its deadline is counted from before a renewal was sent,
//! so that it passes before the backend can give the leadership to anybody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::Lost;
use crate::backend::Grant;
use crate::metrics::Metrics;
use crate::{Moment, Token};

pub(crate) struct Term {
    pub(crate) grant: Grant,
    /// Until when it is valid, in nanoseconds of [`Moment`]; 0 once it is over. It only ever moves up, then to 0.
    until: AtomicU64,
    progress: AtomicU64,
    /// The watchdog keeps the heart from renewing.
    withheld: AtomicBool,
    /// Why it is over. Written once.
    lost: watch::Sender<Option<Lost>>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Term {
    /// The term that a grant begins, counted as an election.
    pub(crate) fn new(grant: Grant, until: Moment, metrics: Arc<Metrics>) -> Self {
        metrics.won(grant.token);
        Self {
            grant,
            until: AtomicU64::new(until.nanos()),
            progress: AtomicU64::new(Moment::now().nanos()),
            withheld: AtomicBool::new(false),
            lost: watch::Sender::new(None),
            metrics,
        }
    }

    /// The token, if the term is valid now.
    pub(crate) fn check(&self) -> Result<Token, Lost> {
        self.valid_until().map(|_| self.grant.token)
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
            // Not by a plain store: the heart may have extended it since it was read.
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
                self.until.store(0, Ordering::Release);
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
        if self.withheld.load(Ordering::Relaxed) { Lost::Stuck } else { Lost::Expired }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Resource;

    fn term(ttl: Duration) -> Term {
        let grant = Grant {
            resource: Resource::parse("ledger").unwrap(),
            holder: "me".to_owned(),
            token: Token::new(7).unwrap(),
            lease: "1".to_owned(),
            ttl,
        };
        Term::new(grant, Moment::now() + ttl, Arc::new(Metrics::new("ledger")))
    }

    #[test]
    fn a_term_that_expired_is_not_brought_back_by_a_late_renewal() {
        let term = term(Duration::from_millis(1));
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(term.renewed(Moment::now()), Err(Lost::Expired));
        assert_eq!(term.check(), Err(Lost::Expired));
    }

    #[test]
    fn a_renewal_counts_from_when_it_was_sent_and_never_shortens() {
        let term = term(Duration::from_secs(10));
        let held = term.valid_until().unwrap();
        assert_eq!(term.renewed(Moment::from_nanos(1)), Ok(held));
        let sent = Moment::now() + Duration::from_secs(1);
        assert_eq!(term.renewed(sent), Ok(sent + Duration::from_millis(9900)));
    }

    #[tokio::test]
    async fn the_first_reason_stays() {
        let term = term(Duration::from_secs(10));
        term.end(Lost::Deposed);
        term.end(Lost::Resigned);
        assert_eq!((term.check(), term.lost().await), (Err(Lost::Deposed), Lost::Deposed));
    }

    #[test]
    fn a_term_that_expires_while_the_watchdog_withholds_renewals_is_stuck() {
        let term = term(Duration::from_millis(2));
        std::thread::sleep(Duration::from_millis(3));
        assert!(term.is_stuck(Duration::from_millis(1)));
        assert_eq!(term.check(), Err(Lost::Stuck));
    }
}
