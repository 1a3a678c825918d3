//! The gate of one resource: a mark and one atomic word, `[open | generation | in-flight]`.
//!
//! Requests admit and release concurrently from every core; one driver (the store's) closes and opens.
//! Admission is one compare-and-swap on the word. The mark lies beside the word, and the pair cannot be torn:
//! the driver closes the word, which moves its generation on, *before* it stores a new mark, so whoever read
//! the word before the change fails its compare-and-swap.
//!
//! What must stay true: the gate opens for a mark only when no guard of a lower mark is held. [`Mark::open`]
//! checks that itself. The tests at the end run every interleaving under loom.

#[cfg(highgate_loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(highgate_loom))]
use std::sync::atomic::{AtomicU64, Ordering};

use highgate_elector::Token;

const IN_FLIGHT_BITS: u32 = 24;
const IN_FLIGHT: u64 = (1 << IN_FLIGHT_BITS) - 1;
const GENERATION_ONE: u64 = 1 << IN_FLIGHT_BITS;
const OPEN: u64 = 1 << 63;

/// A mark and its gate.
pub struct Mark {
    word: AtomicU64,
    /// The highest token raised, 0 before the first. Written by the driver only, and only while closed.
    token: AtomicU64,
    /// The token the gate was last open for. Written and read by the driver only.
    passed: AtomicU64,
}

/// Why a token was not admitted. Carries the mark it was compared with; 0 means that there is none yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// Below the mark. Final: marks never go down.
    Stale { mark: u64 },
    /// Above the mark: somebody has to raise it first.
    Ahead { mark: u64 },
    /// At the mark, which is not open (yet).
    Closed,
    /// At the mark, with as many requests in flight as the word can count.
    Full,
}

/// What closing a gate found: how many requests it still has to let out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the next token may pass only after the drain"]
pub struct Drain {
    pub remaining: u64,
}

/// Whether a release emptied a closed gate. Exactly one of close and the releases after it reports the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the driver has to hear of a completed drain"]
pub enum Release {
    Left,
    Drained,
}

/// The gate was asked to open over guards of a lower token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{held} requests of a lower token are still under way")]
pub struct StillHeld {
    pub held: u64,
}

impl Mark {
    /// A closed gate without a mark: nothing passes.
    pub fn new() -> Self {
        Self::shut_at(0)
    }

    /// A closed gate under a mark.
    pub fn shut_at(token: u64) -> Self {
        Self { word: AtomicU64::new(0), token: AtomicU64::new(token), passed: AtomicU64::new(0) }
    }

    /// Takes a place in flight, iff the gate is open at exactly this token.
    pub fn admit(&self, token: Token) -> Result<(), Denied> {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            self.compare(token)?;
            if word & OPEN == 0 {
                return Err(Denied::Closed);
            }
            if word & IN_FLIGHT == IN_FLIGHT {
                return Err(Denied::Full);
            }
            match self.word.compare_exchange_weak(word, word + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(()),
                Err(changed) => word = changed,
            }
        }
    }

    fn compare(&self, token: Token) -> Result<(), Denied> {
        let mark = self.token();
        match token.get().cmp(&mark) {
            std::cmp::Ordering::Less => Err(Denied::Stale { mark }),
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => Err(Denied::Ahead { mark }),
        }
    }

    /// Gives a place back. Only for who was admitted, once.
    pub fn release(&self) -> Release {
        let before = self.word.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before & IN_FLIGHT > 0, "released more often than admitted");
        if before & OPEN == 0 && before & IN_FLIGHT == 1 { Release::Drained } else { Release::Left }
    }

    /// Closes the gate under a mark (a higher one, or the same to keep requests out). Driver only.
    pub fn close(&self, token: u64) -> Drain {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            match self.word.compare_exchange_weak(word, closed(word), Ordering::AcqRel, Ordering::Acquire) {
                Ok(before) => {
                    self.token.store(token, Ordering::Release);
                    return Drain { remaining: before & IN_FLIGHT };
                }
                Err(changed) => word = changed,
            }
        }
    }

    /// Opens the gate at its mark. Driver only.
    pub fn open(&self) -> Result<(), StillHeld> {
        let token = self.token.load(Ordering::Relaxed);
        let held = self.in_flight();
        if held > 0 && self.passed.load(Ordering::Relaxed) != token {
            return Err(StillHeld { held });
        }
        self.passed.store(token, Ordering::Relaxed);
        self.word.fetch_or(OPEN, Ordering::Release);
        Ok(())
    }

    /// The mark, 0 before the first.
    pub fn token(&self) -> u64 {
        self.token.load(Ordering::Acquire)
    }

    pub fn is_open(&self) -> bool {
        self.word.load(Ordering::Acquire) & OPEN != 0
    }

    /// Guards held, whichever token they were admitted under.
    pub fn in_flight(&self) -> u64 {
        self.word.load(Ordering::Acquire) & IN_FLIGHT
    }
}

impl Default for Mark {
    fn default() -> Self {
        Self::new()
    }
}

/// The word after a close: shut, one generation on (wrapping), the count as it was.
fn closed(word: u64) -> u64 {
    let generation = word.wrapping_add(GENERATION_ONE) & !OPEN & !IN_FLIGHT;
    generation | (word & IN_FLIGHT)
}

#[cfg(test)]
mod tests;
