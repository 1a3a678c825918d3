//! An end that is not a complete response: the outcome is unknown, and the route says what that means.

use std::time::{Duration, Instant};

use crate::support::{
    A_WHILE, Origin, Reply, Response, What, eventually, gateway_to, origin, post, raw, reply, stays,
};

const LOCK_DELAY: Duration = Duration::from_millis(600);
/// What a timer and a busy machine may take off.
const SLACK: Duration = Duration::from_millis(60);

/// Token 7 never gets an answer.
fn silent_for_seven() -> Origin {
    origin()
        .answering(|request| match request.token() {
            Some(7) => reply(200).silence(),
            _ => reply(200).body("other"),
        })
        .start()
}

fn has_unknown_outcome(response: &Response) {
    assert!(matches!(response.status, 502 | 504), "{response:?}");
    response.is_refused(response.status, "upstream");
    assert_eq!(response.outcome(), Some("unknown"), "{response:?}");
}

#[test]
fn after_the_drain_timeout_the_connection_is_reset_and_the_lock_delay_waited() {
    let origin = silent_for_seven();
    let gate = gateway_to(&origin).route("drain_timeout", "200ms").route("lock_delay", "600ms").start();
    let seven = gate.begin(post("/").token(7));
    origin.receives_token(7);
    let came = Instant::now();
    let eight = gate.begin(post("/").token(8));
    eight.answer().is_ok();
    assert!(came.elapsed() >= Duration::from_millis(200) + LOCK_DELAY - SLACK, "{:?}", came.elapsed());
    has_unknown_outcome(&seven.answer());
    assert!(origin.seen().when(0, What::Reset).is_some(), "the upstream connection was reset, not closed");
    origin.seen().check_fenced(LOCK_DELAY);
}

#[test]
fn a_cut_in_the_middle_of_a_response_is_visible_to_its_client() {
    let origin = origin()
        .answering(|request| match request.token() {
            Some(7) => reply(200).body("half and half").held_in_body("never"),
            _ => reply(200),
        })
        .start();
    let gate = gateway_to(&origin).route("drain_timeout", "200ms").route("lock_delay", "600ms").start();
    let seven = gate.begin(post("/").token(7));
    origin.wait("the head of the answer", |seen| seen.when(0, What::Started).is_some());
    gate.ask(&post("/").token(8)).is_ok();
    let seven = seven.answer();
    assert_eq!((seven.status, seven.complete), (200, false), "{seven:?}");
    origin.seen().check_fenced(LOCK_DELAY);
}

#[test]
fn an_upload_that_still_runs_after_the_drain_timeout_is_cut() {
    let origin = origin().start();
    let gate = gateway_to(&origin).route("drain_timeout", "200ms").route("lock_delay", "600ms").start();
    let mut seven = gate.connect();
    seven.send(post("/").token(7).chunked().head()).send_chunk(vec![b'x'; 100 * 1024]);
    origin.wait("a part of the upload", |seen| seen.requests.first().is_some_and(|first| first.received > 0));
    gate.ask(&post("/").token(8)).is_ok();
    let answer = seven.response_if_any();
    if let Some(answer) = answer {
        has_unknown_outcome(&answer);
    }
    let seen = origin.seen();
    assert!(seen.when(0, What::Complete).is_none());
    seen.check_fenced(LOCK_DELAY);
}

#[test]
fn an_upload_that_its_client_gives_up_is_cut_and_unknown() {
    let origin = origin().start();
    let gate = gateway_to(&origin).route("lock_delay", "600ms").start();
    let mut seven = gate.connect();
    seven.send(post("/").token(7).chunked().head()).send_chunk(vec![b'x'; 100 * 1024]);
    origin.wait("a part of the upload", |seen| seen.requests.first().is_some_and(|first| first.received > 0));
    drop(seven);
    gate.ask(&post("/").token(8)).is_ok();
    let seen = origin.seen();
    assert!(seen.when(0, What::Complete).is_none(), "a body that was not finished is not made to look so");
    seen.check_fenced(LOCK_DELAY);
}

#[test]
fn delay_waits_for_the_lock_delay_after_a_response_that_broke_off() {
    for broken in [reply(200).nothing(), reply(200).reset(), reply(200).silence()] {
        let origin = origin().answering_in_turn([broken.clone()]).start();
        let gate = gateway_to(&origin)
            .route("on_unknown", "delay")
            .route("lock_delay", "600ms")
            .route("response_timeout", "200ms")
            .start();
        has_unknown_outcome(&gate.ask(&post("/").token(7)));
        let ended = Instant::now();
        // The same token is not in doubt.
        gate.ask(&post("/").token(7)).is_ok();
        assert!(ended.elapsed() < LOCK_DELAY, "the same token waits for nothing: {broken:?}");
        gate.ask(&post("/").token(8)).is_ok();
        assert!(ended.elapsed() >= LOCK_DELAY - SLACK, "{broken:?}: only {:?}", ended.elapsed());
    }
}

