//! The fence protocol as a pure state machine: `step(now, input) -> outputs`, no I/O and no clock.
//!
//! A store drives it: it feeds in what requests want, what its log has committed and which gates have
//! drained, and carries out what comes back. A mark moves in two commits. RAISED(t) closes the gate on every
//! member; once nothing of a lower token is under way anywhere, OPEN(t) lets t pass. The embedded store has
//! one member, this process, and at most one tombstone: the process before it, if that did not end cleanly.
//! In a cluster every replica runs this machine over the same log, and any of them may seal.
//!
//! What must stay true:
//! - a mark never goes down within an era, and OPEN(t) only follows its own RAISED(t);
//! - the machine asks to open only after every member has drained and every tombstone is old enough;
//! - the watermark moves only with revisions that follow one another without a gap;
//! - each resource has at most one unanswered proposal, so the compare in the store decides every race.

mod apply;
mod digest;
mod evict;
mod mend;
mod names;
mod news;
mod raise;
mod record;
mod renew;
mod seal;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use highgate_elector::{Resource, Token};

use crate::controls::{Rule, breaks};
use crate::ledger::Shut;
use raise::Work;
pub use record::{Record, State};
pub use renew::{Answer, Timing};
pub use seal::{Incarnation, Member, Tombstone, Unsettled};

/// A point in time, counted from any fixed start. The machine only compares and adds.
pub type Time = Duration;

/// A position in the store's log.
pub type Revision = u64;

/// What the machine is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Somebody brings a token. If it is above the mark, the mark is to be raised.
    Want(Want),
    /// An operator shuts a resource or lets it go on. Thawing also settles unknown outcomes that block.
    Freeze { resource: Resource, frozen: bool },
    /// A request is about to pass whose unknown outcome only an operator could settle: that has to be known to
    /// everybody before.
    Block { resource: Resource },
    /// The leader with this token has gone. If the token is still the mark, nothing passes until the next.
    Vacate { resource: Resource, token: Token },
    /// The store committed this revision; whole, and in order.
    Applied(Applied),
    /// Everything as it is at one revision, read again because the log had a gap.
    Listed(Snapshot),
    /// The store did not commit the proposal that had seen the record of `seen`: the record is that of
    /// `modified`, or, if that is the same, what the proposal claims of the election is not so.
    Refused { resource: Resource, seen: Revision, modified: Revision },
    /// Nobody knows whether the store committed the proposal.
    Failed { resource: Resource, seen: Revision },
    /// What became of a renewal that was sent then.
    Renewed { sent: Time, answer: Answer },
    /// An answer of the store has shown that its log holds a change that counts and a word of this member at these
    /// revisions (0: it did not say). Both arrive as `Applied`, or something was lost.
    Exists { counted: Revision, said: Revision },
    /// The local gate holds no guard of a lower token any more.
    Drained { resource: Resource },
    /// Everything under way on this member has the names of resources that were announced at this revision.
    NamesKnown { revision: Revision },
    /// Time has passed.
    Tick,
}

/// A token that asks to become the mark.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Want {
    pub resource: Resource,
    pub token: Token,
    /// Whether an end with unknown outcome blocks this resource until an operator settles it; none leaves
    /// that as it was.
    pub block: Option<bool>,
    /// The candidate whose token it is, to be proved by the store; none: the token is trusted.
    pub proof: Option<Proof>,
    /// Nobody waits for it yet: the replica that comes first for the resource raises, the others later.
    pub patient: bool,
}

/// The key of a candidate, as the store names it.
pub type Proof = Box<[u8]>;

/// One revision of the store's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    pub revision: Revision,
    /// The number of this change among those that count; none if it is not one of them.
    pub seq: Option<u64>,
    pub changes: Vec<Change>,
}

