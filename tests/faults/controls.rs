//! Every rule broken on purpose, each in the focus in which it shows soonest; and every focus with no rule broken.
//!
//! The rules are broken in the gateway itself (`highgate::controls`), which only a debug build with the feature
//! `controls` can do. What cannot show with real processes is listed here with the reason, and nowhere else.

use std::process::ExitCode;
use std::time::Duration;
use std::{fs, io};

use crate::course::{Course, Ended};
use crate::focus::{self, Focus};
use crate::network::Network;
use crate::options::{Options, Peer};
use crate::support::judge::Kind;
use crate::{log, picture};

/// All rules of the protocol's list, in its order: the focus, or why a real run cannot show it.
const CONTROLS: [(&str, Result<&str, &str>); 27] = [
    ("per-replica-cache", Ok("handovers")),
    ("open-on-apply", Ok("handovers")),
    ("load-before-register", Ok("restarts")),
    ("no-drain", Ok("handovers")),
    ("check-then-act", Ok("handovers")),
    ("validity-from-keep-alive", Ok("islands")),
    ("validity-from-the-answer", Ok("late-answers")),
    ("fence-without-cutting", Ok("lapses")),
    ("no-check-between-chunks", Ok("uploads")),
    ("guard-dropped-on-disconnect", Ok("hang-ups")),
    ("guard-dropped-at-the-head", Ok("heads-first")),
    ("guard-dropped-at-the-cut", Ok("cuts")),
    ("seal-without-compare", Ok("handovers")),
    ("w-below-v", Ok("lapses")),
    ("client-retries-on", Ok("break-offs")),
    ("default-linger", Ok("slow-reads")),
    ("incarnation-reuse", Ok("returns")),
    ("eviction-without-tombstone", Ok("lapses")),
    ("tombstone-age-ignored", Ok("lapses")),
    ("watermark-by-any-event", Err(NO_LOSS)),
    ("draining-own-raise-only", Ok("overtakes")),
    ("join-without-seq", Err(NO_LOSS)),
    ("leave-with-requests-in-flight", Ok("departures")),
    ("older-era-open", Ok("restores")),
    ("renaming-without-the-old-name", Ok("renames")),
    ("era-without-tombstone", Ok("restores")),
    ("a-gateway-timeout-is-an-answer", Ok("give-ups")),
];
const NO_LOSS: &str =
    "it takes a watch that loses events, which a real etcd does not: simulation and model only";

/// How often the judge is asked whether the rule has shown.
pub(crate) const LOOKS: Duration = Duration::from_millis(250);
/// A focus in which less happened shows nothing.
const LEAST_HANDOVERS: usize = 3;
const LEAST_PASSED: usize = 50;

/// Breaks one rule after the other.
pub(crate) fn run(options: &Options, mut network: Result<Network, String>, seed: u64) -> ExitCode {
    if let Err(why) = is_possible(options) {
        eprintln!("{why}");
        return ExitCode::from(2);
    }
    let (mut asked, mut missed) = (0, 0);
    for (name, applies) in CONTROLS.iter().filter(|(name, _)| options.means(name)) {
        let focus = match applies {
            Ok(focus) => Focus::named(focus).expect("a focus of the list"),
            Err(why) => {
                println!("control {name}: n/a ({why})");
                continue;
            }
        };
        let course = course(options, seed, focus, Some(name));
        let (ended, back) = course.run(network);
        network = back;
        let Some(ended) = ended else { return ExitCode::SUCCESS };
        keep(&ended, name).expect("a folder of ours");
        asked += 1;
        missed += usize::from(ended.account.violations.is_empty());
        println!("control {name}: {}", outcome(&ended, focus, options, seed));
    }
    println!("{asked} controls by faults: {missed} not caught");
    ExitCode::from(u8::from(missed > 0))
}

