//! The fence protocol as a pure state machine: `step(now, input) -> outputs`, no I/O and no clock.
//!
//! A store drives it: it feeds in what requests want, what its log has committed and which gates have
//! drained, and carries out what comes back. A mark moves in two commits. RAISED(t) closes the gate on every
//! member; once nothing of a lower token is under way anywhere, OPEN(t) lets t pass. The embedded store has
//! one member, this process, and at most one tombstone: the process before it, if that did not end cleanly.
//!
//! What must stay true:
//! - a mark never goes down, and OPEN(t) only follows its own RAISED(t);
//! - the machine asks to open only after every member has drained and every tombstone is old enough;
//! - each resource has at most one unanswered proposal, so the compare in the store decides every race.

mod raise;
mod record;
mod seal;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use highgate_elector::{Resource, Token};

use crate::ledger::Shut;
pub use record::{Record, State};
pub use seal::{Incarnation, Member, Tombstone};

/// A point in time, counted from any fixed start. The machine only compares and adds.
pub type Time = Duration;

/// A position in the store's log.
pub type Revision = u64;

/// What the machine is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Somebody brings a token. If it is above the mark, the mark is to be raised.
    /// `block`: whether an end with unknown outcome blocks this resource until an operator settles it; none
    /// leaves that as it was.
    Want { resource: Resource, token: Token, block: Option<bool> },
    /// An operator shuts a resource or lets it go on. Thawing also settles unknown outcomes that block.
    Freeze { resource: Resource, frozen: bool },
    /// The leader with this token has gone. If the token is still the mark, nothing passes until the next.
    Vacate { resource: Resource, token: Token },
    /// The store committed this revision, whole.
    Applied { revision: Revision, changes: Vec<(Resource, Record)> },
    /// The store did not commit the proposal: the record had changed since it was seen.
    Refused { resource: Resource },
    /// The local gate holds no guard of a lower token any more.
    Drained { resource: Resource },
    /// Time has passed.
    Tick,
}

/// What the machine wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Commit this, if the resource's record is still as it was seen.
    Propose(Proposal),
    /// Shut the local gate under this mark, then report `Drained` as soon as it is.
    Close { resource: Resource, mark: u64, shut: Shut },
    /// Open the local gate at its mark.
    Open { resource: Resource },
    /// Something an operator wants to know.
    Tell(Event),
}

/// A conditional write: `record` replaces what was last modified at `seen` (0: nothing was there).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    pub resource: Resource,
    pub seen: Revision,
    pub record: Record,
}

/// What happened to a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Raised { resource: Resource, from: u64, to: u64 },
    Opened { resource: Resource, mark: u64, after: Duration },
    Frozen { resource: Resource, mark: u64 },
    Thawed { resource: Resource, mark: u64 },
}

/// One member's view of the fence.
#[derive(Clone, Debug)]
pub struct Replica {
    me: Incarnation,
    records: HashMap<Resource, Record, foldhash::fast::RandomState>,
    members: BTreeMap<Incarnation, Member>,
    tombstones: Vec<Tombstone>,
    /// Resources with something left to do. Every RAISED record has its entry here.
    work: HashMap<Resource, raise::Work, foldhash::fast::RandomState>,
}

impl Replica {
    /// JOIN: a member created at `created` that has loaded the records as they stood then.
    ///
    /// Loaded gates are closed or opened by the outputs. A RAISED record that is found here was never open on
    /// this member, so there is nothing to drain; whoever was before is a tombstone.
    pub fn join(
        now: Time,
        me: Incarnation,
        created: Revision,
        records: impl IntoIterator<Item = (Resource, Record)>,
        tombstones: Vec<Tombstone>,
    ) -> (Self, Vec<Output>) {
        let mut replica = Self {
            me,
            records: records.into_iter().collect(),
            members: BTreeMap::from([(me, Member::new(created))]),
            tombstones,
            work: HashMap::default(),
        };
        let outputs = replica.load(now);
        (replica, outputs)
    }

    fn load(&mut self, now: Time) -> Vec<Output> {
        let mut outputs = Vec::with_capacity(self.records.len());
        let inherited = !self.tombstones.is_empty();
        for (resource, record) in &self.records {
            let blocked = record.block && inherited;
            if record.state != State::Open || blocked {
                self.work.insert(resource.clone(), raise::Work::loaded(now, record, blocked));
            }
            outputs.push(close(resource, record));
            if record.passes() {
                outputs.push(open(resource));
            }
        }
        self.advance_all(now, &mut outputs);
        outputs
    }

