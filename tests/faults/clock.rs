//! One clock for everything that is recorded: time since the run began, whoever has measured it.

use std::time::{Duration, Instant};

use highgate_elector::Moment;

#[derive(Clone, Copy)]
pub(crate) struct Clock {
    began: Instant,
    boot: Moment,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { began: Instant::now(), boot: Moment::now() }
    }

    pub(crate) fn now(self) -> Duration {
        self.began.elapsed()
    }

    /// What this process has measured.
    pub(crate) fn at(self, time: Instant) -> Duration {
        time.saturating_duration_since(self.began)
    }

    /// What another process has measured.
    pub(crate) fn of(self, nanos: u64) -> Duration {
        Moment::from_nanos(nanos).since(self.boot)
    }
}
