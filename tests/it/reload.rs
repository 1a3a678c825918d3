//! New routes take the place of the old ones without a request being dropped; a bad file changes nothing.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use rustix::process::Signal;

use crate::support::{
    Client, H2, Highgate, Origin, Pending, config_for, eventually, get, highgate, origin, post, reply, stays,
};

fn origin_named(name: &'static str) -> Origin {
    origin().answering(move |_| reply(200).body(name)).start()
}

fn start(folder: &Path, text: &str) -> Highgate {
    let config = folder.join("highgate.toml");
    std::fs::write(&config, text).unwrap();
    highgate().config(&config).data(&folder.join("data")).start()
}

/// Replaces the file in one step, as deployments do.
fn replace(folder: &Path, text: &str) {
    let fresh = folder.join("highgate.toml.new");
    std::fs::write(&fresh, text).unwrap();
    std::fs::rename(fresh, folder.join("highgate.toml")).unwrap();
}

fn answers(gate: &Highgate, name: &str) -> bool {
    gate.ask(&get("/")).text() == name
}

#[test]
fn a_changed_file_is_in_force_soon() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (origin_named("one"), origin_named("two"));
    let gate = start(folder.path(), &config_for(one.address, ""));
    assert!(answers(&gate, "one"));
    replace(folder.path(), &config_for(two.address, ""));
    eventually("the replaced file is in force", || answers(&gate, "two"));
    std::fs::write(folder.path().join("highgate.toml"), config_for(one.address, "")).unwrap();
    eventually("the file written in place is in force", || answers(&gate, "one"));
}

#[test]
fn a_swapped_symlink_is_a_changed_file() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (origin_named("one"), origin_named("two"));
    let path = |name: &str| folder.path().join(name);
    for (version, origin) in [("v1", &one), ("v2", &two)] {
        std::fs::create_dir(path(version)).unwrap();
        std::fs::write(path(version).join("highgate.toml"), config_for(origin.address, "")).unwrap();
    }
    std::os::unix::fs::symlink("v1", path("..data")).unwrap();
    std::os::unix::fs::symlink("..data/highgate.toml", path("highgate.toml")).unwrap();
    let gate = highgate().config(&path("highgate.toml")).data(&path("data")).start();
    assert!(answers(&gate, "one"));
    std::os::unix::fs::symlink("v2", path("..data.new")).unwrap();
    std::fs::rename(path("..data.new"), path("..data")).unwrap();
    eventually("what the link points to is in force", || answers(&gate, "two"));
}

#[test]
fn sighup_reads_the_file_again() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (origin_named("one"), origin_named("two"));
    let gate = start(folder.path(), &config_for(one.address, ""));
    replace(folder.path(), &config_for(two.address, ""));
    gate.signal(Signal::HUP);
    eventually("the new file is in force", || answers(&gate, "two"));
}

#[test]
fn a_bad_file_keeps_the_old_routes_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (origin_named("one"), origin_named("two"));
    let gate = start(folder.path(), &config_for(one.address, ""));
    replace(folder.path(), &config_for(two.address, "on_unknown = \"perhaps\""));
    gate.signal(Signal::HUP);
    eventually("it says what is wrong", || {
        let said = gate.said();
        said.contains("highgate.toml") && said.contains("on_unknown") && said.contains("perhaps")
    });
    let successful = |gate: &Highgate| {
        let metrics = gate.admin("/metrics").text();
        let line = metrics.lines().find(|line| line.starts_with("highgate_config_last_reload_successful "));
        line.map(|line| line.ends_with(" 1"))
    };
    assert_eq!(successful(&gate), Some(false));
    assert!(answers(&gate, "one"));
    gate.ask(&post("/").token(7)).is_ok();
    replace(folder.path(), &config_for(two.address, ""));
    eventually("the repaired file is in force", || answers(&gate, "two"));
    eventually("the metric says so", || successful(&gate) == Some(true));
}

#[test]
fn a_reload_under_load_drops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (origin_named("one"), origin_named("two"));
    let gate = start(folder.path(), &config_for(one.address, ""));
    let stop = Arc::new(AtomicBool::new(false));
    let served = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..6)
        .map(|kind| {
            let (address, stop, served) = (gate.address(), stop.clone(), served.clone());
            thread::spawn(move || {
                let h2 = (kind == 0).then(|| H2::connect(address));
                let mut kept = Client::connect(address);
                while !stop.load(Ordering::Relaxed) {
                    let ask = post("/").token(7).body(vec![b'x'; 1000 * kind]);
                    match &h2 {
                        Some(h2) => h2.ask(&ask).is_ok(),
                        None if kind == 1 => Client::connect(address).ask(&ask).is_ok(),
                        None => kept.ask(&ask).is_ok(),
                    };
                    served.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for round in 0..10 {
        let (origin, name) = if round % 2 == 0 { (&two, "two") } else { (&one, "one") };
        let before = served.load(Ordering::Relaxed);
        replace(folder.path(), &config_for(origin.address, ""));
        if round % 3 == 0 {
            gate.signal(Signal::HUP);
        }
        eventually("the new routes are in force", || answers(&gate, name));
        eventually("the load goes on", || served.load(Ordering::Relaxed) > before + 20);
    }
    stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().expect("a client all of whose requests passed"));
}

#[test]
fn a_request_under_way_ends_on_the_route_it_began_on() {
    let folder = tempfile::tempdir().unwrap();
    let one = origin()
        .answering(|request| match request.token() {
            Some(7) => reply(200).body("one").held("slow"),
            _ => reply(200).body("one"),
        })
        .start();
    let two = origin_named("two");
    let gate = start(folder.path(), &config_for(one.address, ""));
    let address = gate.address();
    let seven = Pending::new(move || Client::connect(address).ask(&post("/").token(7)));
    one.receives_token(7);
    replace(folder.path(), &config_for(two.address, ""));
    eventually("the new route is in force", || answers(&gate, "two"));
    // The fence knows nothing of routes: 7 is under way still.
    let eight = Pending::new(move || Client::connect(address).ask(&post("/").token(8)));
    stays("8 is not sent", || !two.has_token(8));
    one.release("slow");
    assert_eq!(seven.answer().is_ok().text(), "one");
    assert_eq!(eight.answer().is_ok().text(), "two");
}
