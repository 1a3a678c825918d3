//! A gateway: the production machine with its gate, driven as `src/store/etcd` drives them.
//!
//! What it sends and what it cuts comes back as [`Deed`]s, for the world to carry out.

mod gates;
mod leaders;
mod names;

use highgate::replica::{Applied, Change, Incarnation, Input, Output, Replica, Revision, State, Time};

use crate::control::Control;
use crate::etcd::{Candidate, Entry, tombstone_of};
use crate::gate::Gate;
use crate::hooks::{Broken, Hooks};
use crate::naming::{ByName, Document, Name, NameSet, Table};
use crate::time::TIMING;
use crate::txn::{Loaded, Txn};

#[derive(Clone, Debug, Hash)]
pub(crate) struct Gateway {
    index: usize,
    /// How often it has tried to join; an incarnation each.
    pub(crate) joins: u8,
    pub(crate) phase: Phase,
    pub(crate) gates: ByName<Gate>,
    /// The config in its file, which outlives the process, and by what it claims requests.
    pub(crate) file: Name,
    pub(crate) table: Table,
    /// Only a start brings names; a process that joins again goes by those that there are.
    has_served: bool,
    /// SIGSTOP: it does nothing at all.
    pub(crate) stopped: bool,
    /// Its watch is silent.
    pub(crate) lags: bool,
    /// Incarnations that are over and have not left yet.
    pub(crate) leaving: Vec<Incarnation>,
}

#[derive(Clone, Debug, Hash)]
pub(crate) enum Phase {
    /// There is no process.
    Down,
    /// The process is not a member.
    Outside,
    Joining,
    Inside(Box<Session>),
}

#[derive(Clone, Debug, Hash)]
pub(crate) struct Session {
    pub(crate) me: Incarnation,
    created: Revision,
    pub(crate) replica: Replica,
    /// The revision that the watch tells next.
    pub(crate) next: Revision,
    pub(crate) valid: Time,
    /// Who stands, as far as it has heard.
    queue: Vec<Candidate>,
    listing: bool,
    /// The mark is open, but here it waits for what was cut.
    held_back: NameSet,
    /// The last names that it has heard of.
    names: Option<(Revision, Document)>,
    /// A config whose names are on their way to etcd.
    renaming: Option<Name>,
    hooks: Hooks,
}

/// What the world has to do for a gateway.
pub(crate) enum Deed {
    Send(Txn),
    /// Requests pass until then.
    Lasts(Incarnation, Time),
    /// The incarnation is over.
    Fenced(Incarnation),
    /// Requests are claimed by another table from now on.
    TableReplaced,
}

/// When and by which rules.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) now: Time,
    pub(crate) control: Broken,
}

type Deeds = Vec<Deed>;

impl Session {
    /// Whether what its watch tells is taken.
    pub(crate) fn hears(&self) -> bool {
        !self.listing
    }
}

impl Gateway {
    pub(crate) fn new(index: usize) -> Self {
        Self {
            index,
            joins: 0,
            phase: Phase::Down,
            gates: Default::default(),
            file: Name::Old,
            table: Table::of(Name::Old),
            has_served: false,
            stopped: false,
            lags: false,
            leaving: Vec::new(),
        }
    }

    pub(crate) fn session(&self) -> Option<&Session> {
        match &self.phase {
            Phase::Inside(session) => Some(session),
            _ => None,
        }
    }

