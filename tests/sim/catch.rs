//! Runs with a rule broken: each has to be caught within its time, by a seed that is fine without it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::command::Arguments;
use super::control::Control;
use super::judge::Violation;
use super::plan::Focus;
use super::trace::format_millis;
use super::world::{self, Order};

/// Whether all are caught. One after the other, each with all threads.
pub(crate) fn all(arguments: &Arguments, controls: &[Control], limit: Duration) -> bool {
    let mut missed = 0;
    for control in controls {
        missed += u64::from(!catch(*control, arguments.threads(), limit));
    }
    println!("{} controls, {missed} not caught", controls.len());
    missed == 0
}

fn catch(control: Control, threads: usize, limit: Duration) -> bool {
    let (name, started) = (control.name(), Instant::now());
    let (tried, found) = try_seeds(control, threads, limit);
    let took = started.elapsed().as_secs_f64();
    let Some((seed, violation)) = found else {
        println!("control {name}: NOT CAUGHT within {} s ({tried} seeds)", limit.as_secs());
        return false;
    };
    if let Some(innocent) = world::run(order(seed, control, None)).violation {
        println!(
            "control {name}: NOT CAUGHT within {took:.1} s (seed {seed} fails without it: {innocent:?})"
        );
        return false;
    }
    let at = format_millis(violation.at);
    println!("control {name}: caught after {took:.1} s (seed {seed}: {} at {at} ms)", violation.what);
    true
}

fn order(seed: u64, control: Control, broken: Option<Control>) -> Order {
    Order { seed, focus: Some(control.focus()), control: broken, traced: false }
}

/// How many were tried, and the lowest that shows it.
fn try_seeds(control: Control, threads: usize, limit: Duration) -> (u64, Option<(u64, Violation)>) {
    let (next, over, started) = (AtomicU64::new(0), AtomicBool::new(false), Instant::now());
    let found: Mutex<Option<(u64, Violation)>> = Mutex::new(None);
    let work = || {
        while !over.load(Ordering::Relaxed) && started.elapsed() < limit {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let Some(violation) = world::run(order(seed, control, Some(control))).violation else { continue };
            if !control.shows_as(violation.what) {
                continue;
            }
            over.store(true, Ordering::Relaxed);
            let mut found = found.lock().expect("nothing panics while it holds this");
            if found.as_ref().is_none_or(|(lower, _)| seed < *lower) {
                *found = Some((seed, violation));
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    (next.into_inner(), found.into_inner().expect("nobody panicked"))
}

/// Whether the kinds of trouble in which controls show are fine without them, over so many seeds each.
pub(crate) fn innocent(arguments: &Arguments, controls: &[Control], count: u64) -> bool {
    let mut kinds: Vec<Focus> = Vec::new();
    for control in controls {
        if !kinds.contains(&control.focus()) {
            kinds.push(control.focus());
        }
    }
    kinds.into_iter().all(|focus| is_fine(focus, count, arguments.threads()))
}

fn is_fine(focus: Focus, count: u64, threads: usize) -> bool {
    let (next, failed, started) = (AtomicU64::new(0), AtomicU64::new(u64::MAX), Instant::now());
    let run = |seed| world::run(Order { seed, focus: Some(focus), control: None, traced: false });
    let work = || {
        while let seed = next.fetch_add(1, Ordering::Relaxed)
            && seed < count
        {
            if run(seed).violation.is_some() {
                failed.fetch_min(seed, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let took = started.elapsed().as_secs_f64();
    let failed = failed.into_inner();
    if failed < u64::MAX {
        println!("{focus:?}: seed {failed} of {count} fails without a control: {:?}", run(failed).violation);
        return false;
    }
    println!("{focus:?}: {count} seeds without a control, no violation, in {took:.1} s");
    true
}
