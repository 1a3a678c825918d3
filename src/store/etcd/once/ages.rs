//! How old an entry of the run-once ledger is, by no wall clock: for how long gateways have run since it was written.
//!
//! A wall clock that is set months ahead would make every entry months old, and work would run again. So the gateways keep a
//! clock in etcd, together: whoever sees that nobody has moved it on for a while adds that while, by its own boot-time
//! clock. Now and then the revision that etcd has reached is noted beside it: what was written up to there is at least as old
//! as the note. Pure; [`super`] reads and writes it. What must stay true: the clock never runs faster than time does.
//! While no gateway runs it stands still, so entries may be kept for longer, never for less.

use std::time::Duration;

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
    /// None of a value that [`Ages::write`] has not written.
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(value).ok()?;
        let millis = |value: &Value| value.as_u64().map(Duration::from_millis);
        let note = |note: &Value| {
            Some(Note { clock: millis(note.get("clock")?)?, revision: note.get("revision")?.as_i64()? })
        };
        let notes = value.get("notes")?.as_array()?.iter().map(note).collect::<Option<_>>()?;
        Some(Self { clock: millis(value.get("clock")?)?, notes })
    }

    pub(super) fn write(&self) -> String {
        let note = |note: &Note| json!({ "clock": millis(note.clock), "revision": note.revision });
        let notes: Vec<_> = self.notes.iter().map(note).collect();
        json!({ "clock": millis(self.clock), "notes": notes }).to_string()
    }

    /// So much time has passed since this was written, and etcd had reached this revision. Entries are kept for `keep`.
    pub(super) fn advance(&mut self, passed: Duration, revision: i64, keep: Duration) {
        self.clock += passed;
        if self.notes.last().is_none_or(|last| self.clock - last.clock >= keep / PARTS) {
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

    #[test]
    fn what_is_read_is_what_was_written_and_anything_else_is_nothing() {
        let mut ages = Ages::default();
        for revision in [7, 9] {
            ages.advance(KEEP / 2, revision, KEEP);
        }
        assert_eq!(
            ages.write(),
            r#"{"clock":7776000000,"notes":[{"clock":3888000000,"revision":7},{"clock":7776000000,"revision":9}]}"#
        );
        assert_eq!(Ages::parse(ages.write().as_bytes()), Some(ages));
        for other in ["", "{}", r#"{"clock":1}"#, r#"{"clock":-1,"notes":[]}"#, r#"{"clock":1,"notes":[1]}"#]
        {
            assert_eq!(Ages::parse(other.as_bytes()), None, "{other}");
        }
    }
}
