//! Marks outlive the process, however it ends; and only one process has them.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::support::{Client, Highgate, Origin, config_for, eventually, highgate, origin, post, reply};

const RESOURCES: [&str; 4] = ["/a", "/b", "/c", "/d"];

/// The highest token that the origin was sent, by path.
fn highest(origin: &Origin) -> HashMap<String, u64> {
    let seen = origin.seen();
    let mut highest = HashMap::new();
    for request in &seen.requests {
        let (Some(token), path) = (request.token(), request.target().to_owned()) else { continue };
        highest.entry(path).and_modify(|most: &mut u64| *most = token.max(*most)).or_insert(token);
    }
    highest
}

/// Raises one resource after the other as fast as it goes, until told to stop or cut off.
fn raiser(address: std::net::SocketAddr, path: &'static str, next: &AtomicU64, stop: &AtomicBool) {
    let mut client = Client::connect(address);
    while !stop.load(Ordering::Relaxed) {
        let token = next.fetch_add(1, Ordering::SeqCst);
        client.send(post(path).resource(path.trim_start_matches('/')).token(token).bytes());
        match client.response_if_any() {
            Some(answer) => assert_eq!(answer.status, 200, "{answer:?}"),
            None => return,
        }
    }
}

fn ask(gate: &Highgate, path: &str, token: u64) -> u16 {
    gate.ask(&post(path).resource(path.trim_start_matches('/')).token(token)).status
}

#[test]
fn no_mark_is_lost_to_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().start();
    let config = folder.path().join("highgate.toml");
    std::fs::write(&config, config_for(origin.address, "lock_delay = \"40ms\"\nhold_timeout = \"5s\""))
        .unwrap();
    let start = || highgate().config(&config).data(&folder.path().join("data")).start();
    let next: Arc<Vec<AtomicU64>> = Arc::new(RESOURCES.iter().map(|_| AtomicU64::new(2)).collect());
    let mut gate = start();
    for round in 0..24 {
        let stop = Arc::new(AtomicBool::new(false));
        let address = gate.address();
        let raisers: Vec<_> = RESOURCES
            .iter()
            .enumerate()
            .map(|(index, path)| {
                let (next, stop) = (next.clone(), stop.clone());
                thread::spawn(move || raiser(address, path, &next[index], &stop))
            })
            .collect();
        let enough = origin.count() + 5 + 3 * round;
        origin.wait("some more raises", |seen| seen.requests.len() >= enough);
        gate.kill();
        stop.store(true, Ordering::Relaxed);
        raisers.into_iter().for_each(|raiser| raiser.join().expect("a raiser that got no odd answer"));
        let sent = highest(&origin);
        gate = start();
        for path in RESOURCES {
            let token = sent[path];
            assert_eq!(
                ask(&gate, path, token - 1),
                412,
                "round {round}: {token} was sent to {path} before the kill"
            );
        }
    }
    let seen = origin.seen();
    for path in RESOURCES {
        let tokens: Vec<_> = seen
            .requests
            .iter()
            .filter(|request| request.target() == path)
            .filter_map(|request| request.token())
            .collect();
        assert!(tokens.is_sorted(), "{path} was sent {tokens:?}");
    }
}

#[test]
fn after_an_unclean_end_the_open_mark_passes_and_a_raise_waits_for_the_lock_delay() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().start();
    let config = folder.path().join("highgate.toml");
    std::fs::write(&config, config_for(origin.address, "lock_delay = \"1500ms\"\nhold_timeout = \"300ms\""))
        .unwrap();
    let start = || highgate().config(&config).data(&folder.path().join("data")).start();
    let gate = start();
    assert_eq!(ask(&gate, "/a", 7), 200);
    gate.kill();
    let gate = start();
    let started = Instant::now();
    assert_eq!(ask(&gate, "/a", 7), 200, "the mark that was open goes on passing");
    assert_eq!(ask(&gate, "/a", 6), 412);
    assert_eq!(ask(&gate, "/a", 8), 503);
    assert_eq!(ask(&gate, "/a", 7), 412, "the mark is raised, if not open");
    assert_eq!(ask(&gate, "/new", 1), 503, "nothing seals, not even what is new");
    eventually("the raise opens", || ask(&gate, "/a", 8) == 200);
    assert!(started.elapsed() >= Duration::from_millis(1200), "after {:?}", started.elapsed());
}

#[test]
fn a_raise_that_was_not_open_yet_stays_shut_after_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin()
        .answering(|request| match request.token() {
            Some(7) => reply(200).held("never"),
            _ => reply(200),
        })
        .start();
    let config = folder.path().join("highgate.toml");
    std::fs::write(&config, config_for(origin.address, "lock_delay = \"1s\"\nhold_timeout = \"300ms\""))
        .unwrap();
    let start = || highgate().config(&config).data(&folder.path().join("data")).start();
    let gate = start();
    let mut seven = gate.connect();
    seven.send(post("/a").resource("a").token(7).bytes());
    origin.receives_token(7);
    assert_eq!(ask(&gate, "/a", 8), 503);
    gate.kill();
    let gate = start();
    assert_eq!(ask(&gate, "/a", 7), 412);
    assert_eq!(ask(&gate, "/a", 8), 503, "the lock-delay has begun anew");
    eventually("the raise opens", || ask(&gate, "/a", 8) == 200);
}

