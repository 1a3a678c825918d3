//! SEAL: when a raised mark may open, judged over every member and every tombstone, and who asks first.

use std::collections::BTreeSet;
use std::time::Duration;

use highgate_elector::Resource;

use super::{Output, Record, Replica, Revision, State, Time};
use crate::controls::{Rule, breaks};

/// A process start. Never reused.
pub type Incarnation = u128;

/// A process that takes part in the fence, as its peers see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// The revision it joined at: it loaded everything before as it was then, or later.
    pub created: Revision,
    /// The revision of its last word.
    pub modified: Revision,
    /// How many words it has said, the join included; 0: the store does not say.
    pub version: u64,
    /// Everything up to here is applied.
    pub watermark: Revision,
    /// Raises that still wait for a lower token's request on this member.
    pub draining: BTreeSet<Revision>,
    /// How long its requests may take effect after it was evicted, by its own settings.
    pub wait: Duration,
    /// What it calls itself.
    pub name: String,
    /// When its last word arrived here, and when it last told of progress.
    pub heard_at: Time,
    pub(super) advanced_at: Time,
    /// When it may be judged again, once somebody was asked to evict it.
    pub(super) judged_until: Time,
}

/// A process that is gone, but whose last requests may still take effect for a while.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tombstone {
    /// What the process was when it was last heard of.
    pub created: Revision,
    pub watermark: Revision,
    pub draining: BTreeSet<Revision>,
    /// The revision of the tombstone itself.
    pub modified: Revision,
    /// When it was first seen here: when the news arrived, not when it was asked for.
    pub first_seen: Time,
    pub wait: Duration,
}

/// The resources that one revision raised, as far as they are not sealed.
#[derive(Clone, Debug, Hash)]
pub(super) struct Raise {
    pub(super) since: Time,
    pub(super) resources: BTreeSet<Resource>,
}

impl Member {
    /// One that joined at this revision and has nothing more to say yet.
    pub fn new(created: Revision) -> Self {
        Self {
            created,
            modified: created,
            version: 0,
            watermark: created,
            draining: BTreeSet::new(),
            wait: Duration::ZERO,
            name: String::new(),
            heard_at: Time::ZERO,
            advanced_at: Time::ZERO,
            judged_until: Time::ZERO,
        }
    }

    pub(super) fn heard(self, now: Time) -> Self {
        Self { heard_at: now, advanced_at: now, ..self }
    }

    /// Whether this member is certainly done with everything below the raise.
    pub fn has_acknowledged(&self, raise: Revision) -> bool {
        acknowledged(self.created, self.watermark, &self.draining, raise)
    }
}

impl Tombstone {
    pub(super) fn seen(self, now: Time) -> Self {
        Self { first_seen: now, ..self }
    }

    /// Of a member that is gone, as it was last heard of.
    pub(super) fn of(member: &Member, modified: Revision, now: Time) -> Self {
        let Member { created, watermark, draining, wait, .. } = member.clone();
        Self { created, watermark, draining, modified, first_seen: now, wait }
    }

    pub(super) fn ends(&self) -> Time {
        self.first_seen + self.wait
    }

    /// How long it still holds up what it has not acknowledged.
    pub fn left(&self, now: Time) -> Duration {
        self.ends().saturating_sub(now)
    }

    /// Whether the process was certainly done with everything below this revision when it was last heard of.
    pub(super) fn has_acknowledged(&self, revision: Revision) -> bool {
        acknowledged(self.created, self.watermark, &self.draining, revision)
    }

    /// Whether nothing below the raise can come from it any more.
    fn lets_pass(&self, now: Time, record: &Record) -> bool {
        breaks(Rule::TombstoneAge)
            || self.has_acknowledged(record.modified)
            || (now >= self.ends() && !self.blocks(record))
    }

    /// Whether it may have left an unknown outcome that only an operator can settle.
    pub(super) fn blocks(&self, record: &Record) -> bool {
        record.block && record.settled < self.modified
    }
}

fn acknowledged(
    created: Revision,
    watermark: Revision,
    draining: &BTreeSet<Revision>,
    raise: Revision,
) -> bool {
    // Who joined later has loaded the raise, and cannot hold a lower gate open.
    created > raise || (watermark >= raise && !draining.contains(&raise))
}

/// Unknown outcomes of a resource that a process other than this one may have left to an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsettled {
    Nothing,
    /// Another member may keep one: it tells nobody before a raise waits for it.
    Unheard,
    /// A process that is gone may have left one, and the mark does not open without an operator.
    Something,
}

impl Replica {
    /// Whether nothing of a lower token can be under way any more, anywhere.
    pub(super) fn may_open(&self, now: Time, record: &Record) -> bool {
        record.state == State::Raised
            && (self.timing.is_none() || super::era_of(record.token) == self.era)
            && self.watermark() >= record.modified
            && (breaks(Rule::Seal) || self.everybody_is_done(now, record))
    }

    fn everybody_is_done(&self, now: Time, record: &Record) -> bool {
        self.members.values().all(|member| member.has_acknowledged(record.modified))
            && self.tombstones.values().all(|tombstone| tombstone.lets_pass(now, record))
    }

    pub(super) fn drained(&mut self, now: Time, resource: Resource, outputs: &mut Vec<Output>) {
        if self.work.get(&resource).is_some_and(|work| work.mend.is_some()) {
            // Whoever does not know what this member is about to put back would open the mark without it.
            return;
        }
        let Some(raise) = self.undrained.remove(&resource) else { return };
        self.stop_draining(now, raise);
        self.advance_raise(now, raise, outputs);
    }

