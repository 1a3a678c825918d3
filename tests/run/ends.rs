//! How a run begins and ends when nothing happens to `run` itself.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::support::{Gateway, beating, eventually, lives, run_on, times};

#[test]
fn the_command_gets_its_token_by_environment_and_by_file() {
    let gateway = Gateway::start();
    let script =
        "echo $FENCING_TOKEN $FENCING_RESOURCE; cat $FENCING_TOKEN_FILE; ls ${FENCING_TOKEN_FILE%/*}";
    let mut run = gateway.run("a", &["--resource", "Jobs/Nightly"]).sh(script);
    assert_eq!(run.code(), 0);
    let output = gateway.read("a.out");
    let lines: Vec<_> = output.lines().collect();
    let token: u64 = lines[1].parse().unwrap();
    let expected =
        [format!("{token} jobs/nightly"), token.to_string(), "curl".to_owned(), "token".to_owned()];
    assert_eq!(lines, expected);
    assert!(output.contains(&format!("\n{token}\n")), "the decimal token and a newline: {output:?}");
    assert!(run.has_cleaned_up());
    run.says(&format!("leading jobs/nightly with token {token}"));
}

#[test]
fn curl_sends_the_token_and_its_resource() {
    // As in the README: others have written to the route's own resource with a higher token.
    let gateway = Gateway::trusting();
    assert_eq!(gateway.write("default", "8"), 200);
    let url = format!("http://{}/", gateway.data);
    let ways = [
        ("config", "curl -s -K \"$FENCING_CURL_CONFIG\" -d hello -w '%{http_code}' TARGET"),
        ("headers", "echo \"$FENCING_HEADERS\" | curl -s -H @- -d hello -w '%{http_code}' TARGET"),
    ];
    for (name, script) in ways {
        let mut run = gateway.run(name, &["--resource", "Ledger/a b"]).sh(&script.replace("TARGET", &url));
        assert_eq!((run.code(), gateway.read(&format!("{name}.out")).as_str()), (0, "200"), "{name}");
        assert!(run.has_cleaned_up());
    }
    let stale = (gateway.write("ledger/a b", "1"), gateway.write("default", "7"));
    assert_eq!(stale, (412, 412), "each mark is where its own writers put it");
    assert_eq!(gateway.write("default", "8"), 200);
}

#[test]
fn what_the_command_says_with_its_exit_code_is_passed_on() {
    let gateway = Gateway::start();
    for (name, script, code) in [("a", "exit 0", 0), ("b", "exit 7", 7), ("c", "kill -9 $$", 137)] {
        assert_eq!(gateway.run(name, &["--resource", "r"]).sh(script).code(), code, "{script}");
    }
    let mut missing = gateway.run("d", &["--resource", "r"]).command(&["/no/such/program"]);
    assert_eq!(missing.code(), 127);
    missing.says("cannot run /no/such/program");
    for (name, program) in [("e", "/dev/null"), ("f", "/")] {
        let mut unusable = gateway.run(name, &["--resource", "r"]).command(&[program]);
        assert_eq!(unusable.code(), 126, "{program}");
        unusable.says(&format!("cannot run {program}: "));
    }
}

#[test]
fn the_next_run_waits_and_takes_over_at_once() {
    let gateway = Gateway::start();
    let mut first = gateway.run("first", &["--resource", "r"]).sh("echo $FENCING_TOKEN; sleep 1; date +%s%N");
    eventually("the first command", || !gateway.read("first.out").is_empty());
    let mut second = gateway.run("second", &["--resource", "r"]).sh("date +%s%N; echo $FENCING_TOKEN");
    second.says("waiting: ");
    assert!(second.log().contains(&format!("with token {} leads", gateway.read("first.out").trim())));
    assert_eq!((first.code(), second.code()), (0, 0));
    let (first, second) = (times(&gateway.read("first.out")), times(&gateway.read("second.out")));
    let gap = Duration::from_nanos(second[0] - first[1]);
    println!("from the end of one command to the start of the next: {gap:?}");
    assert!(gap < Duration::from_millis(900), "{gap:?}");
    assert!(second[1] > first[0], "tokens grow");
}

