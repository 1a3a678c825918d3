//! Reads the values of one table, and reports those that are not what the key wants.
//!
//! Every method gives nothing (or the default) for a bad value and goes on, so that one run finds all
//! problems; [`Report::finish`](super::error::Report::finish) makes sure that no such stand-in is ever used.

use std::ops::{Range, RangeInclusive};
use std::str::FromStr;
use std::time::Duration;

use toml::Spanned;

use super::error::Report;
use super::raw::{Number, Text};

/// The longest time any setting may be: short enough to be added to any clock.
pub(crate) const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest time anything is kept, ten years.
const LONGEST_AGE_DAYS: u64 = 3650;

/// How large something on disk may be allowed to get.
pub(super) const DISK_SIZES: RangeInclusive<u64> = 1 << 20..=1 << 40;
/// How large a body may be allowed to be.
pub(super) const BODY_SIZES: RangeInclusive<u64> = 1 << 10..=1 << 40;
/// How large a request's head may be allowed to be.
pub(super) const HEAD_SIZES: RangeInclusive<u64> = 8 << 10..=256 << 10;

/// A table being read: where problems go, and the path of its keys.
pub(super) struct Scope<'r, 't> {
    report: &'r mut Report<'t>,
    path: String,
}

impl<'r, 't> Scope<'r, 't> {
    pub(super) fn new(report: &'r mut Report<'t>, path: impl Into<String>) -> Self {
        Self { report, path: path.into() }
    }

    /// A table in this one.
    pub(super) fn below(&mut self, name: &str) -> Scope<'_, 't> {
        Scope { path: format!("{}.{name}", self.path), report: self.report }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Where problems of a table below this one go.
    pub(super) fn report(&mut self) -> &mut Report<'t> {
        self.report
    }

    pub(super) fn problem(&mut self, span: Range<usize>, name: &str, what: impl Into<String>) {
        self.report.add(span, format!("{}.{name}", self.path), what);
    }

    /// A value as `parse` reads it. Nothing if it is absent or, with a problem reported, bad.
    pub(super) fn read<V, T, E: ToString>(
        &mut self,
        name: &str,
        raw: Option<Spanned<V>>,
        parse: impl FnOnce(V) -> Result<T, E>,
    ) -> Option<T> {
        let (span, value) = raw.map(|raw| (raw.span(), raw.into_inner()))?;
        parse(value).map_err(|error| self.problem(span, name, error.to_string())).ok()
    }

    /// Every item of a list. Nothing, with the problems reported, if one of them is bad.
    pub(super) fn each<V, T, E: ToString>(
        &mut self,
        name: &str,
        items: Spanned<Vec<Spanned<V>>>,
        parse: impl Fn(V) -> Result<T, E>,
    ) -> Option<Vec<T>> {
        let items = items.into_inner().into_iter().enumerate();
        let read: Vec<_> =
            items.map(|(index, item)| self.read(&format!("{name}[{index}]"), Some(item), &parse)).collect();
        read.into_iter().collect()
    }

    /// A value of a key that has to be there; `table` is where it is missing from.
    pub(super) fn require<V, T, E: ToString>(
        &mut self,
        name: &str,
        table: &Range<usize>,
        raw: Option<Spanned<V>>,
        parse: impl FnOnce(V) -> Result<T, E>,
    ) -> Option<T> {
        if raw.is_none() {
            self.problem(table.clone(), name, "is missing");
        }
        self.read(name, raw, parse)
    }

    pub(super) fn word<T: FromStr<Err: ToString>>(&mut self, name: &str, raw: Text, default: T) -> T {
        // The allowed words follow from the key.
        self.read(name, raw, |word| word.parse().map_err(|_| format!("unknown value {word:?}")))
            .unwrap_or(default)
    }

    pub(super) fn number(
        &mut self,
        name: &str,
        raw: Number,
        default: usize,
        range: RangeInclusive<i64>,
    ) -> usize {
        let parse = |number: i64| {
            let within = range.contains(&number).then(|| usize::try_from(number).ok()).flatten();
            within.ok_or_else(|| format!("{number} is out of range"))
        };
        self.read(name, raw, parse).unwrap_or(default)
    }

