//! gRPC through the gateway, HTTP/2 on both sides: all four kinds of calls, trailers, refusals and cuts in its own words.

use std::time::Duration;

use h2::Reason;

use crate::support::{
    A_WHILE, Ask, Event, H2Origin, Running, Step, Stream, What, gateway, h2_origin, post, stays,
};

const LOCK_DELAY: Duration = Duration::from_millis(600);

fn call(token: u64) -> Ask {
    post("/ledger.Ledger/Transfer")
        .token(token)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
}

fn head() -> Step {
    Step::Head(200, vec![("content-type", "application/grpc")])
}

fn fine() -> Step {
    Step::Trailers(vec![("grpc-status", "0"), ("grpc-message", "done")])
}

fn stand(script: impl Fn(u64) -> Vec<Step> + Send + Sync + 'static) -> (H2Origin, Running) {
    let origin = h2_origin(move |request| script(request.token().unwrap_or(0)));
    let gate = gateway(origin.address)
        .route("upstream_protocol", "h2")
        .route("drain_timeout", "2s")
        .route("lock_delay", "600ms")
        .start();
    (origin, gate)
}

#[test]
fn a_unary_call_gets_its_message_and_its_trailers() {
    let (origin, gate) = stand(|_| vec![Step::Read, head(), Step::Data("answer"), fine()]);
    let unary = Stream::open(gate.address, &call(7));
    unary.send(b"question").end();
    assert_eq!(unary.head(200)["content-type"], "application/grpc");
    assert_eq!(unary.body(6), "answer");
    let trailers = unary.trailers();
    assert_eq!(
        (&trailers["grpc-status"], &trailers["grpc-message"]),
        (&"0".parse().unwrap(), &"done".parse().unwrap())
    );
    let seen = origin.seen();
    assert_eq!(
        (seen.requests[0].body.as_slice(), seen.requests[0].head.get("te")),
        (b"question".as_slice(), Some("trailers"))
    );
    gate.comes_to_rest();
}

#[test]
fn an_answer_of_trailers_only_is_an_answer() {
    let (_origin, gate) = stand(|_| {
        vec![Step::Read, Step::Head(200, vec![("content-type", "application/grpc"), ("grpc-status", "5")])]
    });
    let unary = Stream::open(gate.address, &call(7));
    unary.send(b"question").end();
    assert_eq!(unary.head(200)["grpc-status"], "5");
    assert_eq!(unary.next(), Event::End);
    gate.comes_to_rest();
}

#[test]
fn messages_of_the_server_come_as_they_are_sent() {
    let (origin, gate) =
        stand(|_| vec![Step::Read, head(), Step::Data("one"), Step::Hold("two"), Step::Data("two"), fine()]);
    let server = Stream::open(gate.address, &call(7));
    server.send(b"question").end();
    server.head(200);
    assert_eq!(server.body(3), "one");
    stays("the second message is not there yet", || origin.seen().when(0, What::Ended).is_none());
    origin.release("two");
    assert_eq!(server.body(3), "two");
    assert_eq!(server.trailers()["grpc-status"], "0");
}

#[test]
fn messages_of_the_client_are_passed_on_as_they_come() {
    let (origin, gate) = stand(|_| vec![Step::Read, head(), Step::Data("sum"), fine()]);
    let client = Stream::open(gate.address, &call(7));
    for (count, piece) in ["one", "two", "three"].into_iter().enumerate() {
        client.send(piece.as_bytes());
        let received = ["one", "two", "three"][..=count].concat().len() as u64;
        origin.wait("the message", |seen| {
            seen.requests.first().is_some_and(|first| first.received == received)
        });
    }
    client.end();
    client.head(200);
    assert_eq!(client.body(3), "sum");
    assert_eq!(client.trailers()["grpc-status"], "0");
}

#[test]
fn both_sides_talk_while_the_other_does() {
    let (_origin, gate) = stand(|_| vec![head(), Step::Echo, fine()]);
    let both = Stream::open(gate.address, &call(7));
    both.head(200);
    for piece in ["one", "two", "three"] {
        both.send(piece.as_bytes());
        assert_eq!(both.body(piece.len()), piece);
    }
    both.end();
    assert_eq!(both.trailers()["grpc-status"], "0");
    gate.comes_to_rest();
}

