//! One run: everything there is, the queue of what will happen, and the loop over it.
//!
//! A run is a function of its seed. Whatever happens is an [`Event`] at a true time; those of equal time happen in
//! the order in which they were set. What concerns a process that is paused waits until it goes on.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;

use highgate::config::Naming;
use highgate::replica::{Record, Revision, Time};
use highgate_elector::{Resource, Token};

use super::clients::Line;
use super::clock::{Clock, MILLI, Nanos, SECOND};
use super::control::Control;
use super::dice::Dice;
use super::elector::{Elector, Then};
use super::etcd::{Answer, Etcd, Laxity, State, Txn};
use super::flights::Flight;
use super::host::Host;
use super::judge::{Judge, Violation};
use super::naming::namings;
use super::plan::{Fault, Focus, Network, Plan};
use super::tally::Tally;
use super::trace::Trace;
use super::wire::{Call, Stream};

/// More than any run that gets on needs.
const MAX_EVENTS: u64 = 3_000_000;

#[derive(Clone, Debug)]
pub(crate) enum Event {
    // The way to etcd.
    Execute {
        call: u64,
        txn: Rc<Txn>,
    },
    Hedge {
        call: u64,
    },
    Answer {
        call: u64,
        answer: Box<Answer>,
    },
    GiveUp {
        call: u64,
    },
    Deliver {
        stream: u64,
    },
    // Processes.
    Start {
        host: usize,
    },
    Alarm {
        host: usize,
        process: u64,
        number: u64,
    },
    /// The validity ends then, unless it was extended.
    Lapse {
        host: usize,
        process: u64,
        until: Time,
    },
    Warden {
        host: usize,
        process: u64,
    },
    List {
        host: usize,
        process: u64,
        session: u64,
    },
    Poke {
        host: usize,
        process: u64,
    },
    Resume {
        host: usize,
    },
    Unstall {
        host: usize,
    },
    StopCheck {
        host: usize,
        process: u64,
    },
    /// The config file is read again.
    Reload {
        host: usize,
        process: u64,
    },
    /// The routes of a config come into force.
    SetRoutes {
        host: usize,
        process: u64,
        config: usize,
    },
    // Requests.
    Arrive {
        host: usize,
        resource: usize,
        token: Token,
    },
    LookAgain {
        host: usize,
        process: u64,
    },
    Write {
        flight: u64,
    },
    /// The next of its writes.
    Chunk {
        flight: u64,
    },
    Effect {
        flight: u64,
        draw: u32,
    },
    Respond {
        flight: u64,
    },
    Break {
        flight: u64,
    },
    /// A load balancer answers 504, which arrives.
    GaveUp {
        flight: u64,
    },
    TimedOut {
        flight: u64,
    },
    Head {
        flight: u64,
    },
    HangUp {
        flight: u64,
    },
    Complete {
        flight: u64,
    },
    Broken {
        flight: u64,
    },
    Sweep {
        flight: u64,
    },
    Release {
        flight: u64,
    },
    // Electors.
    StartElector {
        elector: usize,
    },
    ResumeElector {
        elector: usize,
    },
    /// The keeper's round over the leases.
    Keep {
        elector: usize,
        life: u64,
    },
    KeepAgain {
        elector: usize,
        life: u64,
        name: u64,
    },
    Relist {
        elector: usize,
        life: u64,
    },
    SameEtcd {
        elector: usize,
        life: u64,
    },
    Relocate {
        elector: usize,
        life: u64,
        name: u64,
        carrier: Option<(u64, Vec<(Resource, Revision)>)>,
    },
    Elect {
        elector: usize,
        life: u64,
        resource: usize,
        step: u64,
        then: Then,
    },
    Zombie {
        elector: usize,
        life: u64,
        resource: usize,
        token: Token,
        left: u64,
    },
    LeaseDue {
        lease: u64,
        late: bool,
    },
    RevokeEarly {
        lease: u64,
    },
    // People.
    Client {
        resource: usize,
    },
    Fault,
    Thaw {
        resource: usize,
    },
    Backup,
    Quiet,
    Check,
}

struct Set {
    at: Nanos,
    order: u64,
    event: Event,
}

