//! A machine with a clock, and the process that runs on it: the real ledger, and the state of the store's driver.
//!
//! A process ends with a crash or an orderly stop, and the next one begins with nothing but the memory on disk. The
//! real `Validity` counts requests and fences; until when it holds is kept here, in virtual time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use highgate::ledger::Ledger;
use highgate::ledger::validity::{Counted, Validity};
use highgate::names::Names;
use highgate::replica::{Incarnation, Input, Proposal, Replica, Revision, Time, Timing};
use highgate_elector::{Moment, Resource, Token};

use super::clock::{Clock, Nanos};
use super::etcd::{Entry, MemberValue};
use super::hooks::Hooks;
use super::naming::{Table, Tables};
use super::wire::Report;
use super::world::Event;

pub(crate) struct Host {
    pub(crate) clock: Clock,
    pub(crate) process: Option<Process>,
    /// What the last process has saved.
    pub(crate) disk: Memory,
    /// The number of the config that its file says.
    pub(crate) file: usize,
    pub(crate) died_at: Nanos,
    pub(crate) paused_until: Option<Nanos>,
    pub(crate) stalled_until: Option<Nanos>,
    pub(crate) unplugged_until: Nanos,
    /// What happened to the process while it was paused.
    pub(crate) deferred: Vec<Event>,
}

/// What a replica remembers of etcd, as in `src/store/etcd/memory.rs`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) cluster: u64,
    pub(crate) revision: Revision,
    pub(crate) era: u64,
    pub(crate) lost: bool,
    /// How often an operator's word was taken for what etcd is now.
    pub(crate) accepted: u64,
}

impl Memory {
    /// Whether an answer counts, to a question that was sent when `before` was the highest revision known.
    pub(crate) fn judge(&mut self, cluster: u64, revision: Revision, before: Revision) -> bool {
        if self.cluster != 0 && self.cluster != cluster {
            return false;
        }
        self.lost |= revision < before;
        if !self.lost {
            self.cluster = cluster;
            self.revision = self.revision.max(revision);
        }
        !self.lost
    }
}

pub(crate) struct Process {
    pub(crate) number: u64,
    pub(crate) ledger: Ledger,
    pub(crate) validity: Arc<Validity>,
    /// Gates that were left by their last request.
    pub(crate) left: Arc<Mutex<Vec<Resource>>>,
    /// When the validity ends, by the local clock; none while it is fenced.
    pub(crate) until: Option<Time>,
    pub(crate) timing: Timing,
    /// What the routes use by now.
    pub(crate) lock_delay: Duration,
    pub(crate) tables: Tables,
    /// The config that the store agrees with; the routes follow.
    pub(crate) config: usize,
    /// Only a start brings names: a process that joins again is checked under those in force beside its own.
    pub(crate) has_served: bool,
    /// When it was last looked whether everything under way has the new names.
    pub(crate) names_looked_at: Nanos,
    pub(crate) memory: Memory,
    pub(crate) saved_at: Nanos,
    pub(crate) stage: Stage,
    pub(crate) joins: u64,
    pub(crate) backoff: Duration,
    pub(crate) leavers: Vec<Leaver>,
    /// etcd does not answer, as far as the last answer tells.
    pub(crate) away: bool,
    pub(crate) reports: VecDeque<Report>,
    pub(crate) changes: VecDeque<Changes>,
    pub(crate) commands: VecDeque<Command>,
    /// Every incarnation of this process that is over: a join that etcd runs late may bring one back.
    pub(crate) past: BTreeSet<Incarnation>,
    /// Longer lock-delays that came while a join was under way.
    pub(crate) promises: Vec<Duration>,
    /// Only the last alarm that was set counts.
    pub(crate) alarm: Option<(Nanos, u64)>,
    pub(crate) waiting: Vec<Approach>,
    pub(crate) stopping: Option<Nanos>,
}

pub(crate) enum Stage {
    Outside { try_at: Time, joining: Option<Joining> },
    Inside(Box<Session>),
}

/// A join under way.
#[derive(Clone, Debug)]
pub(crate) struct Joining {
    pub(crate) number: u64,
    pub(crate) me: Incarnation,
    pub(crate) era: u64,
    /// What it says of this replica.
    pub(crate) value: MemberValue,
}

