//! HTTP/2 to upstreams: the same fence, one exchange at a time on a connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use h2::Reason;

use crate::support::{
    A_WHILE, GateBuilder, H2, H2Origin, Response, Running, Step, Stream, WINDOW, What, gateway, gateway_to,
    get, h2_origin, ok, origin, post, put, stays,
};

fn gateway_h2(upstream: SocketAddr) -> GateBuilder {
    gateway(upstream).route("upstream_protocol", "h2")
}

fn stand(script: impl Fn(u64) -> Vec<Step> + Send + Sync + 'static) -> (H2Origin, Running) {
    let origin = h2_origin(move |request| script(request.token().unwrap_or(0)));
    let gate = gateway_h2(origin.address).start();
    (origin, gate)
}

fn failed_with(answer: &Response, status: u16, outcome: &str) {
    answer.is_refused(status, "upstream");
    assert_eq!(answer.outcome(), Some(outcome), "{answer:?}");
}

#[test]
fn a_request_of_either_version_arrives_as_it_was_sent() {
    let (origin, gate) = stand(|_| ok());
    let sent =
        put("/a/b%20c?x=1").token(7).header("Idempotency-Key", "k").header("TE", "trailers").body("the body");
    assert_eq!(gate.ask(&sent).is_ok().text(), "ok");
    assert_eq!(H2::connect(gate.address).ask(&sent).is_ok().text(), "ok");
    let seen = origin.seen();
    assert_eq!(seen.requests.len(), 2);
    assert_eq!(seen.requests[0].head.length(), Some(8));
    for (request, via) in seen.requests.iter().zip(["1.1 highgate", "2.0 highgate"]) {
        assert_eq!(request.head.start, "PUT http://ledger.test/a/b%20c?x=1");
        assert_eq!((request.token(), request.body.as_slice()), (Some(7), b"the body".as_slice()));
        assert_eq!(request.head.get("idempotency-key"), Some("k"));
        assert_eq!(request.head.get("te"), Some("trailers"));
        assert_eq!(request.head.get("via"), Some(via));
        assert_eq!(request.head.get("x-forwarded-host"), Some("ledger.test"));
        for gone in ["host", "connection", "transfer-encoding"] {
            assert_eq!(request.head.get(gone), None, "{gone}");
        }
    }
}

#[test]
fn requests_without_a_body_or_a_length_are_framed_by_their_stream() {
    let (origin, gate) = stand(|_| ok());
    gate.ask(&get("/")).is_ok();
    gate.ask(&post("/").token(7).chunked().body("chunks")).is_ok();
    gate.ask(&post("/").token(7).body("x".repeat(300_000))).is_ok();
    let seen = origin.seen();
    let bodies: Vec<_> =
        seen.requests.iter().map(|request| (request.head.length(), request.received)).collect();
    assert_eq!(bodies, [(None, 0), (None, 6), (Some(300_000), 300_000)]);
}

#[test]
fn requests_one_after_the_other_share_a_connection_and_those_beside_each_other_do_not() {
    let (origin, gate) = stand(|token| match token {
        7 => vec![Step::Hold("both"), Step::Head(200, vec![])],
        _ => ok(),
    });
    let gate_of_one = gateway_h2(origin.address).listen("workers", 1).start();
    for _ in 0..5 {
        gate_of_one.ask(&get("/")).is_ok();
    }
    assert_eq!(origin.seen().connections, 1);
    drop(gate);
    let both = [gate_of_one.begin(post("/").token(7)), gate_of_one.begin(post("/").token(7))];
    origin.wait("both at once", |seen| seen.with_token(7).len() == 2);
    assert_eq!(origin.seen().connections, 2, "a connection has one exchange at a time");
    origin.release("both");
    for pending in both {
        pending.answer().is_ok();
    }
}

#[test]
fn an_upstream_without_keep_alive_gets_a_connection_a_request() {
    let origin = h2_origin(|_| ok());
    let gate = gateway_h2(origin.address).route("upstream_keep_alive", false).start();
    for _ in 0..3 {
        gate.ask(&get("/")).is_ok();
    }
    assert_eq!(origin.seen().connections, 3);
}

