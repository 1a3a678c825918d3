//! Sees everything, and says what breaks the promise: per resource, effects are token-monotone and effects of two
//! tokens never overlap; and the invariants I1 to I4 of the protocol.
//!
//! Whether something is under way is judged from its forward to its certain end: a whole response, or D after it was
//! cut or its gateway crashed or passed its validity.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use highgate::replica::{Incarnation, Record, Revision, State as Gate};
use highgate_elector::{Resource, Token};

use super::clock::Nanos;
use super::etcd::{Entry, KeyChange, MemberValue, State, Txn};
use super::trace::{letter, short};
use super::world::World;

#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) what: &'static str,
    pub(crate) text: String,
    pub(crate) at: Nanos,
}

#[derive(Default)]
pub(crate) struct Judge {
    pub(crate) violation: Option<Violation>,
    pub(crate) highest_era: u64,
    under_way: BTreeMap<usize, Vec<UnderWay>>,
    forwarded: BTreeMap<usize, Token>,
    effects: BTreeMap<usize, Token>,
    marks: BTreeMap<Resource, Record>,
    /// What had happened when a mark was raised.
    raises: BTreeMap<Resource, Seen>,
    so_far: Seen,
    said: BTreeMap<Incarnation, (Revision, Vec<Revision>)>,
    /// By the revision they joined at, too: a join that is run twice may bring one back that never began.
    pub(crate) evicted: BTreeMap<(Incarnation, Revision), Nanos>,
    /// A change of names is announced and not finished.
    names_pending: bool,
    /// Marks that were ever open.
    pub(crate) opened: BTreeSet<(Resource, u64)>,
    /// When there was last no gateway that etcd knew of.
    pub(crate) unguarded_at: Nanos,
    guarded: bool,
    /// Per resource, the highest token that a job was told.
    pub(crate) told: BTreeMap<usize, Token>,
    /// Incarnations whose process has ended.
    pub(crate) dead: BTreeMap<Incarnation, Nanos>,
}

struct UnderWay {
    flight: u64,
    token: Token,
    /// Under which it was admitted.
    names: Rc<[Resource]>,
    /// None: it goes on.
    until: Option<Nanos>,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    crashes: u64,
    joins: u64,
    evictions: u64,
    lapses: u64,
    resyncs: u64,
}

impl Judge {
    /// Certainly over at this time.
    pub(crate) fn ended(&mut self, resource: usize, flight: u64, at: Nanos) {
        let under_way = self.under_way.entry(resource).or_default();
        if let Some(one) = under_way.iter_mut().find(|one| one.flight == flight) {
            one.until = Some(one.until.map_or(at, |until| until.min(at)));
        }
    }

    /// Whether something that was cut may still take effect.
    pub(crate) fn has_unknowns(&self, resource: usize, now: Nanos) -> bool {
        let unknown = |one: &UnderWay| one.until.is_some_and(|until| until > now);
        self.under_way.get(&resource).is_some_and(|under_way| under_way.iter().any(unknown))
    }

    pub(crate) fn restored(&mut self, backup: &State, now: Nanos) {
        self.marks = backup.fences.clone();
        self.guarded(!backup.members.is_empty(), now);
    }

    /// Whether etcd knows of gateways from now on.
    fn guarded(&mut self, guarded: bool, now: Nanos) {
        if !guarded || !self.guarded {
            self.unguarded_at = now;
        }
        self.guarded = guarded;
    }

    fn others(&mut self, resource: usize, now: Nanos) -> &mut Vec<UnderWay> {
        let under_way = self.under_way.entry(resource).or_default();
        under_way.retain(|one| one.until.is_none_or(|until| until > now));
        under_way
    }
}

impl World {
    /// A broken invariant. A control has to break the promise itself: for it this does not count.
    pub(crate) fn suspect(&mut self, what: &'static str, how: impl FnOnce() -> String) {
        if self.control.is_none() {
            self.accuse(what, how);
        }
    }

