//! How old an entry of the run-once ledger is, by no wall clock: for how long gateways have run since it was written.
//!
//! A wall clock that is set months ahead would make every entry months old, and work would run again. So the gateways keep a
//! clock in etcd, together: whoever sees that nobody has moved it on for a while adds that while, by its own boot-time
//! clock. Now and then the revision that etcd has reached is noted beside it: what was written up to there is at least as old
//! as the note. Pure; [`super`] reads and writes it. What must stay true: the clock never runs faster than time does, and a
//! revision is only compared with those of the etcd that it was noted in: one that was filled with copies of keys counts
//! from the beginning, and there an old note would make everything old. So the value says the how manieth put it is, which
//! etcd counts as well, and which a copy is not. While no gateway runs the clock stands still, so entries may be kept for
//! longer, never for less.

use std::time::Duration;

use highgate_etcd::KeyValue;
use serde_json::{Value, json};

/// Into how many parts the time is divided for which entries are kept: an entry may stay for one part longer.
const PARTS: u32 = 32;

/// The clock, and what etcd had reached when it stood where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ages {
    clock: Duration,
    /// The oldest first.
    notes: Vec<Note>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Note {
    clock: Duration,
    revision: i64,
}

impl Ages {
    /// None of a value that [`Ages::write`] has not written, or that was not written for this place in this etcd.
    pub(super) fn read(kv: &KeyValue) -> Option<Self> {
        let (ages, puts) = Self::parse(&kv.value)?;
        // A note is made of what etcd had reached before the put that brings it there.
        let is_of_here = ages.notes.last().is_none_or(|last| last.revision < kv.mod_revision);
        (puts == kv.version && is_of_here).then_some(ages)
    }

    /// What a value says, and the how manieth put of the key it is.
    fn parse(value: &[u8]) -> Option<(Self, i64)> {
        let value: Value = serde_json::from_slice(value).ok()?;
        let millis = |value: &Value| value.as_u64().map(Duration::from_millis);
        let note = |note: &Value| {
            Some(Note { clock: millis(note.get("clock")?)?, revision: note.get("revision")?.as_i64()? })
        };
        let notes = value.get("notes")?.as_array()?.iter().map(note).collect::<Option<_>>()?;
        let ages = Self { clock: millis(value.get("clock")?)?, notes };
        ages.is_possible().then_some(ages).zip(value.get("puts")?.as_i64())
    }

    /// Time and etcd only go on: no note is beyond the clock, and none of a lower revision follows another.
    fn is_possible(&self) -> bool {
        let is_in_order =
            |one: &Note, other: &Note| one.clock <= other.clock && one.revision <= other.revision;
        self.notes.is_sorted_by(is_in_order) && self.notes.last().is_none_or(|last| last.clock <= self.clock)
    }

    /// The value of the put that is the `puts`-th of its key.
    pub(super) fn write(&self, puts: i64) -> String {
        let note = |note: &Note| json!({ "clock": millis(note.clock), "revision": note.revision });
        let notes: Vec<_> = self.notes.iter().map(note).collect();
        json!({ "clock": millis(self.clock), "notes": notes, "puts": puts }).to_string()
    }

    /// So much time has passed since this was written, and etcd had reached this revision. Entries are kept for `keep`.
    pub(super) fn advance(&mut self, passed: Duration, revision: i64, keep: Duration) {
        self.clock = self.clock.saturating_add(passed);
        let since = |last: &Note| self.clock.saturating_sub(last.clock);
        if self.notes.last().is_none_or(|last| since(last) >= keep / PARTS) {
            self.notes.push(Note { clock: self.clock, revision });
        }
        // Of those that are old enough, the youngest says it all.
        let old = self.notes.iter().take_while(|note| note.clock + keep <= self.clock).count();
        self.notes.drain(..old.saturating_sub(1));
    }

    /// What was last changed at this revision or before is older than `keep`.
    pub(super) fn older_than(&self, keep: Duration) -> Option<i64> {
        let old = self.notes.iter().take_while(|note| note.clock + keep <= self.clock);
        old.map(|note| note.revision).max()
    }
}

