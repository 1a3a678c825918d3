//! From when on a history is wanted: a time, or how long ago.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use highgate_elector::timestamp;

/// A text that is neither a time nor an age.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is neither how long ago (such as 30m, 2h or 7d) nor a time with its zone (such as 2026-02-28T03:00:00Z)"
)]
pub struct SinceError(String);

/// When `2h` before `now` was, or `2026-02-28T03:00:00Z`.
pub fn parse_since(text: &str, now: SystemTime) -> Result<SystemTime, SinceError> {
    let past = age(text).map(|age| now.checked_sub(age).unwrap_or(UNIX_EPOCH).max(UNIX_EPOCH));
    past.or_else(|| timestamp::parse(text)).ok_or_else(|| SinceError(text.to_owned()))
}

fn age(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|character: char| !character.is_ascii_digit())?);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(seconds).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_or_a_time_says_from_when_on() {
        let now = timestamp::parse("2026-02-28T09:30:00Z").unwrap();
        for (text, time) in [
            ("30s", "2026-02-28T09:29:30Z"),
            ("90m", "2026-02-28T08:00:00Z"),
            ("2h", "2026-02-28T07:30:00Z"),
            ("28d", "2026-01-31T09:30:00Z"),
            ("2026-02-28T04:00:00+01:00", "2026-02-28T03:00:00Z"),
        ] {
            assert_eq!(parse_since(text, now).ok(), timestamp::parse(time), "{text}");
        }
        assert_eq!(parse_since("99999999d", now), Ok(UNIX_EPOCH), "longer than there were clocks");
        for text in ["", "2", "h", "2 h", "-2h", "1.5h", "yesterday", "03:00", "99999999999999999999d"] {
            assert!(parse_since(text, now).is_err(), "{text}");
        }
    }
}