#[test]
fn what_blocks_before_kill_9_blocks_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin()
        .answering(|request| match request.token() {
            Some(7) => reply(200).nothing(),
            _ => reply(200),
        })
        .start();
    let config = folder.path().join("highgate.toml");
    let route = "on_unknown = \"block\"\nlock_delay = \"40ms\"\nhold_timeout = \"300ms\"";
    std::fs::write(&config, config_for(origin.address, route)).unwrap();
    let start = || highgate().config(&config).data(&folder.path().join("data")).start();
    let gate = start();
    assert_eq!(ask(&gate, "/a", 7), 502);
    gate.kill();
    let gate = start();
    for _ in 0..2 {
        assert_eq!(ask(&gate, "/a", 8), 503);
    }
    assert!((200..300).contains(&gate.operate("thaw", "a").status));
    assert_eq!(ask(&gate, "/a", 8), 200);
}

#[test]
fn what_was_frozen_before_kill_9_is_frozen_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().start();
    let start = || highgate().upstream(origin.address).data(folder.path()).start();
    let gate = start();
    assert_eq!(ask(&gate, "/a", 7), 200);
    assert!((200..300).contains(&gate.operate("freeze", "a").status));
    gate.kill();
    let gate = start();
    assert_eq!(ask(&gate, "/a", 7), 423);
    assert!((200..300).contains(&gate.operate("thaw", "a").status));
    assert_eq!(ask(&gate, "/a", 7), 200);
}

#[test]
fn after_a_clean_end_nothing_waits() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().start();
    let config = folder.path().join("highgate.toml");
    std::fs::write(&config, config_for(origin.address, "lock_delay = \"60s\"\nhold_timeout = \"2s\""))
        .unwrap();
    let start = || highgate().config(&config).data(&folder.path().join("data")).start();
    let mut gate = start();
    assert_eq!(ask(&gate, "/a", 7), 200);
    gate.signal(Signal::TERM);
    assert_eq!(gate.exit_code(), 0, "{}", gate.said());
    let gate = start();
    assert_eq!(ask(&gate, "/a", 6), 412);
    assert_eq!(ask(&gate, "/a", 8), 200);
}

#[test]
fn a_second_process_on_the_same_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().start();
    let data = folder.path().join("data");
    let first = highgate().upstream(origin.address).data(&data).start();
    assert_eq!(ask(&first, "/a", 7), 200);
    let mut second = highgate().upstream(origin.address).data(&data).spawn();
    assert_eq!(second.exit_code(), 1, "{}", second.said());
    let errors = second.errors();
    assert!(errors.contains(&*data.to_string_lossy()), "{errors}");
    assert!(!errors.contains("panicked"), "{errors}");
    assert_eq!(ask(&first, "/a", 8), 200, "the first does not mind");
}

#[test]
fn a_store_that_cannot_write_stops_admission_and_ends_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().start();
    let data = folder.path().join("data");
    // The file of an empty store has 1 MiB: there is room for some raises, and then there is not.
    let mut gate = highgate().upstream(origin.address).data(&data).file_limit(2200).start();
    assert_eq!(ask(&gate, "/a", 7), 200);
    let mut client = gate.connect();
    let long = "x".repeat(400);
    let mut refused = None;
    for number in 0..20_000 {
        client.send(post("/").resource(&format!("{long}/{number}")).token(7).bytes());
        match client.response_if_any() {
            Some(answer) if answer.status == 200 => {}
            other => {
                refused = other;
                break;
            }
        }
    }
    if let Some(answer) = refused {
        answer.is_refused(503, "store-unavailable");
    }
    assert_eq!(gate.exit_code(), 1, "{}", gate.said());
    assert!(!gate.errors().contains("panicked"), "{}", gate.errors());
    // What was acknowledged before is still there.
    let gate = highgate().upstream(origin.address).data(&data).start();
    assert_eq!(ask(&gate, "/a", 6), 412);
    let first = post("/").resource(&format!("{long}/0")).token(6);
    assert_eq!(gate.ask(&first).status, 412);
}

/// `kill -9` cannot tell a write from a flush, because the kernel keeps both. The system calls can.
#[test]
fn a_raise_is_flushed_twice_before_its_request_is_sent() {
    if Command::new("strace").arg("-V").output().is_err() {
        eprintln!("SKIPPED: strace is not installed (Debian: apt-get install strace)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().start();
    let gate = highgate().upstream(origin.address).data(&folder.path().join("data")).start();
    assert_eq!(ask(&gate, "/a", 7), 200);
    let trace = folder.path().join("trace");
    let mut strace = Command::new("strace")
        .args(["-f", "-s", "300", "-e", "trace=fsync,fdatasync,write,writev,sendto", "-o"])
        .arg(&trace)
        .args(["-p", &gate.pid().to_string()])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let attached = BufReader::new(strace.stderr.take().unwrap()).lines().next();
    assert!(attached.is_some_and(|line| line.unwrap().contains("attached")), "strace did not attach");
    assert_eq!(ask(&gate, "/a", 8), 200);
    rustix::process::kill_process(Pid::from_child(&strace), Signal::INT).unwrap();
    strace.wait().unwrap();

    let calls = std::fs::read_to_string(&trace).unwrap();
    let sent = calls.find("x-fencing-token: 8").expect("the request was sent");
    // A call that blocks is split over two lines; only its end counts.
    let is_flush = |line: &&str| line.contains("sync") && line.ends_with("= 0");
    let flushed = calls[..sent].lines().filter(is_flush).count();
    assert!(flushed >= 2, "raised and opened, each on disk first:\n{calls}");
}
