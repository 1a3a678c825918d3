//! Leaving: unready first, then what is under way ends, then the process does.

use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::Signal;

use crate::support::{
    Client, H2, PATIENCE, Pending, config_for, eventually, gateway_to, get, highgate, origin, post, reply,
};

#[test]
fn sigterm_lets_the_request_under_way_end() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().answering(|_| reply(200).body("done").held("slow")).start();
    let config = folder.path().join("highgate.toml");
    std::fs::write(&config, config_for(origin.address, "")).unwrap();
    let mut gate = highgate().config(&config).data(&folder.path().join("data")).start();
    assert_eq!(gate.admin("/readyz").status, 200);
    assert_eq!(gate.admin("/healthz").status, 200);
    let address = gate.address();
    let slow = Pending::new(move || Client::connect(address).ask(&post("/").token(7)));
    origin.receives(1);
    gate.signal(Signal::TERM);
    eventually("it is not ready any more", || gate.admin("/readyz").status == 503);
    assert_eq!(gate.admin("/healthz").status, 200, "but alive");
    assert!(!slow.is_answered() && gate.exit_status().is_none());
    origin.release("slow");
    let slow = slow.answer();
    assert_eq!((slow.is_ok().text().as_str(), slow.header("connection")), ("done", Some("close")));
    assert_eq!(gate.exit_code(), 0, "{}", gate.said());
}

#[test]
fn while_unready_new_requests_are_still_served() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().start();
    let config = folder.path().join("highgate.toml");
    let text = config_for(origin.address, "").replace("300ms", "1s");
    std::fs::write(&config, text).unwrap();
    let mut gate = highgate().config(&config).data(&folder.path().join("data")).start();
    let mut kept = gate.connect();
    assert_eq!(kept.ask(&post("/").token(7)).is_ok().header("connection"), None);
    gate.signal(Signal::TERM);
    eventually("it is not ready any more", || gate.admin("/readyz").status == 503);
    for request in [post("/").token(7), post("/").token(6)] {
        assert_eq!(gate.ask(&request).header("connection"), Some("close"), "{request:?}");
    }
    assert_eq!(
        kept.ask(&get("/")).is_ok().header("connection"),
        Some("close"),
        "before it is closed under a request"
    );
    assert!(kept.is_closed_within(PATIENCE));
    assert_eq!(H2::connect(gate.address()).ask(&get("/")).is_ok().header("connection"), None);
    assert_eq!(gate.exit_code(), 0, "{}", gate.said());
}

#[test]
fn an_idle_connection_does_not_keep_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().start();
    let mut gate = highgate().upstream(origin.address).data(folder.path()).start();
    let mut idle = gate.connect();
    idle.ask(&get("/")).is_ok();
    let h2 = H2::connect(gate.address());
    h2.ask(&get("/")).is_ok();
    let silent = gate.connect();
    let events = Client::connect(gate.admin_address()).send(get("/v1/events").bytes()).response_head();
    assert!(events.start.contains("200"), "{}", events.start);
    gate.signal(Signal::TERM);
    assert_eq!(gate.exit_code(), 0, "{}", gate.said());
    drop((idle, silent));
}

#[test]
fn an_http2_client_is_told_to_go_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().start();
    let mut gate = highgate().upstream(origin.address).data(folder.path()).start();
    let mut stream = TcpStream::connect(gate.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The preface and empty settings: a client that says no more than it has to.
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let mut kind_of_next_frame = || {
        let mut head = [0; 9];
        stream.read_exact(&mut head).expect("a frame before the connection ends");
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        stream.read_exact(&mut vec![0; length]).expect("the rest of the frame");
        head[3]
    };
    assert_eq!(kind_of_next_frame(), 4, "settings");
    gate.signal(Signal::TERM);
    while kind_of_next_frame() != 7 {}
    drop(stream);
    assert_eq!(gate.exit_code(), 0, "{}", gate.said());
}

#[test]
fn a_gateway_that_stops_with_nothing_under_way_leaves_its_store_clean() {
    let origin = origin().start();
    let gate = gateway_to(&origin).start();
    gate.ask(&post("/").token(7)).is_ok();
    assert!(gate.stop());
}

#[test]
fn a_gateway_that_stops_with_an_unknown_outcome_does_not() {
    let origin = origin().answering(|_| reply(200).silence()).start();
    let gate = gateway_to(&origin).route("response_timeout", "100ms").route("lock_delay", "60s").start();
    assert_eq!(gate.ask(&post("/").token(7)).status, 504);
    assert!(!gate.stop());
}

#[test]
fn signals_are_obeyed_from_the_moment_it_says_that_it_listens() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().start();
    let config = folder.path().join("highgate.toml");
    std::fs::write(&config, config_for(origin.address, "").replace("300ms", "0s")).unwrap();
    for _ in 0..10 {
        let mut gate = highgate().config(&config).data(&folder.path().join("data")).start();
        gate.signal(Signal::HUP);
        gate.signal(Signal::TERM);
        assert_eq!(gate.exit_code(), 0, "{}", gate.said());
    }
}