#[test]
fn a_higher_token_waits_for_the_stream_of_the_lower_one() {
    let (origin, gate) = stand(|token| match token {
        7 => vec![
            Step::Read,
            Step::Head(200, vec![]),
            Step::Data("half "),
            Step::Hold("rest"),
            Step::Data("and half"),
            Step::End,
        ],
        _ => ok(),
    });
    let seven = Stream::open(gate.address, &post("/").token(7).body("transfer"));
    seven.end();
    seven.head(200);
    assert_eq!(seven.body(5), "half ");
    let eight = gate.begin(post("/").token(8));
    gate.raises_to(8);
    stays("8 is not sent", || !origin.has_token(8));
    origin.release("rest");
    assert_eq!(seven.body(8), "and half");
    eight.answer().is_ok();
    gate.ask(&post("/").token(7)).is_refused(412, "stale");
    origin.seen().check_fenced(A_WHILE);
}

#[test]
fn a_client_that_hung_up_does_not_end_its_stream() {
    let (origin, gate) = stand(|token| match token {
        7 => vec![Step::Read, Step::Hold("seven"), Step::Head(200, vec![])],
        _ => ok(),
    });
    let mut seven = gate.connect();
    seven.send(post("/").token(7).body("transfer").bytes());
    origin.receives_token(7);
    drop(seven);
    let eight = gate.begin(post("/").token(8));
    gate.raises_to(8);
    stays("8 is not sent", || !origin.has_token(8));
    origin.release("seven");
    eight.answer().is_ok();
    origin.seen().check_fenced(A_WHILE);
}

#[test]
fn after_the_drain_timeout_the_connection_is_reset_and_the_lock_delay_waited() {
    let origin = h2_origin(|request| match request.token() {
        Some(7) => vec![Step::Read, Step::Silence],
        _ => ok(),
    });
    let gate =
        gateway_h2(origin.address).route("drain_timeout", "200ms").route("lock_delay", "600ms").start();
    let seven = gate.begin(post("/").token(7));
    origin.receives_token(7);
    gate.ask(&post("/").token(8)).is_ok();
    failed_with(&seven.answer(), 504, "unknown");
    let seen = origin.seen();
    assert!(seen.when(0, What::Reset).is_some(), "reset, not closed: {:?}", seen.events);
    seen.check_fenced(Duration::from_millis(600));
}

#[test]
fn resets_of_the_upstream_leave_the_outcome_unknown_unless_it_refused() {
    for (reason, outcome) in [
        (Reason::REFUSED_STREAM, "not-sent"),
        (Reason::CANCEL, "unknown"),
        (Reason::NO_ERROR, "unknown"),
        (Reason::INTERNAL_ERROR, "unknown"),
        (Reason::ENHANCE_YOUR_CALM, "unknown"),
    ] {
        let (origin, gate) = stand(move |token| match token {
            7 => vec![Step::Read, Step::Reset(reason)],
            _ => ok(),
        });
        failed_with(&gate.ask(&post("/").token(7).body("x")), 502, outcome);
        gate.ask(&post("/").token(8)).is_ok();
        assert_eq!(origin.seen().requests.len(), 2, "nothing is sent twice");
    }
}

#[test]
fn a_response_that_is_reset_after_its_head_is_no_whole_response() {
    for reason in [Reason::NO_ERROR, Reason::CANCEL, Reason::REFUSED_STREAM] {
        let origin = h2_origin(move |request| match request.token() {
            Some(7) => vec![
                Step::Read,
                Step::Head(200, vec![]),
                Step::Data("half"),
                Step::Hold("seen"),
                Step::Reset(reason),
            ],
            _ => ok(),
        });
        let gate = gateway_h2(origin.address).route("on_unknown", "block").start();
        let mut seven = gate.connect();
        seven.send(post("/").token(7).bytes());
        assert_eq!(seven.response_head().get("transfer-encoding"), Some("chunked"));
        assert_eq!(seven.body_bytes(7), b"4\r\nhalf");
        origin.release("seen");
        assert!(seven.ends_within(Duration::from_secs(5)), "{reason:?}: the client sees that it broke off");
        let eight = gate.begin(post("/").token(8));
        gate.raises_to(8);
        stays("the outcome is unknown, and the route blocks", || !origin.has_token(8));
        gate.operate("thaw", "default");
        eight.answer().is_ok();
    }
}

