//! How long lines are kept and how much room they may take, and what follows from that for the files.

use std::time::Duration;

/// Into how many files the room and the time are divided. What goes goes by a file's worth, so the history is shorter than
/// its limits by some sixteenths at the most.
const PARTS: u64 = 16;
/// No file is larger, whatever the limit: one is read and written again as a whole, in memory, to make room.
const LARGEST_PART: u64 = 4 << 20;
/// No file is left earlier because of its age alone: with a short `keep` there would be one for every line.
const SHORTEST_SPAN: Duration = Duration::from_secs(60);

/// How long lines are kept, and how much room they may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// By the journal's own clock, which stands still while no gateway runs.
    pub keep: Duration,
    pub max_size: u64,
}

impl Limits {
    /// How large a file gets.
    pub(super) fn part_size(&self) -> u64 {
        (self.max_size / PARTS).min(LARGEST_PART)
    }

    /// For how long a file is written to.
    pub(super) fn part_span(&self) -> Duration {
        (self.keep / PARTS as u32).max(SHORTEST_SPAN)
    }

    /// How much all files may take when a new one is begun: that one and the one that is written to make room come on top.
    pub(super) fn room_for_old(&self) -> u64 {
        self.max_size.saturating_sub(2 * self.part_size())
    }

    /// How much is shared evenly when room is short. Less than the above, so that a file's worth is free afterwards.
    pub(super) fn room_to_share(&self) -> u64 {
        self.max_size.saturating_sub(3 * self.part_size())
    }
}
