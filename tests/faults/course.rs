//! One run: sets everything up, lets the nemesis loose for a while, lets all of it come to rest, and judges.

use std::fs::{self, File};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crate::account::Account;
use crate::annals::Annals;
use crate::chance::Chance;
use crate::clock::Clock;
use crate::crew::{Crew, Heard};
use crate::focus::Focus;
use crate::load::Load;
use crate::lookout::Lookout;
use crate::nemesis::{NAMES, Nemesis, Source};
use crate::network::Network;
use crate::options::{Options, Peer};
use crate::support::etcd::PREFIX;
use crate::support::front::Speech;
use crate::support::{Trial, trial};
use crate::words::Post;
use crate::{clocks, controls, naive};

const RESOURCES: [&str; 4] = ["a", "b", "c", "d"];
/// Candidates for each resource.
const CANDIDATES: usize = 3;
const LOCK_DELAY: Duration = Duration::from_secs(1);
/// In milliseconds.
const DRAIN_TIMEOUT: u64 = 1000;
/// Of the writers' leaderships: not much more than etcd's own least.
pub(crate) const TTL: Duration = Duration::from_secs(3);
/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(5);
/// Beyond what the protocol needs, for a busy machine to serve again after the last fault.
const SLACK: Duration = Duration::from_secs(10);

/// What is left of a run.
pub(crate) struct Ended {
    pub(crate) account: Account,
    pub(crate) annals: Annals,
    /// What went wrong beside the promise.
    pub(crate) troubles: Vec<String>,
    /// From the end of the last fault until every resource was written to again.
    pub(crate) recovered: Option<Duration>,
    pub(crate) recovery: Duration,
    pub(crate) validity: Duration,
    pub(crate) folder: PathBuf,
    /// Why packets could not be lost.
    pub(crate) no_packets: Option<String>,
    /// How far the gateways' clocks were ahead, or why they were not.
    pub(crate) clocks: Result<Vec<i64>, String>,
}

/// How the time with the nemesis ended.
#[derive(Default)]
struct Raged {
    troubles: Vec<String>,
    /// What was looked for was found before the time was over.
    shown: bool,
}

pub(crate) struct Course<'a> {
    pub(crate) options: &'a Options,
    pub(crate) peer: Peer,
    pub(crate) seed: u64,
    pub(crate) folder: PathBuf,
    /// Directed trouble rather than any.
    pub(crate) focus: Option<&'static Focus>,
    /// The rule that is broken; then the run ends as soon as that shows.
    pub(crate) control: Option<&'static str>,
}

