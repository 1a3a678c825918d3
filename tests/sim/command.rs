//! The command line: which seeds are run, and what is told of them.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use super::control::Control;
use super::tally::Tally;
use super::trace::format_millis;
use super::world::{self, Order, Outcome};

const HELP: &str = "\
Simulates replicas of the gateway over a fake etcd, in virtual time.
  cargo test --test sim                              the usual seeds, and every control
  cargo test --release --test sim -- --seeds 20000   many seeds [--from FIRST] [--jobs THREADS]
  cargo test --release --test sim -- --seed 7 --trace [--lines 300]
  cargo test --release --test sim -- --controls      only the controls [--limit SEEDS]
  cargo test --release --test sim -- --control 'W < V' [--seed 7 --trace]";

/// As many as a debug build runs in a few seconds.
const USUAL_SEEDS: u64 = 150;
/// A control that is not caught in so many runs is not caught.
const CONTROL_LIMIT: u64 = 3000;
const LINES: usize = 150;

#[derive(Debug, Default)]
struct Arguments {
    seed: Option<u64>,
    seeds: Option<u64>,
    from: u64,
    jobs: Option<usize>,
    lines: Option<usize>,
    limit: Option<u64>,
    trace: bool,
    controls: bool,
    control: Option<Control>,
    help: bool,
    /// What `cargo test` was asked to run, if that is not everything.
    filter: Option<String>,
    list: bool,
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
    let fine = match (seed, control) {
        _ if arguments.help || arguments.list => {
            println!("{}", if arguments.help { HELP } else { "" });
            true
        }
        (Some(seed), control) => one(&arguments, seed, control),
        (None, Some(control)) => catch(&arguments, &[control]),
        (None, None) if arguments.controls => catch(&arguments, &Control::ALL),
        (None, None) if seeds.is_some() => many(&arguments, from, seeds.unwrap_or_default()),
        (None, None) => usual(&arguments),
    };
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What `cargo test` runs, with a filter what of it is meant. The controls take minutes: `--controls`.
fn usual(arguments: &Arguments) -> bool {
    let meant = arguments.filter.as_deref().is_none_or(|filter| "sim::seeds".contains(filter));
    !meant || many(arguments, arguments.from, USUAL_SEEDS)
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
    let names = || Control::ALL.map(Control::name).join("\n  ");
    Control::ALL
        .into_iter()
        .find(|control| control.name() == name)
        .ok_or_else(|| format!("there is no control {name:?}; there are\n  {}", names()))
}

/// Once more, to see what happened.
fn one(arguments: &Arguments, seed: u64, control: Option<Control>) -> bool {
    let order = Order { seed, focus: control.map(Control::focus), control, traced: true };
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

/// Runs seeds until one of them fails.
fn many(arguments: &Arguments, from: u64, count: u64) -> bool {
    let started = Instant::now();
    let (next, failed) = (AtomicU64::new(from), AtomicU64::new(u64::MAX));
    let tally = Mutex::new(Tally::default());
    let work = || {
        let mut own = Tally::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= from + count || failed.load(Ordering::Relaxed) < seed {
                break;
            }
            let outcome = world::run(Order { seed, focus: None, control: None, traced: false });
            own.add(&outcome.tally);
            if outcome.violation.is_some() {
                failed.fetch_min(seed, Ordering::Relaxed);
            }
        }
        tally.lock().expect("nothing panics while it holds this").add(&own);
    };
    thread::scope(|scope| {
        for _ in 0..jobs(arguments) {
            scope.spawn(work);
        }
    });
    let failed = failed.into_inner();
    if failed < u64::MAX {
        one(arguments, failed, None);
        println!("again: cargo test --release --test sim -- --seed {failed} --trace");
        return false;
    }
    let took = started.elapsed().as_secs_f64();
    println!("{count} seeds from {from}: no violation, in {took:.1} s");
    let tally = tally.into_inner().expect("nobody panicked");
    let mut vacuous = Vec::new();
    for (name, times) in tally.rows() {
        println!("{times:>12}  {name}");
        vacuous.extend((times == 0).then_some(name));
    }
    if count >= USUAL_SEEDS && !vacuous.is_empty() {
        println!("never happened, so nothing was shown: {}", vacuous.join(", "));
        return false;
    }
    true
}

fn jobs(arguments: &Arguments) -> usize {
    arguments.jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
}

/// Each control has to be caught, by seeds that are fine without it.
fn catch(arguments: &Arguments, controls: &[Control]) -> bool {
    let limit = arguments.limit.unwrap_or(CONTROL_LIMIT);
    let next = AtomicU64::new(0);
    let rows = Mutex::new(Vec::new());
    let work = || {
        while let Some(place) = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).ok()
            && let Some(control) = controls.get(place)
        {
            let row = catch_one(*control, limit);
            rows.lock().expect("nothing panics while it holds this").push((place, row));
        }
    };
    thread::scope(|scope| {
        for _ in 0..jobs(arguments) {
            scope.spawn(work);
        }
    });
    let mut rows = rows.into_inner().expect("nobody panicked");
    rows.sort_by_key(|(place, _)| *place);
    println!("{:<40} {:>8}  as", "control", "seeds");
    for (_, (text, _)) in &rows {
        println!("{text}");
    }
    rows.iter().all(|(_, (_, caught))| *caught)
}

fn catch_one(control: Control, limit: u64) -> (String, bool) {
    let name = control.name();
    let order =
        |seed, control| Order { seed, focus: Some(Control::focus(control)), control: None, traced: false };
    for seed in 0..limit {
        let broken = Order { control: Some(control), ..order(seed, control) };
        let Some(violation) = world::run(broken).violation else { continue };
        if (violation.what == "liveness") != control.is_about_progress() {
            continue;
        }
        if let Some(innocent) = world::run(order(seed, control)).violation {
            return (format!("{name:<40} {:>8}  seed {seed} fails without it: {innocent:?}", "-"), false);
        }
        let at = format_millis(violation.at);
        return (format!("{name:<40} {:>8}  {} at {at} ms", seed + 1, violation.what), true);
    }
    (format!("{name:<40} {:>8}  NOT CAUGHT", "-"), false)
}
