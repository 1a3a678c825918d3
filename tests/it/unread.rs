//! A refused request's body, read or not, is never the next request.

use crate::support::h2_raw::{
    DATA, END_HEADERS, END_STREAM, HEADERS, PING, POST_7, RST_STREAM, RawH2, frame,
};
use crate::support::{Ask, Client, Origin, Pending, Running, gateway_to, get, origin, post};

/// A whole request that must never be taken for one.
const INNER: &str =
    "POST /smuggled HTTP/1.1\r\nHost: ledger.test\r\nX-Fencing-Token: 9\r\nContent-Length: 0\r\n\r\n";

fn stand() -> (Origin, Running) {
    let origin = origin().start();
    let gate = gateway_to(&origin).start();
    gate.ask(&post("/").token(8)).is_ok();
    (origin, gate)
}

/// One request for each refusal that comes before the body is read.
fn refused() -> [(Ask, u16); 4] {
    [
        (post("/").token(7), 412),
        (post("/"), 428),
        (post("/").header("X-Fencing-Token", "7,8"), 400),
        (post("/a//b").token(8), 400),
    ]
}

/// Sends `first`, reads the refusal, sends `late` and then an honest request on the same connection.
fn body_stays_a_body(first: &[u8], late: &[u8], status: u16) {
    let (origin, gate) = stand();
    let mut client = gate.connect();
    client.send(first);
    assert_eq!(client.response().status, status);
    client.send(late).send(get("/honest").header("Connection", "close").bytes());
    // The gateway may hang up or may have read the body; there is no third way.
    if let Some(answer) = client.response_if_any() {
        answer.is_ok();
        assert_eq!(client.response_if_any().map(|more| more.status), None, "one answer for one request");
    }
    gate.ask(&get("/last")).is_ok();
    let seen = origin.seen();
    let targets: Vec<_> = seen.requests.iter().map(|request| request.target()).collect();
    assert!(targets.iter().all(|target| ["/", "/honest", "/last"].contains(target)), "{targets:?}");
    assert_eq!(gate.mark("default"), 8);
}

#[test]
fn a_body_sent_with_the_refused_request() {
    for (ask, status) in refused() {
        body_stays_a_body(&ask.body(INNER).bytes(), b"", status);
    }
}

#[test]
fn a_body_sent_after_the_refusal() {
    for (ask, status) in refused() {
        body_stays_a_body(&ask.body(INNER).head(), INNER.as_bytes(), status);
    }
}

#[test]
fn a_body_half_sent_before_the_refusal() {
    for (ask, status) in refused() {
        let bytes = ask.body(INNER).bytes();
        let (first, late) = bytes.split_at(bytes.len() - INNER.len() / 2);
        body_stays_a_body(first, late, status);
    }
}

#[test]
fn a_chunked_body_sent_with_the_refused_request() {
    for (ask, status) in refused() {
        body_stays_a_body(&ask.body(INNER).chunked().bytes(), b"", status);
    }
}

#[test]
fn a_chunked_body_sent_after_the_refusal() {
    for (ask, status) in refused() {
        let ask = ask.body(INNER).chunked();
        let (head, all) = (ask.head(), ask.bytes());
        body_stays_a_body(&head, &all[head.len()..], status);
    }
}

#[test]
fn a_body_that_was_asked_to_wait_for_100_continue() {
    for (ask, status) in refused() {
        let head = ask.header("Expect", "100-continue").body(INNER).head();
        body_stays_a_body(&head, b"", status);
        body_stays_a_body(&head, INNER.as_bytes(), status);
    }
}

#[test]
fn a_large_body_that_nobody_reads() {
    let body: Vec<u8> = INNER.bytes().cycle().take(INNER.len() * 40_000).collect();
    let (origin, gate) = stand();
    let address = gate.address;
    let sent = body.len();
    let answer = Pending::new(move || {
        let mut client = Client::connect(address);
        let ask = post("/").token(7).body(body);
        client.send(ask.head());
        let answer = client.response();
        client.send(&ask.body);
        answer
    });
    answer.answer().is_refused(412, "stale");
    gate.ask(&get("/last")).is_ok();
    let seen = origin.seen();
    assert!(seen.requests.iter().all(|request| request.target() != "/smuggled"), "{sent} bytes were a body");
}

#[test]
fn a_client_that_sends_on_after_its_refusal_keeps_its_connection() {
    let (_origin, gate) = stand();
    for ask in [post("/").token(7), post("/")] {
        let mut client = gate.connect();
        let ask = ask.body(INNER.repeat(1000));
        client.send(ask.head());
        assert!([412, 428].contains(&client.response().status));
        client.send(&ask.body);
        client.ask(&get("/honest")).is_ok();
    }
}

#[test]
fn a_stream_that_is_refused_early_is_not_reset() {
    let (_origin, gate) = stand();
    let mut client = RawH2::connect(gate.address);
    assert!(client.send(&frame(HEADERS, END_HEADERS, 1, POST_7)));
    client.wait_for(DATA).expect("the refusal's body");
    let rest =
        [frame(DATA, 0, 1, &[b'x'; 9000]), frame(DATA, END_STREAM, 1, b"x"), frame(PING, 0, 0, &[7; 8])];
    assert!(client.send(&rest.concat()));
    assert!(client.kinds_until(PING).is_some_and(|(kinds, _)| !kinds.contains(&RST_STREAM)));
}
