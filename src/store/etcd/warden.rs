//! FENCE, by a thread that does nothing else: at the end of the validity nothing passes any more, whatever the
//! store's thread and the workers are busy with.
//!
//! It sleeps on CLOCK_BOOTTIME, which goes on in suspension. A virtual machine that was paused may not even see
//! that clock move; then CLOCK_REALTIME, once it is set right, runs ahead of it, and that fences, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use highgate_elector::Moment;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::ledger::validity::{Counted, Validity};

/// How often the clocks are compared.
const ROUND: Duration = Duration::from_millis(50);
/// By how much the wall clock may run ahead of the boot clock between two renewals.
const TOLERANCE: Duration = Duration::from_millis(100);

/// Why the warden fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Expired,
    ClockJumped,
}

/// What the driver and the warden share.
pub(super) struct Watched {
    pub(super) validity: Arc<Validity>,
    /// How far the wall clock was ahead of the boot clock when the last accepted renewal was sent, in ns.
    ahead: AtomicI64,
    stopped: AtomicBool,
}

impl Watched {
    pub(super) fn new(validity: Arc<Validity>) -> Self {
        Self { validity, ahead: AtomicI64::new(wall_ahead()), stopped: AtomicBool::new(false) }
    }

    /// A new incarnation is valid until then; the wall clock was so far ahead when its join was sent.
    pub(super) fn begin(&self, until: Moment, ahead: i64) -> Counted {
        // First the clocks, then the validity: a warden that sees the validity must not hold it against the clocks
        // of the incarnation before, which may have ended with a jump.
        self.renewed(ahead);
        self.validity.begin(until)
    }

    /// A renewal that was sent then was accepted.
    pub(super) fn renewed(&self, ahead: i64) {
        self.ahead.store(ahead, Ordering::SeqCst);
    }

    /// The warden ends with its next round: there is nothing left to guard.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    #[cfg(test)]
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }
}

/// How far the wall clock is ahead of the boot clock.
pub(super) fn wall_ahead() -> i64 {
    let nanos = |time: Timespec| time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec);
    nanos(clock_gettime(ClockId::Realtime)).saturating_sub(nanos(clock_gettime(ClockId::Boottime)))
}

/// Runs the warden on this thread. `cut` is called right after a fence, with its reason.
pub(super) fn run(watched: &Watched, cut: impl Fn(Ended)) {
    while !watched.stopped.load(Ordering::SeqCst) {
        let ends = watched.validity.ends();
        let why = match ends {
            Some(ends) if Moment::now() >= ends => Some(Ended::Expired),
            Some(_) if jumped(watched.ahead.load(Ordering::SeqCst), wall_ahead()) => Some(Ended::ClockJumped),
            _ => None,
        };
        if let Some(why) = why
            && watched.validity.fence()
        {
            cut(why);
        }
        let next = Moment::now() + ROUND;
        sleep_until(ends.map_or(next, |ends| ends.min(next)));
    }
}

fn jumped(before: i64, now: i64) -> bool {
    now.saturating_sub(before) > i64::try_from(TOLERANCE.as_nanos()).unwrap_or(i64::MAX)
}

/// A signal may cut it short; then the round is early.
fn sleep_until(moment: Moment) {
    let since_boot = moment.since_boot();
    let until = Timespec {
        tv_sec: i64::try_from(since_boot.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(since_boot.subsec_nanos()),
    };
    let _ = clock_nanosleep_absolute(ClockId::Boottime, &until);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn warden(validity: Arc<Validity>) -> (Arc<Watched>, mpsc::Receiver<(Ended, Moment)>) {
        let watched = Arc::new(Watched::new(validity));
        let (tell, told) = mpsc::channel();
        let watching = watched.clone();
        std::thread::spawn(move || run(&watching, |why| tell.send((why, Moment::now())).unwrap()));
        (watched, told)
    }

    #[test]
    fn the_end_of_the_validity_fences_at_once_and_once() {
        let validity = Arc::new(Validity::fenced(Duration::ZERO));
        let ends = Moment::now() + Duration::from_millis(120);
        validity.begin(ends);
        let (watched, told) = warden(validity.clone());
        let (why, at) = told.recv_timeout(Duration::from_secs(5)).unwrap();
        assert_eq!(why, Ended::Expired);
        assert!(at >= ends && !validity.holds());
        assert!(told.recv_timeout(Duration::from_millis(150)).is_err(), "one fence is told once");
        watched.stop();
    }

    #[test]
    fn a_wall_clock_that_runs_ahead_fences() {
        let validity = Arc::new(Validity::fenced(Duration::ZERO));
        validity.begin(Moment::now() + Duration::from_secs(60));
        let (watched, told) = warden(validity.clone());
        assert!(told.recv_timeout(Duration::from_millis(120)).is_err());
        // As if the last renewal had been sent before a pause of 150 ms that the boot clock did not see.
        watched.renewed(wall_ahead() - 150_000_000);
        assert_eq!(told.recv_timeout(Duration::from_secs(5)).unwrap().0, Ended::ClockJumped);
        assert!(!validity.holds());
        watched.stop();
    }

    /// The other way round, a warden that looks in between holds a new validity against the clocks of the one before.
    #[test]
    fn whoever_sees_a_new_validity_sees_the_clocks_that_it_began_with() {
        const ROUNDS: u64 = 500_000;
        let watched = Arc::new(Watched::new(Arc::new(Validity::fenced(Duration::ZERO))));
        let base = (Moment::now() + Duration::from_secs(3600)).nanos();
        watched.renewed(0);
        let looking = watched.clone();
        let looker = std::thread::spawn(move || {
            while !looking.stopped.load(Ordering::SeqCst) {
                let Some(ends) = looking.validity.ends() else { continue };
                let (round, ahead) = (ends.nanos() - base, looking.ahead.load(Ordering::SeqCst));
                assert!(ahead.unsigned_abs() >= round, "validity {round} with the clocks of {ahead}");
            }
        });
        for round in 1..=ROUNDS {
            watched.begin(Moment::from_nanos(base + round), i64::try_from(round).unwrap());
            watched.validity.fence();
        }
        watched.stop();
        looker.join().unwrap();
    }

    #[test]
    fn clocks_that_are_slewed_or_set_back_do_not_fence() {
        assert!(!jumped(1_000_000_000, 1_099_000_000));
        assert!(!jumped(1_000_000_000, 0));
        assert!(jumped(0, 100_000_001));
    }
}
