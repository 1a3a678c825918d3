//! A higher token's first request waits for the last byte of every lower one, however that one goes on.

use crate::support::{A_WHILE, H2, Origin, What, gateway_to, get, origin, post, put, reply, stays};

/// Token 7 is held by the name `seven` before its answer, everything else is answered at once.
fn slow_for_seven() -> Origin {
    origin()
        .answering(|request| match request.token() {
            Some(7) => reply(200).body("seven").held("seven"),
            _ => reply(200).body("other"),
        })
        .start()
}

fn not_sent(origin: &Origin, token: u64) {
    stays(&format!("{token} is not sent"), || !origin.has_token(token));
}

#[test]
fn a_higher_token_waits_for_the_slow_write_and_then_the_lower_one_is_stale() {
    let origin = slow_for_seven();
    let gate = gateway_to(&origin).start();
    let seven = gate.begin(post("/").token(7).body("transfer"));
    origin.receives_token(7);
    let eight = gate.begin(post("/").token(8).body("transfer"));
    gate.raises_to(8);
    not_sent(&origin, 8);
    assert!(!eight.is_answered());

    origin.release("seven");
    seven.answer().is_ok();
    eight.answer().is_ok();
    gate.ask(&post("/").token(7)).is_refused(412, "stale");
    origin.seen().check_fenced(A_WHILE);
    assert_eq!(origin.count(), 2);
}

#[test]
fn a_stale_token_is_told_what_it_lost_to_and_not_to_try_again() {
    let origin = origin().start();
    let gate = gateway_to(&origin).start();
    gate.ask(&post("/").token(8).resource("ledger/acct-7")).is_ok();
    let stale = gate.ask(&post("/").token(7).resource("ledger/acct-7"));
    stale.is_refused(412, "stale");
    assert_eq!(stale.header("x-fencing-resource"), Some("ledger/acct-7"));
    let problem = stale.json();
    assert_eq!(problem["resource"], "ledger/acct-7");
    assert_eq!((problem["token"].as_u64(), problem["mark"].as_u64()), (Some(7), Some(8)), "{problem}");
    assert_eq!(stale.header("retry-after"), None);
    assert_eq!(origin.count(), 1);
}

#[test]
fn while_a_raise_drains_the_lower_token_is_refused_at_once() {
    let origin = slow_for_seven();
    let gate = gateway_to(&origin).start();
    let seven = gate.begin(post("/").token(7));
    origin.receives_token(7);
    let eight = gate.begin(post("/").token(8));
    gate.raises_to(8);
    gate.ask(&post("/").token(7)).is_refused(412, "stale");
    origin.release("seven");
    seven.answer().is_ok();
    eight.answer().is_ok();
    assert_eq!(origin.count(), 2);
}

#[test]
fn a_response_whose_head_is_out_is_still_under_way() {
    let origin = origin()
        .answering(|request| match request.token() {
            Some(7) => reply(200).body("half and half").held_in_body("rest"),
            _ => reply(200).body("other"),
        })
        .start();
    let gate = gateway_to(&origin).start();
    let mut seven = gate.connect();
    seven.send(post("/").token(7).bytes());
    assert!(seven.response_head().start.starts_with("HTTP/1.1 200 "));
    assert_eq!(seven.body_bytes(6), b"half a");
    let eight = gate.begin(post("/").token(8));
    gate.raises_to(8);
    not_sent(&origin, 8);
    origin.release("rest");
    assert_eq!(seven.body_bytes(7), b"nd half");
    eight.answer().is_ok();
    origin.seen().check_fenced(A_WHILE);
}

#[test]
fn a_client_that_hung_up_does_not_end_its_request() {
    let origin = slow_for_seven();
    let gate = gateway_to(&origin).start();
    let mut seven = gate.connect();
    seven.send(post("/").token(7).body("transfer").bytes());
    origin.receives_token(7);
    drop(seven);
    let eight = gate.begin(post("/").token(8));
    gate.raises_to(8);
    not_sent(&origin, 8);
    origin.release("seven");
    eight.answer().is_ok();
    origin.seen().check_fenced(A_WHILE);
    let ended = origin.seen().when(0, What::Ended);
    assert!(ended.is_some(), "the origin was not cut off because of the client");
}

