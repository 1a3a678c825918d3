//! SEAL: when a raised mark may open, judged over every member and every tombstone.

use std::collections::BTreeSet;
use std::time::Duration;

use highgate_elector::Resource;

use super::{Output, Record, Replica, Revision, State, Time};

/// A process start. Never reused.
pub type Incarnation = u128;

/// A process that takes part in the fence, as its peers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The revision it joined at: it loaded everything before as it was then.
    pub created: Revision,
    /// Everything up to here is applied.
    pub watermark: Revision,
    /// Raises that still wait for a lower token's request on this member.
    pub draining: BTreeSet<Revision>,
}

/// A process that is gone, but whose last requests may still take effect for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tombstone {
    pub first_seen: Time,
    pub wait: Duration,
}

impl Member {
    pub(super) fn new(created: Revision) -> Self {
        Self { created, watermark: created, draining: BTreeSet::new() }
    }

    /// Whether this member is certainly done with everything below the raise.
    fn has_acknowledged(&self, raise: Revision) -> bool {
        // Who joined later has loaded the raise, and cannot hold a lower gate open.
        self.created > raise || (self.watermark >= raise && !self.draining.contains(&raise))
    }
}

impl Tombstone {
    pub(super) fn ends(&self) -> Time {
        self.first_seen + self.wait
    }
}

impl Replica {
    /// Whether nothing of a lower token can be under way any more, anywhere.
    pub(super) fn may_open(&self, now: Time, record: &Record) -> bool {
        record.state == State::Raised
            && self.members.values().all(|member| member.has_acknowledged(record.modified))
            && self.tombstones.iter().all(|tombstone| now >= tombstone.ends())
    }

    pub(super) fn drained(&mut self, now: Time, resource: Resource, outputs: &mut Vec<Output>) {
        let Some(record) = self.records.get(&resource).copied() else { return };
        self.me().draining.remove(&record.modified);
        self.advance(now, &resource, outputs);
    }
}
