//! Electors: whole processes with a clock, a way to etcd, leases, one watch, and a candidate for every resource that
//! elections are held for. After `elector/src`, call by call; what is pure there runs here.
//!
//! `campaign.rs` queues up and waits for the turn, `seal.rs` for the gateways, `term.rs` leads, renews, resigns and
//! loses, with the job that writes; `leases.rs` keeps leases and moves keys, `mirror.rs` watches, `life.rs` is what
//! happens to the process, and `check.rs` what has to be true of all of them.

mod campaign;
mod check;
mod leases;
mod life;
mod mirror;
mod seal;
mod term;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use highgate::replica::{Revision, Time};
use highgate_elector::backend::etcd::graves::Graves;
use highgate_elector::backend::etcd::ground::Ground;
use highgate_elector::backend::etcd::lease::Lease;
use highgate_elector::{Resource, Token};

use super::clock::{Clock, Nanos};
use super::etcd::Reply;
use super::world::{Event, World};
use mirror::Mirror;
use term::Term;

/// Before etcd is asked again when it and the watch do not agree, or when it does not answer.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Elector {
    pub(crate) clock: Clock,
    /// The number of the process; 0: there is none.
    pub(crate) life: u64,
    pub(crate) paused_until: Option<Nanos>,
    pub(crate) unplugged_until: Nanos,
    /// What happened to the process while it was paused.
    pub(crate) deferred: Vec<Event>,
    inbox: VecDeque<Word>,
    /// By name.
    pool: BTreeMap<u64, Lease>,
    mirror: Mirror,
    graves: Graves,
    /// By resource.
    candidates: BTreeMap<usize, Candidate>,
    /// What the clock showed as 0, for code that counts by `Instant`.
    origin: Instant,
}

/// What a process hears.
enum Word {
    Answer(Ask, Option<Reply>),
    Changes(u64, Option<Vec<std::rc::Rc<super::etcd::Entry>>>),
}

/// The wish of a process to lead one resource, and how far it has come.
struct Candidate {
    /// What was begun under another number counts no more.
    step: u64,
    at: At,
    /// When the campaign began, and when the candidacy did.
    asked: Time,
    since: Time,
    failures: u32,
    seat: Option<Seat>,
    claim: Option<Claim>,
    round: Round,
    news: Option<News>,
    term: Option<Term>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Nothing, for a while; or it is asked for a lease.
    Rest,
    Entering,
    /// First at once, on a lease that has to be extended.
    Extending,
    /// For the turn.
    Waiting,
    /// `missing`: the watch says that the key is gone.
    Confirming {
        sealing: bool,
        missing: bool,
    },
    Raising,
    /// For the gateways.
    Sealing,
    /// Granted, but so late that it has to be renewed before the job is told.
    Claiming {
        granted: Time,
    },
    Leading,
    /// The job has stopped; what it sent may be under way.
    Draining,
}

#[derive(Clone, Copy, Debug)]
struct Seat {
    lease: u64,
    created: Option<Revision>,
    /// Its key was taken although its lease should have lived, or etcd is another one: nothing is promised.
    wronged: bool,
}

/// A candidate that leads, as etcd knew it in one transaction.
#[derive(Clone, Debug)]
struct Claim {
    token: Token,
    created: Revision,
    since: Time,
    ground: Ground,
    /// When it was asked, for the judge.
    looked_at: Nanos,
}

/// Two questions at once: whether the lease lives, and whether the key does. The answers; inside, none of one that
/// did not come.
#[derive(Clone, Debug, Default)]
struct Round {
    number: u64,
    sent: Time,
    alive: Option<Option<bool>>,
    answer: Option<Option<Reply>>,
}

/// What has changed since somebody began to wait.
#[derive(Clone, Debug, Default)]
struct News {
    /// The mark; inside, none if something may have been missed.
    mark: Option<Option<Vec<u8>>>,
    own: bool,
}

