//! Many equal things told as one: the first at once, then how many more there were, once a second.
//!
//! The gate folds refusals with it, so that a deposed leader that goes on writing fills neither the log nor a
//! listener's stream. Pure: the caller says what happens and when a period is over. What must stay true: nothing is
//! lost (what is shown at once and all counts together are what was noted), and memory is bounded by the number of
//! keys that are told apart; what comes beyond is counted together.

use std::collections::HashMap;
use std::hash::Hash;

use foldhash::quality::RandomState;

/// What was noted and is not told yet.
pub(crate) struct Fold<K, V> {
    noted: HashMap<K, Noted<V>, RandomState>,
    /// How many keys are told apart.
    limit: usize,
    /// Noted beyond the limit since the last period.
    beyond: u64,
}

struct Noted<V> {
    /// How a note of this key is told.
    sample: V,
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
    pub(crate) fn new(limit: usize) -> Self {
        Self { noted: HashMap::default(), limit, beyond: 0 }
    }

    /// Something happened. `sample` is asked for only if it is the first of its kind.
    pub(crate) fn note(&mut self, key: K, sample: impl FnOnce() -> V) -> Told {
        if let Some(noted) = self.noted.get_mut(&key) {
            noted.more += 1;
            return Told::Later;
        }
        if self.noted.len() >= self.limit {
            self.beyond += 1;
            return Told::Later;
        }
        self.noted.insert(key, Noted { sample: sample(), more: 0 });
        Told::Now
    }

    /// A period is over. What was not noted again in it is forgotten: the next of its kind is a first one.
    pub(crate) fn end_period(&mut self) -> Period<V> {
        let mut repeated = Vec::new();
        self.noted.retain(|_, noted| {
            let more = std::mem::take(&mut noted.more);
            if more > 0 {
                repeated.push((noted.sample.clone(), more));
            }
            more > 0
        });
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
        counted: u64,
    }

    impl Lines {
        fn note(&mut self, fold: &mut Fold<u64, ()>, key: u64) {
            if fold.note(key, || ()) == Told::Now {
                self.lines += 1;
                self.counted += 1;
            }
        }

        fn end_period(&mut self, fold: &mut Fold<u64, ()>) {
            let Period { repeated, beyond } = fold.end_period();
            self.lines += repeated.len() as u64 + u64::from(beyond > 0);
            self.counted += repeated.iter().map(|(_, count)| count).sum::<u64>() + beyond;
        }
    }

    #[test]
    fn a_hundred_thousand_equal_notes_in_a_second_make_three_lines_at_the_most() {
        // A period may end anywhere in that second, and the next one after it.
        for first_end in [0, 1, 500, 99_999] {
            let (mut fold, mut lines) = (Fold::new(10), Lines::default());
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
        let mut fold = Fold::new(10);
        assert_eq!(fold.note("a", || 'a'), Told::Now);
        assert_eq!(fold.note("b", || 'b'), Told::Now, "each kind for itself");
        assert_eq!(fold.note("a", || 'x'), Told::Later);
        assert_eq!(fold.end_period(), Period { repeated: vec![('a', 1)], beyond: 0 });
        assert_eq!(fold.note("b", || 'b'), Told::Now, "it was quiet for a period");
        assert_eq!(fold.note("a", || 'a'), Told::Later, "it was not");
        fold.end_period();
        fold.end_period();
        assert_eq!(fold.end_period(), Period { repeated: vec![], beyond: 0 });
        assert!(fold.noted.is_empty(), "what is quiet takes no memory");
    }

    #[test]
    fn kinds_without_end_take_bounded_memory_and_are_counted_together() {
        let (mut fold, mut lines) = (Fold::new(10), Lines::default());
        for number in 0..100_000 {
            lines.note(&mut fold, number);
            assert!(fold.noted.len() <= 10);
        }
        lines.end_period(&mut fold);
        assert_eq!(lines.lines, 11, "ten at once, and one for all others");
        assert_eq!(lines.counted, 100_000);
        assert_eq!(fold.note(100_001, || ()), Told::Now, "there is a place again");
    }
}
