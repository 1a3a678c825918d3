//! Each transaction of `src/store/etcd/requests.rs`: its compares, and what it changes.

use highgate::replica::{
    Change, Given, Incarnation, Member, Proposal, Record, Revision, Snapshot, State, Tombstone,
};

use crate::control::Control;
use crate::etcd::{Candidate, Entry, Etcd, member, name_of, tombstone_of_an_era};
use crate::hooks::Broken;
use crate::naming::{Document, Name};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Txn {
    Join { me: Incarnation, era: u64 },
    List,
    Renew { me: Incarnation, created: Revision, era: u64, watermark: Revision, draining: Vec<Revision> },
    Propose { era: u64, proposal: Proposal },
    Evict { member: Incarnation, modified: Revision, tombstone: Tombstone },
    Bury { member: Incarnation, tombstone: Tombstone },
    Forget { name: String, modified: Revision },
    Leave { me: Incarnation },
    PutNames { era: u64, seen: Revision, names: Document, by: Putter },
}

/// For what names are put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Putter {
    /// A gateway that is about to join as this incarnation.
    Joiner(Incarnation),
    /// A member that was given another config.
    Changer,
    /// The end of a change.
    Finisher,
}

/// What somebody is told.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// With the revision of the own key; none: it is not there.
    Joined(Option<Revision>, Box<Loaded>),
    Listed(Box<Loaded>),
    Renewed(bool),
    /// None if it was committed, which the watch tells; else the revision of the record that is there, if the era is
    /// the same.
    Proposed(Option<Refusal>),
    /// The tombstone is not there.
    NothingToForget,
    /// Whether the names were still those that had been seen.
    Named(bool),
    Done,
}

/// Everything there is.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    pub(crate) snapshot: Snapshot,
    pub(crate) queue: Vec<Candidate>,
    pub(crate) names: Option<(Revision, Document)>,
    /// What the watch tells next.
    pub(crate) next: Revision,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Refusal {
    Is(Revision),
    OtherEra,
}

impl Etcd {
    pub(crate) fn run(&mut self, txn: &Txn, control: Broken) -> Reply {
        match txn {
            Txn::Join { me, era } => self.join(*me, *era, control),
            Txn::List => Reply::Listed(Box::new(self.load())),
            Txn::Renew { me, created, era, watermark, draining } => {
                Reply::Renewed(self.renew(*me, *created, *era, (*watermark, draining), control))
            }
            Txn::Propose { era, proposal } => Reply::Proposed(self.propose(*era, proposal, control)),
            Txn::Evict { member, modified, tombstone } => self.evict(*member, *modified, tombstone, control),
            Txn::Bury { member, tombstone } => self.bury(*member, tombstone),
            Txn::Forget { name, modified } => self.forget(name, *modified),
            Txn::Leave { me } => self.leave(*me),
            Txn::PutNames { era, seen, names, .. } => Reply::Named(self.put_names(*era, *seen, names)),
        }
    }

    fn join(&mut self, me: Incarnation, era: u64, control: Broken) -> Reply {
        let evicted = self.tombstones.contains_key(&name_of(me));
        if !self.members.contains_key(&me) && !evicted && self.era == era {
            let at = self.revision + 1;
            // What it says of itself before it has loaded anything.
            self.commit(true, vec![Change::Member(me, member(control, at, at, 0, &[]))]);
        }
        let created = self.members.get(&me).map(|own| own.created);
        Reply::Joined(created, Box::new(self.load()))
    }

    fn load(&self) -> Loaded {
        let (snapshot, queue) = (self.snapshot(), self.candidates.clone());
        Loaded { snapshot, queue, names: self.names.clone(), next: self.revision + 1 }
    }

    fn renew(
        &mut self,
        me: Incarnation,
        created: Revision,
        era: u64,
        (watermark, draining): (Revision, &[Revision]),
        control: Broken,
    ) -> bool {
        let is_there = self.members.get(&me).is_some_and(|own| own.created == created);
        if !is_there && control == Some(Control::ValidityFromKeepAlive) {
            return true;
        }
        if !is_there || self.era != era {
            return false;
        }
        // One that says nothing new leaves no trace, so an eviction that has judged the member before it is not hindered
        // by it: more may happen here than in etcd, never less.
        let says = |own: &Member| own.watermark == watermark && own.draining.iter().eq(draining);
        if control == Some(Control::WatermarkByAnyEvent) || !self.members.get(&me).is_some_and(says) {
            let renewed = member(control, created, self.revision + 1, watermark, draining);
            self.commit(false, vec![Change::Member(me, renewed)]);
        }
        true
    }