    /// A record is RAISED: it waits for every member, this one included.
    pub(super) fn begin_raise(&mut self, now: Time, resource: Resource, raise: Revision) {
        let begun = || Raise { since: now, resources: BTreeSet::new() };
        self.raises.entry(raise).or_insert_with(begun).resources.insert(resource);
    }

    pub(super) fn end_raise(&mut self, resource: &Resource, raise: Revision) {
        let Some(begun) = self.raises.get_mut(&raise) else { return };
        begun.resources.remove(resource);
        if begun.resources.is_empty() {
            self.raises.remove(&raise);
        }
    }

    /// The local gate of a resource still has to drain for this raise, whichever raise closed it.
    pub(super) fn start_draining(&mut self, now: Time, resource: &Resource, raise: Revision) {
        if breaks(Rule::DrainForAll) && self.undrained.contains_key(resource) {
            return;
        }
        if let Some(before) = self.undrained.insert(resource.clone(), raise) {
            self.stop_draining(now, before);
        }
        if !breaks(Rule::Drain) {
            self.me().draining.insert(raise);
        }
    }

    pub(super) fn stop_draining(&mut self, now: Time, raise: Revision) {
        let still = |(_, undrained): (&Resource, &Revision)| *undrained == raise;
        // Only the resources of this very raise can wait for it, and a raise has few.
        let waits = match self.raises.get(&raise) {
            Some(begun) => {
                begun.resources.iter().any(|resource| self.undrained.get(resource) == Some(&raise))
            }
            None => self.undrained.iter().any(still),
        };
        if !waits && self.me().draining.remove(&raise) {
            self.renewal.progress(now);
        }
    }

    /// Looks again at everything that a revision raised.
    pub(super) fn advance_raise(&mut self, now: Time, raise: Revision, outputs: &mut Vec<Output>) {
        if !self.members.values().all(|member| member.has_acknowledged(raise)) {
            return;
        }
        let resources: Vec<Resource> =
            self.raises.get(&raise).map_or_else(Vec::new, |begun| begun.resources.iter().cloned().collect());
        for resource in resources {
            self.advance(now, &resource, outputs);
        }
    }

    /// How many members come before this one for a resource. All members agree on the order.
    pub(super) fn rank(&self, resource: &Resource) -> u32 {
        let mine = weight(resource, self.me);
        let before = self.members.keys().filter(|member| weight(resource, **member) > mine).count();
        u32::try_from(before).unwrap_or(u32::MAX)
    }

    /// The member that is to seal a resource first.
    pub fn sealer(&self, resource: &Resource) -> Option<&Member> {
        let first = self.members.keys().max_by_key(|member| weight(resource, **member))?;
        self.members.get(first)
    }

    /// Marks that are raised and not open, with the revision that raised them, the oldest first.
    pub fn raises(&self) -> impl Iterator<Item = (Revision, &Resource)> {
        self.raises
            .iter()
            .flat_map(|(revision, raise)| raise.resources.iter().map(|resource| (*revision, resource)))
    }

    pub fn raising(&self) -> usize {
        self.raises.values().map(|raise| raise.resources.len()).sum()
    }

    /// What a raised mark waits for: members, and names of tombstones.
    pub fn waits_for(&self, now: Time, record: &Record) -> (Vec<&Member>, Vec<&str>) {
        let members =
            self.members.values().filter(|member| !member.has_acknowledged(record.modified)).collect();
        let tombstones = self.tombstones.iter().filter(|(_, tombstone)| !tombstone.lets_pass(now, record));
        (members, tombstones.map(|(name, _)| name.as_str()).collect())
    }

    /// Whether an end inherited from a process before this one may still be outstanding.
    pub fn inherits_unknowns(&self, now: Time) -> bool {
        self.tombstones.values().any(|tombstone| now < tombstone.ends() || self.is_needed(tombstone))
    }

    /// Whether a tombstone may have left unknown outcomes that nobody has settled.
    pub(super) fn is_needed(&self, tombstone: &Tombstone) -> bool {
        self.records.values().any(|record| tombstone.blocks(record))
    }

    /// Whether an operator would settle anything by letting the resource go on, beside what is kept in this process.
    pub fn unsettled(&self, resource: &Resource) -> Unsettled {
        let record = self.record(resource);
        match () {
            () if !record.block => Unsettled::Nothing,
            () if self.tombstones.values().any(|tombstone| tombstone.blocks(&record)) => Unsettled::Something,
            () if self.members.len() > 1 => Unsettled::Unheard,
            () => Unsettled::Nothing,
        }
    }

    /// When the next tombstone has its age.
    pub(super) fn next_tombstone_end(&self, now: Time) -> Time {
        self.tombstones.values().map(Tombstone::ends).filter(|ends| *ends > now).min().unwrap_or(Time::MAX)
    }

    /// Without a cluster: forgets tombstones whose time has passed, and lets go on what waited for them.
    pub(super) fn drop_old_tombstones(&mut self, now: Time, outputs: &mut Vec<Output>) {
        let old: Vec<String> = self
            .tombstones
            .iter()
            .filter(|(_, tombstone)| now >= tombstone.ends() && !self.is_needed(tombstone))
            .map(|(name, _)| name.clone())
            .collect();
        for name in old {
            self.tombstones.remove(&name);
        }
        self.advance_all(now, outputs);
    }
}

/// The weight of a member for a resource: the same in every process (FNV-1a, then mixed).
fn weight(resource: &Resource, member: Incarnation) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in resource.as_str().bytes().chain(member.to_be_bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^= hash >> 32;
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
