//! A body is no larger than its route says, and the answer says what became of what was sent of it.

use std::time::Duration;

use crate::support::{H2, Origin, PATIENCE, Running, eventually, gateway_to, origin, post};

const LOCK_DELAY: Duration = Duration::from_millis(300);

fn limited(max_body: &str) -> (Origin, Running) {
    let origin = origin().start();
    let gate = gateway_to(&origin).route("max_body", max_body).start();
    (origin, gate)
}

#[test]
fn a_body_that_is_announced_as_too_large_is_not_asked_for() {
    let (origin, gate) = limited("1KiB");
    let mut client = gate.connect();
    client.send(post("/").token(7).header("Expect", "100-continue").body(vec![b'x'; 1025]).head());
    let refused = client.response();
    refused.is_refused(413, "too-large");
    assert!(refused.text().contains("`max_body` of the route, 1024 bytes"), "{refused:?}");
    assert!(refused.outcome().is_none(), "nothing was sent");
    assert!(client.is_closed_within(PATIENCE));
    let announced = post("/").token(7).header("content-length", "1025").body(vec![b'x'; 1025]);
    H2::connect(gate.address).ask(&announced).is_refused(413, "too-large");
    assert!(origin.received_nothing());
    gate.ask(&post("/").token(7).body(vec![b'x'; 1024])).is_ok();
}

#[test]
fn a_small_limit_is_checked_before_anything_is_forwarded() {
    for (limit, bytes) in [("1KiB", 1 << 10), ("64KiB", 64 << 10)] {
        let (origin, gate) = limited(limit);
        let mut client = gate.connect();
        client.send(post("/").token(7).chunked().head());
        client.send_chunk(vec![b'x'; bytes]).send_chunk("x");
        client.response().is_refused(413, "too-large");
        let unsaid = post("/").token(7).body(vec![b'x'; bytes + 1]);
        H2::connect(gate.address).ask(&unsaid).is_refused(413, "too-large");
        assert!(origin.received_nothing(), "{limit}");
        gate.ask(&post("/").token(7).chunked().body(vec![b'x'; bytes])).is_ok();
        H2::connect(gate.address).ask(&post("/").token(7).body(vec![b'x'; bytes])).is_ok();
        assert!(origin.seen().requests.iter().all(|request| request.received == bytes as u64));
    }
}

#[test]
fn a_body_that_grows_too_large_on_its_way_is_cut_and_its_outcome_unknown() {
    let (origin, gate) = limited("200KiB");
    let mut client = gate.connect();
    client.send(post("/").token(7).chunked().head()).send_chunk(vec![b'x'; 100 << 10]);
    origin.wait("a part of it", |seen| seen.requests.first().is_some_and(|first| first.received > 0));
    client.send_chunk(vec![b'x'; 101 << 10]);
    let refused = client.response();
    refused.is_refused(413, "too-large");
    assert_eq!(refused.outcome(), Some("unknown"), "{refused:?}");
    gate.ask(&post("/").token(8)).is_ok();
    origin.seen().check_fenced(LOCK_DELAY);
    let counted = "highgate_requests_total{route=\"ledger\",decision=\"failed\",reason=\"too-large\"} 1";
    eventually("it is counted", || gate.admin("/metrics").text().contains(counted));
    gate.ask(&post("/").token(8).chunked().body(vec![b'x'; 200 << 10])).is_ok();
}

#[test]
fn a_body_that_breaks_off_on_its_way_is_the_clients_fault_and_its_outcome_unknown() {
    let (origin, gate) = limited("none");
    let mut client = gate.connect();
    client.send(post("/").token(7).chunked().head()).send_chunk(vec![b'x'; 100 << 10]);
    origin.wait("a part of it", |seen| seen.requests.first().is_some_and(|first| first.received > 0));
    client.send("no chunk\r\n");
    let refused = client.response();
    refused.is_refused(400, "malformed");
    assert_eq!(refused.outcome(), Some("unknown"), "{refused:?}");
    gate.ask(&post("/").token(8)).is_ok();
    origin.seen().check_fenced(LOCK_DELAY);
}
