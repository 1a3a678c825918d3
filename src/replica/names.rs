//! RENAME: when the names that resources had before a change of the config are given up.
//!
//! The machine knows nothing of names, only the revision at which a change of them was announced. Like a raise, the
//! change waits until every member has said that nothing is under way there which lacks the new names, and every
//! tombstone is old enough; a member says so by not listing the revision as draining.

use super::{Output, Replica, Revision, Time, Tombstone};

/// Before the end of a change is asked for again, where no timing says otherwise.
const PAUSE: Time = Time::from_secs(1);

/// A change of names that is announced and not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Change {
    pub(super) revision: Revision,
    asked_at: Option<Time>,
}

impl Change {
    pub(super) fn announced(revision: Revision) -> Self {
        Self { revision, asked_at: None }
    }
}

impl Replica {
    /// The names were changed at this revision. `pending`: requests have two names until the change is finished.
    pub(super) fn names_changed(&mut self, now: Time, revision: Revision, pending: bool) {
        if let Some(before) = self.names.take() {
            self.me().draining.remove(&before.revision);
        }
        if pending {
            self.names = Some(Change::announced(revision));
            self.me().draining.insert(revision);
        }
        self.renewal.progress(now);
    }

    /// Everything under way on this member has the names that were announced at this revision.
    pub(super) fn names_known(&mut self, now: Time, revision: Revision) {
        if self.names.is_some_and(|change| change.revision == revision)
            && self.me().draining.remove(&revision)
        {
            self.renewal.progress(now);
        }
    }

    /// Asks for the end of a change, if nothing can be under way anywhere that lacks the new names.
    pub(super) fn finish_names(&mut self, now: Time, outputs: &mut Vec<Output>) {
        let Some(change) = self.names else { return };
        let pause = self.timing.map_or(PAUSE, |timing| timing.suspect_after());
        if self.over || change.asked_at.is_some_and(|asked| now < asked + pause) {
            return;
        }
        let revision = change.revision;
        let done = self.watermark() >= revision
            && self.members.values().all(|member| member.has_acknowledged(revision))
            && self.tombstones.values().all(|tombstone| self.is_past(now, tombstone, revision));
        if done {
            self.names = Some(Change { asked_at: Some(now), ..change });
            outputs.push(Output::FinishNames { seen: revision });
        }
    }

    fn is_past(&self, now: Time, tombstone: &Tombstone, revision: Revision) -> bool {
        tombstone.has_acknowledged(revision) || (now >= tombstone.ends() && !self.is_needed(tombstone))
    }

    /// The revision at which a change of names was announced that is not finished.
    pub fn names_pending(&self) -> Option<Revision> {
        self.names.map(|change| change.revision)
    }

    /// Resources that an operator keeps shut.
    pub fn frozen(&self) -> impl Iterator<Item = &str> {
        self.records.iter().filter(|(_, record)| record.frozen).map(|(resource, _)| resource.as_str())
    }

    /// Every resource and its mark.
    pub fn marks(&self) -> impl Iterator<Item = (&str, u64)> + Clone {
        self.records.iter().map(|(resource, record)| (resource.as_str(), record.token))
    }
}