impl PartialEq for Set {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Set {}

impl PartialOrd for Set {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Set {
    /// The earliest is the greatest: that is what a heap gives first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// What a run is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) seed: u64,
    pub(crate) focus: Option<Focus>,
    pub(crate) control: Option<Control>,
    pub(crate) traced: bool,
}

/// What became of a run.
pub(crate) struct Outcome {
    pub(crate) violation: Option<Violation>,
    pub(crate) tally: Tally,
    pub(crate) trace: Trace,
    pub(crate) plan: Plan,
}

pub(crate) struct World {
    pub(crate) now: Nanos,
    pub(crate) dice: Dice,
    pub(crate) plan: Plan,
    pub(crate) network: Network,
    pub(crate) control: Option<Control>,
    queue: BinaryHeap<Set>,
    orders: u64,
    pub(crate) numbers: u64,
    pub(crate) etcd: Etcd,
    pub(crate) backups: Vec<State>,
    pub(crate) calls: BTreeMap<u64, Call>,
    pub(crate) streams: BTreeMap<u64, Stream>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) electors: Vec<Elector>,
    /// Per host, for the control that loads before it registers.
    pub(crate) early_loads: Vec<Option<BTreeMap<Resource, Record>>>,
    pub(crate) flights: BTreeMap<u64, Flight>,
    pub(crate) resources: Vec<Resource>,
    /// What each config calls them.
    pub(crate) namings: Vec<Naming>,
    /// The config that gateways get one after the other.
    pub(crate) wanted_config: usize,
    pub(crate) lines: Vec<Line>,
    /// Set once trouble has ended.
    pub(crate) quiet_since: Option<Nanos>,
    pub(crate) done: bool,
    pub(crate) judge: Judge,
    pub(crate) tally: Tally,
    pub(crate) trace: Trace,
}

/// Runs a seed to its end, or to the first violation.
pub(crate) fn run(order: Order) -> Outcome {
    let mut world = World::new(order);
    world.begin();
    let mut events = 0;
    while !world.done && world.judge.violation.is_none() {
        let Some(Set { at, event, .. }) = world.queue.pop() else { break };
        world.now = world.now.max(at);
        world.happen(event);
        events += 1;
        if events > MAX_EVENTS {
            world.accuse("busy", || "it runs in circles: time does not get on".to_owned());
        }
    }
    let World { judge, tally, trace, plan, .. } = world;
    Outcome { violation: judge.violation, tally, trace, plan }
}

impl World {
    fn new(order: Order) -> Self {
        let Order { seed, focus, control, traced } = order;
        let mut dice = Dice::new(seed);
        let plan = Plan::draw(&mut dice, focus, control);
        let hosts =
            plan.ppm.iter().map(|ppm| Host::new(Clock::new(dice.below(1000 * SECOND), *ppm))).collect();
        let name = |index: usize| Resource::parse(&format!("r{index}")).expect("a plain name is a resource");
        let resources: Vec<Resource> = (0..plan.issued.len()).map(name).collect();
        let electors = plan.elector_ppm.iter();
        let electors =
            electors.map(|ppm| Elector::new(Clock::new(dice.below(1000 * SECOND), *ppm))).collect();
        Self {
            now: 0,
            electors,
            network: plan.network,
            control,
            queue: BinaryHeap::new(),
            orders: 0,
            numbers: 0,
            etcd: Etcd::new(laxity(control), plan.etcd_ppm),
            backups: Vec::new(),
            calls: BTreeMap::new(),
            streams: BTreeMap::new(),
            early_loads: vec![None; plan.hosts],
            hosts,
            flights: BTreeMap::new(),
            lines: resources.iter().map(|_| Line::default()).collect(),
            resources,
            namings: namings(&plan.issued, plan.faults.contains(&Fault::Rename)),
            wanted_config: 0,
            quiet_since: None,
            done: false,
            judge: Judge::default(),
            tally: Tally::default(),
            trace: Trace::new(traced),
            plan,
            dice,
        }
    }

    fn begin(&mut self) {
        for host in 0..self.hosts.len() {
            let at = self.dice.below(100 * MILLI);
            self.set(at, Event::Start { host });
        }
        for elector in 0..self.electors.len() {
            let at = self.dice.below(400 * MILLI);
            self.set(at, Event::StartElector { elector });
        }
        for resource in 0..self.resources.len() {
            let at = self.dice.below(500 * MILLI);
            self.set(at, Event::Client { resource });
        }
        if !self.plan.faults.is_empty() {
            let at = self.dice.below(2 * self.plan.fault_every);
            self.set(at, Event::Fault);
            let at = self.dice.below(self.plan.chaos / 2);
            self.set(at, Event::Backup);
        }
        self.set(self.plan.chaos, Event::Quiet);
    }

    /// A number that nothing else in this run has.
    pub(crate) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(crate) fn set(&mut self, at: Nanos, event: Event) {
        self.orders += 1;
        self.queue.push(Set { at: at.max(self.now), order: self.orders, event });
    }

    pub(crate) fn set_after(&mut self, delay: Nanos, event: Event) {
        self.set(self.now.saturating_add(delay), event);
    }

    /// What the clock of a host shows.
    pub(crate) fn shown(&self, host: usize) -> Time {
        self.hosts[host].clock.shows(self.now)
    }

    pub(crate) fn is(&self, control: Control) -> bool {
        self.control == Some(control)
    }

    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        self.trace.note(self.now, line);
    }

    pub(crate) fn accuse(&mut self, what: &'static str, how: impl FnOnce() -> String) {
        if self.judge.violation.is_none() {
            let text = how();
            self.note(|| format!("VIOLATION {what}: {text}"));
            self.judge.violation = Some(Violation { what, text, at: self.now });
        }
    }

