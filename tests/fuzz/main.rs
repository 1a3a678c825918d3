//! Inputs that nobody thought of, for everything that reads what others wrote, and for the gate itself.
//!
//!     cargo test --release --test fuzz -- [--target NAME] [--seed N] [--duration 60s]
//!
//! Inputs are mutations of good and bad examples (`mutate`). An input is a function of the seed and its number, so
//! what failed fails again. `target` lists the targets, each with its properties; a panic is a failure too. A target
//! of which every input is refused, or none, shows nothing and fails as well.
#![allow(clippy::unwrap_used)]

mod claims;
mod config;
mod dice;
mod gate;
mod keys;
mod mutate;
mod options;
mod panics;
mod proxy;
mod routes;
mod signed;
mod target;
mod threads;
mod tokens;
mod values;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

use dice::Dice;
use options::Options;
use target::{Answer, Target};

/// From so many inputs on, all of them or none accepted is a fault of the target.
const ENOUGH: u64 = 300;

fn main() -> ExitCode {
    let options = Options::parse();
    let targets: Vec<Target> =
        target::all().into_iter().filter(|target| options.means(target.name)).collect();
    if options.list {
        return ExitCode::SUCCESS;
    }
    if targets.is_empty() && options.target.is_some() {
        let names: Vec<_> = target::all().iter().map(|target| target.name).collect();
        eprintln!("there is no target of that name; there are {}", names.join(", "));
        return ExitCode::FAILURE;
    }
    panics::keep();
    let share = options.duration / u32::try_from(targets.len().max(1)).unwrap_or(u32::MAX);
    let mut rows = Vec::new();
    for target in &targets {
        match run(target, &options, share) {
            Ok(row) => rows.push(row),
            Err(failure) => {
                println!("{failure}");
                return ExitCode::FAILURE;
            }
        }
    }
    rows.iter().for_each(|row| println!("{row}"));
    ExitCode::SUCCESS
}

/// A line of figures, or what went wrong.
fn run(target: &Target, options: &Options, share: Duration) -> Result<String, String> {
    let began = Instant::now();
    let (mut inputs, mut accepted) = (0, 0);
    let first = options.input.unwrap_or(0);
    while inputs == 0 || (options.input.is_none() && began.elapsed() < share) {
        let number = first + inputs;
        let input = target.input(&mut Dice::new(options.seed, number));
        let answer =
            attempt(target, &input).map_err(|wrong| tell(target, options, number, &input, &wrong))?;
        inputs += 1;
        accepted += u64::from(answer == Answer::Accepted);
    }
    if inputs >= ENOUGH && (accepted == 0 || (target.exact && accepted == inputs)) {
        return Err(format!(
            "{}: {accepted} of {inputs} inputs {}: shows nothing",
            target.name, target.accepted
        ));
    }
    let rate = inputs as f64 / began.elapsed().as_secs_f64();
    let name = target.name;
    Ok(format!("{name:<9} {inputs:>9} inputs, {rate:>8.0} a second; {accepted} {}", target.accepted))
}

fn attempt(target: &Target, input: &[u8]) -> Result<Answer, String> {
    panics::caught(|| (target.check)(input)).and_then(|answer| answer)
}

fn tell(target: &Target, options: &Options, number: u64, input: &[u8], wrong: &str) -> String {
    let smaller = mutate::shrink(input, |input| attempt(target, input).is_err());
    let (name, seed) = (target.name, options.seed);
    let again = if target.exact { "" } else { " (threads: perhaps not the first time)" };
    format!(
        "{name}: FAILED: {wrong}\n  input   \"{}\"\n  smaller \"{}\"\n  again   cargo test --release --test fuzz -- \
         --target {name} --seed {seed} --input {number}{again}",
        input.escape_ascii(),
        smaller.escape_ascii()
    )
}
