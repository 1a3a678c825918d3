//! Many equal things told as one: the first at once, then how many more there were, once a second.
//!
//! The gate folds refusals with it, so that a deposed leader that goes on writing fills neither the log nor a
//! listener's stream. Pure: the caller says what happens, how long a line of it is, and when a period is over. What must
//! stay true: nothing is lost (what is shown at once and all counts together are what was noted), and the lines of a
//! period have no more bytes than the allowance gives; what comes beyond is counted together.

use std::collections::HashMap;
use std::hash::Hash;

use foldhash::quality::RandomState;

/// What was noted and is not told yet.
pub(crate) struct Fold<K, V> {
    noted: HashMap<K, Noted<V>, RandomState>,
    allowance: Allowance,
    /// What of the allowance is neither written nor put by for the counts to come.
    left: usize,
    /// Noted beyond the allowance since the last period.
    beyond: u64,
}

/// How many bytes the lines may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    /// In every period, for as long as it goes on.
    pub(crate) steady: usize,
    /// In one period after quiet ones.
    pub(crate) burst: usize,
}

struct Noted<V> {
    /// How a note of this key is told.
    sample: V,
    /// How long a line of it is. As much is put by for the line that says its count.
    size: usize,
    /// Noted since the last period, the one that was shown at once not included.
    more: u64,
}

/// How a note is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Now, by whoever noted it: it is the first of its kind.
    Now,
    /// With the next period, in a count.
    Later,
}

/// What a period leaves to tell.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Period<V> {
    /// What was noted again, and how often.
    pub(crate) repeated: Vec<(V, u64)>,
    /// How much was noted beyond what is told apart.
    pub(crate) beyond: u64,
}

impl<K: Eq + Hash, V: Clone> Fold<K, V> {
    pub(crate) fn new(allowance: Allowance) -> Self {
        Self { noted: HashMap::default(), allowance, left: allowance.burst, beyond: 0 }
    }

    /// Something happened, and a line of it has `size` bytes. `sample` is asked for only if it is the first of its kind.
    pub(crate) fn note(&mut self, key: K, size: usize, sample: impl FnOnce() -> V) -> Told {
        if let Some(noted) = self.noted.get_mut(&key) {
            noted.more += 1;
            return Told::Later;
        }
        // The line now, and the one with the count at the end of the period.
        let Some(left) = self.left.checked_sub(2 * size) else {
            self.beyond += 1;
            return Told::Later;
        };
        self.left = left;
        self.noted.insert(key, Noted { sample: sample(), size, more: 0 });
        Told::Now
    }

