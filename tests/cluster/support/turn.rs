//! Whose turn it is: two trials at a time, so that they do not starve each other of a small machine, and one alone
//! if it measures something.

use std::sync::{Condvar, Mutex, PoisonError};

const AT_ONCE: usize = 2;

/// Shared by all tests of the process: they run on threads that know nothing of each other.
static FREE: Mutex<usize> = Mutex::new(AT_ONCE);
static CHANGED: Condvar = Condvar::new();

/// Given back when dropped.
pub(crate) struct Turn {
    places: usize,
}

impl Turn {
    /// Waits for it.
    pub(crate) fn take(alone: bool) -> Self {
        let places = if alone { AT_ONCE } else { 1 };
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = CHANGED.wait_while(free, |free| *free < places);
        *waited.unwrap_or_else(PoisonError::into_inner) -= places;
        Self { places }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *FREE.lock().unwrap_or_else(PoisonError::into_inner) += self.places;
        CHANGED.notify_all();
    }
}
