//! Commands whose processes do not stay together: other groups, other sessions, daemons. None outlives the leadership.

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{Gateway, PROGRAM, Run, beating, eventually, lives, times};

/// A process that writes beats, ignores SIGTERM, and has left the command's group by this prefix.
const WAYS: [(&str, &str); 4] = [
    ("timeout", "timeout 60 sh -c 'SCRIPT' & wait"),
    ("job-control", "set -m; sh -c 'SCRIPT' & wait"),
    ("session", "setsid sh -c 'SCRIPT' & wait"),
    // Its parent ends at once, so that nobody waits for it.
    ("daemon", "(setsid sh -c 'SCRIPT' &) ; sleep 60"),
];

/// A script with a process that gets away by this way and writes its number and beats.
fn scattered(way: &str) -> String {
    let script = format!("trap \"\" TERM; echo $$ > stray; {}", beating("beats"));
    format!("trap '' TERM; {}", way.replace("SCRIPT", &script))
}

fn is_beating(gateway: &Gateway) -> bool {
    times(&gateway.read("beats")).len() > 3
}

/// Starts a run whose command scatters by this way.
fn start(gateway: &Gateway, way: &str, args: &[&str]) -> Run {
    let args = [&["--resource", "r"][..], args].concat();
    let run = gateway.run("first", &args).sh(&scattered(way));
    eventually("beats", || is_beating(gateway));
    run
}

#[test]
fn a_run_does_not_resign_while_any_process_of_its_command_lives() {
    for (name, way) in WAYS {
        let gateway = Gateway::start();
        let mut first = start(&gateway, way, &["--grace", "700ms"]);
        let mut second = gateway.run("second", &["--resource", "r"]).sh("date +%s%N");
        second.says("waiting: ");
        first.signal(Signal::TERM);
        assert_eq!(first.code(), 137, "{name}");
        assert!(!lives(&gateway.read("stray")), "{name}");
        assert_eq!(second.code(), 0, "{name}");
        let last_beat = times(&gateway.read("beats")).into_iter().max().unwrap();
        assert!(last_beat < times(&gateway.read("second.out"))[0], "{name}: two commands ran at once");
    }
}

#[test]
fn what_left_the_group_ends_when_the_command_does() {
    for (name, way) in WAYS {
        let gateway = Gateway::start();
        let script = scattered(way).replace("& wait", "& sleep 0.5").replace("sleep 60", "sleep 0.5");
        let mut run =
            gateway.run("a", &["--resource", "r", "--grace", "300ms"]).sh(&format!("{script}; exit 4"));
        assert_eq!(run.code(), 4, "{name}");
        run.says("left processes behind");
        assert!(is_beating(&gateway), "{name}: it never began");
        assert!(!lives(&gateway.read("stray")), "{name}");
    }
}

#[test]
fn the_guardian_ends_what_left_the_group_when_run_is_stopped() {
    for (name, way) in WAYS {
        let gateway = Gateway::start();
        let mut first = start(&gateway, way, &["--ttl", "2s"]);
        let mut second = gateway.run("second", &["--resource", "r", "--ttl", "2s"]).sh("date +%s%N");
        second.says("waiting: ");
        first.signal(Signal::STOP);
        assert_eq!(second.code(), 0, "{name}");
        let last_beat = times(&gateway.read("beats")).into_iter().max().unwrap();
        assert!(last_beat < times(&gateway.read("second.out"))[0], "{name}: two commands ran at once");
        first.signal(Signal::CONT);
        assert_eq!(first.code(), 75, "{name}");
    }
}

#[test]
fn a_run_and_its_guardian_that_are_killed_take_everything_along() {
    for (name, way) in WAYS {
        let gateway = Gateway::start();
        let mut run = start(&gateway, way, &["--ttl", "30s"]);
        // Stopped, so that it cannot do anything about the death of its guardian.
        run.signal(Signal::STOP);
        run.kill_guardian();
        run.signal(Signal::KILL);
        let killed = Instant::now();
        assert_eq!(run.ends().code(), None);
        eventually("the end of the command", || !lives(&gateway.read("stray")));
        assert!(killed.elapsed() < Duration::from_secs(5), "{name}: {:?}", killed.elapsed());
        eventually("the end of the keeper", || run.has_cleaned_up());
        run.says("`highgate run` and its guardian were killed");
        let beats = gateway.read("beats");
        sleep(Duration::from_millis(100));
        assert_eq!(gateway.read("beats"), beats, "{name}");
    }
}

#[test]
fn without_its_keeper_a_run_ends_the_command_and_what_it_began() {
    for (name, way) in WAYS {
        let gateway = Gateway::start();
        let mut run = start(&gateway, way, &["--grace", "300ms"]);
        run.kill_keeper();
        assert_eq!(run.code(), 1, "{name}");
        assert!(!lives(&gateway.read("stray")), "{name}");
    }
}

/// In a namespace of processes of its own: `run` is the first process there, and its group was begun outside.
#[test]
fn a_run_whose_group_has_no_number_where_it_runs_ends_its_command_all_the_same() {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc"]);
        command
    };
    if !unshare().arg("true").status().is_ok_and(|status| status.success()) {
        return eprintln!("SKIPPED a run in a namespace of processes: making one needs root");
    }
    let gateway = Gateway::start();
    let backend = format!("highgate://{}", gateway.elections);
    let ended = unshare()
        .args([PROGRAM, "run", "--resource", "r", "--backend", &backend, "--max-time", "500ms"])
        .args(["--grace", "300ms", "--", "sh", "-c", "sleep 60 & wait"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("--max-time") && !said.contains("panicked"), "{said}");
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert_eq!(gateway.run("next", &["--resource", "r"]).sh("true").code(), 0, "it has resigned");
}
