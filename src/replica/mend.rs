//! A mark that the store has lost by somebody's hand: deleted, lowered, or overwritten with what nobody can read. It is
//! put back.
//!
//! What this member knows of a mark is never forgotten because the store has lost it. The mark is proposed again as
//! RAISED, so that it closes, drains and opens like any other, also on a member that joined while it was not
//! there. Such a member, or an elector, may raise the mark first, and knows nothing of what operators and routes had said
//! of it: that is put back over the raise, and the raise is not acknowledged here before. A mark that cannot be read and
//! that nobody here has ever known stays shut: no proposal is made over it.

use highgate_elector::Resource;

use super::raise::STAGGER;
use super::{Record, Replica, Revision, State, Time, era_of};
use crate::controls::{Rule, breaks};

/// A mark that is to be put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Mend {
    from: Time,
    /// Whatever the log brings up to here is older than the loss.
    lost_at: Revision,
}

impl Record {
    /// The same mark, to be put where it is missing. One that can pass requests has to be sealed anew.
    fn put_back(&self, passes_again: bool) -> Self {
        let state = if passes_again { State::Raised } else { self.state };
        Self { state, block_next: self.policy(), ..*self }
    }

    /// Whether this cannot follow on `known`: a mark never goes down, and what was readable stays so.
    fn undoes(&self, known: &Self) -> bool {
        // Gates that follow a mark which goes down are how a seal without its compare is seen to do harm.
        let is_lower = self.token < known.token && !breaks(Rule::SealCompare);
        !known.unreadable && (self.unreadable || is_lower)
    }

    /// Whether whoever wrote this over the lost mark did not know that it was frozen, that unknown outcomes block it, or up
    /// to where they are settled. Who does know writes all of it again, whether it puts the mark back or raises it.
    fn forgets(&self, lost: &Self) -> bool {
        let unblocks = lost.block && (!self.block || self.settled > lost.settled);
        unblocks || (lost.frozen && !self.frozen)
    }

    /// This mark, and what was said of the lost one.
    fn remembering(&self, lost: &Self) -> Self {
        let settled = if lost.block { self.settled.min(lost.settled) } else { self.settled };
        let base = if lost.policy() { self.blocking() } else { *self };
        Self { settled, frozen: self.frozen || lost.frozen, block: base.block || lost.block, ..base }
    }
}

impl Replica {
    /// The store does not hold this mark any more: since `modified` it holds another, or nothing (0). Whatever the log
    /// brings up to `lost_at` is older than that. Its gate stays as it is.
    pub(super) fn lose(&mut self, now: Time, resource: &Resource, modified: Revision, lost_at: Revision) {
        let Some(record) = self.records.get_mut(resource) else { return };
        if record.unreadable {
            // Whoever removes it says that there is no mark.
            self.records.remove(resource);
            return;
        }
        let before = std::mem::replace(&mut record.modified, modified);
        if record.state == State::Raised {
            self.end_raise(resource, before);
        }
        self.mend(now, resource, lost_at);
    }

    /// Every member sees what is to be mended; the one that comes first for the resource acts first.
    fn mend(&mut self, now: Time, resource: &Resource, lost_at: Revision) {
        let from = now + STAGGER * self.rank(resource);
        let work = self.work.entry(resource.clone()).or_default();
        work.outstanding = None;
        let from = work.mend.map_or(from, |mend| mend.from);
        work.mend = Some(Mend { from, lost_at });
    }

    /// Whether a record that the log brings undoes the mark that is known here. Then the known one is to be put back.
    pub(super) fn is_undone(&mut self, now: Time, resource: &Resource, record: &Record) -> bool {
        let undone = self.records.get(resource).is_some_and(|known| record.undoes(known));
        if undone {
            self.lose(now, resource, record.modified, record.modified);
        }
        undone
    }

    /// What a record means that the log brings: itself, or, if it was written over a lost mark by somebody who did not know
    /// that one, itself with all that was said of the lost one, which is then to be put back.
    pub(super) fn recall(&mut self, now: Time, resource: &Resource, record: Record) -> Record {
        let lost = self.record(resource);
        let Some(work) = self.work.get_mut(resource) else { return record };
        match work.mend.take() {
            Some(mend) if record.modified > mend.lost_at && record.forgets(&lost) => {
                self.mend(now, resource, record.modified);
                record.remembering(&lost)
            }
            _ => record,
        }
    }

    /// The mark as it is to be put back, and from when on.
    pub(super) fn to_mend(&self, resource: &Resource, record: &Record) -> Option<(Time, Record)> {
        let from = self.work.get(resource)?.mend?.from;
        Some((from, record.put_back(record.token > 0 && era_of(record.token) == self.era)))
    }
}
