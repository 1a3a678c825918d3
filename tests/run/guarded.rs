//! What happens to a command when `run` itself is stopped or killed: the guardian's work.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Gateway, beating, eventually, lives, times};

const TTL: [&str; 4] = ["--resource", "r", "--ttl", "2s"];

#[test]
fn a_run_that_is_stopped_loses_its_command_before_another_leads() {
    let gateway = Gateway::start();
    // It ignores SIGTERM and has children and grandchildren that do.
    let script = format!(
        "trap '' TERM; echo $FENCING_TOKEN > old; (({}) & {}) & {}",
        beating("beats"),
        beating("beats"),
        beating("beats")
    );
    let mut first = gateway.run("first", &TTL).sh(&script);
    eventually("beats", || times(&gateway.read("beats")).len() > 10);
    let mut second = gateway
        .run("second", &TTL)
        .sh("date +%s%N; echo $FENCING_TOKEN > new; while [ ! -e end ]; do sleep 0.01; done");
    second.says("waiting: ");
    // Longer than its lease: it was renewed all the time.
    sleep(Duration::from_secs(3));
    assert!(gateway.read("second.out").is_empty(), "the first still leads");

    first.signal(Signal::STOP);
    let stopped = Instant::now();
    eventually("the second command", || !gateway.read("new").is_empty());
    println!("the second led {:?} after the stop", stopped.elapsed());
    assert!(stopped.elapsed() < Duration::from_secs(3));
    let began = times(&gateway.read("second.out"))[0];
    let last_beat = times(&gateway.read("beats")).into_iter().max().unwrap();
    println!("the last beat was {:?} before that", Duration::from_nanos(began.saturating_sub(last_beat)));
    assert!(last_beat < began, "two commands ran at once");

    let (old, new) = (gateway.read("old"), gateway.read("new"));
    assert_eq!(gateway.write("r", old.trim()), 412, "the old token is stale");
    assert_eq!(gateway.write("r", new.trim()), 200);
    let beats = gateway.read("beats");
    first.signal(Signal::CONT);
    assert_eq!(first.code(), 75);
    assert_eq!(gateway.read("beats"), beats, "it got no further");
    assert!(first.has_cleaned_up());
    std::fs::write(gateway.folder.path().join("end"), "").unwrap();
    assert_eq!(second.code(), 0);
}

#[test]
fn a_run_that_is_stopped_for_a_moment_goes_on() {
    let gateway = Gateway::start();
    let mut run = gateway.run("a", &TTL).sh("echo ready; sleep 2; exit 6");
    eventually("the command", || !gateway.read("a.out").is_empty());
    run.signal(Signal::STOP);
    sleep(Duration::from_millis(400));
    run.signal(Signal::CONT);
    assert_eq!(run.code(), 6);
}

#[test]
fn a_command_has_its_grace_when_run_is_stopped() {
    let gateway = Gateway::start();
    let script = "trap 'echo told; exit 0' TERM; echo ready; while :; do sleep 0.01; done";
    let mut run = gateway.run("a", &TTL).sh(script);
    eventually("the command", || gateway.read("a.out").contains("ready"));
    run.signal(Signal::STOP);
    eventually("the word", || gateway.read("a.out").contains("told"));
    // Even if it wakes up in time: the command was told, and has gone.
    run.signal(Signal::CONT);
    assert_eq!(run.code(), 75);
    assert_eq!(gateway.read("a.out"), "ready\ntold\n", "told once");
}

#[test]
fn a_run_that_is_killed_takes_its_command_along() {
    let gateway = Gateway::start();
    let args = ["--resource", "r", "--ttl", "10s", "--grace", "500ms"];
    let script = format!("trap '' TERM; echo $$ > pid; sh -c '{}' & wait", beating("beats"));
    let mut run = gateway.run("a", &args).sh(&script);
    eventually("beats", || !gateway.read("beats").is_empty());
    run.signal(Signal::KILL);
    let killed = Instant::now();
    assert_eq!(run.ends().code(), None);
    eventually("the end of the command", || !lives(&gateway.read("pid")));
    assert!(killed.elapsed() < Duration::from_secs(2), "{:?}", killed.elapsed());
    eventually("the end of the guardian", || run.has_cleaned_up());
    run.says("its guardian has ended the command");
    let beats = gateway.read("beats");
    sleep(Duration::from_millis(100));
    assert_eq!(gateway.read("beats"), beats);
}

