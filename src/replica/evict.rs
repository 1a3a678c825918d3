//! EVICT and FORGET: members that are silent, and tombstones that have done their duty.
//!
//! Silence is judged by what arrives here, so an own renewal that was sent after it began has to have been
//! accepted: else it may be this replica that hears nothing. The compare in the store has the last word.

use std::time::Duration;

use super::{Incarnation, Member, Output, Replica, Time, Timing, Tombstone};

/// Beyond the time that every replica waits for a tombstone, before it is removed.
const FORGET_MARGIN: Duration = Duration::from_secs(1);

impl Replica {
    pub(super) fn make_rounds(&mut self, now: Time, timing: &Timing, outputs: &mut Vec<Output>) {
        let silent: Vec<Incarnation> = self
            .members
            .iter()
            .filter(|(id, member)| **id != self.me && now >= member.judged_until)
            .filter(|(_, member)| self.is_overdue(now, timing, member))
            .map(|(id, _)| *id)
            .collect();
        for id in silent {
            let Some(member) = self.members.get_mut(&id) else { continue };
            member.judged_until = now + timing.suspect_after() / 2;
            outputs.push(Output::Evict { member: id, modified: member.modified });
        }
        self.forget_tombstones(now, outputs);
    }

    fn is_overdue(&self, now: Time, timing: &Timing, member: &Member) -> bool {
        let heard_myself_since = |began: Time| self.renewal.accepted >= began;
        let lasts = |began: Time, limit: Duration| now >= began + limit && heard_myself_since(began);
        if lasts(member.heard_at, timing.silent_after()) {
            return true;
        }
        let behind = self.raises.range(member.watermark.max(member.created) + 1..).next();
        if behind.is_some_and(|(_, raise)| lasts(raise.since.max(member.advanced_at), timing.suspect_after()))
        {
            return true;
        }
        // A request that is superseded is cut in time, and its guard kept for D. Where unknown outcomes block,
        // an operator decides, however long that takes.
        let limit = timing.drain_timeout + timing.lock_delay + timing.suspect_after();
        member.draining.iter().filter_map(|raise| self.raises.get(raise)).any(|raise| {
            let blocks = |resource| self.record(resource).block;
            lasts(raise.since, limit) && !raise.resources.iter().any(blocks)
        })
    }

    fn forget_tombstones(&mut self, now: Time, outputs: &mut Vec<Output>) {
        let wait = self.tombstones.values().map(|tombstone| tombstone.wait).max().unwrap_or_default();
        let old = |tombstone: &Tombstone| now >= tombstone.first_seen + wait + FORGET_MARGIN;
        let forgotten: Vec<_> = self
            .tombstones
            .iter()
            .filter(|(_, tombstone)| old(tombstone) && !self.is_needed(tombstone))
            .map(|(name, tombstone)| (name.clone(), tombstone.modified))
            .collect();
        for (name, modified) in forgotten {
            outputs.push(Output::Forget { name, modified });
        }
    }
}