/// What a revision changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    Record(Resource, Record),
    /// Somebody has deleted a mark, which nothing here ever does.
    Lost(Resource),
    /// A member joined or renewed.
    Member(Incarnation, Member),
    /// A member left, or was evicted if its tombstone comes with the same revision.
    Gone(Incarnation),
    Tombstone(String, Tombstone),
    Forgotten(String),
    Era(u64),
    /// The config's names of resources have changed; `pending`: both the old and the new ones count for now.
    Names {
        pending: bool,
    },
}

/// Everything the store holds, at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The number of the last change that counts, and the revision it was made at.
    pub seq: u64,
    pub watermark: Revision,
    pub era: u64,
    pub records: Vec<(Resource, Record)>,
    pub members: Vec<(Incarnation, Member)>,
    pub tombstones: Vec<(String, Tombstone)>,
    /// The revision at which a change of names was announced that is not finished.
    pub names: Option<Revision>,
}

/// What the machine wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Commit this, if the resource's record is still as it was seen.
    Propose(Proposal),
    /// Say that this member lives, how far it has come and what it still drains.
    Renew { watermark: Revision, draining: Vec<Revision> },
    /// Requests may pass until then.
    Valid { until: Time },
    /// Make a silent member a tombstone, if it has not changed since `modified`.
    Evict { member: Incarnation, modified: Revision },
    /// A member vanished without a trace: leave a tombstone for it, if there is none.
    Bury { member: Incarnation, value: Member },
    /// A tombstone has done its duty.
    Forget { name: String, modified: Revision },
    /// Something of the log was lost: have it told again from before the loss, or read everything again, as it is at one
    /// revision.
    Resync,
    /// This incarnation is over: nothing passes any more, and what is under way is cut. Nothing follows.
    Fence(Fenced),
    /// Shut the local gate under this mark, then report `Drained` as soon as it is.
    Close { resource: Resource, mark: u64, shut: Shut },
    /// Open the local gate at this mark. `blocks`: unknown outcomes are left to an operator.
    Open { resource: Resource, mark: u64, blocks: bool },
    /// An operator has settled every unknown outcome so far: whoever keeps one gives it back.
    Settle { resource: Resource },
    /// The change of names that was announced at `seen` can be finished.
    FinishNames { seen: Revision },
    /// Something an operator wants to know.
    Tell(Event),
}

/// Why an incarnation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fenced {
    /// Its last renewal is too long ago.
    Expired,
    /// Its peers, or somebody by hand, took it out.
    Evicted,
    /// The store refused a renewal.
    Refused,
    /// An era has ended, and all its tokens with it.
    NewEra,
}

/// A conditional write: `record` replaces what was last modified at `seen` (0: nothing was there).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Proposal {
    pub resource: Resource,
    pub seen: Revision,
    pub record: Record,
    pub given: Given,
}

/// What else has to be so for a proposal to be committed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Given {
    Nothing,
    /// This candidate was issued the record's token and leads.
    Leads(Proof),
    /// There is no candidate at all.
    Leaderless,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Raised { resource: Resource, from: u64, to: u64 },
    Opened { resource: Resource, mark: u64, after: Duration },
    Frozen { resource: Resource, mark: u64 },
    Thawed { resource: Resource, mark: u64 },
    Joined { member: Incarnation },
    Left { member: Incarnation },
    Evicted { member: Incarnation },
}

/// One member's view of the fence.
#[derive(Clone, Debug)]
pub struct Replica {
    me: Incarnation,
    /// None: this process is alone and always valid.
    timing: Option<Timing>,
    era: u64,
    /// The number of the last change applied.
    seq: u64,
    records: HashMap<Resource, Record, foldhash::fast::RandomState>,
    members: BTreeMap<Incarnation, Member>,
    tombstones: BTreeMap<String, Tombstone>,
    /// Resources with something left to do. Every RAISED record has its entry here.
    work: HashMap<Resource, Work, foldhash::fast::RandomState>,
    /// RAISED records by the revision that raised them: the unit in which members acknowledge.
    raises: BTreeMap<Revision, seal::Raise>,
    /// Resources whose gate was closed by a raise and has not drained yet, with that raise.
    undrained: HashMap<Resource, Revision, foldhash::fast::RandomState>,
    /// When to look at a resource again.
    agenda: BTreeSet<(Time, Resource)>,
    renewal: renew::Renewal,
    /// A change of names that is not finished.
    names: Option<names::Change>,
    news: news::News,
    /// When silent members and old tombstones are looked for again.
    next_round: Time,
    over: bool,
}