impl Course<'_> {
    /// None if there is no etcd, which has been said then.
    pub(crate) fn run(self, network: Result<Network, String>) -> (Option<Ended>, Result<Network, String>) {
        let clocks = clocks::shifted();
        let Some(trial) = self.trial(&clocks) else { return (None, network) };
        let no_packets = network.as_ref().err().cloned();
        let crew = self.crew(&trial);
        let doors = trial.gateways.iter().map(|gateway| gateway.door.clone()).collect();
        let lookout = Lookout::start(doors, crew.doors());
        let annals = Annals::new(Clock::start());
        let resources = self.resources().iter().map(|resource| (*resource).to_owned()).collect();
        let orders = self.peer == Peer::Highgate;
        let mut nemesis = Nemesis::new(self.source(), trial, crew, network, annals, resources, orders);
        let Raged { mut troubles, shown } = self.rages(&mut nemesis);
        let recovery = nemesis.trial.timing.bound();
        // What is broken on purpose need not recover.
        let recovered = if self.control.is_some() { None } else { self.rests(&mut nemesis, &mut troubles) };
        lookout.end();
        let Nemesis { trial, crew, mut network, annals, .. } = nemesis;
        // A run that ended early leaves faults behind.
        let _: Result<(), &mut String> = network.as_mut().map(Network::restore_all);
        let (heard, stuck) = if shown { (crew.heard().clone(), Vec::new()) } else { crew.end() };
        troubles
            .extend(stuck.into_iter().map(|name| format!("writer {name} did not end when it was told to")));
        let account = account(&trial, heard, &annals, recovery);
        self.keep_words(&trial);
        let (validity, folder) = (self.validity(), self.folder);
        let ended =
            Ended { account, annals, troubles, recovered, recovery, validity, folder, no_packets, clocks };
        (Some(ended), network)
    }

    fn validity(&self) -> Duration {
        self.focus.map_or_else(|| self.options.validity(self.seed), Focus::validity)
    }

    /// What is written to: only one if the gateways have one name for everything.
    fn resources(&self) -> &'static [&'static str] {
        if self.focus.is_some_and(|focus| focus.one_name) { &RESOURCES[..1] } else { &RESOURCES }
    }

    fn source(&self) -> Source {
        let chance = Chance::of(self.seed, "nemesis");
        match self.focus {
            Some(focus) => Source::Script { steps: focus.steps, next: 0, chance },
            None => Source::Chance(chance),
        }
    }

    fn trial(&self, clocks: &Result<Vec<i64>, String>) -> Option<Trial> {
        let lock_delay = self.focus.map_or(LOCK_DELAY, Focus::lock_delay);
        let drain_timeout = self.focus.map_or(DRAIN_TIMEOUT, |focus| focus.drain_timeout);
        let speech = Speech { tls: self.options.tls, h2: self.options.h2 };
        let builder =
            trial("faults").relayed().validity(self.validity()).lock_delay(lock_delay).speaking(speech);
        let builder = builder
            .route("tokens", "issued")
            .route("drain_timeout", format!("{drain_timeout}ms"))
            .route("hold_timeout", "1500ms");
        let builder = if self.focus.is_some_and(|focus| focus.narrow) { builder.narrow() } else { builder };
        let builder = match self.focus.is_some_and(|focus| focus.one_name) {
            true => builder.route("tokens", "trusted").route("resource", NAMES[0]),
            false => builder,
        };
        let builder = builder.clocks(clocks.as_deref().unwrap_or_default());
        let builder = match (self.peer, &self.options.gateway) {
            (Peer::Highgate, Some(program)) => builder.program(program),
            (Peer::Highgate, None) => builder,
            (Peer::Naive, _) => builder.stand_in(naive::in_memory),
            (Peer::NaiveEtcd, _) => builder.stand_in(naive::in_etcd),
        };
        let control = self.control.map(|name| ("HIGHGATE_CONTROL".to_owned(), name.to_owned()));
        let with = |builder: crate::support::trial::Builder, (name, value): &(String, String)| {
            builder.env(name, value)
        };
        self.options.gateway_env.iter().chain(&control).fold(builder, with).start()
    }

    fn crew(&self, trial: &Trial) -> Crew {
        let load = self.focus.map_or_else(Load::usual, |focus| (focus.load)());
        let nodes: Vec<_> = trial.etcd().ports().iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let sealed = if load.sealed { "yes" } else { "no" };
        let url = format!("etcd://{}{PREFIX}?sealed={sealed}", nodes.join(","));
        let post = |resource: &str, number: usize| Post {
            name: format!("{resource}{number}"),
            resource: resource.to_owned(),
            url: url.clone(),
            ttl_ms: TTL.as_millis() as u64,
            seed: self.seed,
            load: load.clone(),
        };
        let posts =
            self.resources().iter().flat_map(|resource| (0..CANDIDATES).map(|number| post(resource, number)));
        let errors = File::create(self.folder.join("writers.log")).expect("a folder of ours");
        Crew::start(posts.collect(), errors)
    }

    /// Until the time is over, or what was looked for is found. Says what went wrong beside the promise.
    fn rages(&self, nemesis: &mut Nemesis) -> Raged {
        let began = Instant::now();
        let mut next = began + if self.control.is_some() { controls::LOOKS } else { PROGRESS };
        let mut raged = Raged::default();
        while began.elapsed() < self.options.duration {
            nemesis.step();
            raged.troubles = nemesis.crashed();
            if !raged.troubles.is_empty() && self.control.is_none() {
                return raged;
            }
            if Instant::now() >= next {
                let asked = Instant::now();
                raged.shown = self.looks(nemesis);
                if raged.shown {
                    return raged;
                }
                // The nemesis waits for it: in a long run it is asked for less often.
                let pause = if self.control.is_some() { controls::LOOKS } else { PROGRESS };
                next = asked + pause.max(20 * asked.elapsed());
            }
            thread::sleep(Duration::from_millis(5));
        }
        raged
    }

    /// Says how far it has come, unless a rule is broken; whether what was looked for is found.
    fn looks(&self, nemesis: &Nemesis) -> bool {
        if self.control.is_some() {
            return !told(nemesis).violations.is_empty();
        }
        let found = !self.progress(nemesis).violations.is_empty();
        found && self.options.expect_violation && self.peer == Peer::Highgate
    }

    fn progress(&self, nemesis: &Nemesis) -> Account {
        let account = told(nemesis);
        let summary = account.summary();
        println!(
            "{:6.1} s  {} handovers, {} writes passed, {} refused, {} unknown; {} faults, {} under way; {} violations",
            nemesis.annals.clock.now().as_secs_f64(),
            summary.handovers,
            summary.passed,
            summary.refused,
            summary.unknown,
            nemesis.annals.faults.len(),
            nemesis.annals.under_way(),
            account.violations.len(),
        );
        account
    }

    /// After the last fault: everything serves again, in time, by itself.
    fn rests(&self, nemesis: &mut Nemesis, troubles: &mut Vec<String>) -> Option<Duration> {
        let timing = nemesis.trial.timing;
        let limit = 2 * timing.validity + timing.bound() + TTL + SLACK;
        if !nemesis.heal(limit) {
            troubles.push("a fault could not be taken back".to_owned());
        }
        let healed = nemesis.annals.clock.now();
        let mut left = Vec::new();
        while nemesis.annals.clock.now() - healed < limit {
            left = unserved(nemesis, healed);
            if left.is_empty() {
                return Some(nemesis.annals.clock.now() - healed);
            }
            thread::sleep(Duration::from_millis(20));
        }
        troubles
            .extend(left.into_iter().map(|what| format!("stalled: {limit:?} after the last fault {what}")));
        None
    }

    /// What the gateways have said, for whoever looks for a cause.
    fn keep_words(&self, trial: &Trial) {
        for gateway in &trial.gateways {
            let file = self.folder.join(format!("{}.log", gateway.name));
            fs::write(file, gateway.words()).expect("a folder of ours");
        }
    }
}

