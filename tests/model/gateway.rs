//! A gateway: the production machine with its gate, driven as `src/store/etcd` drives them.
//!
//! What it sends and what it cuts comes back as [`Deed`]s, for the world to carry out.

mod leaders;

use highgate::replica::{
    Applied, Change, Incarnation, Input, Output, Replica, Revision, Snapshot, State, Time, floor,
};

use crate::control::Control;
use crate::etcd::{Candidate, Entry, resource, tombstone_of};
use crate::gate::Gate;
use crate::hooks::{Broken, Hooks};
use crate::time::TIMING;
use crate::txn::Txn;

#[derive(Clone, Debug, Hash)]
pub(crate) struct Gateway {
    index: usize,
    /// How often it has tried to join; an incarnation each.
    pub(crate) joins: u8,
    pub(crate) phase: Phase,
    pub(crate) gate: Gate,
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
    held_back: bool,
    hooks: Hooks,
}

/// What the world has to do for a gateway.
pub(crate) enum Deed {
    Send(Txn),
    /// Requests pass until then.
    Lasts(Incarnation, Time),
    /// The incarnation is over.
    Fenced(Incarnation),
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
            gate: Gate::default(),
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

    /// The next incarnation asks to be a member.
    pub(crate) fn join(&mut self, era: u64, control: Broken) -> Txn {
        self.joins += 1;
        self.phase = Phase::Joining;
        Txn::Join { me: self.incarnation(control), era }
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
        snapshot: Snapshot,
        queue: Vec<Candidate>,
        next: Revision,
    ) -> Deeds {
        let mut deeds = Vec::new();
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
            held_back: false,
            hooks,
        };
        self.phase = Phase::Inside(Box::new(session));
        self.lags = false;
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
                Output::Close { mark, .. } => self.close(moment, mark, deeds),
                Output::Open { mark, .. } => self.open(moment, mark, deeds),
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

    fn close(&mut self, moment: Moment, mark: u64, deeds: &mut Deeds) {
        if moment.control == Some(Control::PerReplicaCache) || self.passes_anyway(moment) {
            return;
        }
        let remaining = self.gate.close(mark);
        if let Some(session) = self.session_mut() {
            session.held_back = false;
        }
        if remaining == 0 || moment.control == Some(Control::NoDrain) {
            self.step(moment, Input::Drained { resource: resource() }, deeds);
        }
    }

    /// The control that lets a mark of an older era pass.
    fn passes_anyway(&mut self, moment: Moment) -> bool {
        let Some(session) = self.session() else { return false };
        let record = session.replica.record(&resource());
        let older = record.token > 0 && record.token < floor(session.replica.era());
        if moment.control != Some(Control::OlderEraOpen) || record.state != State::Open || !older {
            return false;
        }
        let _ = self.gate.close(record.token);
        self.gate.open()
    }

    fn open(&mut self, moment: Moment, mark: u64, deeds: &mut Deeds) {
        if moment.control == Some(Control::PerReplicaCache) {
            return;
        }
        if self.gate.token() != mark {
            // etcd holds less than it did.
            return self.fence(deeds);
        }
        let opened = self.gate.open();
        if let Some(session) = self.session_mut() {
            session.held_back = !opened;
        }
    }

    /// A permit was given back: only a gate that is shut and empty now has drained.
    pub(crate) fn left(&mut self, moment: Moment, deeds: &mut Deeds) {
        if self.gate.is_open() || self.gate.held() > 0 {
            return;
        }
        self.step(moment, Input::Drained { resource: resource() }, deeds);
        let Some(session) = self.session().filter(|session| session.held_back) else { return };
        let record = session.replica.record(&resource());
        if session.replica.passes(&record) {
            self.open(moment, record.token, deeds);
        }
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
        let _ = self.gate.close(self.gate.token());
        self.leaving.push(me);
        deeds.push(Deed::Fenced(me));
    }

    pub(crate) fn listed(
        &mut self,
        moment: Moment,
        snapshot: Snapshot,
        queue: Vec<Candidate>,
        next: Revision,
    ) -> Deeds {
        let mut deeds = Vec::new();
        if let Some(session) = self.session_mut() {
            session.listing = false;
            session.next = next;
            session.queue = queue;
            session.hooks.listed(moment.control, snapshot.seq);
        }
        self.step(moment, Input::Listed(snapshot), &mut deeds);
        self.follow_all(moment, &mut deeds);
        deeds
    }

    /// What the watch tells. False if the rest has to wait for a listing, or is not for this incarnation.
    pub(crate) fn hear(&mut self, moment: Moment, entry: &Entry, deeds: &mut Deeds) -> bool {
        let shut = !self.gate.is_open();
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
            let _ = self.gate.open();
        }
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
