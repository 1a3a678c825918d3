//! WebSockets and other upgrades: who may ask, what passes when, and how they end.

use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{
    Ask, Client, End, GateBuilder, PATIENCE, Running, Upstream, Wire, ask, eventually, gateway, get, post,
    stays,
};

const GRANT: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\
                     Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
/// What that accepts.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const CLOSE: &[u8] = b"\x88\x02\x03\xe8";
/// The same as a client says it: masked.
const CLIENTS_CLOSE: &[u8] = b"\x88\x82\x01\x02\x03\x04\x02\xea";

/// A gateway that lets this protocol pass.
fn stand(upstream: &Upstream, protocol: &str) -> GateBuilder {
    gateway(upstream.address).route("upgrades", vec![protocol])
}

/// A request that asks for another protocol.
fn asks_for(protocol: &str, token: u64) -> Ask {
    get("/live").token(token).header("Connection", "keep-alive, Upgrade").header("Upgrade", protocol)
}

fn grant(protocol: &str) -> String {
    GRANT.replace("Upgrade: WebSocket", &format!("Upgrade: {protocol}"))
}

/// A stream of this token, as the client and as the upstream has it.
fn open(gate: &Running, upstream: &Upstream, protocol: &str, token: u64) -> (Client, Wire) {
    let mut client = gate.connect();
    client.send(asks_for(protocol, token).bytes());
    let mut line = upstream.accept();
    assert_eq!(line.next_head().get("upgrade"), Some(protocol));
    line.send(grant(protocol).as_bytes()).unwrap();
    assert!(client.response_head().start.starts_with("HTTP/1.1 101 "));
    (client, line)
}

/// An unmasked text frame.
fn text(words: &str) -> Vec<u8> {
    [&[0x81, u8::try_from(words.len()).expect("a few words")], words.as_bytes()].concat()
}

/// Reads the close frame that the gateway makes; its reason.
fn is_told_to_restart(client: &mut Client) -> String {
    let head = client.body_bytes(4);
    assert_eq!((head[0], u16::from_be_bytes([head[2], head[3]])), (0x88, 1012), "{head:?}");
    String::from_utf8(client.body_bytes(usize::from(head[1]) - 2)).unwrap()
}

/// Answers one request on a connection of its own.
fn answers_next(upstream: &Upstream) -> (Wire, Instant) {
    let mut line = upstream.accept();
    line.next_head();
    let at = Instant::now();
    line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
    (line, at)
}

