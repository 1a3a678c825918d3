//! A body that an upstream does not read is never its next request, as far as the gateway can see to that.

use crate::support::{Ask, H2, Origin, Running, ask, gateway_to, get, origin, post, put, reply};

/// A request that must never be taken for one.
const INNER: &str =
    "POST /smuggled HTTP/1.1\r\nHost: ledger.test\r\nX-Fencing-Token: 5\r\nContent-Length: 0\r\n\r\n";

const READS: [&str; 4] = ["GET", "HEAD", "OPTIONS", "TRACE"];

/// An upstream that answers without reading a body, and goes on with what is left of it unless it was told to close.
fn careless() -> Origin {
    origin()
        .answering(|request| match request.head.get("connection") {
            Some("close") => reply(200).early().then_closes(),
            _ => reply(200).early(),
        })
        .start()
}

fn targets(origin: &Origin) -> Vec<String> {
    origin.seen().requests.iter().map(|request| request.target().to_owned()).collect()
}

/// Every way to send this body with HTTP/1.1.
fn both_ways(ask: &Ask) -> [Ask; 2] {
    [ask.clone().body(INNER), ask.clone().body(INNER).chunked()]
}

#[test]
fn a_body_on_a_read_is_refused_and_the_answer_names_the_key() {
    let origin = careless();
    let gate = gateway_to(&origin).start();
    for method in READS {
        for request in both_ways(&ask(method, "/")) {
            let mut client = gate.connect();
            client.send(request.bytes());
            let answer = if method == "HEAD" { client.response_without_body() } else { client.response() };
            assert_eq!((answer.status, answer.reason()), (400, Some("malformed")), "{method}: {answer:?}");
            assert!(method == "HEAD" || answer.text().contains("`read_bodies = true`"), "{answer:?}");
        }
    }
    assert!(origin.received_nothing());
}

#[test]
fn a_body_on_a_read_is_refused_over_http2_whether_it_was_announced_or_not() {
    let origin = careless();
    let gate = gateway_to(&origin).start();
    let client = H2::connect(gate.address);
    for request in [get("/").body("x"), get("/").header("content-length", "1").body("x")] {
        client.ask(&request).is_refused(400, "malformed");
    }
    assert!(origin.received_nothing());
    client.ask(&get("/")).is_ok();
    assert_eq!(origin.only_request().head.get("connection"), None, "no body, no connection of its own");
}

#[test]
fn a_fenced_read_may_not_have_a_body_either() {
    let origin = careless();
    let gate = gateway_to(&origin).route("fenced_methods", vec!["GET"]).start();
    gate.ask(&get("/").token(7).body(INNER)).is_refused(400, "malformed");
    assert!(origin.received_nothing());
}

/// What is sent on this gateway, which has one worker and so one pool, goes out on a connection that is not used again, and
/// nothing of it becomes a request.
fn goes_alone(origin: &Origin, gate: &Running, request: &Ask) {
    let before = origin.seen().connections;
    gate.ask(request).is_ok();
    gate.ask(&post("/next").token(900)).is_ok();
    let seen = origin.seen();
    assert!(seen.requests.iter().all(|request| request.target() != "/smuggled"), "{request:?}");
    let sent = seen.requests.iter().rev().find(|sent| sent.target() == request.path).unwrap();
    assert_eq!(sent.head.get("connection"), Some("close"), "{request:?}");
    assert!(seen.connections > before, "{request:?} left its connection to the next request");
}

#[test]
fn a_route_that_wants_bodies_on_reads_has_them_on_connections_of_their_own() {
    let origin = careless();
    let gate = gateway_to(&origin).route("read_bodies", true).listen("workers", 1).start();
    gate.ask(&post("/first").token(900)).is_ok();
    for request in both_ways(&get("/read")) {
        goes_alone(&origin, &gate, &request);
    }
    H2::connect(gate.address).ask(&get("/read").body(INNER)).is_ok();
    assert_eq!(origin.seen().requests.last().unwrap().head.get("connection"), Some("close"));
    assert!(!targets(&origin).contains(&"/smuggled".to_owned()));
}

#[test]
fn a_body_without_a_permit_goes_alone_whatever_its_method() {
    let origin = careless();
    let gate = gateway_to(&origin).route("fenced_methods", vec!["POST"]).listen("workers", 1).start();
    for request in both_ways(&put("/search")) {
        goes_alone(&origin, &gate, &request);
    }
    let gate = gateway_to(&origin).route("missing_token", "allow").listen("workers", 1).start();
    for request in both_ways(&post("/search")) {
        goes_alone(&origin, &gate, &request);
    }
}

#[test]
fn the_connection_of_a_body_that_was_turned_down_is_not_used_again() {
    let origin = origin().answering(|_| reply(403).body("no")).start();
    let gate = gateway_to(&origin).listen("workers", 1).start();
    let connections = || origin.seen().connections;
    let mut client = gate.connect();
    for _ in 0..3 {
        assert_eq!(client.ask(&post("/").token(7)).status, 403);
    }
    assert_eq!(connections(), 1, "without a body there is nothing to be left over");
    for _ in 0..3 {
        assert_eq!(client.ask(&post("/").token(7).body("unread, perhaps")).status, 403);
    }
    assert_eq!(connections(), 3, "the first goes out on the old one");
}

#[test]
fn a_route_can_do_without_keeping_connections() {
    let origin = careless();
    let gate = gateway_to(&origin).route("upstream_keep_alive", false).listen("workers", 1).start();
    let mut client = gate.connect();
    for request in [post("/").token(7).body(INNER), post("/").token(7), get("/")] {
        client.ask(&request).is_ok();
    }
    assert_eq!(targets(&origin), ["/", "/", "/"]);
    let seen = origin.seen();
    assert!(seen.requests.iter().all(|request| request.head.get("connection") == Some("close")));
    assert_eq!(seen.connections, 3);
}