    pub(crate) fn judge_forward(
        &mut self,
        flight: u64,
        resource: usize,
        token: Token,
        names: Rc<[Resource]>,
    ) {
        let now = self.now;
        let others = self.judge.others(resource, now);
        let other = others.iter().find(|one| one.token != token).map(|one| (one.flight, one.token));
        others.push(UnderWay { flight, token, names, until: None });
        if let Some((request, under_way)) = other {
            self.accuse("overlap", || {
                format!("{token} is forwarded for r{resource} (request {flight}) while {under_way} is under way (request {request})")
            });
        }
        let highest = self.judge.forwarded.entry(resource).or_insert(token);
        if *highest > token {
            let highest = *highest;
            self.accuse("forwarded down", || format!("{token} is forwarded for r{resource} after {highest}"));
        } else {
            *highest = token;
        }
    }

    pub(crate) fn judge_effect(&mut self, flight: u64, resource: usize, token: Token) {
        let highest = self.judge.effects.entry(resource).or_insert(token);
        if *highest > token {
            let highest = *highest;
            self.accuse("effect down", || {
                format!("{token} takes effect on r{resource} (request {flight}) after {highest}")
            });
        } else {
            *highest = token;
        }
    }

    /// etcd has committed something.
    pub(crate) fn committed(&mut self, entry: &Entry, txn: &Txn) {
        self.tally.elector_raises += u64::from(matches!(txn, Txn::Raise { .. }));
        for change in &entry.changes {
            match change {
                KeyChange::Fence(resource, record) => self.judge_mark(entry, resource, record),
                KeyChange::MemberGone(member) => self.judge_gone(entry, *member, txn),
                KeyChange::Tombstone(name, _) => {
                    self.note(|| {
                        format!("etcd {}: tombstone {}", entry.revision, &name[..4.min(name.len())])
                    });
                }
                KeyChange::TombstoneGone(name) => {
                    self.tally.forgotten += u64::from(matches!(txn, Txn::Forget { .. }));
                    self.note(|| {
                        format!(
                            "etcd {}: no tombstone {} any more",
                            entry.revision,
                            &name[..4.min(name.len())]
                        )
                    });
                }
                KeyChange::Era(era) => {
                    self.judge.highest_era = self.judge.highest_era.max(*era);
                    if *era == 0 {
                        // The first backup that anybody makes: of a prefix without members.
                        self.backups.push(self.etcd.state.clone());
                    }
                    self.tally.eras += 1;
                    self.note(|| format!("etcd {}: era {era}", entry.revision));
                }
                KeyChange::Names(names) => {
                    self.tally.names_announced += u64::from(names.next.is_some());
                    let finished = self.judge.names_pending && names.next.is_none();
                    self.tally.names_finished += u64::from(finished);
                    self.judge.names_pending = names.next.is_some();
                    self.note(|| format!("etcd {}: names {}", entry.revision, names.encode()));
                }
                KeyChange::Member(id, kept) => self.note_word(entry, *id, &kept.value),
                KeyChange::Came(resource, lease, candidate) => {
                    let (revision, created, carrier) = (entry.revision, candidate.created, candidate.carrier);
                    self.note(|| {
                        format!(
                            "etcd {revision}: candidate {created} of {lease} for {resource}, on {carrier}"
                        )
                    });
                }
                KeyChange::Went(resource, lease) => {
                    self.note(|| {
                        format!("etcd {}: candidate of {lease} gone from {resource}", entry.revision)
                    });
                    self.judge_departure(resource, *lease);
                }
            }
        }
        self.judge.guarded(!self.etcd.state.members.is_empty(), self.now);
        self.arm_streams();
    }

    /// What a member says of itself, if it is news.
    fn note_word(&mut self, entry: &Entry, id: Incarnation, value: &MemberValue) {
        let word = (value.watermark, value.draining.clone());
        if self.judge.said.get(&id) != Some(&word) {
            let (watermark, draining) = &word;
            let id = short(id);
            self.note(|| format!("etcd {}: {id} says {watermark}, draining {draining:?}", entry.revision));
        }
        self.judge.said.insert(id, word);
    }