#[test]
fn a_response_that_ends_before_its_request_is_unknown_although_it_is_whole() {
    let origin = h2_origin(|request| match request.token() {
        // The window for the body is never opened further.
        Some(7) => {
            vec![Step::Head(200, vec![]), Step::Data("early"), Step::Hold("read"), Step::End, Step::Silence]
        }
        _ => ok(),
    });
    let gate = gateway_h2(origin.address).route("on_unknown", "block").start();
    let seven = Stream::open(gate.address, &post("/").token(7));
    // One byte more than the upstream lets anybody send: hyper has all of it, and the last byte stays here.
    seven.send(&vec![b'x'; WINDOW as usize + 1]).end();
    seven.head(200);
    assert_eq!(seven.body(5), "early");
    origin.release("read");
    let eight = gate.begin(post("/").token(8));
    gate.raises_to(8);
    stays("bytes of the request were still leaving", || !origin.has_token(8));
    gate.operate("thaw", "default");
    eight.answer().is_ok();
}

#[test]
fn an_upstream_that_does_not_speak_http2_is_sent_no_request() {
    let origin = origin().start();
    let gate = gateway_to(&origin).route("upstream_protocol", "h2").start();
    let answer = gate.ask(&post("/").token(7).body("x"));
    failed_with(&answer, 502, "not-sent");
    assert!(answer.text().contains("does not speak HTTP/2"), "{answer:?}");
    assert!(!origin.seen().requests.iter().any(|request| request.head.start.starts_with("POST")));
    gate.comes_to_rest();
}

#[test]
fn an_upstream_that_never_greets_is_too_slow() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let gate = gateway_h2(listener.local_addr().unwrap()).route("connect_timeout", "200ms").start();
    failed_with(&gate.ask(&post("/").token(7)), 504, "not-sent");
}

fn frame(kind: u8, flags: u8, stream: u32, load: &[u8]) -> Vec<u8> {
    let length = u32::try_from(load.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), load].concat()
}

/// Greets, waits for a request's head, and answers with these bytes; then closes.
fn raw_frames(answer: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            stream.write_all(&frame(4, 0, 0, &[])).unwrap();
            let mut received = vec![0; 24];
            stream.read_exact(&mut received).unwrap();
            loop {
                let mut head = [0; 9];
                stream.read_exact(&mut head).unwrap();
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
                stream.read_exact(&mut vec![0; length]).unwrap();
                if head[3] == 1 {
                    break;
                }
            }
            stream.write_all(&answer).unwrap();
        }
    });
    address
}

#[test]
fn a_goaway_spares_only_the_streams_above_the_one_that_it_names() {
    let goaway = |last: u32| frame(7, 0, 0, &[last.to_be_bytes(), [0; 4]].concat());
    for (frames, outcome) in [(goaway(0), "not-sent"), (goaway(1), "unknown"), (vec![], "unknown")] {
        let gate = gateway_h2(raw_frames(frames)).start();
        failed_with(&gate.ask(&post("/").token(7)), 502, outcome);
    }
}

#[test]
fn what_was_refused_delays_nobody() {
    let origin = h2_origin(|request| match request.token() {
        Some(7) => vec![Step::Reset(Reason::REFUSED_STREAM)],
        _ => ok(),
    });
    let gate = gateway_h2(origin.address).route("on_unknown", "block").start();
    failed_with(&gate.ask(&post("/").token(7)), 502, "not-sent");
    gate.ask(&post("/").token(8)).is_ok();
}
