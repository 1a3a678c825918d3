//! The way between replicas and etcd: requests that are late, lost or run twice, answers that get lost, and watches
//! that are late, lose whole revisions, repeat them, or find them compacted away.
//!
//! A request goes out again when it is not answered for a while, as the hedging client does it; the first answer
//! counts, and after five seconds there is none. What must stay true: the driver hears of every call exactly once.

use std::rc::Rc;
use std::time::Duration;

use highgate::replica::{Incarnation, Proposal, Revision, Time};
use highgate_elector::Resource;

use super::clock::{MILLI, Nanos, SECOND, nanos};
use super::elector::Ask;
use super::etcd::{Answer, Entry, State, Txn};
use super::host::{Changes, Memory};
use super::trace::letter;
use super::world::{Event, World};

const PATIENCE: Nanos = 400 * MILLI;
const CALL_DEADLINE: Nanos = 5 * SECOND;

/// Who speaks to etcd: a gateway or an elector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Party {
    Gateway(usize),
    Elector(usize),
}

/// A request whose answer somebody waits for.
pub(crate) struct Call {
    party: Party,
    process: u64,
    purpose: Purpose,
    txn: Rc<Txn>,
    /// What was known when it was sent.
    before: Memory,
    deadline: Nanos,
}

/// What a request was for: with the answer, it is what the driver hears.
#[derive(Clone, Debug)]
pub(crate) enum Purpose {
    JoinEra {
        join: u64,
    },
    JoinBegin {
        join: u64,
    },
    JoinNames {
        join: u64,
    },
    JoinPutNames {
        join: u64,
    },
    Join {
        join: u64,
        sent: Time,
    },
    JoinLoad {
        join: u64,
        sent: Time,
        created: Revision,
        state: Rc<State>,
    },
    JoinRenew {
        join: u64,
        sent: Time,
        created: Revision,
        state: Rc<State>,
    },
    /// The pause before it is over.
    List {
        session: u64,
    },
    ListLoad {
        session: u64,
        state: Rc<State>,
    },
    Renew {
        session: u64,
        sent: Time,
        lock_delay: Duration,
        confirmed: Revision,
    },
    Propose {
        session: u64,
        proposals: Vec<Proposal>,
    },
    Head {
        session: u64,
        resource: Resource,
        value: Revision,
        block: bool,
    },
    Forget {
        session: u64,
        name: String,
    },
    /// Of names that a changed config needs.
    Rename {
        session: u64,
    },
    Done {
        session: u64,
    },
    Leave {
        incarnation: Incarnation,
    },
    BumpRead,
    Bump,
    /// An elector's.
    Elect(Ask),
}

pub(crate) struct Report {
    pub(crate) purpose: Purpose,
    pub(crate) before: Memory,
    /// None: nobody knows whether it was run.
    pub(crate) answer: Option<Answer>,
}

/// A watch of a session, or of an elector.
pub(crate) struct Stream {
    pub(crate) party: Party,
    process: u64,
    next: Revision,
    pub(crate) deaf_until: Nanos,
    armed: bool,
}

impl World {
    pub(crate) fn call(&mut self, host: usize, purpose: Purpose, txn: Txn) {
        let Some(process) = &self.hosts[host].process else { return };
        let (number, before) = (process.number, process.memory);
        self.place((Party::Gateway(host), number), purpose, txn, before);
    }

    /// An elector asks.
    pub(crate) fn ask_etcd(&mut self, elector: usize, ask: Ask, txn: Txn) {
        let party = (Party::Elector(elector), self.electors[elector].life);
        self.place(party, Purpose::Elect(ask), txn, Memory::default());
    }

    fn place(&mut self, (party, process): (Party, u64), purpose: Purpose, txn: Txn, before: Memory) {
        let id = self.number();
        let deadline = self.now + CALL_DEADLINE;
        let txn = Rc::new(txn);
        self.calls.insert(id, Call { party, process, purpose, txn, before, deadline });
        self.set(deadline, Event::GiveUp { call: id });
        self.attempt(id);
    }

    fn unplugged_until(&self, party: Party) -> Nanos {
        match party {
            Party::Gateway(host) => self.hosts[host].unplugged_until,
            Party::Elector(elector) => self.electors[elector].unplugged_until,
        }
    }

    fn is_paused(&self, party: Party) -> bool {
        match party {
            Party::Gateway(host) => self.hosts[host].is_paused(),
            Party::Elector(elector) => self.electors[elector].paused_until.is_some(),
        }
    }

    /// Sends it, once more.
    fn attempt(&mut self, id: u64) {
        let Some(Call { party, txn, .. }) = self.calls.get(&id) else { return };
        let (party, txn) = (*party, txn.clone());
        self.set_after(PATIENCE, Event::Hedge { call: id });
        if self.dice.chance(self.network.lost) {
            return;
        }
        let mut at = self.now + self.latency();
        let plugged_in = self.unplugged_until(party);
        if plugged_in > self.now {
            if self.dice.chance(700) {
                return;
            }
            at = plugged_in + self.latency();
        }
        if self.dice.chance(self.network.slow) {
            at += self.long_delay();
        }
        if self.dice.chance(self.network.twice) {
            let again = at + self.long_delay();
            self.set(again, Event::Execute { call: id, txn: txn.clone() });
        }
        self.set(at, Event::Execute { call: id, txn });
    }

    pub(crate) fn latency(&mut self) -> Nanos {
        self.dice.between(MILLI / 10, 3 * MILLI)
    }

    /// Up to many times the validity, now and then.
    fn long_delay(&mut self) -> Nanos {
        let validity = nanos(self.plan.timing.validity);
        match self.dice.below(10) {
            0..=5 => self.dice.below(validity / 2),
            6..=8 => self.dice.below(3 * validity),
            _ => self.dice.below(12 * validity),
        }
    }