pub(crate) struct Session {
    pub(crate) number: u64,
    pub(crate) me: Incarnation,
    pub(crate) created: Revision,
    pub(crate) confirmed: Revision,
    pub(crate) replica: Replica,
    pub(crate) names: (Revision, Rc<Names>),
    /// A config whose names are on their way to etcd.
    pub(crate) renaming: Option<usize>,
    pub(crate) counted: Option<Counted>,
    pub(crate) queues: BTreeMap<Resource, BTreeMap<Revision, u64>>,
    pub(crate) seen: Revision,
    pub(crate) proposals: BTreeMap<Resource, Proposal>,
    pub(crate) sending: usize,
    pub(crate) held_back: BTreeSet<Resource>,
    pub(crate) listing: bool,
    pub(crate) listed_at: Option<Nanos>,
    pub(crate) stream: u64,
    pub(crate) joined_at: Time,
    pub(crate) promises: Vec<Duration>,
    pub(crate) hooks: Hooks,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaver {
    pub(crate) incarnation: Incarnation,
    pub(crate) counted: Option<Counted>,
    pub(crate) leaving: bool,
    /// Not before this.
    pub(crate) retry_at: Nanos,
}

impl Leaver {
    pub(crate) fn new(incarnation: Incarnation, counted: Option<Counted>) -> Self {
        Self { incarnation, counted, leaving: false, retry_at: 0 }
    }
}

/// What a watch says.
pub(crate) struct Changes {
    pub(crate) stream: u64,
    /// None: what comes next is compacted away.
    pub(crate) news: Option<Vec<Rc<Entry>>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Command {
    Input(Input),
    Left(Resource),
    Prove(Resource, Token, bool),
    Promise(Duration),
    Rename(usize),
    Expired,
}

/// A request before its gate.
#[derive(Clone, Debug)]
pub(crate) struct Approach {
    pub(crate) resource: usize,
    pub(crate) token: Token,
    /// By which it was claimed last.
    pub(crate) table: Rc<Table>,
    pub(crate) names: Rc<[Resource]>,
    /// Under which names it has asked for the raise, and for unknown outcomes to be left to an operator.
    pub(crate) asked: Vec<Resource>,
    pub(crate) asked_to_block: Vec<Resource>,
    pub(crate) gives_up_at: Nanos,
}

impl Host {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            process: None,
            disk: Memory::default(),
            file: 0,
            died_at: 0,
            paused_until: None,
            stalled_until: None,
            unplugged_until: 0,
            deferred: Vec::new(),
        }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused_until.is_some()
    }

    /// Whether the store's thread does anything.
    pub(crate) fn drives(&self) -> bool {
        self.process.is_some() && !self.is_paused() && self.stalled_until.is_none()
    }

    pub(crate) fn session(&mut self) -> Option<&mut Session> {
        match &mut self.process.as_mut()?.stage {
            Stage::Inside(session) => Some(session),
            Stage::Outside { .. } => None,
        }
    }

    pub(crate) fn process_number(&self) -> u64 {
        self.process.as_ref().map_or(0, |process| process.number)
    }
}

impl Process {
    pub(crate) fn start(
        number: u64,
        (now, shown): (Nanos, Time),
        timing: Timing,
        memory: Memory,
        (config, tables): (usize, Tables),
    ) -> Self {
        let validity = Arc::new(Validity::fenced(Duration::ZERO));
        let left: Arc<Mutex<Vec<Resource>>> = Arc::default();
        let heard = left.clone();
        let ledger = Ledger::with_validity(validity.clone(), move |resource| {
            heard.lock().expect("nothing panics while it holds this").push(resource.clone());
        });
        Self {
            number,
            ledger,
            validity,
            left,
            until: None,
            timing,
            lock_delay: timing.lock_delay,
            tables,
            config,
            has_served: false,
            names_looked_at: now,
            memory,
            saved_at: now,
            stage: Stage::Outside { try_at: shown, joining: None },
            joins: 0,
            backoff: Duration::from_millis(50),
            leavers: Vec::new(),
            away: false,
            reports: VecDeque::new(),
            changes: VecDeque::new(),
            commands: VecDeque::new(),
            past: BTreeSet::new(),
            promises: Vec::new(),
            alarm: None,
            waiting: Vec::new(),
            stopping: None,
        }
    }

    /// A new incarnation is valid. The real validity counts for it, without an end of its own.
    pub(crate) fn begin(&mut self, until: Time) -> Counted {
        self.until = Some(until);
        self.validity.begin(Moment::from_nanos(u64::MAX - 1))
    }

    /// Valid for longer. False if it is over: then it stays so.
    pub(crate) fn extend(&mut self, now: Time, until: Time) -> bool {
        match self.until {
            Some(known) if known > now => {
                self.until = Some(known.max(until));
                true
            }
            _ => false,
        }
    }

    /// False if that was so.
    pub(crate) fn fence(&mut self) -> bool {
        self.until = None;
        self.validity.fence()
    }

    /// Whether requests may pass.
    pub(crate) fn holds(&self, now: Time) -> bool {
        let margin = self.timing.validity / 20;
        self.until.is_some_and(|until| now + margin < until)
    }

    pub(crate) fn session(&self) -> Option<&Session> {
        match &self.stage {
            Stage::Inside(session) => Some(session),
            Stage::Outside { .. } => None,
        }
    }
}
