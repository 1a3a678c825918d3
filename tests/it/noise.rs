//! What a gateway says does not grow with what it refuses, and how it says things can be changed while it runs.

use std::path::Path;

use highgate_elector::timestamp;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Highgate, config_for, eventually, get, highgate, origin, post};

const STALE: usize = 1000;

fn start(folder: &Path, text: &str) -> Highgate {
    let config = folder.join("highgate.toml");
    std::fs::write(&config, text).unwrap();
    highgate().config(&config).data(&folder.join("data")).start()
}

/// The lines of the access log with this text in them.
fn lines(gate: &Highgate, text: &str) -> Vec<String> {
    gate.errors().lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
}

fn counted(lines: &[String]) -> usize {
    let count = |line: &String| {
        line.rsplit_once("count=").and_then(|(_, count)| count.trim().parse::<usize>().ok()).expect("a count")
    };
    lines.iter().map(count).sum()
}

#[test]
fn refusals_that_are_alike_are_one_line_a_second_with_their_count() {
    let origin = origin().start();
    let folder = tempfile::tempdir().unwrap();
    let gate = start(folder.path(), &config_for(origin.address, ""));
    gate.ask(&post("/").token(8)).is_ok();
    let began = std::time::Instant::now();
    // Several connections are several ports of one client.
    for _ in 0..4 {
        let mut client = gate.connect();
        for _ in 0..STALE / 4 {
            assert_eq!(client.ask(&post("/").token(7)).status, 412);
        }
    }
    assert_eq!(gate.ask(&post("/").token(6)).status, 412);
    let seven = || lines(&gate, "token=7");
    eventually("all of them are accounted for", || counted(&seven()) == STALE);
    let most = usize::try_from(began.elapsed().as_secs()).unwrap() + 3;
    assert!(seven().len() <= most, "{} lines, not {most}: {:?}", seven().len(), seven());
    assert_eq!(counted(&seven()[..1]), 1, "the first is shown at once, for itself");
    assert_eq!(counted(&lines(&gate, "token=6")), 1, "another token is not alike");
}

#[test]
fn what_was_refused_last_is_told_before_the_end() {
    let origin = origin().start();
    let folder = tempfile::tempdir().unwrap();
    let mut gate = start(folder.path(), &config_for(origin.address, ""));
    gate.ask(&post("/").token(8)).is_ok();
    gate.signal(Signal::TERM);
    for _ in 0..3 {
        // On a connection each: a gateway that is about to leave keeps none.
        assert_eq!(gate.ask(&post("/").token(7)).status, 412);
    }
    assert_eq!(gate.exit_code(), 0);
    assert_eq!(counted(&lines(&gate, "token=7")), 3);
}

#[test]
fn format_level_and_access_lines_change_with_the_file() {
    let origin = origin().start();
    let folder = tempfile::tempdir().unwrap();
    let routes = config_for(origin.address, "");
    let gate = start(folder.path(), &routes);
    let replace = |log: &str| {
        let fresh = folder.path().join("highgate.toml.new");
        std::fs::write(&fresh, format!("[log]\n{log}\n{routes}")).unwrap();
        std::fs::rename(fresh, folder.path().join("highgate.toml")).unwrap();
    };
    gate.ask(&get("/as-text")).is_ok();
    eventually("it is logged as text", || lines(&gate, "path=\"/as-text\"").len() == 1);

    replace("format = \"json\"");
    eventually("the next requests are logged as JSON", || {
        gate.ask(&get("/as-json")).is_ok();
        let said = lines(&gate, "\"/as-json\"");
        let line = said.last().and_then(|line| serde_json::from_str::<Value>(line).ok());
        line.is_some_and(|line| {
            let at = line["timestamp"].as_str().unwrap_or_default();
            // With milliseconds, as times are written everywhere.
            let is_ours = timestamp::parse(at).map(timestamp::format).as_deref() == Some(at);
            is_ours && line["target"] == "access" && line["status"] == 200 && line["level"] == "INFO"
        })
    });

    replace("format = \"json\"\nlevel = \"error\"");
    eventually("nothing below an error is logged", || {
        let before = lines(&gate, "/quiet").len();
        gate.ask(&get("/quiet")).is_ok();
        gate.ask(&get("/quiet")).is_ok();
        std::thread::sleep(std::time::Duration::from_millis(50));
        lines(&gate, "/quiet").len() == before
    });

    replace("access = \"refused\"");
    eventually("only what is refused has a line", || {
        let before = lines(&gate, "/passes").len();
        gate.ask(&get("/passes")).is_ok();
        assert_eq!(gate.ask(&post("/is-refused")).status, 428);
        std::thread::sleep(std::time::Duration::from_millis(50));
        lines(&gate, "/passes").len() == before && !lines(&gate, "path=\"/is-refused\"").is_empty()
    });
    let restarts = lines(&gate, "a restart is needed");
    assert!(restarts.is_empty(), "{restarts:?}");
}