    pub(crate) fn hedge(&mut self, id: u64) {
        let Some(call) = self.calls.get(&id) else { return };
        if self.now + PATIENCE / 4 >= call.deadline {
            return;
        }
        if self.is_paused(call.party) {
            return self.set_after(PATIENCE, Event::Hedge { call: id });
        }
        self.attempt(id);
    }

    pub(crate) fn execute(&mut self, id: u64, txn: &Rc<Txn>) {
        if self.etcd.paused_until > self.now {
            let at = self.etcd.paused_until + self.latency();
            return self.set(at, Event::Execute { call: id, txn: txn.clone() });
        }
        let late = !self.calls.contains_key(&id);
        self.tally.late_runs += u64::from(late);
        let (answer, entry) = self.etcd.execute(txn, self.now);
        self.count_lease(txn);
        if let Some(entry) = entry {
            self.tally.late_commits += u64::from(late);
            self.committed(&entry, txn);
        }
        let Some(call) = self.calls.get(&id) else { return };
        let unplugged = self.unplugged_until(call.party) > self.now;
        if unplugged || self.dice.chance(self.network.answer_lost) {
            self.tally.lost_answers += 1;
            return;
        }
        let mut delay = self.latency();
        if self.dice.chance(self.network.answer_slow) {
            let validity = nanos(self.plan.timing.validity);
            delay += self.dice.below(validity);
        }
        self.set_after(delay, Event::Answer { call: id, answer: Box::new(answer) });
    }

    /// The first answer counts. With the etcd that gave it, its connection has gone.
    pub(crate) fn answer(&mut self, id: u64, answer: Option<Answer>) {
        if answer.as_ref().is_some_and(|answer| answer.history != self.etcd.history) {
            return;
        }
        let Some(Call { party, process, purpose, before, .. }) = self.calls.remove(&id) else { return };
        match (party, purpose) {
            (Party::Elector(elector), Purpose::Elect(ask)) => {
                self.elector_hears(elector, process, ask, answer.map(|answer| answer.reply));
            }
            (Party::Gateway(host), purpose) => {
                let report = Report { purpose, before, answer };
                let living = self.hosts[host].process.as_mut().filter(|living| living.number == process);
                if let Some(living) = living {
                    living.reports.push_back(report);
                    self.poll(host);
                }
            }
            (Party::Elector(_), _) => {}
        }
    }

    pub(crate) fn watch(&mut self, host: usize, next: Revision) -> u64 {
        let process = self.hosts[host].process_number();
        self.open_stream(Party::Gateway(host), process, next)
    }

    pub(crate) fn open_stream(&mut self, party: Party, process: u64, next: Revision) -> u64 {
        let id = self.number();
        self.streams.insert(id, Stream { party, process, next, deaf_until: 0, armed: false });
        self.arm(id);
        id
    }

    pub(crate) fn arm_streams(&mut self) {
        let idle: Vec<u64> =
            self.streams.iter().filter(|(_, stream)| !stream.armed).map(|(id, _)| *id).collect();
        for id in idle {
            self.arm(id);
        }
    }

    fn arm(&mut self, id: u64) {
        let delay = if self.dice.chance(self.network.slow) { self.long_delay() / 4 } else { self.latency() };
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.armed = true;
        let (deaf, party) = (stream.deaf_until, stream.party);
        let blocked = deaf.max(self.unplugged_until(party));
        let from = self.now.max(blocked).max(self.etcd.paused_until);
        self.set(from + delay, Event::Deliver { stream: id });
    }

    /// Gives the driver what has come since.
    pub(crate) fn deliver(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.armed = false;
        let (party, process, next, deaf) = (stream.party, stream.process, stream.next, stream.deaf_until);
        if deaf.max(self.unplugged_until(party)).max(self.etcd.paused_until) > self.now {
            return self.arm(id);
        }
        let news = self.etcd.since(next).map(<[_]>::to_vec);
        match &news {
            None => drop(self.streams.remove(&id)),
            Some(entries) if entries.is_empty() => return,
            Some(entries) => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.next = entries.last().map_or(next, |entry| entry.revision + 1);
                }
            }
        }
        let host = match party {
            Party::Gateway(host) => host,
            Party::Elector(elector) => return self.elector_sees(elector, process, id, news),
        };
        let news = news.map(|entries| self.garble(host, entries));
        let Some(living) = self.hosts[host].process.as_mut().filter(|living| living.number == process) else {
            self.streams.remove(&id);
            return;
        };
        living.changes.push_back(Changes { stream: id, news });
        self.poll(host);
    }

    /// Loses whole revisions, or repeats one. Candidates' revisions have no number, so that nobody could notice.
    fn garble(&mut self, host: usize, mut entries: Vec<Rc<Entry>>) -> Vec<Rc<Entry>> {
        if self.dice.chance(self.network.watch_loses) {
            let whole = self.dice.chance(500);
            let one = self.dice.index(entries.len());
            let mut place = 0;
            let before = entries.len();
            entries.retain(|entry| {
                place += 1;
                entry.is_about_elections() || !(whole || place == one + 1)
            });
            let lost = before - entries.len();
            self.tally.lost_revisions += lost as u64;
            self.note(|| format!("{} the watch loses {lost} revisions", letter(host)));
        }
        if self.dice.chance(self.network.watch_repeats) {
            let counted = entries.iter().find(|entry| entry.seq.is_some() && !entry.is_about_elections());
            if let Some(again) = counted.cloned() {
                self.tally.repeated_revisions += 1;
                entries.push(again);
            }
        }
        entries
    }
}