/// The same trouble with no rule broken.
pub(crate) fn run_focuses(options: &Options, mut network: Result<Network, String>, seed: u64) -> ExitCode {
    let mut failed = 0;
    for focus in focus::ALL.iter().filter(|focus| options.means(focus.name)) {
        let (ended, back) = course(options, seed, focus, None).run(network);
        network = back;
        let Some(ended) = ended else { return ExitCode::SUCCESS };
        keep(&ended, focus.name).expect("a folder of ours");
        let failures = failures(&ended, focus);
        failed += usize::from(!failures.is_empty());
        let summary = ended.account.summary();
        let judged = if failures.is_empty() { "clean".to_owned() } else { failures.join("; ") };
        println!(
            "focus {}: {judged} ({} s, seed {seed}: {} handovers, {} writes passed, {} faults)",
            focus.name,
            options.duration.as_secs(),
            summary.handovers,
            summary.passed,
            ended.annals.faults.len(),
        );
    }
    ExitCode::from(u8::from(failed > 0))
}

/// Whether this build breaks rules, and the list is the whole of them.
fn is_possible(options: &Options) -> Result<(), String> {
    if !cfg!(feature = "controls") && options.gateway.is_none() {
        return Err("no rule can be broken in this build: cargo test --features controls".to_owned());
    }
    let known = |name: &str| highgate::controls::Rule::ALL.iter().any(|(rule, _)| *rule == name);
    let listed = |name: &str| CONTROLS.iter().any(|(control, _)| *control == name);
    let odd = CONTROLS.iter().filter(|(name, applies)| applies.is_ok() != known(name)).map(|(name, _)| *name);
    let missing = highgate::controls::Rule::ALL.iter().map(|(rule, _)| *rule).filter(|rule| !listed(rule));
    let unknown = options.only.iter().map(String::as_str).filter(|name| !listed(name));
    match odd.chain(missing).chain(unknown).next() {
        Some(name) => Err(format!("{name} is not both a rule of the gateway and one of the list")),
        None => Ok(()),
    }
}

fn course<'a>(
    options: &'a Options,
    seed: u64,
    focus: &'static Focus,
    control: Option<&'static str>,
) -> Course<'a> {
    let folder = crate::folder(options, control.unwrap_or(focus.name), seed);
    fs::create_dir_all(&folder).expect("a folder for logs");
    Course { options, peer: Peer::Highgate, seed, folder, focus: Some(focus), control }
}

fn outcome(ended: &Ended, focus: &Focus, options: &Options, seed: u64) -> String {
    let summary = ended.account.summary();
    match (ended.account.caught_after(), ended.account.violations.first()) {
        (after, Some(first)) => {
            let after = after.unwrap_or_else(|| ended.annals.clock.now());
            let what = named(first.kind);
            format!("caught after {:.1} s (focus {}, seed {seed}: {what})", after.as_secs_f64(), focus.name)
        }
        (_, None) => format!(
            "NOT CAUGHT within {} s (focus {}, seed {seed}: {} handovers, {} faults)",
            options.duration.as_secs(),
            focus.name,
            summary.handovers,
            ended.annals.faults.len()
        ),
    }
}

fn named(kind: Kind) -> &'static str {
    match kind {
        Kind::Forwarded => "forwarded after a higher token",
        Kind::TookEffect => "took effect after a higher token",
        Kind::Overlapped => "two tokens at once",
        Kind::Lied => "a writer was told what is not so",
    }
}

fn failures(ended: &Ended, focus: &Focus) -> Vec<String> {
    let mut failures = ended.troubles.clone();
    let summary = ended.account.summary();
    if let Some(first) = ended.account.violations.first() {
        let count = ended.account.violations.len();
        failures.push(format!("VIOLATED {count} times, first: {}", ended.account.tell(first)));
    }
    if summary.handovers < LEAST_HANDOVERS || summary.passed < LEAST_PASSED {
        failures.push("too little happened to show anything".to_owned());
    }
    if !focus.steps.is_empty() && ended.annals.faults.is_empty() {
        failures.push("no fault was brought about".to_owned());
    }
    failures.extend(ended.annals.skipped.keys().map(|why| format!("not done: {why}")));
    failures
}

/// For whoever looks for the cause.
fn keep(ended: &Ended, name: &str) -> io::Result<()> {
    fs::write(ended.folder.join("timeline.svg"), picture::draw(&ended.account, name))?;
    log::write(&ended.account, &ended.folder)
}
