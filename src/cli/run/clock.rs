//! Time as leases need it: a clock that goes on while the machine sleeps, and a timer on that clock.
//!
//! `run` and its guardian exchange these times; both count on the same kernel's clock, so a time means the same
//! to both. Nothing here looks at the wall clock, which jumps.

use std::io;
use std::ops::Add;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// A moment since the machine started, the time that it slept included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Boot(Duration);

/// Wakes whoever waits for a [`Boot`]; after a sleep of the machine at once if that moment has passed.
pub(super) struct Timer(AsyncFd<OwnedFd>);

impl Boot {
    pub(super) fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).expect("the time since the start is not negative");
        let nanos = u32::try_from(now.tv_nsec).expect("nanoseconds are less than a second");
        Self(Duration::new(seconds, nanos))
    }

    /// So long after the machine started.
    pub(super) const fn from_span(span: Duration) -> Self {
        Self(span)
    }

    pub(super) const fn from_nanos(nanos: u64) -> Self {
        Self(Duration::from_nanos(nanos))
    }

    pub(super) fn nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    /// So much earlier, but never before the start.
    pub(super) fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(span))
    }
}

impl Add<Duration> for Boot {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }
}

impl Timer {
    #[allow(deprecated, reason = "its successor is unsafe because of descriptors that others may close")]
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self(AsyncFd::new(timerfd_create(TimerfdClockId::Boottime, flags)?)?))
    }

    /// Waits until then. Dropped halfway, it leaves nothing behind that the next wait would trip over.
    pub(super) async fn until(&self, when: Boot) -> io::Result<()> {
        while Boot::now() < when {
            self.set(when)?;
            let mut expired = self.0.readable().await?;
            // Nothing to read: an expiry that an earlier wait was woken by.
            let _ = rustix::io::read(self.0.get_ref(), &mut [0; 8]);
            expired.clear_ready();
        }
        Ok(())
    }

    fn set(&self, when: Boot) -> io::Result<()> {
        let at = Timespec {
            tv_sec: i64::try_from(when.0.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: when.0.subsec_nanos().into(),
        };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = Itimerspec { it_interval: never, it_value: at };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::ABSTIME, &once)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_timer_fires_at_its_time_and_can_be_moved() {
        let timer = Timer::new().unwrap();
        let start = Boot::now();
        let far = timer.until(start + Duration::from_secs(60));
        assert!(timeout(Duration::from_millis(20), far).await.is_err());
        timer.until(start + Duration::from_millis(60)).await.unwrap();
        assert!(Boot::now() >= start + Duration::from_millis(60));
        // The past needs no timer.
        timer.until(start).await.unwrap();
        timer.until(start + Duration::from_millis(90)).await.unwrap();
        assert!(Boot::now() >= start + Duration::from_millis(90));
    }

    #[test]
    fn a_moment_survives_its_way_through_a_pipe() {
        let now = Boot::now();
        assert_eq!(Boot::from_nanos(now.nanos()), now);
        assert_eq!(Boot::from_nanos(5).before(Duration::from_secs(1)), Boot::from_nanos(0));
    }
}
