//! RENEW: how long this member may pass requests, and when it says again that it lives.
//!
//! Validity is counted from before a renewal was sent, never from its answer. A renewal also carries how far
//! this member has come; when a raise waits for that, it goes out early.

use std::time::Duration;

use super::{Fenced, Output, Replica, Time};
use crate::controls::{Rule, breaks};

/// Between two renewals that only tell of progress.
const COALESCE: Duration = Duration::from_millis(20);
/// How many renewals may be without an answer before more are pointless.
const MAX_OUTSTANDING: u32 = 6;

/// The times that a cluster agrees on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    /// V: how long a member passes requests after its last renewal was sent.
    pub validity: Duration,
    /// D: how long what was cut may still take effect, the longest of all routes.
    pub lock_delay: Duration,
    /// How long a superseded request may take before it is cut, the longest of all routes.
    pub drain_timeout: Duration,
}

/// What became of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Accepted,
    /// This member is not one any more.
    Refused,
    /// It may or may not have been heard.
    Lost,
}

impl Timing {
    fn renew_every(&self) -> Duration {
        self.validity / 4
    }

    /// X: how long a member may leave a raise without progress.
    pub(super) fn suspect_after(&self) -> Duration {
        self.validity / 2
    }

    /// How long news may be due before it is asked for: with a renewal's pause and the way there and back it is well below X,
    /// so that nobody is suspected for what its watch has lost.
    pub(super) fn ask_after(&self) -> Duration {
        self.validity / 8
    }

    /// How long a member may be silent if nothing waits for it.
    pub(super) fn silent_after(&self) -> Duration {
        self.validity * 2
    }

    /// How often the others are looked at.
    pub(super) fn round(&self) -> Duration {
        self.validity / 16
    }

    /// W + D: how long after its eviction was seen nothing of a member can take effect any more. W is longer
    /// than the validity by what clocks may differ.
    pub fn wait(&self) -> Duration {
        if breaks(Rule::Wait) {
            return self.lock_delay;
        }
        self.validity + self.validity / 100 + Duration::from_millis(50) + self.lock_delay
    }
}

/// What this member has said of itself, and until when that counts.
#[derive(Clone, Debug, Hash)]
pub(super) struct Renewal {
    valid: Option<Time>,
    /// When the last renewal that was accepted was sent.
    pub(super) accepted: Time,
    last_sent: Time,
    /// Something happened since that a raise may wait for.
    progress: Option<Time>,
    outstanding: u32,
}

impl Renewal {
    pub(super) fn joined(sent: Time, timing: Option<Timing>) -> Self {
        let valid = timing.map(|timing| sent + timing.validity);
        Self { valid, accepted: sent, last_sent: sent, progress: None, outstanding: 0 }
    }

    /// Until when requests may pass; none: for ever.
    pub(super) fn valid(&self) -> Option<Time> {
        self.valid
    }

    pub(super) fn progress(&mut self, now: Time) {
        self.progress.get_or_insert(now);
    }

    /// When the next renewal is due, or the validity over.
    pub(super) fn due(&self, timing: &Timing) -> Time {
        let regular = self.last_sent + timing.renew_every();
        let early = self.progress.filter(|_| self.outstanding < MAX_OUTSTANDING);
        let early = early.map_or(regular, |since| since.max(self.last_sent + COALESCE));
        regular.min(early).min(self.valid.unwrap_or(Time::MAX))
    }
}

impl Replica {
    pub(super) fn renew_if_due(&mut self, now: Time, timing: &Timing, outputs: &mut Vec<Output>) {
        if now < self.renewal.due(timing) {
            return;
        }
        self.renewal.last_sent = now;
        self.renewal.progress = None;
        self.renewal.outstanding += 1;
        let me = self.me();
        // The watermark first, then what is draining: of what is acknowledged, nothing is missing.
        let (watermark, draining) = (me.watermark, me.draining.iter().copied().collect());
        outputs.push(Output::Renew { watermark, draining });
    }

    pub(super) fn renewed(&mut self, now: Time, sent: Time, answer: Answer, outputs: &mut Vec<Output>) {
        self.renewal.outstanding = self.renewal.outstanding.saturating_sub(1);
        match (answer, self.timing, self.renewal.valid) {
            (Answer::Refused, ..) => self.fence(Fenced::Refused, outputs),
            // An answer that comes after the end does not bring it back.
            (_, _, Some(valid)) if now >= valid => self.fence(Fenced::Expired, outputs),
            (Answer::Accepted, Some(timing), Some(valid)) => {
                let until = valid.max(sent + timing.validity);
                self.renewal.accepted = self.renewal.accepted.max(sent);
                self.renewal.valid = Some(until);
                outputs.push(Output::Valid { until });
            }
            _ => {}
        }
    }

    /// The times have changed: the next renewal says so, and is due.
    pub fn retime(&mut self, timing: Timing, now: Time) {
        self.timing = self.timing.map(|_| timing);
        self.renewal.progress(now);
    }
}