    fn happen(&mut self, event: Event) {
        if let Some(host) = self.runs_on(&event)
            && self.hosts[host].is_paused()
        {
            return self.hosts[host].deferred.push(event);
        }
        if let Some(elector) = elector_of(&event)
            && self.electors[elector].paused_until.is_some()
        {
            return self.electors[elector].deferred.push(event);
        }
        match event {
            Event::Execute { call, txn } => self.execute(call, &txn),
            Event::Hedge { call } => self.hedge(call),
            Event::Answer { call, answer } => self.answer(call, Some(*answer)),
            Event::GiveUp { call } => self.answer(call, None),
            Event::Deliver { stream } => self.deliver(stream),
            Event::Start { host } => self.start(host),
            Event::Alarm { host, process, number } => self.alarm(host, process, number),
            Event::Lapse { host, process, until } => self.lapse(host, process, until),
            Event::Warden { host, process } => self.warden(host, process),
            Event::List { host, process, session } => self.send_list(host, process, session),
            Event::Poke { host, process } => {
                if self.hosts[host].process_number() == process {
                    self.poke(host);
                }
            }
            Event::Resume { host } => self.resume(host),
            Event::Unstall { host } => self.unstall(host),
            Event::StopCheck { host, process } => self.stop_check(host, process),
            Event::Reload { host, process } => self.reload(host, process),
            Event::SetRoutes { host, process, config } => self.set_routes(host, process, config),
            Event::Arrive { host, resource, token } => self.arrive(host, resource, token),
            Event::LookAgain { host, process } => self.look_again(host, process),
            Event::Write { flight } => self.write(flight),
            Event::Chunk { flight } => self.write_on(flight),
            Event::Effect { flight, draw } => self.take_effect(flight, draw),
            Event::Respond { flight } => self.respond(flight),
            Event::Break { flight } => self.break_off(flight),
            Event::GaveUp { flight } => self.gave_up(flight),
            Event::TimedOut { flight } => self.timed_out(flight),
            Event::Head { flight } => self.head_arrives(flight),
            Event::HangUp { flight } => self.hang_up(flight),
            Event::Complete { flight } => self.complete(flight),
            Event::Broken { flight } => self.broken(flight),
            Event::Sweep { flight } => self.sweep(flight),
            Event::Release { flight } => self.release(flight),
            Event::Client { resource } => self.client(resource),
            Event::Fault => self.fault(),
            Event::Thaw { resource } => self.thaw(resource),
            Event::Backup => self.backup(),
            Event::Quiet => self.quiet(),
            Event::Check => self.check(),
            event => self.happen_to_electors(event),
        }
    }

    fn happen_to_electors(&mut self, event: Event) {
        match event {
            Event::StartElector { elector } => self.start_elector(elector),
            Event::ResumeElector { elector } => self.resume_elector(elector),
            Event::Keep { elector, life } => self.keep(elector, life),
            Event::KeepAgain { elector, life, name } => self.keep_again(elector, life, name),
            Event::Relist { elector, life } => self.relist(elector, life),
            Event::SameEtcd { elector, life } => self.ask_for_etcd(elector, life),
            Event::Relocate { elector, life, name, carrier } => self.relocate(elector, life, name, carrier),
            Event::Elect { elector, life, resource, step, then } => {
                self.elect(elector, life, resource, step, then);
            }
            Event::Zombie { elector, life, resource, token, left } => {
                self.zombie(elector, life, resource, token, left);
            }
            Event::LeaseDue { lease, late } => self.lease_due(lease, late),
            Event::RevokeEarly { lease } => self.revoke_early(lease),
            _ => {}
        }
    }

    /// The host whose process has to run for this to happen.
    fn runs_on(&self, event: &Event) -> Option<usize> {
        match event {
            Event::Alarm { host, .. }
            | Event::List { host, .. }
            | Event::Poke { host, .. }
            | Event::Warden { host, .. }
            | Event::StopCheck { host, .. }
            | Event::Reload { host, .. }
            | Event::SetRoutes { host, .. }
            | Event::Arrive { host, .. }
            | Event::LookAgain { host, .. } => Some(*host),
            Event::Write { flight }
            | Event::Chunk { flight }
            | Event::TimedOut { flight }
            | Event::Head { flight }
            | Event::HangUp { flight }
            | Event::Complete { flight }
            | Event::Broken { flight }
            | Event::Sweep { flight }
            | Event::Release { flight } => self.flights.get(flight).map(|flight| flight.host),
            _ => None,
        }
    }
}

/// The elector whose process has to run for this to happen.
fn elector_of(event: &Event) -> Option<usize> {
    match event {
        Event::Keep { elector, .. }
        | Event::KeepAgain { elector, .. }
        | Event::Relist { elector, .. }
        | Event::SameEtcd { elector, .. }
        | Event::Relocate { elector, .. }
        | Event::Elect { elector, .. }
        | Event::Zombie { elector, .. } => Some(*elector),
        _ => None,
    }
}

fn laxity(control: Option<Control>) -> Laxity {
    let is = |one| control == Some(one);
    Laxity {
        seal_without_compare: is(Control::SealWithoutCompare),
        evict_without_tombstone: is(Control::EvictWithoutTombstone),
        era_without_tombstone: is(Control::EraWithoutTombstone),
        renew_without_member: is(Control::ValidityFromKeepAlive),
        renewed_by_late_copies: is(Control::RenewedByLateCopies),
    }
}