    /// The one entry. `now` never goes back.
    pub fn step(&mut self, now: Time, input: Input) -> Vec<Output> {
        let mut outputs = Vec::new();
        match input {
            Input::Want { resource, token, block } => self.want(now, resource, token, block, &mut outputs),
            Input::Freeze { resource, frozen } => self.freeze(now, resource, frozen, &mut outputs),
            Input::Vacate { resource, token } => self.vacate(now, resource, token, &mut outputs),
            Input::Applied { revision, changes } => self.apply(now, revision, changes, &mut outputs),
            Input::Refused { resource } => self.refused(now, resource, &mut outputs),
            Input::Drained { resource } => self.drained(now, resource, &mut outputs),
            Input::Tick => self.tick(now, &mut outputs),
        }
        outputs
    }

    /// When a `Tick` is due. It may be in the past: whoever drives the machine may have been busy then.
    pub fn wake_at(&self) -> Option<Time> {
        self.tombstones.iter().map(Tombstone::ends).min()
    }

    /// Forgets tombstones whose time has passed, and lets go on what waited for them.
    fn tick(&mut self, now: Time, outputs: &mut Vec<Output>) {
        self.tombstones.retain(|tombstone| now < tombstone.ends());
        self.advance_all(now, outputs);
    }

    pub fn record(&self, resource: &Resource) -> Record {
        self.records.get(resource).copied().unwrap_or_default()
    }

    /// The highest token that is the mark or that somebody wants to be it.
    pub fn ceiling(&self, resource: &Resource) -> u64 {
        let mark = self.records.get(resource).map_or(0, |record| record.token);
        let wanted = self.work.get(resource).and_then(raise::Work::wanted).map_or(0, Token::get);
        mark.max(wanted)
    }

    /// Whether an end inherited from a process before this one may still be outstanding.
    pub fn inherits_unknowns(&self, now: Time) -> bool {
        self.tombstones.iter().any(|tombstone| now < tombstone.ends())
            || self.work.values().any(|work| work.blocked)
    }

    /// APPLY: whole revisions, in order. Any change of a mark closes the gate first.
    fn apply(
        &mut self,
        now: Time,
        revision: Revision,
        changes: Vec<(Resource, Record)>,
        outputs: &mut Vec<Output>,
    ) {
        self.me().watermark = revision;
        for (resource, record) in changes {
            self.apply_one(now, &resource, record, outputs);
            self.advance(now, &resource, outputs);
        }
    }

    fn apply_one(&mut self, now: Time, resource: &Resource, record: Record, outputs: &mut Vec<Output>) {
        let before = self.records.insert(resource.clone(), record).unwrap_or_default();
        let work = self.work.entry(resource.clone()).or_default();
        work.outstanding = false;
        let opened_after = work.follow(now, &record);
        if before.state == State::Raised {
            self.me().draining.remove(&before.modified);
        }
        if record.state == State::Raised {
            self.me().draining.insert(record.modified);
        }
        outputs.push(if record.passes() { open(resource) } else { close(resource, &record) });
        outputs.extend(tell(resource, &before, &record, opened_after).map(Output::Tell));
    }

    fn me(&mut self) -> &mut Member {
        self.members.get_mut(&self.me).expect("a replica is a member from its join on")
    }
}

fn open(resource: &Resource) -> Output {
    Output::Open { resource: resource.clone() }
}

fn close(resource: &Resource, record: &Record) -> Output {
    Output::Close { resource: resource.clone(), mark: record.token, shut: record.shut() }
}

/// What a change of a record means to an operator.
fn tell(
    resource: &Resource,
    before: &Record,
    record: &Record,
    opened_after: Option<Duration>,
) -> impl Iterator<Item = Event> {
    let (resource, mark) = (resource.clone(), record.token);
    let raised = (mark > before.token).then(|| Event::Raised {
        resource: resource.clone(),
        from: before.token,
        to: mark,
    });
    let opened = opened_after.map(|after| Event::Opened { resource: resource.clone(), mark, after });
    let frozen = match (before.frozen, record.frozen) {
        (false, true) => Some(Event::Frozen { resource, mark }),
        (true, false) => Some(Event::Thawed { resource, mark }),
        _ => None,
    };
    [raised, opened, frozen].into_iter().flatten()
}