#[test]
fn proceed_waits_for_nothing() {
    let origin = silent_for_seven();
    let gate = gateway_to(&origin)
        .route("on_unknown", "proceed")
        .route("lock_delay", "5s")
        .route("response_timeout", "200ms")
        .start();
    has_unknown_outcome(&gate.ask(&post("/").token(7)));
    let ended = Instant::now();
    gate.ask(&post("/").token(8)).is_ok();
    assert!(ended.elapsed() < Duration::from_secs(2), "{:?}", ended.elapsed());
}

#[test]
fn block_waits_for_an_operator() {
    let origin = silent_for_seven();
    let gate = gateway_to(&origin)
        .route("on_unknown", "block")
        .route("lock_delay", "100ms")
        .route("hold_timeout", "400ms")
        .route("response_timeout", "200ms")
        .start();
    has_unknown_outcome(&gate.ask(&post("/").token(7)));
    for _ in 0..2 {
        let raising = gate.ask(&post("/").token(8));
        raising.is_refused(503, "raising");
        assert!(raising.header("retry-after").is_some());
    }
    assert!(!origin.has_token(8));
    for changed in [true, false] {
        let thawed = gate.operate("thaw", "default");
        assert_eq!((thawed.status, &thawed.json()["changed"]), (200, &changed.into()), "{}", thawed.text());
    }
    gate.ask(&post("/").token(8)).is_ok();
}

#[test]
fn a_blocked_resource_still_refuses_the_stale() {
    let origin = silent_for_seven();
    let gate = gateway_to(&origin)
        .route("on_unknown", "block")
        .route("hold_timeout", "200ms")
        .route("response_timeout", "100ms")
        .start();
    gate.ask(&post("/").token(7));
    gate.ask(&post("/").token(8)).is_refused(503, "raising");
    gate.ask(&post("/").token(7)).is_refused(412, "stale");
}

#[test]
fn accepted_is_not_done() {
    let origin = origin().answering_in_turn([reply(202).body("later")]).start();
    let gate = gateway_to(&origin).route("lock_delay", "600ms").start();
    let accepted = gate.ask(&post("/").token(7));
    assert_eq!((accepted.status, accepted.text().as_str()), (202, "later"));
    let ended = Instant::now();
    gate.ask(&post("/").token(8)).is_ok();
    assert!(ended.elapsed() >= LOCK_DELAY - SLACK, "{:?}", ended.elapsed());
}

#[test]
fn an_upstream_that_says_that_it_does_not_know_has_not_ended_the_write() {
    for status in [202, 408, 502, 503, 504] {
        let origin = origin().answering_in_turn([reply(status).body("gave up")]).start();
        let gate = gateway_to(&origin).route("lock_delay", "600ms").start();
        let seven = gate.ask(&post("/").token(7));
        assert_eq!((seven.status, seven.text().as_str(), seven.reason()), (status, "gave up", None));
        let ended = Instant::now();
        gate.ask(&post("/").token(7)).is_ok();
        gate.ask(&post("/").token(8)).is_ok();
        assert!(ended.elapsed() >= LOCK_DELAY - 2 * SLACK, "{status}: {:?}", ended.elapsed());
        let metrics = gate.admin("/metrics").text();
        assert!(metrics.contains("highgate_unknown_outcomes_total{route=\"ledger\"} 1"), "{metrics}");
    }
}