#[test]
fn a_signal_is_passed_on_and_its_end_waited_for() {
    let gateway = Gateway::start();
    let script = "trap 'echo told; sleep 0.3; exit 5' TERM; echo ready; while :; do sleep 0.01; done";
    let mut run = gateway.run("a", &["--resource", "r"]).sh(script);
    eventually("the command", || gateway.read("a.out").contains("ready"));
    run.signal(Signal::TERM);
    assert_eq!(run.code(), 5);
    assert!(gateway.read("a.out").contains("told"));
    assert!(run.has_cleaned_up());
    // It has resigned: the next one does not wait for the lease.
    let started = Instant::now();
    assert_eq!(gateway.run("b", &["--resource", "r"]).sh("exit 0").code(), 0);
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_command_that_does_not_listen_is_killed_after_the_grace() {
    let gateway = Gateway::start();
    let script = "trap '' TERM INT; echo ready; while :; do sleep 0.01; done";
    let mut run = gateway.run("a", &["--resource", "r", "--grace", "300ms"]).sh(script);
    eventually("the command", || gateway.read("a.out").contains("ready"));
    let started = Instant::now();
    run.signal(Signal::INT);
    assert_eq!(run.code(), 137);
    assert!(started.elapsed() >= Duration::from_millis(300));
}

#[test]
fn a_run_that_waits_can_be_asked_to_end() {
    let gateway = Gateway::start();
    let _leader = gateway.run("leader", &["--resource", "r"]).sh("sleep 60");
    eventually("a leader", || !gateway.read("leader.log").is_empty());
    let mut run = gateway.run("a", &["--resource", "r"]).sh("echo never");
    run.says("waiting: ");
    run.signal(Signal::TERM);
    assert_eq!(run.code(), 143);
    assert_eq!(gateway.read("a.out"), "");
}

#[test]
fn max_time_ends_the_command_with_code_1() {
    let gateway = Gateway::start();
    let mut run =
        gateway.run("a", &["--resource", "r", "--max-time", "500ms", "--grace", "200ms"]).sh("sleep 60");
    assert_eq!(run.code(), 1);
    run.says("--max-time");
}

#[test]
fn what_is_completed_is_not_run_again() {
    let gateway = Gateway::start();
    let args = ["--resource", "r", "--once", "report/2026-02-28"];
    assert_eq!(gateway.run("a", &args).sh("exit 3").code(), 3);
    assert_eq!(gateway.run("b", &args).sh("echo ran").code(), 0, "a failure left it to the next");
    let mut again = gateway.run("c", &args).sh("echo ran");
    assert_eq!(again.code(), 0);
    again.says("report/2026-02-28 was completed by ");
    assert_eq!((gateway.read("b.out").as_str(), gateway.read("c.out").as_str()), ("ran\n", ""));
    let other = ["--resource", "r", "--once", "report/2026-03-01"];
    assert_eq!(gateway.run("d", &other).sh("echo ran").code(), 0);
    assert_eq!(gateway.read("d.out"), "ran\n");
}

#[test]
fn a_command_that_was_told_to_end_has_completed_nothing() {
    let gateway = Gateway::start();
    let args = ["--resource", "r", "--once", "k"];
    let mut run = gateway.run("a", &args).sh("trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done");
    eventually("the command", || gateway.read("a.out").contains("ready"));
    run.signal(Signal::TERM);
    assert_eq!(run.code(), 0);
    assert_eq!(gateway.run("b", &args).sh("echo ran").code(), 0);
    assert_eq!(gateway.read("b.out"), "ran\n");
}

#[test]
fn an_evicted_leader_ends_its_command_and_completes_nothing() {
    let gateway = Gateway::start();
    let args = ["--resource", "r", "--once", "k", "--ttl", "3s"];
    let mut run = gateway.run("a", &args).sh(&beating("beats"));
    eventually("beats", || !gateway.read("beats").is_empty());
    gateway.evict("r");
    assert_eq!(run.code(), 75);
    assert_eq!(gateway.run("b", &args).sh("echo ran").code(), 0);
    assert_eq!(gateway.read("b.out"), "ran\n");
}

#[test]
fn a_gateway_that_goes_away_ends_the_command_before_the_lease() {
    let gateway = Gateway::start();
    let script = format!("trap 'date +%s%N > told' TERM; {}", beating("beats"));
    let mut run = gateway.run("a", &["--resource", "r", "--ttl", "2s", "--grace", "600ms"]).sh(&script);
    eventually("beats", || !gateway.read("beats").is_empty());
    gateway.stop(Signal::STOP);
    let started = Instant::now();
    assert_eq!(run.code(), 75);
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    let beats = times(&gateway.read("beats"));
    let told = times(&gateway.read("told"))[0];
    let grace = Duration::from_nanos(beats.last().unwrap() - told);
    assert!(grace > Duration::from_millis(300) && grace < Duration::from_millis(800), "{grace:?}");
}

#[test]
fn what_a_command_leaves_behind_ends_with_it() {
    let gateway = Gateway::start();
    let mut run = gateway.run("a", &["--resource", "r"]).sh("sleep 60 & echo $!; exit 4");
    assert_eq!(run.code(), 4);
    run.says("left processes behind");
    assert!(!lives(&gateway.read("a.out")));
}

#[test]
fn a_backend_that_is_not_there_is_unavailable() {
    let folder = TempDir::new().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let backend = format!("highgate://127.0.0.1:{port}");
    let mut run = run_on(&backend, folder.path(), "a", &["--resource", "r"]).sh("echo never");
    assert_eq!(run.code(), 69);
    run.says("waiting: ");
}

#[test]
fn bad_usage_is_refused_before_anything_starts() {
    let folder = TempDir::new().unwrap();
    let backend = "highgate://127.0.0.1:1";
    for (name, backend, args, says) in [
        ("grace", backend, ["--ttl", "5s", "--grace", "5s"], "a grace of 5s could outlive the lease of 5s"),
        ("near", backend, ["--ttl", "5s", "--grace", "4900ms"], "at most 4.35s"),
        ("scheme", "raft://a:1", ["--ttl", "5s", "--grace", "1s"], "raft"),
        ("duration", backend, ["--ttl", "5", "--grace", "1s"], "units ms, s, m, h"),
        ("zero", backend, ["--ttl", "0s", "--grace", "1s"], "zero"),
        ("short", backend, ["--ttl", "500ms", "--grace", "0s"], "a lease is at least 1s"),
        ("long", backend, ["--ttl", "25h", "--grace", "1s"], "at most 24h"),
    ] {
        let args = [&["--resource", "r"][..], &args].concat();
        let mut run = run_on(backend, folder.path(), name, &args).sh("echo never");
        assert_eq!(run.code(), 2, "{name}");
        run.says(says);
    }
}