impl Replica {
    /// JOIN: `me` is a member and has loaded the store as it was at or after the revision it joined at.
    ///
    /// Loaded gates are closed or opened by the outputs. A RAISED record that is found here was never open on
    /// this member, so there is nothing to drain; whoever was before is a tombstone. `sent` is the time before
    /// the join was sent.
    pub fn join(
        now: Time,
        sent: Time,
        me: Incarnation,
        timing: Option<Timing>,
        snapshot: Snapshot,
    ) -> (Self, Vec<Output>) {
        let Snapshot { seq, watermark, era, records, members, tombstones, names } = snapshot;
        let mut replica = Self {
            me,
            timing,
            era,
            seq,
            records: records.into_iter().collect(),
            members: members.into_iter().map(|(id, member)| (id, member.heard(now))).collect(),
            tombstones: tombstones.into_iter().map(|(name, grave)| (name, grave.seen(now))).collect(),
            work: HashMap::default(),
            raises: BTreeMap::new(),
            undrained: HashMap::default(),
            agenda: BTreeSet::new(),
            renewal: renew::Renewal::joined(sent, timing),
            names: names.map(names::Change::announced),
            news: news::News::default(),
            next_round: now,
            over: false,
        };
        if timing.is_none() {
            replica.next_round = replica.next_tombstone_end(now);
        }
        replica.members.entry(me).or_insert_with(|| Member::new(watermark)).watermark = watermark;
        let outputs = replica.load(now);
        (replica, outputs)
    }

    fn load(&mut self, now: Time) -> Vec<Output> {
        let mut outputs = Vec::with_capacity(2 * self.records.len() + 1);
        outputs.extend(self.renewal.valid().map(|until| Output::Valid { until }));
        let records: Vec<_> =
            self.records.iter().map(|(resource, record)| (resource.clone(), *record)).collect();
        for (resource, record) in records {
            outputs.push(self.close(&resource, &record));
            if self.passes(&record) {
                outputs.push(open(&resource, &record));
            }
            if record.state == State::Raised {
                self.work.insert(resource.clone(), Work::loaded(now, &record));
                self.begin_raise(now, resource, record.modified);
            }
        }
        self.advance_all(now, &mut outputs);
        outputs
    }

    /// The one entry. `now` never goes back.
    pub fn step(&mut self, now: Time, input: Input) -> Vec<Output> {
        let mut outputs = Vec::new();
        if self.over {
            return outputs;
        }
        match input {
            Input::Want(want) => self.want(now, want, &mut outputs),
            Input::Freeze { resource, frozen } => self.freeze(now, resource, frozen, &mut outputs),
            Input::Block { resource } => self.block(now, resource, &mut outputs),
            Input::Vacate { resource, token } => self.vacate(now, resource, token, &mut outputs),
            Input::Applied(applied) => self.apply(now, applied, &mut outputs),
            Input::Listed(snapshot) => self.relist(now, snapshot, &mut outputs),
            Input::Refused { resource, seen, modified } => {
                self.refused(now, resource, seen, modified, &mut outputs);
            }
            Input::Failed { resource, seen } => self.failed(now, resource, seen, &mut outputs),
            Input::Renewed { sent, answer } => self.renewed(now, sent, answer, &mut outputs),
            Input::Exists { counted, said } => self.exists(now, counted, said),
            Input::Drained { resource } => self.drained(now, resource, &mut outputs),
            Input::NamesKnown { revision } => self.names_known(now, revision),
            Input::Tick => self.tick(now, &mut outputs),
        }
        self.finish_names(now, &mut outputs);
        outputs
    }

