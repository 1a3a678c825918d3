//! Whose turn it is: a few trials at a time, so that they do not starve each other of a small machine, and one alone
//! if it measures something.
//!
//! Trials mostly wait for time to pass, so there may be more of them than cores. They go in the order in which they came:
//! one that wants to be alone would otherwise wait until no other is left.

use std::sync::{Condvar, Mutex, PoisonError};

/// No more than the tests' threads: scripts/test asks for as many.
const AT_ONCE: usize = 3;

/// Shared by all tests of the process: they run on threads that know nothing of each other.
static LINE: Mutex<Line> = Mutex::new(Line { free: AT_ONCE, came: 0, served: 0 });
static CHANGED: Condvar = Condvar::new();

struct Line {
    free: usize,
    /// How many have come, and how many of them have had their turn.
    came: u64,
    served: u64,
}

/// Given back when dropped.
pub(crate) struct Turn {
    places: usize,
}

impl Turn {
    /// Waits for it.
    pub(crate) fn take(alone: bool) -> Self {
        let places = if alone { AT_ONCE } else { 1 };
        let mut line = LINE.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = line.came;
        line.came += 1;
        let waited = CHANGED.wait_while(line, |line| line.served != mine || line.free < places);
        let mut line = waited.unwrap_or_else(PoisonError::into_inner);
        line.free -= places;
        line.served += 1;
        CHANGED.notify_all();
        Self { places }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        LINE.lock().unwrap_or_else(PoisonError::into_inner).free += self.places;
        CHANGED.notify_all();
    }
}
