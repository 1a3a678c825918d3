//! The journal's own clock: for how long a running gateway has kept it.
//!
//! What is too old is found by this clock and never by the wall clock, because a wall clock that is set a month ahead
//! would make everything a month older at once. It counts by the boot-time clock and continues, after a restart, where the
//! journal was last told of it. While no gateway runs, nothing gets older: an outage never costs history.

use std::time::Duration;

use highgate_elector::Moment;

const CLOCK: &str = "clock";

#[derive(Debug)]
pub(super) struct Clock {
    before: Duration,
    resumed: Moment,
}

impl Clock {
    /// Goes on from where it was when it was last written down.
    pub(super) fn resume(before: Duration) -> Self {
        Self { before, resumed: Moment::now() }
    }

    pub(super) fn now(&self) -> Duration {
        self.before + Moment::now().since(self.resumed)
    }
}

/// A line that says where the clock stands. It is about no resource, so it has no time of day either.
pub(super) fn line(now: Duration) -> String {
    format!("-\t{CLOCK}\t{}\n", now.as_secs())
}

/// Where the clock stood, if the line says that.
pub(super) fn parse(line: &str) -> Option<Duration> {
    let mut fields = line.split('\t');
    if (fields.next()?, fields.next()?) != ("-", CLOCK) {
        return None;
    }
    let seconds = fields.next()?.parse().ok()?;
    fields.next().is_none().then_some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_goes_on_from_where_it_was() {
        let before = Duration::from_secs(86_400);
        let clock = Clock::resume(parse(line(before).trim_end()).unwrap());
        assert!(clock.now() >= before && clock.now() < before + Duration::from_secs(3600));
        for other in ["", "-", "-\tclock", "-\tclock\t", "-\tclock\t1\t", "-\tclock\t-1", "5\tclock\t1"] {
            assert_eq!(parse(other), None, "{other:?}");
        }
    }
}