fn millis(time: Duration) -> u64 {
    time.as_millis().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const KEEP: Duration = Duration::from_secs(90 * 24 * 3600);
    const A_MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn what_is_written_is_old_when_gateways_have_run_for_so_long_and_not_before() {
        let mut ages = Ages::default();
        let written = 1000;
        // One revision an hour; the entry was written in the hour before the clock began.
        for hour in 0..=90 * 24 {
            ages.advance(HOUR, written + hour, KEEP);
            let is_old = ages.older_than(KEEP).is_some_and(|revision| revision >= written);
            assert_eq!(is_old, hour == 90 * 24, "after {hour} h");
            assert!(ages.notes.len() <= PARTS as usize + 2, "{} notes", ages.notes.len());
        }
        // Later entries follow, each when it has its age or a part of it later.
        for hour in 1..400 * 24 {
            ages.advance(HOUR, written + 90 * 24 + hour, KEEP);
            let age = 90 * 24 + hour - (ages.older_than(KEEP).unwrap() - written);
            assert!((90 * 24..=90 * 24 + 90 * 24 / 32 + 1).contains(&age), "{age} h");
        }
    }

    /// The value of a key that etcd has seen put twice, the last time at the revision 10.
    fn key(value: &str) -> KeyValue {
        KeyValue {
            value: value.into(),
            create_revision: 3,
            mod_revision: 10,
            version: 2,
            ..KeyValue::default()
        }
    }

    fn written() -> Ages {
        let mut ages = Ages::default();
        for revision in [7, 9] {
            ages.advance(KEEP / 2, revision, KEEP);
        }
        ages
    }

    #[test]
    fn what_is_read_is_what_was_written_and_anything_else_is_nothing() {
        let ages = written();
        assert_eq!(
            ages.write(2),
            r#"{"clock":7776000000,"notes":[{"clock":3888000000,"revision":7},{"clock":7776000000,"revision":9}],"puts":2}"#
        );
        assert_eq!(Ages::read(&key(&ages.write(2))), Some(ages));
        for other in [
            "",
            "{}",
            r#"{"clock":1}"#,
            r#"{"clock":-1,"notes":[],"puts":2}"#,
            r#"{"clock":1,"notes":[1],"puts":2}"#,
        ] {
            assert_eq!(Ages::read(&key(other)), None, "{other}");
        }
        assert_eq!(
            Ages::read(&key(r#"{"clock":1,"notes":[],"puts":2}"#)).map(|ages| ages.clock),
            Some(A_MILLI)
        );
    }

    #[test]
    fn what_was_written_in_another_etcd_is_nothing_here() {
        let value = written().write(2);
        let is_read = |kv: KeyValue| Ages::read(&kv).is_some();
        assert!(is_read(key(&value)));
        // The other one had come further than this one, or had seen the key put more often than this one has.
        assert!(!is_read(KeyValue { mod_revision: 9, ..key(&value) }));
        assert!(!is_read(KeyValue { mod_revision: 5_000_000, version: 1, ..key(&value) }));
    }

    #[test]
    fn notes_that_no_clock_can_have_made_are_nothing_and_harm_nobody() {
        let notes = |notes: &str| Ages::read(&key(&format!(r#"{{"clock":5,"notes":[{notes}],"puts":2}}"#)));
        assert!(notes(r#"{"clock":4,"revision":7},{"clock":5,"revision":7}"#).is_some());
        for impossible in [
            r#"{"clock":6,"revision":7}"#,
            r#"{"clock":4,"revision":7},{"clock":3,"revision":8}"#,
            r#"{"clock":3,"revision":8},{"clock":4,"revision":7}"#,
        ] {
            assert_eq!(notes(impossible), None, "{impossible}");
        }
        let ahead = Note { clock: KEEP, revision: 7 };
        let mut ages = Ages { clock: Duration::ZERO, notes: vec![ahead] };
        ages.advance(HOUR, 8, KEEP);
        assert_eq!((ages.older_than(KEEP), ages.notes), (None, vec![ahead]));
    }
}