#[test]
fn a_client_that_hung_up_inside_the_response_does_not_end_its_request() {
    let origin = origin()
        .answering(|request| match request.token() {
            Some(7) => reply(200).body("half and half").held_in_body("rest"),
            _ => reply(200).body("other"),
        })
        .start();
    let gate = gateway_to(&origin).start();
    let mut seven = gate.connect();
    seven.send(post("/").token(7).bytes());
    seven.response_head();
    drop(seven);
    let eight = gate.begin(post("/").token(8));
    gate.raises_to(8);
    not_sent(&origin, 8);
    origin.release("rest");
    eight.answer().is_ok();
    origin.seen().check_fenced(A_WHILE);
}

#[test]
fn a_chunked_upload_that_still_runs_is_under_way() {
    let origin = slow_for_seven();
    origin.release("seven");
    let gate = gateway_to(&origin).start();
    let mut seven = gate.connect();
    seven.send(post("/").token(7).chunked().head());
    // More than the gateway reads before it decides.
    for _ in 0..20 {
        seven.send_chunk(vec![b'x'; 16 * 1024]);
    }
    origin.wait("a part of the upload", |seen| seen.requests.first().is_some_and(|first| first.received > 0));
    let eight = gate.begin(post("/").token(8));
    gate.raises_to(8);
    not_sent(&origin, 8);
    seven.send_chunk("the end").send("0\r\n\r\n");
    seven.response().is_ok();
    eight.answer().is_ok();
    let seen = origin.seen();
    seen.check_fenced(A_WHILE);
    assert_eq!(seen.requests[0].received, 20 * 16 * 1024 + 7);
}

#[test]
fn a_small_upload_that_is_not_complete_holds_nobody_up() {
    let origin = origin().start();
    let gate = gateway_to(&origin).start();
    let mut seven = gate.connect();
    let bytes = post("/").token(7).body("a part and the rest").bytes();
    let (part, rest) = bytes.split_at(bytes.len() - 4);
    seven.send(part);
    // Its head has been judged.
    gate.raises_to(7);
    gate.ask(&post("/").token(8)).is_ok();
    seven.send(rest);
    seven.response().is_refused(412, "stale");
    assert!(!origin.has_token(7));
}

#[test]
fn http2_streams_are_fenced_alike() {
    let origin = slow_for_seven();
    let gate = gateway_to(&origin).start();
    let client = H2::connect(gate.address);
    let seven = client.upload(&post("/").token(7).body("transfer")).finish();
    origin.receives_token(7);
    let eight = client.upload(&post("/").token(8).body("transfer")).finish();
    gate.raises_to(8);
    not_sent(&origin, 8);
    client.ask(&post("/").token(7)).is_refused(412, "stale");
    origin.release("seven");
    seven.answer().is_ok();
    eight.answer().is_ok();
    origin.seen().check_fenced(A_WHILE);
}

#[test]
fn an_http2_upload_that_still_runs_is_under_way() {
    let origin = origin().start();
    let gate = gateway_to(&origin).start();
    let client = H2::connect(gate.address);
    let seven = client.upload(&post("/").token(7).body(vec![b'x'; 100 * 1024]));
    origin.wait("a part of the upload", |seen| seen.requests.first().is_some_and(|first| first.received > 0));
    let eight = client.upload(&post("/").token(8)).finish();
    gate.raises_to(8);
    not_sent(&origin, 8);
    seven.send(b"the end");
    seven.finish().answer().is_ok();
    eight.answer().is_ok();
    origin.seen().check_fenced(A_WHILE);
}

