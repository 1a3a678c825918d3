//! Times of the wall clock as text, in the one format that Highgate writes: RFC 3339 in UTC with milliseconds.
//!
//! They are for people and for ages in days. Nothing that keeps a promise is decided by them: validity is counted
//! on a clock that no operator can set.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECONDS_PER_DAY: u64 = 86_400;
/// Days from the first of March of the year 0 to the first of January 1970.
const DAYS_BEFORE_1970: u64 = 719_468;

/// Writes a time, e.g. `2026-02-28T09:30:00.250Z`. Times before 1970 are written as its first moment.
pub fn format(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / SECONDS_PER_DAY, since.as_secs() % SECONDS_PER_DAY);
    let (year, month, day) = date_of_day(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let millis = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Reads an RFC 3339 time with any offset and any number of decimals. None of a text that is not one, and of a
/// time before 1970.
pub fn parse(text: &str) -> Option<SystemTime> {
    let bytes = text.as_bytes();
    let fixed = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    if !text.is_ascii() || fixed.iter().any(|&(at, expected)| bytes.get(at) != Some(&expected)) {
        return None;
    }
    if !matches!(bytes.get(10), Some(b'T' | b't' | b' ')) {
        return None;
    }
    let (year, month, day) = (number(&text[..4])?, number(&text[5..7])?, number(&text[8..10])?);
    let (hour, minute) = (number(&text[11..13])?, number(&text[14..16])?);
    let second = number(text.get(17..19)?)?;
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (nanos, offset) = fraction(&text[19..])?;
    let seconds = day_of_date(year, month, day)? * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second;
    let seconds = u64::try_from(i64::try_from(seconds).ok()? - offset_seconds(offset)?).ok()?;
    Some(UNIX_EPOCH + Duration::new(seconds, nanos))
}

/// The nanoseconds after the decimal point, if there is one, and the rest of the text.
fn fraction(text: &str) -> Option<(u32, &str)> {
    let Some(decimals) = text.strip_prefix('.') else { return Some((0, text)) };
    let end = decimals.find(|character: char| !character.is_ascii_digit())?;
    let digits: String = decimals[..end].chars().chain("000000000".chars()).take(9).collect();
    if end == 0 {
        return None;
    }
    Some((digits.parse().ok()?, &decimals[end..]))
}

/// How far the local time of `Z`, `+02:00` or `-05:30` is ahead of UTC.
fn offset_seconds(text: &str) -> Option<i64> {
    if text.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let ahead = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = text[1..].split_once(':')?;
    let (hours, minutes) = (two_digits(hours, 23)?, two_digits(minutes, 59)?);
    Some(ahead * (hours * 3600 + minutes * 60))
}

fn two_digits(text: &str, most: u64) -> Option<i64> {
    let value = number(text).filter(|value| text.len() == 2 && *value <= most)?;
    i64::try_from(value).ok()
}

fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// The Gregorian date of a day counted from 1970-01-01.
fn date_of_day(days: u64) -> (u64, u64, u64) {
    // Counted from March of year 0, so that the leap day is the last of its year and eras of 400 years repeat.
    let days = days + DAYS_BEFORE_1970;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// The day of a Gregorian date, counted from 1970-01-01. None of a date that is not in the calendar.
fn day_of_date(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || year < 1970 {
        return None;
    }
    let from_march = (month + 9) % 12;
    let year_from_march = year - u64::from(month <= 2);
    let leap_days = year_from_march / 4 - year_from_march / 100 + year_from_march / 400;
    let days = 365 * year_from_march + leap_days + (153 * from_march + 2) / 5 + day - 1;
    let days = days.checked_sub(DAYS_BEFORE_1970)?;
    // The 30th of February is counted as a day of March: then this is not the same date.
    (date_of_day(days) == (year, month, day)).then_some(days)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: u64, millis: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_millis(millis)
    }

    #[test]
    fn a_time_is_written_in_utc_with_milliseconds_and_read_back() {
        for (time, text) in [
            (at(0, 0), "1970-01-01T00:00:00.000Z"),
            (at(951_782_400, 5), "2000-02-29T00:00:00.005Z"),
            (at(1_709_251_199, 999), "2024-02-29T23:59:59.999Z"),
            (at(1_772_271_000, 250), "2026-02-28T09:30:00.250Z"),
            (at(4_107_542_400, 0), "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(format(time), text);
            assert_eq!(parse(text), Some(time));
        }
    }

    #[test]
    fn offsets_and_decimals_are_read() {
        assert_eq!(parse("2026-02-28T09:30:00Z"), Some(at(1_772_271_000, 0)));
        assert_eq!(parse("2026-02-28 11:30:00.25+02:00"), Some(at(1_772_271_000, 250)));
        assert_eq!(parse("2026-02-28t04:00:00-05:30"), Some(at(1_772_271_000, 0)));
    }

    #[test]
    fn what_is_not_a_time_is_not_read() {
        for text in [
            "",
            "2026-02-28",
            "2026-02-30T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-02-28T24:00:00Z",
            "2026-02-28T09:30Z",
            "2026-02-28T09:30:00",
            "2026-02-28T09:30:00.Z",
            "2026-02-28T09:30:00+2:00",
            "2026-02-28T09:30:00+02:0",
            "2026-02-28T09:30:00Zx",
            "1969-12-31T23:59:59Z",
            "2026-02-28T09:30:0éZ",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn every_time_survives_being_written(seconds in 0_u64..253_402_300_800, millis in 0_u64..1000) {
            prop_assert_eq!(parse(&format(at(seconds, millis))), Some(at(seconds, millis)));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC{0,40}") {
            let _ = parse(&text);
        }
    }
}