    /// A period is over. What was not noted again in it is forgotten, and so is what there is no room for in the next one:
    /// the next of its kind is a first one.
    pub(crate) fn end_period(&mut self) -> Period<V> {
        let mut repeated = Vec::new();
        let unused: usize = self.noted.values().filter(|noted| noted.more == 0).map(|noted| noted.size).sum();
        let mut left = (self.left + unused + self.allowance.steady).min(self.allowance.burst);
        self.noted.retain(|_, noted| {
            let more = std::mem::take(&mut noted.more);
            if more > 0 {
                repeated.push((noted.sample.clone(), more));
            }
            let room = left.checked_sub(noted.size).filter(|_| more > 0);
            left = room.unwrap_or(left);
            room.is_some()
        });
        self.left = left;
        Period { repeated, beyond: std::mem::take(&mut self.beyond) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many lines a sequence of notes and ends of periods makes, and how many notes these account for.
    #[derive(Default)]
    struct Lines {
        lines: u64,
        bytes: usize,
        counted: u64,
    }

    /// Ten lines a period, and twenty at first.
    const ALLOWANCE: Allowance = Allowance { steady: 1000, burst: 2000 };
    const SIZE: usize = 100;

    impl Lines {
        fn note(&mut self, fold: &mut Fold<u64, usize>, key: u64) {
            self.note_long(fold, key, SIZE);
        }

        fn note_long(&mut self, fold: &mut Fold<u64, usize>, key: u64, size: usize) {
            if fold.note(key, size, || size) == Told::Now {
                self.lines += 1;
                self.bytes += size;
                self.counted += 1;
            }
        }

        fn end_period(&mut self, fold: &mut Fold<u64, usize>) {
            let Period { repeated, beyond } = fold.end_period();
            self.lines += repeated.len() as u64 + u64::from(beyond > 0);
            self.bytes += repeated.iter().map(|(size, _)| size).sum::<usize>();
            self.counted += repeated.iter().map(|(_, count)| count).sum::<u64>() + beyond;
        }
    }

    #[test]
    fn a_hundred_thousand_equal_notes_in_a_second_make_three_lines_at_the_most() {
        // A period may end anywhere in that second, and the next one after it.
        for first_end in [0, 1, 500, 99_999] {
            let (mut fold, mut lines) = (Fold::new(ALLOWANCE), Lines::default());
            for number in 0..100_000 {
                if number == first_end {
                    lines.end_period(&mut fold);
                }
                lines.note(&mut fold, 7);
            }
            lines.end_period(&mut fold);
            assert!(lines.lines <= 3, "{} lines", lines.lines);
            assert_eq!(lines.counted, 100_000, "nothing is lost");
        }
    }

    #[test]
    fn the_first_is_told_at_once_and_so_is_one_after_a_quiet_period() {
        let mut fold = Fold::new(ALLOWANCE);
        assert_eq!(fold.note("a", SIZE, || 'a'), Told::Now);
        assert_eq!(fold.note("b", SIZE, || 'b'), Told::Now, "each kind for itself");
        assert_eq!(fold.note("a", SIZE, || 'x'), Told::Later);
        assert_eq!(fold.end_period(), Period { repeated: vec![('a', 1)], beyond: 0 });
        assert_eq!(fold.note("b", SIZE, || 'b'), Told::Now, "it was quiet for a period");
        assert_eq!(fold.note("a", SIZE, || 'a'), Told::Later, "it was not");
        fold.end_period();
        fold.end_period();
        assert_eq!(fold.end_period(), Period { repeated: vec![], beyond: 0 });
        assert!(fold.noted.is_empty(), "what is quiet takes no memory");
    }

    #[test]
    fn kinds_without_end_take_bounded_memory_and_are_counted_together() {
        let (mut fold, mut lines) = (Fold::new(ALLOWANCE), Lines::default());
        for number in 0..100_000 {
            lines.note(&mut fold, number);
            assert!(fold.noted.len() <= 10);
        }
        lines.end_period(&mut fold);
        assert_eq!(lines.lines, 11, "ten at once, as their counts need room as well, and one for all others");
        assert_eq!(lines.counted, 100_000);
        assert_eq!(fold.note(100_001, SIZE, || SIZE), Told::Now, "there is room again");
    }

    #[test]
    fn lines_have_no_more_bytes_than_their_allowance_whatever_is_noted() {
        const PERIODS: usize = 50;
        // Kinds that last for many periods, for one, for none; short lines and long ones.
        for (kinds, last, long) in
            [(3, 50, 900), (40, 50, 100), (40, 2, 333), (1_000_000, 1, 1), (500, 7, 250)]
        {
            let (mut fold, mut lines, mut noted) = (Fold::new(ALLOWANCE), Lines::default(), 0);
            for period in 0..PERIODS as u64 {
                for number in 0..3000 {
                    let key = number * 7919 % kinds + period / last * kinds;
                    lines.note_long(&mut fold, key, long + (key % 5) as usize * 20);
                    noted += 1;
                }
                lines.end_period(&mut fold);
                let most = ALLOWANCE.burst + (period as usize + 1) * ALLOWANCE.steady;
                assert!(lines.bytes <= most, "{} bytes, not {most}, after {period} periods", lines.bytes);
            }
            assert_eq!(lines.counted, noted, "nothing is lost");
        }
    }
}
