//! The nemesis: brings the planned faults about and takes them back, storm after calm.
//!
//! One thread owns everything that can be harmed, so nothing is harmed twice at once: every fault names what it
//! occupies, and what is occupied is left alone. `deeds` and `losses` know how each fault is done.

mod deeds;
mod losses;
mod renames;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::annals::Annals;
use crate::chance::Chance;
use crate::crew::Crew;
use crate::focus::Step;
use crate::network::Network;
use crate::plan::Plan;
use crate::support::{Timing, Trial};
use deeds::Undo;
pub(crate) use renames::NAMES;

/// Before the first fault, for leaders to be elected.
const FIRST: Duration = Duration::from_secs(2);
/// How long faults keep coming.
const STORM: Duration = Duration::from_secs(12);
/// How long a calm lasts beyond the last fault's aftermath: there availability is measured.
const CALM: Duration = Duration::from_secs(5);
/// How many faults may be under way: one in the first storm, one more in each of the next, then again.
const AT_ONCE: [usize; 3] = [1, 2, 3];
/// Before what could not be taken back is tried again.
const AGAIN: Duration = Duration::from_millis(100);

pub(crate) struct Nemesis {
    source: Source,
    pub(crate) trial: Trial,
    pub(crate) crew: Crew,
    /// Or why packets cannot be lost here.
    pub(crate) network: Result<Network, String>,
    pub(crate) annals: Annals,
    pub(crate) resources: Vec<String>,
    /// How often each gateway's config was given another name for the resource.
    renamed: Vec<usize>,
    /// Operators' orders are understood.
    takes_orders: bool,
    /// Of etcd, once there is one.
    backup: Option<PathBuf>,
    active: Vec<Active>,
    began: Instant,
    next: Instant,
    /// When leadership is to change hands next.
    handover: Option<Instant>,
}

/// Where the next fault comes from.
pub(crate) enum Source {
    /// Any, in storms with calms between them.
    Chance(Chance),
    /// These, one after the other, again and again, without a calm.
    Script { steps: &'static [Step], next: usize, chance: Chance },
}

/// A fault under way.
struct Active {
    number: usize,
    /// What nobody else may harm meanwhile.
    occupies: Vec<String>,
    until: Instant,
    undo: Undo,
}

/// A fault that was brought about.
struct Deed {
    victim: String,
    undo: Undo,
}

impl Source {
    fn next(&mut self, timing: Timing) -> Option<Plan> {
        match self {
            Self::Chance(chance) => Some(Plan::draw(chance, timing)),
            Self::Script { steps, next, chance } => {
                let step = steps.get(*next % steps.len().max(1))?;
                *next += 1;
                Some(step.plan(chance))
            }
        }
    }
}

impl Nemesis {
    pub(crate) fn new(
        source: Source,
        trial: Trial,
        crew: Crew,
        network: Result<Network, String>,
        annals: Annals,
        resources: Vec<String>,
        takes_orders: bool,
    ) -> Self {
        let began = Instant::now();
        let first = if matches!(source, Source::Script { .. }) { FIRST / 2 } else { FIRST };
        let (active, next) = (Vec::new(), began + first);
        let (handover, backup) = (None, None);
        let renamed = vec![0; trial.gateways.len()];
        Self {
            source,
            trial,
            crew,
            network,
            annals,
            resources,
            renamed,
            takes_orders,
            backup,
            active,
            began,
            next,
            handover,
        }
    }

    /// Does what is due. Called again and again.
    pub(crate) fn step(&mut self) {
        self.take_back(|active| active.until <= Instant::now());
        if self.handover.take_if(|due| *due <= Instant::now()).is_some() {
            self.crew.doors().resign();
        }
        if Instant::now() >= self.next
            && self.active.len() < self.at_once()
            && let Some(plan) = self.source.next(self.trial.timing)
        {
            self.strike(plan);
            self.next = Instant::now() + plan.pause;
        }
    }

    /// Gateways whose process has ended although nobody has harmed it.
    pub(crate) fn crashed(&mut self) -> Vec<String> {
        let active = &self.active;
        let is_busy = |name: &String| active.iter().any(|active| active.occupies.contains(name));
        let gateways = self.trial.gateways.iter_mut().filter(|gateway| !is_busy(&gateway.name));
        let crashed = gateways.filter_map(|gateway| gateway.has_ended().then(|| gateway.name.clone()));
        crashed.map(|name| format!("{name} ended by itself")).collect()
    }

    /// Takes everything back; false if something of it could not be within this time.
    pub(crate) fn heal(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while !self.active.is_empty() && Instant::now() < deadline {
            self.take_back(|_| true);
            std::thread::sleep(AGAIN);
        }
        self.active.is_empty()
    }

    /// How many faults there may be now: none in a calm.
    fn at_once(&self) -> usize {
        if matches!(self.source, Source::Script { .. }) {
            return usize::MAX;
        }
        let cycle = (STORM + self.trial.timing.bound() + CALM).as_secs_f64();
        let elapsed = self.began.elapsed().as_secs_f64();
        let storm = (elapsed / cycle) as usize;
        if elapsed % cycle < STORM.as_secs_f64() { AT_ONCE[storm % AT_ONCE.len()] } else { 0 }
    }

    fn take_back(&mut self, is_due: impl Fn(&Active) -> bool) {
        let (due, rest) = std::mem::take(&mut self.active).into_iter().partition(is_due);
        self.active = rest;
        for mut active in due {
            match self.undo(active.undo) {
                None => self.annals.ends(active.number),
                Some(undo) => {
                    active.undo = undo;
                    active.until = Instant::now() + AGAIN;
                    self.active.push(active);
                }
            }
        }
    }

    fn strike(&mut self, plan: Plan) {
        let occupies = self.occupied_by(plan);
        let is_busy = |what: &String| self.active.iter().any(|active| active.occupies.contains(what));
        if occupies.iter().any(is_busy) {
            return self.annals.skips(format!("{}: its victim was busy with another fault", plan.kind));
        }
        // Noted before it is done: nothing that it causes may seem to come before it.
        let number = self.annals.begins(plan.kind, String::new());
        match self.bring_about(plan) {
            Ok(Deed { victim, undo }) => {
                self.annals.faults[number].victim = victim;
                let until = Instant::now() + plan.length;
                self.handover = self.handover.or(plan.handover.map(|after| Instant::now() + after));
                self.active.push(Active { number, occupies, until, undo });
            }
            Err(why) => {
                self.annals.faults.truncate(number);
                self.annals.skips(format!("{}: {why}", plan.kind));
            }
        }
    }
}
