//! Time as it is, which nobody in the simulation sees, and as a machine's clock shows it.

use std::time::Duration;

use highgate::replica::Time;

/// True time, in nanoseconds from the start of the run.
pub(crate) type Nanos = u64;

pub(crate) const MILLI: Nanos = 1_000_000;
pub(crate) const SECOND: Nanos = 1_000_000_000;

/// The clocks of two replicas differ in rate by at most this: each is off by at most half of it.
pub(crate) const MAX_PPM: i64 = 2500;

pub(crate) fn nanos(time: Duration) -> Nanos {
    Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX)
}

/// D, counted by the fastest clock that the assumptions allow: by then what was cut has taken effect.
pub(crate) fn at_most(lock_delay: Duration) -> Nanos {
    (nanos(lock_delay) / 1_000_000).saturating_mul(995_000).saturating_sub(1)
}

/// The boot-time clock of one machine. It goes on whatever the process does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    offset: Nanos,
    ppm: i64,
}

impl Clock {
    pub(crate) fn new(offset: Nanos, ppm: i64) -> Self {
        Self { offset, ppm }
    }

    pub(crate) fn shows(&self, now: Nanos) -> Time {
        let gained = i128::from(now) * i128::from(self.ppm) / 1_000_000;
        let shown = i128::from(self.offset) + i128::from(now) + gained;
        Duration::from_nanos(u64::try_from(shown).unwrap_or(0))
    }

    /// The first moment at which it shows this time.
    pub(crate) fn when(&self, shown: Time) -> Nanos {
        let counted = i128::from(nanos(shown)) - i128::from(self.offset);
        let guess = counted * 1_000_000 / i128::from(1_000_000 + self.ppm) - 2;
        let mut when = u64::try_from(guess.max(0)).unwrap_or(0);
        while self.shows(when) < shown {
            when += 1;
        }
        when
    }
}
