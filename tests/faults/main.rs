//! Real faults on real processes: three gateways on three etcd nodes, elected writers in processes of their own, an
//! upstream that records, and a nemesis that stops, kills, partitions and overrides. What the upstream saw is judged.
//!
//!     HIGHGATE_TEST_SERVERS=1 cargo test --release --test faults -- --duration 60s --seed 7
//!
//! It is a program of its own rather than a set of tests, so it has a command line (`options`), and prints what it
//! does while it does it. Without HIGHGATE_TEST_SERVERS=1 it says SKIPPED. The same program is also the writers
//! (`job`) and the naive proxies (`naive`), which the harness starts as processes.
#![allow(clippy::unwrap_used)]

mod account;
mod annals;
mod chance;
mod clock;
mod clocks;
mod controls;
mod course;
mod crew;
mod focus;
mod job;
mod load;
mod log;
mod lookout;
mod naive;
mod nemesis;
mod network;
mod options;
mod picture;
mod plan;
mod report;
#[path = "../cluster/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "shared with tests/cluster, which need more of it")]
mod support;
mod words;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use clap::Parser;

use course::{Course, Ended};
use focus::Focus;
use network::Network;
use options::{Options, Peer};
use report::Verdict;

fn main() -> ExitCode {
    match env::args().nth(1).as_deref() {
        Some(job::ROLE) => job::main(),
        Some(naive::ROLE) => naive::main(),
        _ => run(&Options::parse()),
    }
}

fn run(options: &Options) -> ExitCode {
    if !options.is_asked() {
        return ExitCode::SUCCESS;
    }
    if env::var_os("HIGHGATE_TEST_SERVERS").is_none() {
        eprintln!("SKIPPED faults: it needs servers; HIGHGATE_TEST_SERVERS=1 runs it");
        return ExitCode::SUCCESS;
    }
    network::move_out();
    let network = Network::set_up();
    let seed = options.seed.unwrap_or_else(|| u64::from(uuid::Uuid::new_v4().as_fields().0));
    match (options.controls, options.focuses) {
        (true, _) => controls::run(options, network, seed),
        (_, true) => controls::run_focuses(options, network, seed),
        _ => run_peers(options, network, seed),
    }
}

fn run_peers(options: &Options, mut network: Result<Network, String>, seed: u64) -> ExitCode {
    let focus = options.focus.as_deref().map(|name| Focus::named(name).expect("one of those in focus.rs"));
    let mut verdicts = Vec::new();
    for peer in &options.peer {
        let folder = folder(options, peer.name(), seed);
        fs::create_dir_all(&folder).expect("a folder for logs");
        println!("{}: seed {seed}, logs in {}", peer.name(), folder.display());
        let course = Course { options, peer: *peer, seed, folder, focus, control: None };
        let (ended, back) = course.run(network);
        network = back;
        // Whoever found no etcd has said SKIPPED and why.
        let Some(ended) = ended else { return ExitCode::SUCCESS };
        verdicts.push(conclude(&ended, options, *peer, seed));
    }
    println!("{}", report::HEADER);
    verdicts.iter().for_each(|verdict| println!("{}", verdict.row));
    ExitCode::from(u8::from(!verdicts.iter().all(|verdict| verdict.success)))
}

fn folder(options: &Options, name: &str, seed: u64) -> PathBuf {
    let built = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let usual = built.parent().unwrap_or(built).join("faults");
    options.out.clone().unwrap_or(usual).join(format!("{name}-{seed}"))
}

fn conclude(ended: &Ended, options: &Options, peer: Peer, seed: u64) -> Verdict {
    let verdict = report::verdict(ended, options, peer, seed);
    println!("{}", verdict.text);
    let title = format!("{}, seed {seed}, validity {:?}", peer.name(), ended.validity);
    fs::write(ended.folder.join("timeline.svg"), picture::draw(&ended.account, &title))
        .expect("a folder of ours");
    fs::write(ended.folder.join("summary.txt"), &verdict.text).expect("a folder of ours");
    log::write(&ended.account, &ended.folder).expect("a folder of ours");
    verdict
}
