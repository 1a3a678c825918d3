//! The last events of a run, in words. Kept only if somebody will read them: a run can be made again.

use std::collections::VecDeque;

use super::clock::{MILLI, Nanos};

const KEPT: usize = 4000;

pub(crate) struct Trace {
    wanted: bool,
    lines: VecDeque<String>,
}

impl Trace {
    pub(crate) fn new(wanted: bool) -> Self {
        Self { wanted, lines: VecDeque::new() }
    }

    pub(crate) fn note(&mut self, now: Nanos, line: impl FnOnce() -> String) {
        if !self.wanted {
            return;
        }
        if self.lines.len() == KEPT {
            self.lines.pop_front();
        }
        self.lines.push_back(format!("{:>11} ms  {}", format_millis(now), line()));
    }

    pub(crate) fn last(&self, count: usize) -> impl Iterator<Item = &str> {
        self.lines.iter().skip(self.lines.len().saturating_sub(count)).map(String::as_str)
    }
}

pub(crate) fn format_millis(time: Nanos) -> String {
    format!("{}.{:03}", time / MILLI, time % MILLI / 1000)
}

/// Machines have letters.
pub(crate) fn letter(host: usize) -> char {
    char::from(b'A' + u8::try_from(host).unwrap_or(25))
}

/// An incarnation, short enough to read.
pub(crate) fn short(incarnation: u128) -> String {
    format!("{:04x}", incarnation >> 112)
}
