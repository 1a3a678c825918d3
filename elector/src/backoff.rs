//! How long to wait before asking a backend again that did not answer: longer each time, up to a cap, and
//! never the same for two processes that were cut off together.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(3);

#[derive(Default)]
pub(crate) struct Backoff {
    tries: u32,
}

impl Backoff {
    /// The next wait.
    pub(crate) fn next(&mut self) -> Duration {
        let full = LONGEST.min(FIRST * 2u32.saturating_pow(self.tries));
        self.tries = self.tries.saturating_add(1).min(16);
        jittered(full)
    }

    /// It answered.
    pub(crate) fn reset(&mut self) {
        self.tries = 0;
    }
}

/// Between half of a span and all of it.
pub(crate) fn jittered(full: Duration) -> Duration {
    let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
    let share = f64::from(u32::try_from(random >> 32).unwrap_or(u32::MAX)) / f64::from(u32::MAX);
    full.mul_f64(0.5 + 0.5 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_cap_and_start_again_after_an_answer() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..40).map(|_| backoff.next()).collect();
        assert!(waits[0] <= FIRST && waits[0] >= FIRST / 2);
        assert!(waits.iter().all(|wait| *wait <= LONGEST));
        assert!(waits[39] >= LONGEST / 2);
        backoff.reset();
        assert!(backoff.next() <= FIRST);
    }

    #[test]
    fn two_processes_do_not_wait_equally_long() {
        let waits: Vec<_> = (0..8).map(|_| jittered(LONGEST)).collect();
        assert!(waits.iter().any(|wait| *wait != waits[0]));
    }
}