/// What has happened so far.
fn told(nemesis: &Nemesis) -> Account {
    let heard = nemesis.crew.heard().clone();
    account(&nemesis.trial, heard, &nemesis.annals, nemesis.trial.timing.bound())
}

fn account(trial: &Trial, heard: Heard, annals: &Annals, recovery: Duration) -> Account {
    // After what the writers were told, so that every effect that they were told of is in it.
    let entries = trial.upstream.record().entries().clone();
    Account::new(annals.clock, entries, heard, annals.faults.clone(), annals.windows(recovery))
}

/// What does not serve yet since this moment.
fn unserved(nemesis: &Nemesis, since: Duration) -> Vec<String> {
    let heard = nemesis.crew.heard();
    let clock = nemesis.annals.clock;
    let is_written = |resource: &&String| {
        let is_it = |(name, wrote): &(String, crate::words::Wrote)| {
            name == *resource && wrote.led && wrote.outcome.passed() && clock.of(wrote.sent) > since
        };
        heard.wrote.iter().rev().any(is_it)
    };
    let resources = nemesis.resources.iter().filter(|resource| !is_written(resource));
    let resources = resources.map(|resource| format!("nobody writes to {resource}"));
    let gateways = nemesis.trial.gateways.iter().filter(|gateway| !gateway.door.says_ready());
    resources.chain(gateways.map(|gateway| format!("{} is not ready", gateway.name))).collect()
}