#[test]
fn the_guardian_resigns_for_a_run_that_was_killed_once_its_command_is_dead() {
    let gateway = Gateway::with_secret("open-sesame");
    let secret = ("HIGHGATE_ELECTIONS_TOKEN", "open-sesame");
    let args = ["--resource", "r", "--ttl", "60s", "--grace", "700ms"];
    let script = format!("trap '' TERM; {}", beating("beats"));
    let mut first = gateway.run("first", &args).env(secret.0, secret.1).sh(&script);
    eventually("beats", || !gateway.read("beats").is_empty());
    let mut second = gateway.run("second", &args).env(secret.0, secret.1).sh("date +%s%N");
    second.says("waiting: ");
    first.signal(Signal::KILL);
    let killed = Instant::now();
    first.ends();
    assert_eq!(second.code(), 0);
    println!("from the kill of run to the end of the next command: {:?}", killed.elapsed());
    assert!(killed.elapsed() >= Duration::from_millis(700), "the command had its grace");
    let last_beat = times(&gateway.read("beats")).into_iter().max().unwrap();
    assert!(last_beat < times(&gateway.read("second.out"))[0], "two commands ran at once");
    first.says("its guardian has ended the command and resigned");
}

#[test]
fn the_guardian_resigns_at_once_for_a_command_that_was_dead_before_run_was_killed() {
    let gateway = Gateway::start();
    let args = ["--resource", "r", "--ttl", "60s"];
    let mut first = gateway.run("first", &args).sh("echo $$ > pid; exec sleep 60");
    eventually("the command", || gateway.read("pid").ends_with('\n'));
    let mut second = gateway.run("second", &args).sh("echo leads");
    second.says("waiting: ");
    // So that `run` cannot resign by itself.
    first.signal(Signal::STOP);
    let command = gateway.read("pid").trim().parse().ok().and_then(Pid::from_raw).unwrap();
    kill_process(command, Signal::KILL).unwrap();
    eventually("the end of the command", || !lives(&gateway.read("pid")));
    first.signal(Signal::KILL);
    first.ends();
    assert_eq!(second.code(), 0, "it did not wait for the lease, which is longer than this test is patient");
    first.says("its guardian has ended the command and resigned");
}

#[test]
fn a_run_and_its_group_that_are_stopped_do_not_stop_the_guardian() {
    let gateway = Gateway::start();
    let run = gateway.run("a", &TTL).in_own_group().sh(&beating("beats"));
    eventually("beats", || !gateway.read("beats").is_empty());
    run.signal_group(Signal::STOP);
    let stopped = Instant::now();
    let mut beats = gateway.read("beats");
    eventually("silence", || {
        sleep(Duration::from_millis(200));
        std::mem::replace(&mut beats, gateway.read("beats")) == beats
    });
    assert!(stopped.elapsed() < Duration::from_secs(3), "{:?}", stopped.elapsed());
}

#[test]
fn without_its_guardian_a_run_gives_up() {
    let gateway = Gateway::start();
    let mut run = gateway.run("a", &TTL).sh(&beating("beats"));
    eventually("beats", || !gateway.read("beats").is_empty());
    run.kill_guardian();
    assert_eq!(run.code(), 1);
    run.says("the guardian is gone");
}

#[test]
fn nothing_of_a_command_runs_without_a_keeper_or_too_late() {
    let (nobody, own) = ("1", std::process::id().to_string());
    for (keeper, until, says) in [(nobody, u64::MAX, "nobody watches over it"), (&own, 1, "no time left")] {
        let until = until.to_string();
        let launch = ["guard", "launch", "--keeper", keeper, "--until", &until, "--", "echo", "never"];
        let output =
            std::process::Command::new(env!("CARGO_BIN_EXE_highgate")).args(launch).output().unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(75), &b""[..]));
        assert!(String::from_utf8_lossy(&output.stderr).contains(says));
    }
}
