//! One exploration, what is seen of it while it goes on, and what came of it.

use std::thread;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Path};

use crate::action::Action;
use crate::command::Arguments;
use crate::control::Control;
use crate::naming::Name;
use crate::setting::Setting;
use crate::world::{Protocol, World};

/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);

pub(crate) struct Explored {
    pub(crate) unique: usize,
    pub(crate) is_fine: bool,
}

/// Every state of a setting.
pub(crate) fn explore(arguments: &Arguments, setting: Setting) -> Explored {
    let began = Instant::now();
    let checker = Protocol::new(setting, None).checker().threads(threads());
    let checker = watched(setting.name, checker.finish_when(HasDiscoveries::AnyFailures).spawn_dfs());
    println!(
        "setting {}: {} states, {} unique, depth {}, in {:.1} s",
        setting.name,
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth(),
        began.elapsed().as_secs_f64()
    );
    let found = checker.discoveries();
    let mut is_fine = true;
    for property in checker.model().properties() {
        let path = found.get(property.name);
        if path.is_some() != property.expectation.discovery_is_failure() {
            continue;
        }
        is_fine = false;
        let never = if path.is_none() { " never" } else { "" };
        println!("VIOLATED in {}:{never} {}", setting.name, property.name);
        if let Some(path) = path.filter(|_| arguments.trace) {
            tell(path);
        }
    }
    Explored { unique: checker.unique_state_count(), is_fine }
}

/// Until a broken rule shows.
pub(crate) fn catch(arguments: &Arguments, name: &str, control: Control, limit: Duration) -> bool {
    let began = Instant::now();
    let setting = control.setting();
    let checker = Protocol::new(setting, Some(control)).checker().threads(threads()).timeout(limit);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_dfs().join();
    let (took, unique) = (began.elapsed().as_secs_f64(), checker.unique_state_count());
    let properties = checker.model().properties();
    let failures = properties.iter().filter(|property| property.expectation.discovery_is_failure());
    let found = checker.discoveries();
    let caught = failures.filter_map(|property| Some((property.name, found.get(property.name)?))).next();
    let Some((what, path)) = caught else {
        println!("control {name}: NOT CAUGHT within {took:.1} s ({unique} states of {})", setting.name);
        return false;
    };
    println!("control {name}: caught after {took:.1} s ({unique} states of {}: {what})", setting.name);
    if arguments.trace {
        tell(path);
    }
    true
}

fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn watched<C: Checker<Protocol>>(name: &str, mut checker: C) -> C {
    let (began, handles) = (Instant::now(), checker.handles());
    let mut next = PROGRESS;
    while !handles.iter().all(thread::JoinHandle::is_finished) {
        thread::sleep(Duration::from_millis(20));
        if began.elapsed() >= next {
            next += PROGRESS;
            let (unique, depth) = (checker.unique_state_count(), checker.max_depth());
            println!(
                "{:6.0} s  {name}: {unique} unique states, depth {depth}",
                began.elapsed().as_secs_f64()
            );
        }
    }
    for handle in handles {
        handle.join().expect("the checker's threads do not panic");
    }
    checker
}

/// How it comes about: the time, what happens, and what is so after it.
fn tell(path: &Path<World, Action>) {
    let steps = path.clone().into_vec();
    let mut before = String::new();
    for (world, action) in steps {
        println!("    {:4.1} s  {before:<24} {}", world.now().as_secs_f64(), sketch(&world));
        before = action.map_or(String::new(), |action| format!("{action:?}"));
    }
}

fn sketch(world: &World) -> String {
    let mut text = String::new();
    for name in Name::ALL.into_iter().filter(|name| world.is_known_by(*name)) {
        let record = &world.etcd.records[name as usize];
        text += &format!("{name:?}: {:?} {} at {}", record.state, record.token, record.modified);
        for gateway in &world.gateways {
            let gate = gateway.gate(name);
            let open = if gate.is_open() { "open" } else { "shut" };
            let checks = if gateway.table.names.contains(name) { "" } else { " unused" };
            text += &format!("  [{open} {} held {}{checks}]", gate.token(), gate.held());
        }
        text += "  ";
    }
    let under_way = world.flights.iter().filter(|flight| flight.is_under_way(world.now()));
    let tokens: Vec<u64> = under_way.map(|flight| flight.token).collect();
    text + &format!("under way {tokens:?}")
}