    fn propose(&mut self, era: u64, proposal: &Proposal, control: Broken) -> Option<Refusal> {
        if self.era != era {
            return Some(Refusal::OtherEra);
        }
        let name = Name::of(&proposal.resource);
        let there = self.records[name as usize].modified;
        let unchecked = control == Some(Control::SealWithoutCompare) && proposal.record.state == State::Open;
        if (there != proposal.seen && !unchecked) || !self.is_given(proposal) {
            // `seq` is put whether or not the nested transaction changes something.
            self.commit(true, Vec::new());
            return Some(Refusal::Is(there));
        }
        self.put_record(name, proposal.record);
        None
    }

    pub(crate) fn put_record(&mut self, name: Name, record: Record) {
        let record = Record { modified: self.revision + 1, ..record };
        self.commit(true, vec![Change::Record(name.resource(), record)]);
    }

    fn is_given(&self, proposal: &Proposal) -> bool {
        match &proposal.given {
            Given::Nothing => true,
            Given::Leaderless => self.candidates.is_empty(),
            Given::Leads(proof) => self.head().is_some_and(|head| {
                let token = self.token_of(head).map(highgate_elector::Token::get);
                **proof == [head.lease] && token == Some(proposal.record.token)
            }),
        }
    }

    fn evict(&mut self, id: Incarnation, modified: Revision, grave: &Tombstone, control: Broken) -> Reply {
        if self.members.get(&id).is_some_and(|judged| judged.modified == modified) {
            let mut changes = vec![Change::Gone(id)];
            if control != Some(Control::EvictionWithoutTombstone) {
                changes.push(self.grave(name_of(id), grave));
            }
            self.commit(true, changes);
        }
        Reply::Done
    }

    fn bury(&mut self, id: Incarnation, grave: &Tombstone) -> Reply {
        if !self.members.contains_key(&id) && !self.tombstones.contains_key(&name_of(id)) {
            let put = self.grave(name_of(id), grave);
            self.commit(true, vec![put]);
        }
        Reply::Done
    }

    fn grave(&self, name: String, grave: &Tombstone) -> Change {
        Change::Tombstone(name, Tombstone { modified: self.revision + 1, ..grave.clone() })
    }

    fn forget(&mut self, name: &str, modified: Revision) -> Reply {
        match self.tombstones.get(name) {
            None => return Reply::NothingToForget,
            Some(grave) if grave.modified == modified => {
                self.commit(true, vec![Change::Forgotten(name.to_owned())]);
            }
            Some(_) => {}
        }
        Reply::Done
    }

    fn leave(&mut self, me: Incarnation) -> Reply {
        if self.members.contains_key(&me) {
            self.commit(true, vec![Change::Gone(me)]);
        } else if self.tombstones.contains_key(&name_of(me)) {
            self.commit(true, vec![Change::Forgotten(name_of(me))]);
        }
        Reply::Done
    }

    fn put_names(&mut self, era: u64, seen: Revision, names: &Document) -> bool {
        let there = self.names.as_ref().map_or(0, |(revision, _)| *revision);
        let is_given = self.era == era && there == seen;
        if is_given {
            let changes = vec![Change::Names { pending: names.is_changing() }];
            self.append(true, Entry { changes, names: Some(names.clone()), ..Entry::default() });
        }
        is_given
    }

    /// An operator's word that the era has ended.
    pub(crate) fn bump_era(&mut self, control: Broken) {
        let era = self.era + 1;
        let mut changes = vec![Change::Era(era)];
        if control != Some(Control::EraWithoutTombstone) {
            changes.push(self.grave(format!("era-{era}"), &tombstone_of_an_era(control)));
        }
        self.commit(true, changes);
    }
}
