//! The times of one run: how long the lease, how long the grace, how often it is renewed. Pure.
//!
//! Refused here, before anything starts, is a grace that could outlive the lease. What must stay true: SIGTERM
//! comes late enough for a renewal to prevent it, and SIGKILL a margin before the lease can expire.

use std::time::Duration;

/// The longest grace that nobody asked for.
const DEFAULT_GRACE: Duration = Duration::from_secs(5);
/// What a killed group may take to be gone, and whoever kills it to be scheduled.
const KILL_TIME: Duration = Duration::from_millis(100);
/// A year: beyond it, additions to the clock would need care.
const LONGEST_MS: u64 = 366 * 24 * 60 * 60 * 1000;

/// The bounds of the gateway's election API. No backend needs less or more.
const SHORTEST_TTL: Duration = Duration::from_secs(1);
const LONGEST_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The times that a run keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) ttl: Duration,
    pub(super) grace: Duration,
    /// How long before the lease can expire the group is dead.
    pub(super) margin: Duration,
    pub(super) heartbeat: Duration,
}

/// The times do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a grace of {grace:?} could outlive the lease of {ttl:?}: {margin:?} of it are for the kill and {renewal:?} \
     for a renewal, so the grace is at most {most:?}"
)]
pub(super) struct GraceTooLong {
    grace: Duration,
    ttl: Duration,
    margin: Duration,
    renewal: Duration,
    most: Duration,
}

impl Terms {
    pub(super) fn new(ttl: Duration, grace: Option<Duration>) -> Result<Self, GraceTooLong> {
        let grace = grace.unwrap_or(DEFAULT_GRACE.min(ttl / 3));
        // Clocks differ by half a per cent at the most; twice that costs little.
        let margin = KILL_TIME + ttl / 100;
        let renewal = ttl / 10;
        let most = ttl.saturating_sub(margin + renewal);
        if grace > most || most.is_zero() {
            return Err(GraceTooLong { grace, ttl, margin, renewal, most });
        }
        // Two renewals fit in before SIGTERM is due, so that one may fail.
        let heartbeat = (ttl / 3).min((ttl - margin - grace) / 2);
        Ok(Self { ttl, grace, margin, heartbeat })
    }

    /// How often to look whether the lease was renewed.
    pub(super) fn look_every(&self) -> Duration {
        (self.heartbeat / 4).min(Duration::from_millis(500))
    }
}

/// A number, possibly with a fraction, and a unit: `15s`, `500ms`, `1.5h`.
pub(in crate::cli) fn duration(text: &str) -> Result<Duration, String> {
    let unit_at = text.find(|character: char| character.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let milliseconds: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        _ => return Err("a duration is a number with one of the units ms, s, m, h".to_owned()),
    };
    let is_number = number.starts_with(|character: char| character.is_ascii_digit())
        && number.chars().all(|character| character.is_ascii_digit() || character == '.');
    let number: f64 = number.parse().ok().filter(|_| is_number).ok_or("a duration starts with a number")?;
    let milliseconds = number * milliseconds as f64;
    if milliseconds > LONGEST_MS as f64 {
        return Err("a duration is at most a year".to_owned());
    }
    Ok(Duration::from_secs_f64(milliseconds / 1000.0))
}

/// A duration that is not nothing.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("zero is not possible here".to_owned()),
        span => Ok(span),
    }
}

/// A lease that every backend grants.
pub(super) fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = span(text)?;
    if (SHORTEST_TTL..=LONGEST_TTL).contains(&ttl) {
        Ok(ttl)
    } else {
        Err(format!("a lease is at least {SHORTEST_TTL:?} and at most 24h"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn the_grace_is_five_seconds_or_a_third_of_a_short_lease() {
        assert_eq!(Terms::new(s(15), None).unwrap().grace, s(5));
        assert_eq!(Terms::new(s(60), None).unwrap().grace, s(5));
        assert_eq!(Terms::new(s(3), None).unwrap().grace, s(1));
        assert_eq!(Terms::new(s(15), Some(Duration::ZERO)).unwrap().grace, Duration::ZERO);
    }

    #[test]
    fn a_grace_that_could_outlive_the_lease_is_refused_with_the_numbers() {
        let refused = Terms::new(s(15), Some(s(15))).unwrap_err().to_string();
        assert_eq!(
            refused,
            "a grace of 15s could outlive the lease of 15s: 250ms of it are for the kill and 1.5s for a \
             renewal, so the grace is at most 13.25s"
        );
        assert!(Terms::new(s(15), Some(ms(13_250))).is_ok());
        assert!(Terms::new(s(15), Some(ms(13_251))).is_err());
        assert!(Terms::new(ms(50), None).is_err(), "there is no time to kill anything");
    }

    #[test]
    fn two_renewals_fit_in_before_the_warning() {
        for (ttl, grace) in [(s(15), None), (s(1), None), (s(3), Some(ms(2500))), (s(600), Some(s(500)))] {
            let terms = Terms::new(ttl, grace).unwrap();
            assert!(terms.heartbeat * 3 <= ttl, "{terms:?}");
            assert!(terms.heartbeat * 2 + terms.grace + terms.margin <= ttl, "{terms:?}");
            assert!(terms.look_every() < terms.heartbeat, "{terms:?}");
        }
    }

    #[test]
    fn durations_are_a_number_and_a_unit() {
        for (text, expected) in
            [("15s", s(15)), ("500ms", ms(500)), ("1.5s", ms(1500)), ("2m", s(120)), ("1h", s(3600))]
        {
            assert_eq!(duration(text), Ok(expected), "{text}");
        }
        for text in ["", "5", "s", "-1s", "+1s", "1e3s", " 5s", "5 s", "5d", ".s", "1.2.3s", "99999999h"] {
            assert!(duration(text).is_err(), "{text:?}");
        }
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        assert!(span("0s").is_err());
    }
    #[test]
    fn a_lease_is_no_shorter_and_no_longer_than_a_gateway_grants() {
        assert_eq!((ttl("1s"), ttl("24h")), (Ok(s(1)), Ok(s(86_400))));
        for text in ["999ms", "25h", "0s", "5"] {
            assert!(ttl(text).is_err(), "{text}");
        }
    }
}
