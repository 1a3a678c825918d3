//! News that is due: changes that an answer of the store has told of, and that the log has not brought yet.
//!
//! A watch can live, answer every sign of life, and still tell of nothing. The number of a change shows a gap only when a
//! later change arrives, so a member that hears nothing at all would never know. But it asks: the answer to a
//! proposal, to a renewal or a refusal says which changes there are. If the log does not move towards them for a while,
//! it is to be told again, which is cheap, and before the others miss this member's acknowledgement; if it still does
//! not for X, everything is read again. A watch that lost something and goes on is found out by numbers without a gap:
//! those of the changes that count, and those of this member's own words, for all that is not counted.

use super::{Change, Output, Replica, Revision, Time, Timing};

/// What the log owes this member.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct News {
    /// A change that counts: the watermark has to come to it.
    pub(super) counted: Due,
    /// A word of this member: its echo has to come, and with it all that happened before, elections included.
    pub(super) said: Due,
}

/// A revision that has to arrive.
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(super) struct Due {
    revision: Revision,
    /// Since when it is awaited and nothing has moved towards it.
    since: Time,
    /// It was asked for since then, and did not come.
    asked: bool,
}

impl Due {
    /// The store holds this revision; `have` is what has arrived.
    pub(super) fn expect(&mut self, now: Time, have: Revision, revision: Revision) {
        if revision > have {
            let awaited = Self { revision: self.revision.max(revision), ..*self };
            *self = if self.revision > have { awaited } else { Self { since: now, asked: false, ..awaited } };
        }
    }

    /// Everything up to `have` has arrived.
    pub(super) fn moved(&mut self, now: Time, have: Revision) {
        let awaited = Self { since: now, asked: false, ..*self };
        *self = if self.revision > have { awaited } else { Self::default() };
    }

    /// It gets X to come before it is asked for again.
    fn ask(&mut self, now: Time) {
        if self.revision > 0 {
            *self = Self { since: now, asked: true, ..*self };
        }
    }

    /// The newest revision that is known to exist.
    pub(super) fn newest(&self, have: Revision) -> Revision {
        self.revision.max(have)
    }

    fn overdue_at(&self, have: Revision, timing: &Timing) -> Option<Time> {
        let patience = if self.asked { timing.suspect_after() } else { timing.ask_after() };
        (self.revision > have).then(|| self.since + patience)
    }
}

impl Replica {
    /// An answer has shown that the store holds these: a change that counts, and a word of this member.
    pub(super) fn exists(&mut self, now: Time, counted: Revision, said: Revision) {
        let (watermark, heard) = (self.watermark(), self.me().modified);
        self.news.counted.expect(now, watermark, counted);
        self.news.said.expect(now, heard, said);
    }

    /// When it is asked for what is due, unless something arrives before.
    pub(super) fn news_due(&self) -> Option<Time> {
        let timing = self.timing?;
        let counted = self.news.counted.overdue_at(self.watermark(), &timing);
        counted.into_iter().chain(self.news.said.overdue_at(self.own().modified, &timing)).min()
    }

    pub(super) fn miss_news(&mut self, now: Time, outputs: &mut Vec<Output>) {
        if self.news_due().is_some_and(|due| due <= now) {
            self.news.counted.ask(now);
            self.news.said.ask(now);
            outputs.push(Output::Resync);
        }
    }

    /// Whether the log has left out a word of this member, and so whatever else was said at that time. Candidates and what
    /// they hold are in no other count.
    pub(super) fn misses_a_word(&self, changes: &[Change]) -> bool {
        let last = self.own().version;
        let is_beyond = |change: &Change| match change {
            Change::Member(id, word) => *id == self.me && last > 0 && word.version > last + 1,
            _ => false,
        };
        changes.iter().any(is_beyond)
    }
}