/// What an elector asks etcd for.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Grant {
        resource: usize,
        step: u64,
        lease: u64,
        sent: Time,
    },
    Enter {
        resource: usize,
        step: u64,
    },
    Raise {
        resource: usize,
        step: u64,
    },
    AnyMember {
        resource: usize,
        step: u64,
    },
    Confirm {
        resource: usize,
        round: u64,
    },
    Check {
        resource: usize,
        round: u64,
    },
    KeepAlive(Extension),
    Remove {
        name: u64,
        resource: usize,
        created: Option<Revision>,
        resigned: Option<u64>,
    },
    Carrier {
        name: u64,
        lease: u64,
    },
    /// With the keys that it is to carry.
    CarrierExtended {
        name: u64,
        carrier: u64,
        keys: Vec<(Resource, Revision)>,
    },
    Relocated {
        name: u64,
        carrier: u64,
        keys: Vec<(Resource, Revision)>,
    },
    List,
    /// How far etcd was, and what it says of its era.
    SameEtcd {
        before: Revision,
    },
    /// Nobody waits for it.
    Done,
}

/// A lease that is being extended: one etcd lease after the other.
#[derive(Clone, Debug)]
pub(crate) struct Extension {
    name: u64,
    sent: Time,
    left: Vec<u64>,
    alive: bool,
    term: u64,
    /// The candidate that waits for it and its round; else the keeper does.
    whose: Option<(usize, u64)>,
}

/// What comes after a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Begin,
    Campaign,
    Turn,
    Look,
    AskForGateways,
    ClaimAgain,
    Renew,
    /// The round with this number has taken too long.
    TooLong(u64),
    Expire,
    Work,
    Drain {
        until: Nanos,
    },
}

impl Elector {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            life: 0,
            paused_until: None,
            unplugged_until: 0,
            deferred: Vec::new(),
            inbox: VecDeque::new(),
            pool: BTreeMap::new(),
            mirror: Mirror::default(),
            graves: Graves::default(),
            candidates: BTreeMap::new(),
            origin: Instant::now(),
        }
    }

    fn instant(&self, shown: Time) -> Instant {
        self.origin + shown
    }
}

impl Seat {
    fn on(lease: u64) -> Self {
        Self { lease, created: None, wronged: false }
    }
}

impl Candidate {
    fn new() -> Self {
        Self {
            step: 0,
            at: At::Rest,
            asked: Time::ZERO,
            since: Time::ZERO,
            failures: 0,
            seat: None,
            claim: None,
            round: Round::default(),
            news: None,
            term: None,
        }
    }
}

impl World {
    fn elector_shows(&self, elector: usize) -> Time {
        self.electors[elector].clock.shows(self.now)
    }

    fn candidate(&mut self, elector: usize, resource: usize) -> Option<&mut Candidate> {
        self.electors[elector].candidates.get_mut(&resource)
    }

    /// Moves on: what was asked or set before counts no more.
    fn go(&mut self, elector: usize, resource: usize, at: At) -> u64 {
        let step = self.number();
        if let Some(candidate) = self.candidate(elector, resource) {
            candidate.step = step;
            candidate.at = at;
        }
        step
    }

    /// Something of a candidate's own, after a while by its clock.
    fn later(&mut self, elector: usize, resource: usize, after: Duration, then: Then) {
        let machine = &self.electors[elector];
        let at = machine.clock.when(machine.clock.shows(self.now) + after);
        let (life, step) = (machine.life, machine.candidates.get(&resource).map_or(0, |known| known.step));
        self.set(at, Event::Elect { elector, life, resource, step, then });
    }

    pub(crate) fn elect(&mut self, elector: usize, life: u64, resource: usize, step: u64, then: Then) {
        if self.electors[elector].life != life {
            return;
        }
        let Some(candidate) = self.candidate(elector, resource).filter(|known| known.step == step) else {
            return;
        };
        let at = candidate.at;
        match then {
            Then::Begin => self.begin_campaign(elector, resource),
            Then::Campaign => self.campaign(elector, resource),
            Then::Turn => self.turn(elector, resource),
            Then::Look => self.look_closely(elector, resource),
            Then::AskForGateways => self.ask_for_gateways(elector, resource),
            Then::ClaimAgain => {
                if let At::Claiming { granted } = at {
                    self.claim_by_renewal(elector, resource, granted);
                }
            }
            Then::Renew => self.renew_term(elector, resource),
            Then::TooLong(round) => self.round_is_over(elector, resource, round),
            Then::Expire => self.expire(elector, resource),
            Then::Work => self.work(elector, resource),
            Then::Drain { until } => self.drain(elector, resource, until),
        }
    }
}
