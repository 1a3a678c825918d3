//! What the origin gets of a request and the client of a response: everything but the hop.

use std::time::{Duration, Instant};

use crate::support::{
    H2, Origin, Running, ask, eventually, gateway_to, get, origin, post, put, raw, reply, stays,
};

fn stand() -> (Origin, Running) {
    let origin = origin().start();
    let gate = gateway_to(&origin).start();
    (origin, gate)
}

#[test]
fn a_request_arrives_as_it_was_sent() {
    let (origin, gate) = stand();
    let sent = put("/a/b%20c?x=1&y=%2F..//")
        .token(7)
        .header("Idempotency-Key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
        .header("Content-Type", "text/plain")
        .header("X-Many", "one")
        .header("X-Many", "two")
        .body("the body");
    gate.ask(&sent).is_ok();
    let got = origin.only_request();
    assert_eq!(got.head.start, "PUT /a/b%20c?x=1&y=%2F..// HTTP/1.1");
    assert_eq!(got.body, b"the body");
    assert_eq!(got.head.get("idempotency-key"), Some("8e03978e-40d5-43dd-bc93-6894a57f9324"));
    assert_eq!(got.head.get("content-type"), Some("text/plain"));
    assert_eq!(got.head.get("content-length"), Some("8"));
    assert_eq!(got.head.all("x-many"), ["one", "two"]);
    assert_eq!(got.token(), Some(7));
}

#[test]
fn headers_of_one_hop_do_not_travel() {
    let (origin, gate) = stand();
    let sent = post("/")
        .token(7)
        .header("Connection", "keep-alive, X-Private, content-length, host")
        .header("Keep-Alive", "timeout=5")
        .header("Proxy-Connection", "keep-alive")
        .header("Proxy-Authorization", "Basic eDp5")
        .header("TE", "deflate")
        .header("Upgrade", "h2c")
        .header("X-Private", "1")
        .header("X-Public", "1")
        .body("five!");
    gate.ask(&sent).is_ok();
    let got = origin.only_request();
    for gone in ["keep-alive", "proxy-connection", "proxy-authorization", "te", "upgrade", "x-private"] {
        assert_eq!(got.head.get(gone), None, "{gone}");
    }
    assert_eq!(got.head.get("x-public"), Some("1"));
    // Naming these does not make them hop-by-hop.
    assert_eq!((got.head.get("content-length"), got.body.as_slice()), (Some("5"), b"five!".as_slice()));
    assert_eq!(got.head.get("host"), Some("ledger.test"));
}

#[test]
fn the_origin_learns_who_asked_and_how() {
    let (origin, gate) = stand();
    gate.ask(&post("/").token(7).header("X-Forwarded-Proto", "https").header("X-Forwarded-Host", "forged"))
        .is_ok();
    let got = origin.only_request();
    assert_eq!(got.head.get("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(got.head.get("x-forwarded-proto"), Some("http"));
    assert_eq!(got.head.get("x-forwarded-host"), Some("ledger.test"));
    assert_eq!(got.head.get("host"), Some("ledger.test"));
    assert!(got.head.get("via").is_some_and(|via| via.starts_with("1.1 ")));
}

#[test]
fn forwarding_headers_are_added_to() {
    let (origin, gate) = stand();
    let sent = get("/").header("X-Forwarded-For", "10.0.0.1").header("X-Forwarded-For", "10.0.0.2");
    gate.ask(&sent.header("Via", "1.0 fred")).is_ok();
    let got = origin.only_request();
    assert_eq!(got.head.all("x-forwarded-for").join(", "), "10.0.0.1, 10.0.0.2, 127.0.0.1");
    let via = got.head.all("via").join(", ");
    assert!(via.starts_with("1.0 fred, 1.1 "), "{via}");
}

#[test]
fn the_host_that_was_judged_is_the_host_that_is_sent() {
    let (origin, gate) = stand();
    gate.ask(&post("http://judged.test/a").token(7).host("other.test")).is_ok();
    let got = origin.only_request();
    assert_eq!((got.head.get("host"), got.target()), (Some("judged.test"), "/a"));
    assert_eq!(got.head.get("x-forwarded-host"), Some("judged.test"));
}

#[test]
fn an_upstream_may_have_a_base_path() {
    let origin = origin().start();
    let gate = gateway_to(&origin).route("upstream", format!("http://{}/base/", origin.address)).start();
    gate.ask(&post("/a?b").token(7)).is_ok();
    assert_eq!(origin.only_request().target(), "/base/a?b");
}

#[test]
fn a_response_comes_back_without_its_hop() {
    let answer = reply(201)
        .header("Connection", "X-Private")
        .header("X-Private", "1")
        .header("Keep-Alive", "timeout=5")
        .header("Location", "/a")
        .header("Set-Cookie", "a=1")
        .header("Set-Cookie", "b=2")
        .header("X-Fencing-Reason", "stale")
        .header("X-Fencing-Outcome", "not-sent")
        .body("made");
    let origin = origin().answering_in_turn([answer]).start();
    let gate = gateway_to(&origin).start();
    let got = gate.ask(&post("/").token(7));
    assert_eq!((got.status, got.text().as_str()), (201, "made"));
    assert_eq!(got.header("location"), Some("/a"));
    assert_eq!(got.head.all("set-cookie"), ["a=1", "b=2"]);
    for gone in ["x-private", "keep-alive", "x-fencing-reason", "x-fencing-outcome"] {
        assert_eq!(got.header(gone), None, "{gone}");
    }
}

#[test]
fn a_client_is_told_to_continue_once_its_request_may_pass() {
    let (origin, gate) = stand();
    for body in ["small".to_owned(), "large".repeat(40_000)] {
        let mut client = gate.connect();
        let sent = post("/").token(7).header("Expect", "100-continue").body(body.clone());
        client.send(sent.head());
        assert_eq!(client.response_head().start, "HTTP/1.1 100 Continue");
        client.send(&body);
        client.response().is_ok();
        let seen = origin.seen();
        assert_eq!(seen.requests.last().map(|request| request.received), Some(body.len() as u64));
    }
}

#[test]
fn a_refused_client_is_not_told_to_continue() {
    let (origin, gate) = stand();
    gate.ask(&post("/").token(8)).is_ok();
    let mut client = gate.connect();
    client.send(post("/").token(7).header("Expect", "100-continue").body("never sent").head());
    assert!(client.response_head().start.starts_with("HTTP/1.1 412 "));
    assert_eq!(origin.count(), 1);
}

#[test]
fn answers_without_a_body_have_none() {
    let origin = origin()
        .answering(|request| match request.target() {
            "/204" => raw("HTTP/1.1 204 No Content\r\nConnection: close\r\nX-A: b\r\n\r\n"),
            "/304" => {
                raw("HTTP/1.1 304 Not Modified\r\nConnection: close\r\nETag: \"a\"\r\nContent-Length: 1000\r\n\r\n")
            }
            _ => raw("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1000\r\n\r\n"),
        })
        .start();
    let gate = gateway_to(&origin).start();
    let mut client = gate.connect();
    let none = client.ask(&post("/204").token(7));
    assert_eq!((none.status, none.header("x-a"), none.header("transfer-encoding")), (204, Some("b"), None));
    let same = client.ask(&get("/304"));
    assert_eq!((same.status, same.header("etag")), (304, Some("\"a\"")));
    let head = client.ask(&ask("HEAD", "/"));
    assert_eq!((head.status, head.header("content-length")), (200, Some("1000")));
    let fenced = client.ask(&ask("DELETE", "/204").token(7));
    assert_eq!(fenced.status, 204);
    gate.comes_to_rest();
}

#[test]
fn a_body_without_a_length_ends_with_its_connection() {
    let origin = origin().answering(|_| raw("HTTP/1.1 200 OK\r\n\r\nuntil the end")).start();
    let gate = gateway_to(&origin).start();
    assert_eq!(gate.ask(&post("/").token(7)).is_ok().text(), "until the end");
    gate.comes_to_rest();
    assert_eq!(gate.ask(&post("/").token(8)).is_ok().text(), "until the end");
}

#[test]
fn http_1_0_is_served() {
    let (origin, gate) = stand();
    let mut client = gate.connect();
    client.send("POST / HTTP/1.0\r\nX-Fencing-Token: 7\r\nContent-Length: 2\r\n\r\nhi");
    let answer = client.response();
    assert_eq!((answer.status, answer.text().as_str()), (200, "ok"));
    assert!(answer.header("transfer-encoding").is_none());
    assert_eq!(origin.only_request().body, b"hi");
}

#[test]
fn http2_is_served_like_http1() {
    let (origin, gate) = stand();
    let client = H2::connect(gate.address);
    let sent = put("/a?b=c").token(7).header("idempotency-key", "k").body("the body");
    let answer = client.ask(&sent);
    assert_eq!(answer.is_ok().text(), "ok");
    let got = origin.only_request();
    assert_eq!(got.head.start, "PUT /a?b=c HTTP/1.1");
    assert_eq!((got.head.get("host"), got.head.get("idempotency-key")), (Some("ledger.test"), Some("k")));
    assert_eq!(got.head.get("via").map(|via| via.split(' ').next().unwrap_or_default()), Some("2.0"));
    assert_eq!(got.body, b"the body");
}

#[test]
fn grpc_requests_are_refused_in_their_own_words() {
    let (origin, gate) = stand();
    let client = H2::connect(gate.address);
    client.ask(&post("/").token(8)).is_ok();
    let stale = client.ask(&post("/").token(7).header("content-type", "application/grpc"));
    assert_eq!((stale.status, stale.header("grpc-status")), (200, Some("9")));
    assert_eq!((stale.reason(), stale.header("content-type")), (Some("stale"), Some("application/grpc")));
    assert_eq!(origin.count(), 1);
}

#[test]
fn a_download_waits_for_its_client() {
    let size = 1 << 30;
    let origin = origin().answering(move |_| reply(200).streaming(size)).start();
    let gate = gateway_to(&origin).start();
    let mut client = gate.connect();
    client.send(get("/").bytes());
    client.response_head();
    let sent = || origin.seen().requests[0].sent;
    let mut last = (sent(), Instant::now());
    eventually("the origin is made to wait", || {
        if sent() != last.0 {
            last = (sent(), Instant::now());
        }
        last.1.elapsed() > Duration::from_millis(200)
    });
    assert!(sent() < 64 << 20, "{} bytes are on their way to a client that reads none", sent());
    client.discard(64 << 20);
    eventually("it goes on when the client does", || sent() >= 64 << 20);
}

#[test]
fn an_upload_waits_for_its_origin() {
    let origin = origin().answering(|_| reply(200).early().held("reading")).start();
    let gate = gateway_to(&origin).start();
    let address = gate.address;
    let (count, counted) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut client = crate::support::Client::connect(address);
        client.send(post("/").token(7).chunked().head());
        // Ends when the gateway takes no more, with a time-out of the socket.
        while count.send(()).is_ok() {
            client.send_chunk(vec![b'x'; 1 << 20]);
        }
    });
    origin.receives(1);
    let mut megabytes = 0;
    while counted.recv_timeout(Duration::from_millis(300)).is_ok() {
        megabytes += 1;
        assert!(megabytes < 64, "{megabytes} MiB were taken for an origin that reads none");
    }
    origin.release("reading");
}

#[test]
fn responses_are_passed_on_as_they_come() {
    let origin = origin().answering(|_| reply(200).body("half and half").held_in_body("rest")).start();
    let gate = gateway_to(&origin).start();
    let mut client = gate.connect();
    client.send(get("/").bytes());
    client.response_head();
    assert_eq!(client.body_bytes(6), b"half a");
    stays("the rest is not there yet", || origin.count() == 1);
    origin.release("rest");
    assert_eq!(client.body_bytes(7), b"nd half");
}
