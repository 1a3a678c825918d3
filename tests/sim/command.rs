//! The command line: which seeds are run, and what is told of them. `batch.rs` and `catch.rs` run them.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use super::batch::{self, USUAL_SEEDS};
use super::catch;
use super::control::Control;
use super::world::{self, Order, Outcome};

const HELP: &str = "\
Simulates gateways and electors over a fake etcd, in virtual time.
  cargo test --test sim                                     the usual seeds
  cargo test --profile prove --test sim -- --seeds 20000    many seeds [--from FIRST] [--jobs THREADS]
  cargo test --profile prove --test sim -- --seed 7 --trace [--lines 300]
  cargo test --profile prove --test sim -- --controls       every control has to be caught [--limit SECONDS]
  cargo test --profile prove --test sim -- --control w-below-v [--seed 7 --trace]
  cargo test --profile prove --test sim -- --innocent 2000  the controls' kinds of trouble without them
                                                            [--control NAME] [--seed 7 --trace]";

/// A control that is not caught within this is not caught.
const CONTROL_LIMIT: Duration = Duration::from_secs(60);
const LINES: usize = 150;

#[derive(Debug, Default)]
pub(crate) struct Arguments {
    seed: Option<u64>,
    seeds: Option<u64>,
    from: u64,
    jobs: Option<usize>,
    lines: Option<usize>,
    limit: Option<u64>,
    innocent: Option<u64>,
    trace: bool,
    controls: bool,
    control: Option<Control>,
    help: bool,
    /// What `cargo test` was asked to run, if that is not everything.
    filter: Option<String>,
    list: bool,
}

impl Arguments {
    /// How many threads try seeds.
    pub(crate) fn threads(&self) -> usize {
        self.jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
    }

    fn limit(&self) -> Duration {
        self.limit.map_or(CONTROL_LIMIT, Duration::from_secs)
    }
}

pub(crate) fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let arguments = match parse(arguments) {
        Ok(arguments) => arguments,
        Err(wrong) => {
            eprintln!("{wrong}\n{HELP}");
            return ExitCode::FAILURE;
        }
    };
    let Arguments { seed, seeds, from, control, .. } = arguments;
    let meant = control.as_ref().map_or(Control::ALL, std::slice::from_ref);
    let fine = match (seed, seeds) {
        _ if arguments.help || arguments.list => {
            println!("{}", if arguments.help { HELP } else { "" });
            true
        }
        (Some(seed), _) => one(&arguments, seed, control),
        (None, None) if let Some(count) = arguments.innocent => catch::innocent(&arguments, meant, count),
        (None, None) if arguments.controls || control.is_some() => {
            catch::all(&arguments, meant, arguments.limit())
        }
        (None, Some(count)) => batch::run(&arguments, from, count),
        (None, None) => usual(&arguments),
    };
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What `cargo test` runs, with a filter what of it is meant. The controls take minutes: `--controls`.
fn usual(arguments: &Arguments) -> bool {
    let meant = arguments.filter.as_deref().is_none_or(|filter| "sim::seeds".contains(filter));
    !meant || batch::run(arguments, arguments.from, USUAL_SEEDS)
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut parsed = Arguments::default();
    while let Some(argument) = arguments.next() {
        let mut number = || -> Result<u64, String> {
            let text = arguments.next().ok_or_else(|| format!("{argument} needs a number"))?;
            text.parse().map_err(|_| format!("{argument} needs a number, and {text:?} is none"))
        };
        match argument.as_str() {
            "--seed" => parsed.seed = Some(number()?),
            "--seeds" => parsed.seeds = Some(number()?),
            "--from" => parsed.from = number()?,
            "--limit" => parsed.limit = Some(number()?),
            "--innocent" => parsed.innocent = Some(number()?),
            "--jobs" => parsed.jobs = usize::try_from(number()?).ok(),
            "--lines" => parsed.lines = usize::try_from(number()?).ok(),
            "--trace" => parsed.trace = true,
            "--controls" => parsed.controls = true,
            "--control" => parsed.control = Some(named(arguments.next().unwrap_or_default().as_str())?),
            "--help" | "-h" => parsed.help = true,
            "--list" => parsed.list = true,
            // Of cargo's own harness: there is nothing here that they could change.
            "--test-threads" | "--format" | "--color" => drop(arguments.next()),
            flag if flag.starts_with('-') => {}
            filter => parsed.filter = Some(filter.to_owned()),
        }
    }
    Ok(parsed)
}

fn named(name: &str) -> Result<Control, String> {
    let names = || Control::ALL.iter().map(|control| control.name()).collect::<Vec<_>>().join("\n  ");
    let known = Control::ALL.iter().copied().find(|control| control.name() == name);
    known.ok_or_else(|| format!("there is no control {name:?}; there are\n  {}", names()))
}

/// Once more, to see what happened.
pub(crate) fn one(arguments: &Arguments, seed: u64, control: Option<Control>) -> bool {
    let broken = control.filter(|_| arguments.innocent.is_none());
    let order = Order { seed, focus: control.map(Control::focus), control: broken, traced: true };
    let outcome = world::run(order);
    if arguments.trace || outcome.violation.is_some() {
        tell(&outcome, arguments.lines.unwrap_or(LINES));
    }
    match &outcome.violation {
        Some(violation) => println!("seed {seed}: {}: {}", violation.what, violation.text),
        None => println!("seed {seed}: fine"),
    }
    outcome.violation.is_none()
}

fn tell(outcome: &Outcome, lines: usize) {
    println!("{:?}", outcome.plan);
    for line in outcome.trace.last(lines) {
        println!("{line}");
    }
}
