//! Origins that are down, slow, rude or lying: the outcome is stated, nothing hangs, nothing is sent twice.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use crate::support::{
    Ask, Origin, Reply, Response, Running, What, delete, eventually, gateway, gateway_to, get, origin, post,
    put, raw, reply, stays,
};

/// An address where nobody listens.
fn nowhere() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

fn stand(replies: impl IntoIterator<Item = Reply>) -> (Origin, Running) {
    let origin = origin().answering_in_turn(replies).start();
    let gate = gateway_to(&origin).route("response_timeout", "300ms").start();
    (origin, gate)
}

fn failed_with(answer: &Response, status: u16, outcome: &str) {
    answer.is_refused(status, "upstream");
    assert_eq!(answer.outcome(), Some(outcome), "{answer:?}");
}

#[test]
fn an_origin_that_is_down_was_sent_nothing() {
    let gate = gateway(nowhere()).start();
    for ask in [post("/").token(7).body("x"), put("/").token(7), get("/"), delete("/").token(8)] {
        failed_with(&gate.ask(&ask), 502, "not-sent");
    }
    gate.comes_to_rest();
}

#[test]
fn what_was_not_sent_delays_nobody() {
    let gate = gateway(nowhere()).route("lock_delay", "9s").start();
    let begun = Instant::now();
    for token in 1..4 {
        failed_with(&gate.ask(&post("/").token(token)), 502, "not-sent");
    }
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

#[test]
fn an_origin_that_is_too_slow_leaves_the_outcome_unknown() {
    let (origin, gate) = stand([reply(200).silence()]);
    let begun = Instant::now();
    failed_with(&gate.ask(&post("/").token(7)), 504, "unknown");
    assert!(begun.elapsed() >= Duration::from_millis(250), "{:?}", begun.elapsed());
    assert_eq!(origin.count(), 1);
    origin.wait("the end of the connection", |seen| {
        seen.when(0, What::Reset).is_some() || seen.when(0, What::Closed).is_some()
    });
}

/// Answers that end before they are a response at all.
fn no_answers() -> Vec<Reply> {
    vec![
        reply(200).nothing(),
        reply(200).reset(),
        raw("HTTP/1.1 200 OK\r\nContent-Le"),
        raw("SSH-2.0-OpenSSH_9.9\r\n\r\n"),
        raw("HTTP/1.1 2000 Much\r\n\r\n"),
        raw("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc"),
        raw("HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nab"),
        raw("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"),
    ]
}

#[test]
fn an_origin_that_gives_no_answer_leaves_the_outcome_unknown() {
    for answer in no_answers() {
        let (origin, gate) = stand([answer.clone(), answer.clone()]);
        failed_with(&gate.ask(&post("/").token(7).body("x")), 502, "unknown");
        assert_eq!(origin.count(), 1, "once: {answer:?}");
        let read = gate.ask(&get("/"));
        assert_eq!((read.status, read.reason()), (502, Some("upstream")), "{answer:?}");
        assert_eq!(origin.count(), 2, "a read is not tried again either: {answer:?}");
    }
}

#[test]
fn a_response_that_breaks_off_is_visibly_broken() {
    for broken in [
        reply(200).header("content-length", "100").framed_by_hand().body("ten bytes.").cut_short(),
        reply(200).header("content-length", "100").framed_by_hand().body("ten bytes.").then_resets(),
        reply(200).chunked("5\r\nhello\r\n").cut_short(),
        reply(200).chunked("5\r\nhello\r\n").then_resets(),
        reply(200).chunked("5\r\nhel").cut_short(),
        reply(200).chunked("zz\r\nhello\r\n").cut_short(),
    ] {
        let (origin, gate) = stand([broken.clone()]);
        let answer = gate.ask(&post("/").token(7));
        match answer.status {
            200 => assert!(!answer.complete, "{broken:?} looked whole: {answer:?}"),
            _ => failed_with(&answer, 502, "unknown"),
        }
        assert_eq!(origin.count(), 1, "{broken:?}");
    }
}

#[test]
fn a_response_that_stalls_is_ended_by_the_idle_timeout() {
    let origin = origin().answering_in_turn([reply(200).body("half and half").held_in_body("never")]).start();
    let gate = gateway_to(&origin).route("idle_timeout", "300ms").start();
    let answer = gate.ask(&post("/").token(7));
    assert_eq!((answer.status, answer.complete), (200, false));
    assert_eq!(origin.count(), 1);
}

#[test]
fn a_request_that_takes_too_long_altogether_is_ended() {
    let origin = origin().answering_in_turn([reply(200).body("half and half").held_in_body("never")]).start();
    let gate = gateway_to(&origin).route("total_timeout", "400ms").start();
    let begun = Instant::now();
    let answer = gate.ask(&post("/").token(7));
    assert_eq!((answer.status, answer.complete), (200, false));
    assert!(begun.elapsed() >= Duration::from_millis(350), "{:?}", begun.elapsed());
}

#[test]
fn more_bytes_than_announced_are_nobodys_response() {
    let poison = "okHTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison";
    let origin = origin()
        .answering(move |request| match request.target() {
            "/poison" => reply(200).header("content-length", "2").framed_by_hand().body(poison),
            _ => reply(200).body("clean"),
        })
        .start();
    let gate = gateway_to(&origin).listen("workers", 1).start();
    for _ in 0..20 {
        let answer = gate.ask(&post("/poison").token(7));
        assert!(matches!(answer.status, 200 | 502), "{answer:?}");
        if answer.status == 200 {
            assert_eq!(answer.text(), "ok");
        }
        let clean = gate.ask(&post("/clean").token(7));
        assert_eq!(clean.is_ok().text(), "clean");
    }
}

#[test]
fn a_connection_that_the_origin_closed_while_idle_is_not_used() {
    let origin = origin().answering(|_| reply(200).body("ok").then_closes()).start();
    let gate = gateway_to(&origin).listen("workers", 1).start();
    for round in 1..=8 {
        gate.ask(&post("/").token(7)).is_ok();
        // The origin has closed: the gateway has this long to notice.
        stays("nothing is sent again", || origin.count() == round);
    }
}

#[test]
fn a_connection_that_closes_under_the_next_request_is_never_a_second_delivery() {
    let origin = origin().answering(|_| reply(200).body("ok").then_closes()).start();
    let gate = gateway_to(&origin).listen("workers", 1).start();
    let mut client = gate.connect();
    let mut passed = 0;
    for turn in 0..100 {
        let answer = client.ask(&post(&format!("/{turn}")).token(7));
        match answer.status {
            200 => passed += 1,
            502 => assert!(answer.outcome().is_some(), "{answer:?}"),
            _ => panic!("{answer:?}"),
        }
    }
    let seen = origin.seen();
    for turn in 0..100 {
        let deliveries =
            seen.requests.iter().filter(|request| request.target() == format!("/{turn}")).count();
        assert!(deliveries <= 1, "/{turn} was delivered {deliveries} times");
    }
    assert!(passed >= 50, "{passed} of 100 passed");
}

#[test]
fn good_connections_are_used_again() {
    let origin = origin().start();
    let gate = gateway_to(&origin).listen("workers", 1).start();
    for _ in 0..20 {
        gate.ask(&post("/").token(7)).is_ok();
    }
    assert!(origin.seen().connections <= 2, "{} connections for 20 requests", origin.seen().connections);
}

/// A body too large for every buffer on the way.
fn large() -> Ask {
    post("/").token(7).body(vec![b'x'; 24 * 1024 * 1024])
}

#[test]
fn an_origin_that_answers_before_the_upload_ends_is_heard() {
    let (origin, gate) =
        stand([reply(413).body("too much").early().header("connection", "close").then_closes()]);
    let answer = gate.connect().send(large().bytes()).response_if_any();
    if let Some(answer) = answer {
        match answer.status {
            413 => assert_eq!(answer.text(), "too much"),
            _ => failed_with(&answer, 502, "unknown"),
        }
    }
    assert_eq!(origin.count(), 1);
    gate.comes_to_rest();
}

#[test]
fn an_origin_that_resets_during_the_upload_is_no_hang() {
    let (origin, gate) = stand([reply(200).early().reset()]);
    let answer = gate.connect().send(large().bytes()).response_if_any();
    if let Some(answer) = answer {
        failed_with(&answer, 502, "unknown");
    }
    assert_eq!(origin.count(), 1);
    gate.comes_to_rest();
    gate.ask(&post("/").token(7)).is_ok();
}

#[test]
fn an_early_answer_to_a_request_under_way_keeps_the_fence_until_its_end() {
    let (origin, gate) = stand([reply(200).body("half and half").early().held_in_body("rest")]);
    let mut seven = gate.connect();
    seven.send(post("/").token(7).chunked().head()).send_chunk(vec![b'x'; 100 * 1024]);
    origin.wait("the answer's beginning", |seen| seen.when(0, What::Started).is_some());
    let eight = gate.begin(post("/").token(8));
    gate.raises_to(8);
    stays("8 is not sent", || !origin.has_token(8));
    origin.release("rest");
    drop(seven);
    eight.answer().is_ok();
    origin.seen().check_fenced(Duration::ZERO);
}

#[test]
fn interim_responses_do_not_end_a_request() {
    let hints =
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone";
    let (_origin, gate) = stand([raw(hints)]);
    let mut client = gate.connect();
    client.send(post("/").token(7).bytes());
    let mut head = client.response_head();
    while head.start.starts_with("HTTP/1.1 1") {
        head = client.response_head();
    }
    assert!(head.start.starts_with("HTTP/1.1 200"), "{}", head.start);
    assert_eq!(client.body_bytes(4), b"done");
}

#[test]
fn a_failed_connection_is_not_the_end_of_an_origin() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let gate = gateway(address).start();
    failed_with(&gate.ask(&post("/").token(7)), 502, "not-sent");
    let listener = TcpListener::bind(address).unwrap();
    let mut client = gate.connect();
    client.send(post("/").token(7).bytes());
    listener.set_nonblocking(true).unwrap();
    eventually("the gateway connects again", || listener.accept().is_ok());
}