#[test]
fn after_the_101_bytes_pass_both_ways() {
    let upstream = Upstream::start();
    let gate = stand(&upstream, "websocket").start();
    let mut client = gate.connect();
    client.send(asks_for("WebSocket", 7).header("Sec-WebSocket-Key", KEY).bytes());
    let mut line = upstream.accept();
    let head = line.next_head();
    assert_eq!((head.get("connection"), head.get("upgrade")), (Some("upgrade"), Some("websocket")));
    assert_eq!(head.get("sec-websocket-key"), Some(KEY));
    line.send(&[GRANT.as_bytes(), &text("with the head")].concat()).unwrap();
    let head = client.response_head();
    assert_eq!((head.get("connection"), head.get("upgrade")), (Some("upgrade"), Some("websocket")));
    assert_eq!(head.get("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!((head.get("content-length"), head.get("x-fencing-reason")), (None, None));
    assert_eq!(client.body_bytes(15), text("with the head"));
    assert_eq!(gate.ledger().in_flight(), 1, "in flight for its whole life");
    client.send("GET / HTTP/1.1\r\nany bytes at all");
    assert_eq!(line.bytes(32), b"GET / HTTP/1.1\r\nany bytes at all");
    // More than any buffer on the way.
    let many = vec![b'x'; 4 << 20];
    let echo = thread::spawn(move || {
        for _ in 0..64 {
            let piece = line.bytes(64 << 10);
            line.send(&piece).unwrap();
        }
        line
    });
    for piece in many.chunks(64 << 10) {
        client.send(piece);
        assert_eq!(client.body_bytes(piece.len()), piece);
    }
    drop((client, echo.join().unwrap()));
    gate.comes_to_rest();
}

#[test]
fn nothing_reaches_the_upstream_before_its_101() {
    let upstream = Upstream::start();
    let gate = stand(&upstream, "websocket").start();
    // To a reader of HTTP the first is nothing, and the second a request.
    let frame = b"\x81\x83abc\r\n\r\n";
    let request =
        b"POST /smuggled HTTP/1.1\r\nHost: ledger.test\r\nX-Fencing-Token: 7\r\nContent-Length: 0\r\n\r\n";
    for early in [[&frame[..], request].concat(), [&request[..], frame].concat()] {
        let mut client = gate.connect();
        client.send([&asks_for("websocket", 7).bytes()[..], &early].concat());
        let mut line = upstream.accept();
        line.next_head();
        client.send("and more");
        stays("only the head has come", || line.is_silent() && upstream.is_left_alone());
        line.send(GRANT.as_bytes()).unwrap();
        client.response_head();
        assert_eq!(line.bytes(early.len() + 8), [&early[..], b"and more"].concat());
        assert!(upstream.is_left_alone());
    }
}

#[test]
fn what_was_sent_in_the_hope_of_a_101_is_read_after_a_refusal() {
    let upstream = Upstream::start();
    let gate = stand(&upstream, "websocket").start();
    let answered = thread::spawn(move || answers_next(&upstream));
    gate.ask(&post("/").token(7)).is_ok();
    answered.join().unwrap();
    let mut client = gate.connect();
    client.send([asks_for("websocket", 6).bytes(), post("/next").token(5).bytes()].concat());
    assert_eq!((client.response().status, client.response().status), (412, 412));
}

#[test]
fn an_answer_other_than_101_is_an_answer_like_any_other() {
    let upstream = Upstream::start();
    let gate = stand(&upstream, "websocket").start();
    let mut client = gate.connect();
    // What follows was sent in the hope of a 101, and turns out to be a request.
    client.send([asks_for("websocket", 7).bytes(), post("/next").token(7).bytes()].concat());
    let mut line = upstream.accept();
    line.next_head();
    line.send(b"HTTP/1.1 400 Bad Request\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\nno").unwrap();
    let answer = client.response();
    assert_eq!((answer.status, answer.text().as_str(), answer.header("upgrade")), (400, "no", None));
    // Nobody knows what the upstream speaks there now.
    let (mut other, _) = answers_next(&upstream);
    assert_eq!(client.response().is_ok().text(), "ok");
    assert_eq!(line.end().0, End::Closed);
    // And then it was no request after all.
    client.send([&asks_for("websocket", 7).bytes()[..], b"\x81\x85masked frame\r\n\r\n"].concat());
    other.next_head();
    other.send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").unwrap();
    assert_eq!(client.response().status, 404);
    client.response().is_refused(400, "malformed");
    assert!(client.is_closed_within(PATIENCE));
    gate.comes_to_rest();
}

#[test]
fn an_upstream_that_switches_to_something_else_has_failed() {
    let plain = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\r\n".to_owned();
    let two = GRANT.replace("Upgrade: WebSocket", "Upgrade: websocket\r\nUpgrade: h2c");
    for (token, answer) in (7..).zip([plain, grant("h2c"), grant("websocket, h2c"), two]) {
        let upstream = Upstream::start();
        let gate = stand(&upstream, "websocket").route("lock_delay", "60s").start();
        let mut client = gate.connect();
        client.send([&asks_for("websocket", token).bytes()[..], b"early"].concat());
        let mut line = upstream.accept();
        line.next_head();
        line.send(answer.as_bytes()).unwrap();
        let refused = client.response();
        refused.is_refused(502, "upstream");
        assert_eq!(refused.outcome(), Some("unknown"), "{answer:?}");
        assert_eq!(line.end().0, End::Reset, "{answer:?}");
        assert!(line.buffer.is_empty(), "{:?}", line.buffer);
        assert_eq!(gate.ledger().in_flight(), 1, "nobody knows what it makes of the request");
    }
}

#[test]
fn a_101_that_is_no_handshake_of_a_websocket_has_failed() {
    let other = GRANT.replace("s3pP", "S3pP");
    let none = GRANT.replace("Sec-WebSocket-Accept", "X-Accept");
    let two = GRANT.replace("Sec-", "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-");
    let for_another = GRANT.replace("Connection: Upgrade", "Connection: keep-alive");
    for (token, answer) in (7..).zip([other, none, two, for_another]) {
        let upstream = Upstream::start();
        let gate = stand(&upstream, "websocket").route("lock_delay", "60s").start();
        let mut client = gate.connect();
        client.send(asks_for("websocket", token).header("Sec-WebSocket-Key", KEY).bytes());
        let mut line = upstream.accept();
        line.next_head();
        line.send(answer.as_bytes()).unwrap();
        let refused = client.response();
        refused.is_refused(502, "upstream");
        assert_eq!(refused.outcome(), Some("unknown"), "{answer:?}");
        assert_eq!(line.end().0, End::Reset, "{answer:?}");
        assert_eq!(gate.ledger().in_flight(), 1, "nobody knows what it makes of the request");
    }
}

#[test]
fn a_101_that_nobody_asked_for_ends_with_a_reset() {
    let upstream = Upstream::start();
    let gate = gateway(upstream.address).route("lock_delay", "60s").start();
    let asked = gate.begin(post("/").token(7).body("a write"));
    let mut line = upstream.accept();
    line.next_head();
    assert_eq!(line.bytes(7), b"a write");
    line.send(GRANT.as_bytes()).unwrap();
    let refused = asked.answer();
    refused.is_refused(502, "upstream");
    assert_eq!((refused.outcome(), line.end().0), (Some("unknown"), End::Reset));
}

#[test]
fn a_request_that_asks_has_one_reading() {
    let upstream = Upstream::start();
    let gate = stand(&upstream, "websocket").route("read_bodies", true).start();
    let asked = || asks_for("websocket", 7);
    for (what, bytes) in [
        ("a body", asked().body("hi").header("X", "y").bytes()),
        ("a length of nothing", asked().header("Content-Length", "0").bytes()),
        ("chunks", asked().chunked().body("hi").bytes()),
    ] {
        let mut client = gate.connect();
        client.send(bytes);
        client.response().is_refused(400, "malformed");
        assert!(client.is_closed_within(PATIENCE), "{what}");
    }
    for more in ["h2c", "websocket", "x"] {
        gate.ask(&asked().header("Upgrade", more)).is_refused(400, "malformed");
        gate.ask(&asks_for(&format!("{more}, websocket"), 7)).is_refused(400, "malformed");
    }
    let key = "Sec-WebSocket-Key";
    gate.ask(&asked().header(key, KEY).header(key, KEY)).is_refused(400, "malformed");
    assert!(upstream.is_left_alone());
}

#[test]
fn what_a_route_does_not_list_is_dropped() {
    let upstream = Upstream::start();
    let gates = [gateway(upstream.address).start(), stand(&upstream, "x-other").start()];
    let websocket = gateway(upstream.address).route("upgrades", vec!["websocket"]).start();
    let raw = |bytes: &str| bytes.as_bytes().to_vec();
    for (gate, bytes) in [
        (&gates[0], asks_for("websocket", 7).bytes()),
        (&gates[1], asks_for("websocket", 7).bytes()),
        (&websocket, asks_for("h2c", 7).header("HTTP2-Settings", "AAMAAABk").bytes()),
        (&websocket, asks_for("websocket/13", 7).bytes()),
        (&websocket, get("/").header("Upgrade", "websocket").bytes()),
        (&websocket, raw("GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")),
    ] {
        let mut client = gate.connect();
        client.send(&bytes);
        let mut line = upstream.accept();
        let head = line.next_head();
        assert_eq!((head.get("upgrade"), head.get("connection")), (None, None), "{bytes:?}");
        line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        assert_eq!(client.response().status, 200);
    }
}

#[test]
fn whoever_asks_needs_a_token_whatever_the_method() {
    let upstream = Upstream::start();
    let gate = stand(&upstream, "websocket").route("fenced_methods", Vec::<String>::new()).start();
    let bare = || get("/live").header("Connection", "Upgrade").header("Upgrade", "websocket");
    for method in ["GET", "HEAD", "OPTIONS", "PURGE"] {
        let mut asked = ask(method, "/live");
        asked.headers = bare().headers;
        let mut client = gate.connect();
        client.send(asked.bytes());
        let head = client.response_head();
        assert_eq!(
            (head.start.split(' ').nth(1), head.get("x-fencing-reason")),
            (Some("428"), Some("missing"))
        );
    }
    assert!(upstream.is_left_alone());
    let (client, line) = open(&gate, &upstream, "websocket", 7);
    gate.ask(&asks_for("websocket", 6)).is_refused(412, "stale");
    drop((client, line));
    gate.comes_to_rest();
    // The same route does not fence a GET that asks for nothing.
    let answered = thread::spawn(move || answers_next(&upstream));
    gate.ask(&get("/")).is_ok();
    answered.join().unwrap();
}

#[test]
fn a_route_may_let_streams_pass_without_a_token() {
    let upstream = Upstream::start();
    let gate = stand(&upstream, "websocket").route("missing_token", "allow").start();
    let mut client = gate.connect();
    client.send(get("/").header("Connection", "upgrade").header("Upgrade", "websocket").bytes());
    let mut line = upstream.accept();
    line.next_head();
    line.send(GRANT.as_bytes()).unwrap();
    client.response_head();
    client.send(text("unfenced"));
    assert_eq!(line.bytes(10), text("unfenced"));
    assert_eq!(gate.ledger().in_flight(), 0);
    let admitted = thread::spawn(move || answers_next(&upstream));
    gate.ask(&post("/").token(9)).is_ok();
    admitted.join().unwrap();
    line.send(&text("still")).unwrap();
    assert_eq!(client.body_bytes(7), text("still"), "no higher token waits for it");
}

#[test]
fn at_a_raise_the_client_is_told_and_an_end_in_order_lets_the_next_token_in() {
    let upstream = Upstream::start();
    // Neither of them is waited for.
    let gate = stand(&upstream, "websocket").route("drain_timeout", "60s").route("lock_delay", "60s").start();
    let (mut seven, mut line) = open(&gate, &upstream, "websocket", 7);
    let eight = gate.begin(post("/").token(8));
    assert_eq!(is_told_to_restart(&mut seven), "its token passes no longer");
    gate.ask(&asks_for("websocket", 7)).is_refused(412, "stale");
    seven.send(CLIENTS_CLOSE);
    assert_eq!(line.bytes(8), CLIENTS_CLOSE, "its last word still arrives");
    stays("8 waits for the upstream's", || !eight.is_answered() && upstream.is_left_alone());
    line.send(&[&text("not heard any more")[..], CLOSE].concat()).unwrap();
    drop(line);
    answers_next(&upstream);
    eight.answer().is_ok();
    assert!(seven.is_closed_within(PATIENCE), "without another word");
}

#[test]
fn a_stream_that_does_not_end_is_cut_within_the_drain_timeout() {
    let upstream = Upstream::start();
    let gate =
        stand(&upstream, "websocket").route("drain_timeout", "600ms").route("lock_delay", "500ms").start();
    let (mut seven, mut line) = open(&gate, &upstream, "websocket", 7);
    let raised = Instant::now();
    let eight = gate.begin(post("/").token(8));
    is_told_to_restart(&mut seven);
    seven.send(text("it goes on"));
    assert_eq!(line.bytes(12), text("it goes on"));
    let (end, cut) = line.end();
    assert_eq!(end, End::Reset);
    assert!(cut - raised >= Duration::from_millis(600), "{:?}", cut - raised);
    let (_, first_byte) = answers_next(&upstream);
    assert!(
        first_byte > cut && first_byte - raised >= Duration::from_millis(1100),
        "{:?}",
        first_byte - raised
    );
    eight.answer().is_ok();
    assert!(line.buffer.is_empty() && seven.ends_within(PATIENCE));
}

#[test]
fn a_stream_lasts_no_longer_than_its_token_passes() {
    let upstream = Upstream::start();
    let gate = stand(&upstream, "websocket").route("drain_timeout", "300ms").start();
    let (mut client, mut line) = open(&gate, &upstream, "websocket", 7);
    assert_eq!(gate.operate("freeze", "default").status, 200);
    assert_eq!(is_told_to_restart(&mut client), "its token passes no longer");
    assert_eq!(line.end().0, End::Reset);
    gate.comes_to_rest();
}

#[test]
fn a_stream_whose_token_passes_again_has_its_whole_time_when_it_is_shut_out_once_more() {
    let upstream = Upstream::start();
    let drain = Duration::from_secs(3);
    let gate = stand(&upstream, "x-wire").route("drain_timeout", "3s").start();
    let (mut client, mut line) = open(&gate, &upstream, "x-wire", 7);
    let first = Instant::now();
    assert_eq!(gate.operate("freeze", "default").status, 200);
    eventually("it was seen to be shut out", || first.elapsed() > Duration::from_secs(1));
    assert_eq!(gate.operate("thaw", "default").status, 200);
    eventually("the first time is over", || first.elapsed() > drain);
    client.send("as before");
    assert_eq!(line.bytes(9), b"as before");
    let again = Instant::now();
    assert_eq!(gate.operate("freeze", "default").status, 200);
    let (end, cut) = line.end();
    assert_eq!(end, End::Reset);
    assert!(cut - again >= drain, "{:?}", cut - again);
    gate.comes_to_rest();
}

#[test]
fn a_client_that_was_told_to_go_goes_although_its_token_passes_again() {
    let upstream = Upstream::start();
    let gate = stand(&upstream, "websocket").route("drain_timeout", "2s").start();
    let (mut client, mut line) = open(&gate, &upstream, "websocket", 7);
    assert_eq!(gate.operate("freeze", "default").status, 200);
    is_told_to_restart(&mut client);
    assert_eq!(gate.operate("thaw", "default").status, 200);
    assert_eq!(line.end().0, End::Reset, "it hears nothing of the upstream any more");
    gate.comes_to_rest();
}

#[test]
fn a_stream_from_before_a_change_of_names_is_told_to_go_and_then_the_change_comes_to_its_end() {
    let upstream = Upstream::start();
    let named = |name: &str| stand(&upstream, "websocket").path("/", name).route("drain_timeout", "60s");
    let gate = named("ledger").start();
    let (mut before, mut line) = open(&gate, &upstream, "websocket", 7);
    gate.reload(&named("books")).unwrap();
    assert_eq!(is_told_to_restart(&mut before), "its resource is being renamed");
    // One that has both names is left alone.
    let (mut since, mut other) = open(&gate, &upstream, "websocket", 7);
    stays("the change waits", || gate.change_of_names_under_way());
    before.send(CLIENTS_CLOSE);
    assert_eq!(line.bytes(8), CLIENTS_CLOSE);
    line.send(CLOSE).unwrap();
    hang_up(&line);
    eventually("the change is over", || !gate.change_of_names_under_way());
    other.send(&text("still here")).unwrap();
    assert_eq!(since.body_bytes(12), text("still here"));
}

#[test]
fn a_route_may_say_that_no_stream_ends_in_order() {
    let upstream = Upstream::start();
    let gate =
        stand(&upstream, "websocket").route("unknown_statuses", vec![101]).route("lock_delay", "60s").start();
    let (mut client, mut line) = open(&gate, &upstream, "websocket", 7);
    client.send(CLIENTS_CLOSE);
    assert_eq!(line.bytes(8), CLIENTS_CLOSE);
    line.send(CLOSE).unwrap();
    drop(line);
    assert_eq!(client.body_bytes(4), CLOSE);
    assert!(client.is_closed_within(PATIENCE));
    stays("it counts as in flight", || gate.ledger().in_flight() == 1);
}

#[test]
fn in_the_middle_of_a_frame_nothing_is_put() {
    let upstream = Upstream::start();
    let gate = stand(&upstream, "websocket").route("drain_timeout", "300ms").start();
    let (mut seven, mut line) = open(&gate, &upstream, "websocket", 7);
    let frame = text("one whole and half another");
    line.send(&[&frame[..], &frame[..9]].concat()).unwrap();
    let eight = gate.begin(post("/").token(8));
    assert_eq!(seven.body_bytes(frame.len() + 9), [&frame[..], &frame[..9]].concat());
    answers_next(&upstream);
    eight.answer().is_ok();
    assert!(seven.is_closed_within(PATIENCE), "it was just cut");
}

#[test]
fn the_close_frame_waits_for_the_end_of_the_upstreams() {
    let upstream = Upstream::start();
    let gate = stand(&upstream, "websocket").route("drain_timeout", "60s").start();
    let (mut seven, mut line) = open(&gate, &upstream, "websocket", 7);
    let frame = text("half and half");
    let told = Arc::new(AtomicBool::new(false));
    let (talks, until) = (frame.clone(), told.clone());
    let talking = thread::spawn(move || {
        while !until.load(Ordering::SeqCst) {
            for half in talks.chunks(8) {
                line.send(half).unwrap();
                thread::sleep(Duration::from_millis(1));
            }
        }
        line
    });
    assert_eq!(seven.body_bytes(frame.len()), frame);
    let eight = gate.begin(post("/").token(8));
    let deadline = Instant::now() + PATIENCE;
    let mut next = seven.body_bytes(2);
    while next[0] == 0x81 {
        assert!(Instant::now() < deadline, "the client was never told");
        assert_eq!([next, seven.body_bytes(frame.len() - 2)].concat(), frame, "whole");
        next = seven.body_bytes(2);
    }
    assert_eq!((next[0], seven.body_bytes(2)), (0x88, 1012_u16.to_be_bytes().to_vec()));
    seven.body_bytes(usize::from(next[1]) - 2);
    told.store(true, Ordering::SeqCst);
    let mut line = talking.join().unwrap();
    seven.send(CLIENTS_CLOSE);
    assert_eq!(line.bytes(8), CLIENTS_CLOSE);
    line.send(CLOSE).unwrap();
    drop(line);
    answers_next(&upstream);
    eight.answer().is_ok();
    assert!(seven.is_closed_within(PATIENCE));
}

const LOCK_DELAY: Duration = Duration::from_millis(900);

/// Token 7's stream and its end; `end` says when it was about to end. Token 8 then waits for the lock-delay.
fn ends_unknown(protocol: &str, end: impl FnOnce(Client, &mut Wire) -> Instant) {
    let upstream = Upstream::start();
    let gate = stand(&upstream, protocol).route("drain_timeout", "60s").route("lock_delay", "900ms").start();
    let (client, mut line) = open(&gate, &upstream, protocol, 7);
    let ended = end(client, &mut line);
    let eight = gate.begin(post("/").token(8));
    let (_, first_byte) = answers_next(&upstream);
    eight.answer().is_ok();
    assert!(first_byte - ended >= LOCK_DELAY, "{:?}", first_byte - ended);
}

/// Ends what the upstream has to say, and hears no more.
fn hang_up(line: &Wire) -> Instant {
    let now = Instant::now();
    line.stream.shutdown(Shutdown::Both).unwrap();
    now
}

#[test]
fn a_client_that_vanishes_does_not_end_its_stream() {
    ends_unknown("websocket", |client, line| {
        drop(client);
        assert_eq!(line.end().0, End::Closed, "the upstream is told that nothing more comes");
        hang_up(line)
    });
}

#[test]
fn the_upstreams_last_word_ends_a_stream_in_order() {
    let upstream = Upstream::start();
    // Which is not waited for.
    let gate = stand(&upstream, "websocket").route("lock_delay", "60s").start();
    let (mut client, mut line) = open(&gate, &upstream, "websocket", 7);
    client.send(CLIENTS_CLOSE);
    assert_eq!(line.bytes(8), CLIENTS_CLOSE);
    line.send(&[&text("bye")[..], CLOSE].concat()).unwrap();
    hang_up(&line);
    assert_eq!(client.body_bytes(9), [&text("bye")[..], CLOSE].concat());
    assert!(client.is_closed_within(PATIENCE));
    let eight = gate.begin(post("/").token(8));
    answers_next(&upstream);
    eight.answer().is_ok();
}

#[test]
fn without_it_nobody_knows() {
    for said in [&b""[..], &text("no last word"), &CLOSE[..3], &[CLOSE, CLOSE].concat()] {
        ends_unknown("websocket", |mut client, line| {
            client.send(CLIENTS_CLOSE);
            line.bytes(8);
            line.send(said).unwrap();
            let ended = hang_up(line);
            assert!(client.ends_within(PATIENCE));
            ended
        });
    }
}

#[test]
fn an_upstream_that_ends_before_it_has_the_clients_last_word_may_still_act_on_what_comes() {
    // Nothing; the first byte of a word; half a close frame; one that is not masked; and one with something after it.
    for sent in [&b""[..], b"\x82", &CLIENTS_CLOSE[..5], CLOSE, &[CLIENTS_CLOSE, b"\x82"].concat()] {
        ends_unknown("websocket", |mut client, line| {
            client.send(sent);
            assert_eq!(line.bytes(sent.len()), sent);
            line.send(CLOSE).unwrap();
            let ended = Instant::now();
            line.stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(client.body_bytes(4), CLOSE, "it hears what was said");
            assert_eq!(line.end().0, End::Reset, "what was on its way does not arrive");
            ended
        });
    }
}

#[test]
fn an_upstream_may_close_first_and_wait_for_the_answer() {
    let upstream = Upstream::start();
    // Which is not waited for.
    let gate = stand(&upstream, "websocket").route("lock_delay", "60s").start();
    let (mut client, mut line) = open(&gate, &upstream, "websocket", 7);
    line.send(CLOSE).unwrap();
    assert_eq!(client.body_bytes(4), CLOSE);
    client.send([b"\x82\x80\x01\x02\x03\x04", CLIENTS_CLOSE].concat()).half_close();
    assert_eq!(line.bytes(14)[6..], *CLIENTS_CLOSE);
    assert_eq!(line.end().0, End::Closed, "the end of the client's side goes on as well");
    hang_up(&line);
    assert!(client.is_closed_within(PATIENCE));
    let eight = gate.begin(post("/").token(8));
    answers_next(&upstream);
    eight.answer().is_ok();
}

#[test]
fn the_end_of_an_unknown_protocol_says_nothing() {
    ends_unknown("x-wire", |mut client, line| {
        client.send("the last request").half_close();
        assert_eq!(line.bytes(16), b"the last request");
        assert_eq!(line.end().0, End::Closed);
        line.send(b"and its answer").unwrap();
        let ended = hang_up(line);
        assert_eq!(client.body_bytes(14), b"and its answer", "one side may end before the other");
        assert!(client.is_closed_within(PATIENCE));
        ended
    });
}

#[test]
fn a_living_stream_outlives_the_time_outs_of_a_response() {
    let upstream = Upstream::start();
    let times = stand(&upstream, "websocket").route("response_timeout", "300ms").route("lock_delay", "100ms");
    let times = times.listen("idle_timeout", "300ms").listen("header_timeout", "300ms");
    let gate = times.route("idle_timeout", "2s").start();
    let (mut client, mut line) = open(&gate, &upstream, "websocket", 7);
    let begun = Instant::now();
    let mut last = begun;
    while begun.elapsed() < Duration::from_millis(2500) {
        last = Instant::now();
        line.send(b"\x89\0").unwrap();
        assert_eq!(client.body_bytes(2), b"\x89\0");
        thread::sleep(Duration::from_millis(50));
    }
    is_told_to_restart(&mut client);
    assert!(last.elapsed() >= Duration::from_secs(2), "{:?}", last.elapsed());
    assert_eq!(line.end().0, End::Reset);
    gate.comes_to_rest();
}

#[test]
fn a_reader_that_is_slow_slows_the_writer_down() {
    let upstream = Upstream::start();
    // Also the time after which the kernel gives up on an upstream that takes nothing.
    let gate = stand(&upstream, "websocket").route("lock_delay", "60s").start();
    let (mut client, mut line) = open(&gate, &upstream, "websocket", 7);
    let most = 256 << 20;
    let taken = client.send_what_is_taken(most);
    assert!(taken < most, "what nobody reads is not taken: {taken}");
    let mut read = 0;
    line.exactly(taken, &mut |piece| read += piece.len()).unwrap();
    assert_eq!(read, taken, "and nothing of it is lost");
    client.send(CLIENTS_CLOSE);
    assert_eq!(line.bytes(8), CLIENTS_CLOSE);
}

#[test]
fn a_gateway_that_leaves_tells_its_streams() {
    let upstream = Upstream::start();
    let gate = stand(&upstream, "websocket").drain_limit("60s").start();
    let (mut client, mut line) = open(&gate, &upstream, "websocket", 7);
    let stopping = thread::spawn(move || gate.stop());
    assert_eq!(is_told_to_restart(&mut client), "the gateway is leaving");
    client.send(CLIENTS_CLOSE);
    assert_eq!(line.bytes(8), CLIENTS_CLOSE);
    line.send(CLOSE).unwrap();
    drop(line);
    assert!(client.is_closed_within(PATIENCE));
    drop(client);
    assert!(stopping.join().unwrap(), "with nothing under way its store is left clean");
}

#[test]
fn a_stream_that_does_not_end_does_not_keep_a_gateway_that_leaves() {
    let upstream = Upstream::start();
    let gate = stand(&upstream, "websocket").start();
    let (mut client, mut line) = open(&gate, &upstream, "websocket", 7);
    let stopping = thread::spawn(move || gate.stop());
    is_told_to_restart(&mut client);
    eventually("the limit is over", || stopping.is_finished());
    assert!(!stopping.join().unwrap(), "nobody knows how it has ended");
    line.end();
    assert!(client.ends_within(PATIENCE));
}