    /// When a `Tick` is due. It may be in the past: whoever drives the machine may have been busy then.
    pub fn wake_at(&self) -> Option<Time> {
        let agenda = self.agenda.first().map(|(at, _)| *at);
        let round = Some(self.next_round).filter(|at| *at < Time::MAX);
        let renewal = self.timing.map(|timing| self.renewal.due(&timing));
        agenda.into_iter().chain(round).chain(renewal).chain(self.news_due()).min()
    }

    fn tick(&mut self, now: Time, outputs: &mut Vec<Output>) {
        if self.renewal.valid().is_some_and(|until| now >= until) {
            return self.fence(Fenced::Expired, outputs);
        }
        while let Some((_, resource)) = self.agenda.first().filter(|(at, _)| *at <= now).cloned() {
            self.agenda.pop_first();
            self.advance(now, &resource, outputs);
        }
        match self.timing {
            None if now >= self.next_round => {
                self.next_round = self.next_tombstone_end(now);
                self.drop_old_tombstones(now, outputs);
            }
            None => {}
            Some(timing) => {
                if now >= self.next_round {
                    self.next_round = now + timing.round();
                    self.make_rounds(now, &timing, outputs);
                }
                self.miss_news(now, outputs);
                self.renew_if_due(now, &timing, outputs);
            }
        }
    }

    /// Nothing follows a fence: the incarnation is over.
    fn fence(&mut self, why: Fenced, outputs: &mut Vec<Output>) {
        self.over = true;
        outputs.push(Output::Fence(why));
    }

    pub fn record(&self, resource: &Resource) -> Record {
        self.records.get(resource).copied().unwrap_or_default()
    }

    /// The highest token that is the mark or that somebody wants to be it.
    pub fn ceiling(&self, resource: &Resource) -> u64 {
        let mark = self.records.get(resource).map_or(0, |record| record.token);
        let wanted = self.work.get(resource).and_then(Work::wanted).map_or(0, Token::get);
        mark.max(wanted)
    }

    pub fn era(&self) -> u64 {
        self.era
    }

    /// The last revision that is applied without a gap.
    pub fn watermark(&self) -> Revision {
        self.members.get(&self.me).map_or(0, |me| me.watermark)
    }

    pub fn members(&self) -> &BTreeMap<Incarnation, Member> {
        &self.members
    }

    pub fn tombstones(&self) -> &BTreeMap<String, Tombstone> {
        &self.tombstones
    }

    /// How many resources have something left to do.
    pub fn backlog(&self) -> usize {
        self.work.len()
    }

    /// Whether requests with exactly the mark pass here.
    pub fn passes(&self, record: &Record) -> bool {
        let of_this_era = self.timing.is_none() || era_of(record.token) == self.era;
        record.passes() && (of_this_era || breaks(Rule::MarkOfEra))
    }

    fn close(&self, resource: &Resource, record: &Record) -> Output {
        // Tokens of an older era are stale, whatever the mark was.
        let floor = if self.timing.is_some() && !breaks(Rule::MarkOfEra) { floor(self.era) } else { 0 };
        Output::Close { resource: resource.clone(), mark: record.token.max(floor), shut: record.shut() }
    }

    fn own(&self) -> &Member {
        self.members.get(&self.me).expect("a replica is a member from its join to its fence")
    }

    fn me(&mut self) -> &mut Member {
        self.members.get_mut(&self.me).expect("a replica is a member from its join to its fence")
    }
}

fn open(resource: &Resource, record: &Record) -> Output {
    Output::Open { resource: resource.clone(), mark: record.token, blocks: record.block }
}

/// The mark below which every token is of an older era.
pub fn floor(era: u64) -> u64 {
    era << 48
}

fn era_of(token: u64) -> u64 {
    token >> 48
}