    fn session_mut(&mut self) -> Option<&mut Session> {
        match &mut self.phase {
            Phase::Inside(session) => Some(session),
            _ => None,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        !matches!(self.phase, Phase::Down)
    }

    /// The process is gone, and everything with it but its files.
    pub(crate) fn crash(&mut self) {
        let (joins, stopped, file) = (self.joins, self.stopped, self.file);
        *self = Self { joins, stopped, file, table: Table::of(file), ..Self::new(self.index) };
    }

    fn incarnation(&self, control: Broken) -> Incarnation {
        let number = if control == Some(Control::IncarnationReuse) { 1 } else { self.joins };
        ((self.index as u128 + 1) << 64) | u128::from(number)
    }

    /// Its watch loses the next revision.
    pub(crate) fn miss(&mut self) {
        if let Some(session) = self.session_mut() {
            session.next += 1;
        }
    }

    /// Its watch will never tell anything again.
    pub(crate) fn go_deaf(&mut self) {
        if let Some(session) = self.session_mut() {
            session.next = Revision::MAX;
        }
    }

    /// etcd has told it that its era is over.
    pub(crate) fn end(&mut self) -> Deeds {
        let mut deeds = Vec::new();
        self.fence(&mut deeds);
        deeds
    }

    /// Nobody knows whether it is a member: in case it is, it leaves.
    pub(crate) fn join_failed(&mut self, me: Incarnation) {
        self.phase = Phase::Outside;
        self.leaving.push(me);
    }

    pub(crate) fn joined(
        &mut self,
        moment: Moment,
        me: Incarnation,
        created: Revision,
        loaded: Loaded,
    ) -> Deeds {
        let mut deeds = Vec::new();
        let Loaded { snapshot, queue, names, next } = loaded;
        let hooks = Hooks::joined(moment.control, snapshot.seq);
        let (replica, outputs) = Replica::join(moment.now, moment.now, me, Some(TIMING), snapshot);
        let session = Session {
            me,
            created,
            replica,
            next,
            valid: Time::ZERO,
            queue,
            listing: false,
            held_back: NameSet::default(),
            names: None,
            renaming: None,
            hooks,
        };
        self.phase = Phase::Inside(Box::new(session));
        self.has_served = true;
        self.lags = false;
        self.take_names(moment, names, &mut deeds);
        self.carry_out(moment, outputs, &mut deeds);
        self.follow_all(moment, &mut deeds);
        deeds
    }

    pub(crate) fn step(&mut self, moment: Moment, input: Input, deeds: &mut Deeds) {
        if let Some(session) = self.session_mut() {
            let outputs = session.replica.step(moment.now, input);
            self.carry_out(moment, outputs, deeds);
        }
    }

    fn carry_out(&mut self, moment: Moment, outputs: Vec<Output>, deeds: &mut Deeds) {
        for output in outputs {
            let Some(session) = self.session_mut() else { return };
            match output {
                Output::Propose(proposal) => {
                    deeds.push(Deed::Send(Txn::Propose { era: session.replica.era(), proposal }));
                }
                Output::Renew { watermark, draining } => self.renew(moment, watermark, draining, deeds),
                Output::Valid { until } => {
                    session.valid = session.valid.max(until);
                    deeds.push(Deed::Lasts(session.me, until));
                }
                Output::Close { resource, mark, .. } => self.close(moment, Name::of(&resource), mark, deeds),
                Output::Open { resource, mark, .. } => self.open(moment, Name::of(&resource), mark, deeds),
                Output::Evict { member, modified } => {
                    if let Some(judged) = session.replica.members().get(&member) {
                        let tombstone = tombstone_of(moment.control, judged);
                        deeds.push(Deed::Send(Txn::Evict { member, modified, tombstone }));
                    }
                }
                Output::Bury { member, value } => {
                    let tombstone = tombstone_of(moment.control, &value);
                    deeds.push(Deed::Send(Txn::Bury { member, tombstone }));
                }
                Output::Forget { name, modified } => deeds.push(Deed::Send(Txn::Forget { name, modified })),
                Output::Resync => self.list(deeds),
                Output::Fence(_) => self.fence(deeds),
                Output::FinishNames { seen } => self.finish_names(moment, seen, deeds),
                Output::Settle { .. } | Output::Tell(_) => {}
            }
        }
    }

    fn renew(&self, moment: Moment, watermark: Revision, mut draining: Vec<Revision>, deeds: &mut Deeds) {
        let Some(session) = self.session() else { return };
        session.hooks.disown(moment.control, &mut draining);
        let (me, created, era) = (session.me, session.created, session.replica.era());
        deeds.push(Deed::Send(Txn::Renew { me, created, era, watermark, draining }));
    }

    fn list(&mut self, deeds: &mut Deeds) {
        if let Some(session) = self.session_mut()
            && !session.listing
        {
            session.listing = true;
            deeds.push(Deed::Send(Txn::List));
        }
    }

    fn fence(&mut self, deeds: &mut Deeds) {
        let Some(me) = self.session().map(|session| session.me) else { return };
        self.phase = Phase::Outside;
        for gate in &mut self.gates {
            let _ = gate.close(gate.token());
        }
        self.leaving.push(me);
        deeds.push(Deed::Fenced(me));
    }

    pub(crate) fn listed(&mut self, moment: Moment, loaded: Loaded) -> Deeds {
        let mut deeds = Vec::new();
        let Loaded { snapshot, queue, names, next } = loaded;
        if let Some(session) = self.session_mut() {
            session.listing = false;
            session.next = next;
            session.queue = queue;
            session.hooks.listed(moment.control, snapshot.seq);
        }
        if self.session().is_some_and(|session| session.names != names) {
            // Before the machine hears of it: what is claimed from now on has the names that it acknowledges.
            self.take_names(moment, names, &mut deeds);
        }
        self.step(moment, Input::Listed(snapshot), &mut deeds);
        self.follow_all(moment, &mut deeds);
        deeds
    }

    /// What the watch tells. False if the rest has to wait for a listing, or is not for this incarnation.
    pub(crate) fn hear(&mut self, moment: Moment, entry: &Entry, deeds: &mut Deeds) -> bool {
        let shut = !self.gate(Name::Old).is_open();
        self.bury_the_past(entry);
        let Some(session) = self.session_mut().filter(|session| !session.listing) else { return false };
        session.next = entry.revision + 1;
        let mut applied = entry.applied();
        session.hooks.renumber(moment.control, &mut applied);
        let raised = raised(&applied);
        if moment.control == Some(Control::DrainingOwnRaiseOnly) && shut {
            session.hooks.inherited.extend(raised);
        }
        if !applied.changes.is_empty() || applied.seq.is_some() {
            self.step(moment, Input::Applied(applied), deeds);
        }
        if moment.control == Some(Control::OpenOnApply) && raised.is_some() {
            let _ = self.gates[Name::Old as usize].open();
        }
        self.hear_names(moment, entry, deeds);
        self.poll(moment, entry, deeds);
        self.session().is_some()
    }

    /// A join that etcd ran late, after its incarnation had left, made a member that nobody is.
    fn bury_the_past(&mut self, entry: &Entry) {
        let mine = self.session().map(|session| session.me);
        for change in &entry.changes {
            if let Change::Member(id, _) = change
                && (*id >> 64) as usize == self.index + 1
                && Some(*id) != mine
                && !self.leaving.contains(id)
            {
                self.leaving.push(*id);
            }
        }
    }

    /// Forgotten by somebody else.
    pub(crate) fn forgotten(&mut self, moment: Moment, name: String) -> Deeds {
        let mut deeds = Vec::new();
        let applied = Applied { changes: vec![Change::Forgotten(name)], ..Applied::default() };
        self.step(moment, Input::Applied(applied), &mut deeds);
        deeds
    }
}

/// The raise among the changes of a revision.
fn raised(applied: &Applied) -> Option<Revision> {
    applied.changes.iter().find_map(|change| match change {
        Change::Record(_, record) if record.state == State::Raised => Some(record.modified),
        _ => None,
    })
}