#[test]
fn a_reset_http2_stream_does_not_end_its_request() {
    let origin = slow_for_seven();
    let gate = gateway_to(&origin).start();
    let client = H2::connect(gate.address);
    let mut seven = client.upload(&post("/").token(7).body("transfer"));
    seven.end_body();
    origin.receives_token(7);
    drop(seven);
    let eight = gate.begin(post("/").token(8));
    gate.raises_to(8);
    not_sent(&origin, 8);
    origin.release("seven");
    eight.answer().is_ok();
    origin.seen().check_fenced(A_WHILE);
}

#[test]
fn an_equal_token_passes_beside_the_one_under_way() {
    let origin = origin()
        .answering(|request| match request.target() {
            "/slow" => reply(200).held("slow"),
            _ => reply(200),
        })
        .start();
    let gate = gateway_to(&origin).start();
    let slow = gate.begin(put("/slow").token(7));
    origin.receives(1);
    gate.ask(&put("/fast").token(7)).is_ok();
    origin.release("slow");
    slow.answer().is_ok();
}

#[test]
fn resources_do_not_wait_for_each_other() {
    let origin = slow_for_seven();
    let gate = gateway_to(&origin).start();
    let seven = gate.begin(post("/").token(7).resource("a"));
    origin.receives_token(7);
    gate.ask(&post("/").token(8).resource("b")).is_ok();
    gate.ask(&post("/").token(3).resource("c")).is_ok();
    origin.release("seven");
    seven.answer().is_ok();
}

#[test]
fn reads_pass_whatever_is_under_way() {
    let origin = slow_for_seven();
    let gate = gateway_to(&origin).start();
    let seven = gate.begin(post("/").token(7));
    origin.receives_token(7);
    let eight = gate.begin(post("/").token(8));
    gate.raises_to(8);
    gate.ask(&get("/")).is_ok();
    origin.release("seven");
    seven.answer().is_ok();
    eight.answer().is_ok();
}

#[test]
fn a_raise_that_drains_too_long_is_answered_with_503_and_when_to_come_back() {
    let origin = slow_for_seven();
    let gate = gateway_to(&origin).route("hold_timeout", "200ms").start();
    let seven = gate.begin(post("/").token(7));
    origin.receives_token(7);
    let raising = gate.ask(&post("/").token(8));
    raising.is_refused(503, "raising");
    let retry: u64 = raising.header("retry-after").expect("a Retry-After").parse().unwrap();
    assert!((1..60).contains(&retry));
    assert!(!origin.has_token(8));
    origin.release("seven");
    seven.answer().is_ok();
    // The mark stays raised, and opens by itself.
    gate.ask(&post("/").token(8)).is_ok();
    gate.ask(&post("/").token(7)).is_refused(412, "stale");
}

#[test]
fn a_request_that_waits_for_its_raise_is_stale_once_a_higher_one_comes() {
    let origin = slow_for_seven();
    let gate = gateway_to(&origin).start();
    let seven = gate.begin(post("/").token(7));
    origin.receives_token(7);
    let eight = gate.begin(post("/").token(8));
    gate.raises_to(8);
    let nine = gate.begin(post("/").token(9));
    gate.raises_to(9);
    eight.answer().is_refused(412, "stale");
    origin.release("seven");
    nine.answer().is_ok();
    seven.answer().is_ok();
    let seen = origin.seen();
    assert!(seen.with_token(8).is_empty());
    seen.check_fenced(A_WHILE);
}

#[test]
fn a_client_that_gives_up_waiting_leaves_nothing_behind() {
    let origin = slow_for_seven();
    let gate = gateway_to(&origin).start();
    let seven = gate.begin(post("/").token(7));
    origin.receives_token(7);
    let mut eight = gate.connect();
    eight.send(post("/").token(8).bytes());
    gate.raises_to(8);
    drop(eight);
    origin.release("seven");
    seven.answer().is_ok();
    gate.ask(&post("/").token(8)).is_ok();
    gate.ask(&post("/").token(9)).is_ok();
    gate.comes_to_rest();
    origin.seen().check_fenced(A_WHILE);
}