    fn judge_gone(&mut self, entry: &Entry, member: Incarnation, txn: &Txn) {
        let how = match txn {
            Txn::Evict { .. } => "evicted",
            Txn::Retire { .. } => "retired",
            Txn::Leave { .. } => "left",
            _ => "deleted",
        };
        if let Txn::Evict { tombstone, .. } | Txn::Retire { tombstone, .. } = txn {
            self.judge.evicted.insert((member, tombstone.created), self.now);
            self.judge.so_far.evictions += 1;
            self.tally.evictions += u64::from(matches!(txn, Txn::Evict { .. }));
        }
        self.note(|| format!("etcd {}: {} {how}", entry.revision, short(member)));
    }

    /// I1: a mark strictly grows, and OPEN(t) only follows its own RAISED(t).
    fn judge_mark(&mut self, entry: &Entry, resource: &Resource, record: &Record) {
        let before = self.judge.marks.insert(resource.clone(), *record).unwrap_or_default();
        self.note(|| {
            let flags = [(record.frozen, " frozen"), (record.vacant, " vacant"), (record.block, " block")];
            let flags: String = flags.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
            format!("etcd {}: {resource} {:?} {}{flags}", entry.revision, record.state, record.token)
        });
        let raised = record.token > before.token;
        let fine = match record.state {
            Gate::Raised => raised || (record.token == before.token && before.state == Gate::Raised),
            Gate::Open => record.token == before.token,
        };
        if !fine {
            self.accuse("I1", || format!("{resource} goes from {before:?} to {record:?}"));
        }
        self.judge.so_far.crashes = self.tally.crashes;
        self.judge.so_far.joins = self.tally.joins;
        self.judge.so_far.lapses = self.tally.lapses;
        self.judge.so_far.resyncs = self.tally.resyncs;
        if raised {
            self.judge.raises.insert(resource.clone(), self.judge.so_far);
            self.tally.raises += 1;
        }
        if record.state == Gate::Open {
            self.judge.opened.insert((resource.clone(), record.token));
            self.judge_open(resource, record);
        }
        if record.state == Gate::Open && before.state == Gate::Raised {
            self.count_seal(resource);
        }
    }

    /// I3: OPEN(t) committed, so nobody has a lower gate open or a lower request under way.
    fn judge_open(&mut self, resource: &Resource, record: &Record) {
        let now = self.now;
        let Some(index) = self.meant_by(resource) else { return };
        // What was admitted under other names only is waited for under those.
        let is_lower = |one: &&UnderWay| one.token.get() < record.token && one.names.contains(resource);
        let lower = self.judge.others(index, now).iter().find(is_lower);
        let lower = lower.map(|one| (one.flight, one.token));
        if let Some((flight, token)) = lower {
            self.suspect("I3", || {
                format!("{resource} opens at {} while {token} is under way (request {flight})", record.token)
            });
        }
        for host in 0..self.hosts.len() {
            let shown = self.shown(host);
            let Some(process) = &self.hosts[host].process else { continue };
            let valid = process.until.is_some_and(|until| shown < until);
            let Some(cell) = process.ledger.get(resource.as_str()) else { continue };
            let mark = cell.mark();
            if valid && cell.is_open() && mark < record.token {
                self.suspect("I3", || {
                    format!(
                        "{resource} opens at {} while {}'s gate is open at {mark}",
                        record.token,
                        letter(host)
                    )
                });
            }
        }
    }

    fn count_seal(&mut self, resource: &Resource) {
        let Some(then) = self.judge.raises.get(resource).copied() else { return };
        let now = self.judge.so_far;
        self.tally.seals += 1;
        self.tally.seals_after_crash += u64::from(now.crashes > then.crashes);
        self.tally.seals_after_join += u64::from(now.joins > then.joins);
        self.tally.seals_after_eviction += u64::from(now.evictions > then.evictions);
        self.tally.seals_after_lapse += u64::from(now.lapses > then.lapses);
        self.tally.seals_after_resync += u64::from(now.resyncs > then.resyncs);
    }
}
