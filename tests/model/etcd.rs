//! What etcd holds below the prefix, for one resource under its names, and its log as far as somebody has not heard it yet.
//!
//! `txn.rs` has the transactions. What must stay true: a revision is made if and only if something was changed, and
//! its number among those that count grows by one from each to the next.

use std::collections::BTreeMap;
use std::sync::Arc;

use highgate::replica::{
    Applied, Change, Incarnation, Member, Record, Revision, Snapshot, Time, Tombstone, floor,
};
use highgate_elector::Token;

use crate::hooks;
use crate::naming::{ByName, Document, Name, listed};
use crate::time::TIMING;

/// A candidate: its lease, and the revision its key was created at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Candidate {
    pub(crate) lease: u8,
    pub(crate) created: Revision,
}

/// One revision.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Entry {
    pub(crate) revision: Revision,
    pub(crate) seq: Option<u64>,
    pub(crate) changes: Vec<Change>,
    /// Candidates that came, and leases that went.
    pub(crate) came: Option<Candidate>,
    pub(crate) went: Option<u8>,
    /// What the resource is called from then on; a change tells the machines of it.
    pub(crate) names: Option<Document>,
}

#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Etcd {
    pub(crate) revision: Revision,
    pub(crate) era: u64,
    pub(crate) seq: u64,
    pub(crate) seq_at: Revision,
    pub(crate) records: ByName<Record>,
    /// With the revision that put them. None where no config ever changes.
    pub(crate) names: Option<(Revision, Document)>,
    pub(crate) members: BTreeMap<Incarnation, Member>,
    pub(crate) tombstones: BTreeMap<String, Tombstone>,
    /// In the order in which they came.
    pub(crate) candidates: Vec<Candidate>,
    log: Vec<Arc<Entry>>,
}

impl Etcd {
    /// Empty but for names, where they may change.
    pub(crate) fn new(names: Option<Document>) -> Self {
        Self { names: names.map(|names| (0, names)), ..Self::default() }
    }

    pub(crate) fn head(&self) -> Option<Candidate> {
        self.candidates.first().copied()
    }

    pub(crate) fn token_of(&self, candidate: Candidate) -> Option<Token> {
        Token::new(floor(self.era) + candidate.created)
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            seq: self.seq,
            watermark: self.seq_at,
            era: self.era,
            records: listed(&self.records),
            members: self.members.iter().map(|(id, member)| (*id, member.clone())).collect(),
            tombstones: self.tombstones.iter().map(|(name, grave)| (name.clone(), grave.clone())).collect(),
            names: self.names.as_ref().filter(|(_, names)| names.is_changing()).map(|(at, _)| *at),
        }
    }

    /// The next revision. Those that count put `seq` as well.
    pub(crate) fn commit(&mut self, counts: bool, changes: Vec<Change>) {
        self.append(counts, Entry { changes, ..Entry::default() });
    }

    pub(crate) fn append(&mut self, counts: bool, entry: Entry) {
        self.revision += 1;
        if counts {
            self.seq += 1;
            self.seq_at = self.revision;
        }
        entry.changes.iter().for_each(|change| self.put(change));
        self.candidates.extend(entry.came);
        self.candidates.retain(|candidate| Some(candidate.lease) != entry.went);
        if let Some(names) = &entry.names {
            self.names = Some((self.revision, names.clone()));
        }
        let (revision, seq) = (self.revision, counts.then_some(self.seq));
        self.log.push(Arc::new(Entry { revision, seq, ..entry }));
    }

    fn put(&mut self, change: &Change) {
        match change {
            Change::Record(resource, record) => self.records[Name::of(resource) as usize] = *record,
            Change::Lost(resource) => self.records[Name::of(resource) as usize] = Record::default(),
            Change::Member(id, member) => drop(self.members.insert(*id, member.clone())),
            Change::Gone(id) => drop(self.members.remove(id)),
            Change::Tombstone(name, grave) => drop(self.tombstones.insert(name.clone(), grave.clone())),
            Change::Forgotten(name) => drop(self.tombstones.remove(name)),
            Change::Era(era) => self.era = *era,
            // The document itself is beside the changes.
            Change::Names { .. } => {}
        }
    }

    /// Revisions from this one on.
    pub(crate) fn since(&self, next: Revision) -> impl Iterator<Item = &Arc<Entry>> {
        self.log.iter().filter(move |entry| entry.revision >= next)
    }

    /// Nobody is to hear anything before this revision any more.
    pub(crate) fn forget_log_before(&mut self, next: Revision) {
        self.log.retain(|entry| entry.revision >= next);
    }

    pub(crate) fn first_in_log(&self) -> Option<Revision> {
        self.log.first().map(|entry| entry.revision)
    }
}

impl Entry {
    pub(crate) fn applied(&self) -> Applied {
        Applied { revision: self.revision, seq: self.seq, changes: self.changes.clone() }
    }
}

/// What a member says of itself; when that arrived is for whoever hears it.
pub(crate) fn member(
    control: hooks::Broken,
    created: Revision,
    modified: Revision,
    watermark: Revision,
    draining: &[Revision],
) -> Member {
    let mut member = Member::new(created);
    member.modified = modified;
    member.watermark = watermark;
    member.draining = draining.iter().copied().collect();
    member.wait = hooks::wait(control, &TIMING);
    member
}

/// What is left of a member that is taken out.
pub(crate) fn tombstone_of(control: hooks::Broken, member: &Member) -> Tombstone {
    Tombstone {
        created: member.created,
        watermark: member.watermark,
        draining: member.draining.clone(),
        modified: 0,
        first_seen: Time::ZERO,
        wait: hooks::tombstone_wait(control, &TIMING),
    }
}

/// What an era begins with: it stands for members that nobody knows.
pub(crate) fn tombstone_of_an_era(control: hooks::Broken) -> Tombstone {
    tombstone_of(control, &Member::new(0))
}

pub(crate) fn name_of(member: Incarnation) -> String {
    format!("{member:032x}")
}