    /// A time above zero.
    pub(super) fn duration(&mut self, name: &str, raw: Text, default: Duration) -> Duration {
        self.read(name, raw, |text| positive_duration(&text)).unwrap_or(default)
    }

    pub(super) fn duration_or_zero(&mut self, name: &str, raw: Text, default: Duration) -> Duration {
        self.read(name, raw, |text| any_duration(&text)).unwrap_or(default)
    }

    /// Whether a certificate and its key are both there or both absent; reports it if not.
    pub(super) fn check_pair(&mut self, cert: &Text, key: &Text) {
        match (cert, key) {
            (Some(cert), None) => self.problem(cert.span(), "key", "is missing: cert and key come together"),
            (None, Some(key)) => self.problem(key.span(), "cert", "is missing: cert and key come together"),
            _ => {}
        }
    }
}

pub(super) fn positive_duration(text: &str) -> Result<Duration, String> {
    match any_duration(text)? {
        Duration::ZERO => Err("zero is not possible here".to_owned()),
        duration => Ok(duration),
    }
}

/// How long something is kept: a time that may also be in days, and that is above zero.
pub(super) fn age(text: &str) -> Result<Duration, String> {
    let Some(days) = text.strip_suffix('d') else { return positive_duration(text) };
    let days = days.parse::<u64>().ok().filter(|_| days.bytes().all(|byte| byte.is_ascii_digit()));
    match days {
        Some(days @ 1..=LONGEST_AGE_DAYS) => Ok(LONGEST * u32::try_from(days).unwrap_or(u32::MAX)),
        _ => Err(format!("{text:?} is not from 1d to {LONGEST_AGE_DAYS}d")),
    }
}

/// How large something may be, between these bounds.
pub(super) fn size(text: &str, within: RangeInclusive<u64>) -> Result<u64, String> {
    let unit_at = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(unit_at);
    let bytes: u64 = match unit {
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return Err(format!("{text:?} is not a number with one of the units KiB, MiB, GiB, TiB")),
    };
    let size = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(bytes));
    size.filter(|size| within.contains(size)).ok_or_else(|| format!("{text:?} is too small or too large"))
}

pub(super) fn any_duration(text: &str) -> Result<Duration, String> {
    let unit_at = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(unit_at);
    let milliseconds: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        _ => return Err(format!("{text:?} is not a number with one of the units ms, s, m, h")),
    };
    if digits.is_empty() {
        return Err(format!("{text:?} has no number"));
    }
    let duration = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(milliseconds));
    let duration = duration.map(Duration::from_millis).filter(|duration| *duration <= LONGEST);
    duration.ok_or_else(|| format!("{text:?} is too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_may_be_in_days() {
        assert_eq!(age("90d"), Ok(Duration::from_secs(90 * 86_400)));
        assert_eq!(age("3650d"), Ok(Duration::from_secs(3650 * 86_400)));
        assert_eq!(age("2s"), Ok(Duration::from_secs(2)));
        for text in ["0d", "d", "3651d", "+1d", "1.5d", "0s", "1 d", "99999999999999999999d"] {
            assert!(age(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_size_has_a_unit() {
        assert_eq!(size("64MiB", DISK_SIZES), Ok(64 << 20));
        assert_eq!(size("1TiB", DISK_SIZES), Ok(1 << 40));
        assert_eq!(size("64KiB", BODY_SIZES), Ok(64 << 10));
        assert!(size("64KiB", DISK_SIZES).is_err());
        for text in ["", "64", "64MB", "64 MiB", "0MiB", "2TiB", "-1MiB", "99999999999999999999GiB", "MiB"] {
            assert!(size(text, DISK_SIZES).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_a_whole_number_and_a_unit() {
        for (text, milliseconds) in
            [("500ms", 500), ("5s", 5000), ("2m", 120_000), ("24h", 86_400_000), ("0s", 0)]
        {
            assert_eq!(any_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in [
            "",
            "5",
            "s",
            "1.5s",
            "-1s",
            "+1s",
            " 5s",
            "5 s",
            "5S",
            "5d",
            "25h",
            "1h30m",
            "99999999999999999999h",
        ] {
            assert!(any_duration(text).is_err(), "{text:?}");
        }
        assert!(positive_duration("0ms").is_err());
    }
}