#[test]
fn request_trailers_of_grpc_reach_the_upstream_if_they_are_announced() {
    let (origin, gate) = stand(|_| vec![Step::Read, head(), fine()]);
    let client = Stream::open(gate.address, &call(7).header("trailer", "x-checksum"));
    client.send(b"question").end_with("x-checksum", "up");
    client.head(200);
    assert_eq!(client.trailers()["grpc-status"], "0");
    assert_eq!(origin.seen().requests[0].trailers, [("x-checksum".to_owned(), "up".to_owned())]);
}

#[test]
fn a_stale_call_fails_its_precondition_and_an_unreachable_upstream_is_unavailable() {
    let (_origin, gate) = stand(|_| vec![Step::Read, head(), fine()]);
    Stream::open(gate.address, &call(8)).end().head(200);
    let stale = Stream::open(gate.address, &call(7));
    stale.end();
    let head = stale.head(200);
    assert_eq!(
        (&head["grpc-status"], &head["x-fencing-reason"]),
        (&"9".parse().unwrap(), &"stale".parse().unwrap())
    );
    assert!(head["grpc-message"].to_str().unwrap().contains("below the mark 8"), "{head:?}");
    assert_eq!(stale.next(), Event::End);

    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gate = gateway(nowhere).route("upstream_protocol", "h2").start();
    let lost = Stream::open(gate.address, &call(7));
    lost.end();
    let head = lost.head(200);
    assert_eq!(
        (&head["grpc-status"], &head["x-fencing-outcome"]),
        (&"14".parse().unwrap(), &"not-sent".parse().unwrap())
    );
}

#[test]
fn a_stream_is_in_flight_for_its_whole_life_and_cut_after_the_drain_timeout() {
    let (origin, gate) = stand(|token| match token {
        7 => vec![head(), Step::Echo, Step::Silence],
        _ => vec![Step::Read, head(), fine()],
    });
    let seven = Stream::open(gate.address, &call(7));
    seven.head(200);
    seven.send(b"first");
    assert_eq!(seven.body(5), "first");
    let eight = Stream::open(gate.address, &call(8));
    eight.end();
    gate.raises_to(8);
    // It may go on for the drain time-out.
    seven.send(b"second");
    assert_eq!(seven.body(6), "second");
    assert!(!origin.has_token(8), "7 is under way");
    let trailers = seven.trailers();
    assert_eq!(trailers["grpc-status"], "14", "UNAVAILABLE, in words: {trailers:?}");
    assert_eq!(trailers["x-fencing-outcome"], "unknown");
    assert!(trailers["grpc-message"].to_str().unwrap().contains("a higher token waits"), "{trailers:?}");
    seven.send(b"too late");
    eight.head(200);
    assert_eq!(eight.trailers()["grpc-status"], "0");
    let seen = origin.seen();
    assert!(seen.when(0, What::Reset).is_some(), "the upstream's connection was reset: {:?}", seen.events);
    assert_eq!(seen.requests[0].body, b"firstsecond");
    seen.check_fenced(LOCK_DELAY);
}

#[test]
fn a_call_that_its_client_cancels_is_cut_and_unknown() {
    let (origin, gate) = stand(|token| match token {
        7 => vec![head(), Step::Echo, Step::Silence],
        _ => vec![Step::Read, head(), fine()],
    });
    let seven = Stream::open(gate.address, &call(7));
    seven.head(200);
    seven.send(b"first");
    assert_eq!(seven.body(5), "first");
    seven.reset(Reason::CANCEL);
    let eight = Stream::open(gate.address, &call(8));
    eight.end();
    eight.head(200);
    assert_eq!(eight.trailers()["grpc-status"], "0");
    origin.seen().check_fenced(A_WHILE);
}

#[test]
fn a_call_whose_upstream_breaks_off_is_unavailable() {
    let (origin, gate) =
        stand(|_| vec![head(), Step::Data("half"), Step::Hold("break"), Step::Reset(Reason::INTERNAL_ERROR)]);
    let call = Stream::open(gate.address, &call(7));
    call.head(200);
    assert_eq!(call.body(4), "half");
    origin.release("break");
    assert_eq!(call.trailers()["grpc-status"], "14");
}