#[test]
fn a_route_says_which_statuses_leave_a_write_in_doubt() {
    let origin = origin().answering_in_turn([504, 202, 503, 418].map(reply)).start();
    let none = gateway_to(&origin).route("unknown_statuses", Vec::<i64>::new()).route("lock_delay", "9s");
    let gate = none.route("hold_timeout", "5s").start();
    let begun = Instant::now();
    for (token, status) in [(7, 504), (8, 202), (9, 503)] {
        assert_eq!(gate.ask(&post("/").token(token)).status, status);
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let teapot =
        gateway_to(&origin).route("unknown_statuses", vec![418]).route("lock_delay", "600ms").start();
    assert_eq!(teapot.ask(&post("/").token(7)).status, 418);
    let ended = Instant::now();
    teapot.ask(&post("/").token(8)).is_ok();
    assert!(ended.elapsed() >= LOCK_DELAY - 2 * SLACK, "{:?}", ended.elapsed());
}

#[test]
fn accepted_blocks_where_the_route_says_so() {
    let origin = origin().answering_in_turn([reply(202)]).start();
    let gate = gateway_to(&origin).route("on_unknown", "block").route("hold_timeout", "300ms").start();
    assert_eq!(gate.ask(&post("/").token(7)).status, 202);
    gate.ask(&post("/").token(8)).is_refused(503, "raising");
    gate.operate("thaw", "default");
    gate.ask(&post("/").token(8)).is_ok();
}

#[test]
fn a_clean_end_waits_for_nothing() {
    let origin = origin().start();
    let gate = gateway_to(&origin).route("lock_delay", "9s").start();
    let begun = Instant::now();
    for token in 1..20 {
        gate.ask(&post("/").token(token)).is_ok();
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn unknown_ends_are_counted() {
    let origin = silent_for_seven();
    let gate = gateway_to(&origin).route("response_timeout", "100ms").start();
    gate.ask(&post("/").token(7));
    let counted = || {
        let metrics = gate.admin("/metrics").text();
        metrics.lines().any(|line| {
            line.starts_with("highgate_unknown_outcomes_total{")
                && line.contains("ledger")
                && line.ends_with(" 1")
        })
    };
    eventually("the metric counts the unknown end", counted);
}

#[test]
fn a_request_that_was_never_sent_is_not_in_doubt() {
    let origin = origin().start();
    let gate = gateway_to(&origin).route("lock_delay", "9s").route("hold_timeout", "2s").start();
    let mut seven = gate.connect();
    // Small bodies are read before the request is admitted: nothing of this one leaves the gateway.
    seven.send(post("/").token(7).body("whole").bytes().split_last().unwrap().1);
    stays("nothing is sent", || origin.received_nothing());
    drop(seven);
    gate.ask(&post("/").token(8)).is_ok();
    origin.seen().check_fenced(A_WHILE);
    assert_eq!(origin.count(), 1);
}

#[test]
fn a_response_that_ends_only_with_its_connection_may_be_a_broken_one() {
    let origin = origin()
        .answering(|request| match request.token() {
            Some(7) => reply(200).framed_by_hand().body("perhaps not all").cut_short(),
            _ => reply(200),
        })
        .start();
    let gate = gateway_to(&origin).route("lock_delay", "600ms").start();
    let seven = gate.ask(&post("/").token(7));
    assert_eq!((seven.status, seven.text().as_str()), (200, "perhaps not all"));
    let came = Instant::now();
    gate.ask(&post("/").token(8)).is_ok();
    assert!(came.elapsed() >= LOCK_DELAY - 2 * SLACK, "{:?}", came.elapsed());
}

#[test]
fn a_transfer_coding_other_than_chunked_leaves_the_end_to_the_connection_too() {
    for head in [
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: identity\r\nContent-Length: 30\r\n",
    ] {
        let half = format!("HTTP/1.1 200 OK\r\n{head}\r\nperhaps not all");
        let origin = origin().answering_in_turn([raw(&half)]).start();
        let gate = gateway_to(&origin).route("lock_delay", "600ms").start();
        let seven = gate.ask(&post("/").token(7));
        if head == "Transfer-Encoding: identity\r\n" {
            assert_eq!((seven.status, seven.text().as_str()), (200, "perhaps not all"), "{head}");
        } else {
            // What the client cannot decode is no answer for it.
            has_unknown_outcome(&seven);
        }
        let came = Instant::now();
        gate.ask(&post("/").token(8)).is_ok();
        assert!(came.elapsed() >= LOCK_DELAY - 2 * SLACK, "{head}: {:?}", came.elapsed());
    }
}

#[test]
fn a_response_in_chunks_says_where_it_ends_whatever_its_length_says() {
    let whole = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let origin = origin().answering_in_turn([raw(whole)]).start();
    let gate = gateway_to(&origin).route("lock_delay", "9s").start();
    assert_eq!(gate.ask(&post("/").token(7)).is_ok().text(), "hello");
    let came = Instant::now();
    gate.ask(&post("/").token(8)).is_ok();
    assert!(came.elapsed() < Duration::from_secs(5), "{:?}", came.elapsed());
}

#[test]
fn a_response_that_ends_before_its_request_was_sent_whole_is_no_end() {
    let origin = origin()
        .answering(|request| match request.token() {
            Some(7) => reply(200).early().body("too soon"),
            _ => reply(200),
        })
        .start();
    let gate = gateway_to(&origin).route("lock_delay", "600ms").start();
    let upload = post("/").token(7).body(vec![b'x'; 100 * 1024]).bytes();
    let mut seven = gate.connect();
    seven.send(&upload[..upload.len() - 1]);
    let answer = seven.response();
    assert_eq!((answer.status, answer.text().as_str(), answer.complete), (200, "too soon", true));
    let ended = Instant::now();
    origin.wait("the connection is reset", |seen| seen.count(What::Reset) == 1);
    gate.ask(&post("/").token(8)).is_ok();
    assert!(ended.elapsed() >= LOCK_DELAY - 2 * SLACK, "{:?}", ended.elapsed());
    let metrics = gate.admin("/metrics").text();
    assert!(metrics.contains("highgate_unknown_outcomes_total{route=\"ledger\"} 1"), "{metrics}");
}

#[test]
fn an_upload_that_was_sent_whole_ends_with_its_response() {
    let origin = origin().start();
    let gate = gateway_to(&origin).route("lock_delay", "9s").start();
    let begun = Instant::now();
    let large = vec![b'x'; 300 * 1024];
    let asks =
        [post("/").body(large.clone()), post("/").body(large).chunked(), post("/").chunked(), post("/")];
    for (token, ask) in (7..).zip(asks) {
        gate.ask(&ask.token(token)).is_ok();
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

/// A gRPC response with one message, and this after it.
fn grpc(trailers: &str) -> Reply {
    raw(&format!(
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/grpc+proto\r\n\
         Transfer-Encoding: chunked\r\n\r\n\
         5\r\nhello\r\n0\r\n{trailers}\r\n"
    ))
}

/// One that has nothing but a head.
fn grpc_head(head: &str) -> Reply {
    raw(&format!(
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n{head}\r\n"
    ))
}

#[test]
fn a_grpc_status_that_says_that_nobody_knows_has_not_ended_the_write() {
    let answers = [
        grpc("grpc-status: 14\r\n"),
        grpc("grpc-status: 4\r\ngrpc-message: x\r\n"),
        grpc("grpc-status: 2\r\n"),
        grpc("grpc-status: 1\r\n"),
        grpc("grpc-status: what\r\n"),
        grpc(""),
        grpc_head("grpc-status: 14\r\n"),
        grpc_head(""),
    ];
    for answer in answers {
        let origin = origin().answering_in_turn([answer.clone()]).start();
        let gate = gateway_to(&origin).route("lock_delay", "600ms").start();
        assert_eq!(gate.ask(&post("/").token(7)).status, 200);
        let ended = Instant::now();
        gate.ask(&post("/").token(8)).is_ok();
        assert!(ended.elapsed() >= LOCK_DELAY - 2 * SLACK, "{answer:?}: {:?}", ended.elapsed());
        let metrics = gate.admin("/metrics").text();
        assert!(metrics.contains("highgate_unknown_outcomes_total{route=\"ledger\"} 1"), "{answer:?}");
    }
}

#[test]
fn a_grpc_status_that_says_how_the_call_has_ended_is_an_end() {
    let answers = ["0", "3", "5", "9", "10", "13"].map(|status| grpc(&format!("grpc-status: {status}\r\n")));
    let count = answers.len() as u64;
    let all = answers.into_iter().chain([grpc_head("grpc-status: 7\r\n")]);
    let origin = origin().answering_in_turn(all).start();
    let gate = gateway_to(&origin).route("lock_delay", "9s").start();
    let begun = Instant::now();
    for token in 1..=count + 2 {
        assert_eq!(gate.ask(&post("/").token(token)).status, 200);
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn a_route_that_takes_every_complete_answer_for_an_end_takes_those_of_grpc_so_too() {
    let origin = origin().answering_in_turn([grpc("grpc-status: 14\r\n"), grpc("")]).start();
    let gate =
        gateway_to(&origin).route("unknown_statuses", Vec::<i64>::new()).route("lock_delay", "9s").start();
    let begun = Instant::now();
    for token in 7..=9 {
        assert_eq!(gate.ask(&post("/").token(token)).status, 200);
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

/// The head of its response comes when nobody but the fence waits for it.
#[test]
fn the_response_of_a_client_that_hung_up_is_judged_like_any_other() {
    let open_ended = || raw("HTTP/1.1 200 OK\r\n\r\nperhaps not all");
    let switched = || raw("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
    for answer in [open_ended(), switched(), reply(504), grpc("")] {
        let held = answer.clone().held("seven");
        let origin = origin().answering_in_turn([held]).start();
        let gate = gateway_to(&origin).route("lock_delay", "600ms").start();
        let mut seven = gate.connect();
        seven.send(post("/").token(7).bytes());
        origin.receives_token(7);
        drop(seven);
        stays("it goes on without its client", || origin.count() == 1);
        origin.release("seven");
        let released = Instant::now();
        gate.ask(&post("/").token(8)).is_ok();
        assert!(released.elapsed() >= LOCK_DELAY - 2 * SLACK, "{answer:?}: {:?}", released.elapsed());
    }
}
