//! Time that counts while the machine sleeps.
//!
//! A lease runs on at the backend while this machine is suspended, and `std::time::Instant` does not: everything
//! that decides whether somebody still leads is a [`Moment`] on CLOCK_BOOTTIME, and the renewer waits for one with
//! an [`Alarm`] on the same clock, which has rung when the machine wakes up.

use std::io;
use std::ops::Add;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// A point in time on CLOCK_BOOTTIME. It means the same in every process of this machine, until it reboots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    pub fn now() -> Self {
        let read = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(read.tv_sec).unwrap_or(0);
        Self(seconds * 1_000_000_000 + u64::try_from(read.tv_nsec).unwrap_or(0))
    }

    /// How long it was after the machine started.
    pub fn since_boot(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// How long it is from now; nothing when it has passed.
    pub fn remaining(self) -> Duration {
        self.since(Self::now())
    }

    /// How long it is after an earlier one; nothing when it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// So much earlier, but never before the machine started.
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Nanoseconds after the machine started: how processes tell each other of a moment.
    pub fn nanos(self) -> u64 {
        self.0
    }

    pub fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Waits for a [`Moment`], through suspension.
pub struct Alarm(AsyncFd<OwnedFd>);

impl Alarm {
    /// Only within a runtime.
    #[allow(
        deprecated,
        reason = "its successor is unsafe for descriptors that may close early; an OwnedFd does not"
    )]
    pub fn new() -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Self(AsyncFd::new(timer)?))
    }

    /// Returns at that moment, or at once if it has passed; without one, never. Fails like a clock: not.
    pub async fn until(&self, moment: Option<Moment>) -> io::Result<()> {
        let Some(moment) = moment else { return std::future::pending().await };
        if moment <= Moment::now() {
            return Ok(());
        }
        let once = Itimerspec { it_interval: timespec(0), it_value: timespec(moment.0) };
        // Setting a timer also takes back what rang before.
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::ABSTIME, &once)?;
        loop {
            let mut ready = self.0.readable().await?;
            if moment <= Moment::now() {
                return Ok(());
            }
            ready.clear_ready();
        }
    }
}

fn timespec(nanos: u64) -> Timespec {
    let part = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    Timespec { tv_sec: part(nanos / 1_000_000_000), tv_nsec: part(nanos % 1_000_000_000) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_alarm_rings_at_its_moment_again_and_again() {
        let alarm = Alarm::new().unwrap();
        for _ in 0..3 {
            let moment = Moment::now() + Duration::from_millis(20);
            alarm.until(Some(moment)).await.unwrap();
            assert!(Moment::now() >= moment);
        }
    }

    #[tokio::test]
    async fn an_alarm_that_was_given_up_does_not_ring_for_the_next_moment() {
        let alarm = Alarm::new().unwrap();
        let soon = alarm.until(Some(Moment::now() + Duration::from_millis(10)));
        let _ = tokio::time::timeout(Duration::from_millis(1), soon).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        let later = Moment::now() + Duration::from_millis(50);
        alarm.until(Some(later)).await.unwrap();
        assert!(Moment::now() >= later);
    }

    #[test]
    fn a_moment_that_has_passed_has_nothing_remaining() {
        let before = Moment::now();
        assert_eq!(before.remaining(), Duration::ZERO);
        assert_eq!((before + Duration::from_secs(3)).since(before), Duration::from_secs(3));
        assert_eq!((before + Duration::from_secs(3)).before(Duration::from_secs(3)), before);
        assert_eq!(Moment::from_nanos(5).before(Duration::from_secs(1)), Moment::from_nanos(0));
    }
}
