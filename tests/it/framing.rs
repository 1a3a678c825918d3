//! Where a request begins and ends has one reading, or the request is refused and its connection closed.

use crate::support::{Origin, PATIENCE, Response, Running, What, gateway_to, get, origin, post};

const INNER: &str =
    "POST /smuggled HTTP/1.1\r\nHost: ledger.test\r\nX-Fencing-Token: 9\r\nContent-Length: 0\r\n\r\n";

fn stand() -> (Origin, Running) {
    let origin = origin().start();
    let gate = gateway_to(&origin).start();
    (origin, gate)
}

/// A request of token 7 with these header lines and what follows them.
fn with_headers(version: &str, lines: &str, rest: &str) -> String {
    format!("POST / HTTP/{version}\r\nHost: ledger.test\r\nX-Fencing-Token: 7\r\n{lines}\r\n{rest}")
}

/// Nothing reached the origin, the answer is the gateway's and says why, and the connection is at its end.
fn is_thrown_out(request: &str) -> Response {
    let (origin, gate) = stand();
    let mut client = gate.connect();
    client.send(request).send(INNER);
    let answer = client.response();
    answer.is_refused(400, "malformed");
    assert!(client.is_closed_within(PATIENCE), "the connection stayed open after {request:?}");
    assert!(origin.received_nothing(), "{request:?} was sent as {:?}", origin.seen().requests);
    answer
}

/// A part may have been sent on before the break was seen, but never as a whole request.
fn never_completes(request: &str) {
    let (origin, gate) = stand();
    let mut client = gate.connect();
    client.send(request).send(INNER);
    client.response().is_refused(400, "malformed");
    assert!(client.is_closed_within(PATIENCE), "the connection stayed open after {request:?}");
    gate.comes_to_rest();
    let seen = origin.seen();
    assert_eq!(seen.count(What::Complete), 0, "{request:?} was sent as {:?}", seen.requests);
    assert!(seen.requests.len() <= 1 && !seen.requests.iter().any(|request| request.target() == "/smuggled"));
}

#[test]
fn a_length_and_an_encoding_together_are_refused() {
    for lines in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\nContent-Length: 5\r\n",
    ] {
        let answer = is_thrown_out(&with_headers("1.1", lines, "0\r\n\r\n"));
        assert!(answer.text().contains("do not go together"), "{lines:?}");
    }
}

#[test]
fn an_odd_transfer_encoding_is_refused() {
    for lines in [
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: identity, chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked;q=1\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding:\r\n",
        "Transfer-Encoding: \x0bchunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding\r\n : chunked\r\n",
        "Transfer-Encoding:\r\n chunked\r\n",
        "Transfer_Encoding: chunked\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    ] {
        is_thrown_out(&with_headers("1.1", lines, "5\r\nhello\r\n0\r\n\r\n"));
    }
}

#[test]
fn a_transfer_encoding_in_http_1_0_is_refused() {
    is_thrown_out(&with_headers("1.0", "Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"));
    is_thrown_out(&with_headers(
        "1.0",
        "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n",
        "0\r\n\r\n",
    ));
}

#[test]
fn an_odd_content_length_is_refused() {
    for lines in [
        "Content-Length: +5\r\n",
        "Content-Length: -5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length: 5, 6\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 6\r\nContent-Length: 5\r\n",
        "Content-Length: five\r\n",
        "Content-Length:\r\n",
        "Content-Length: 18446744073709551621\r\n",
        "Content-Length: 9223372036854775808\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length : 5\r\n",
        "Content-Length:\r\n 5\r\n",
    ] {
        is_thrown_out(&with_headers("1.1", lines, "hello"));
    }
}

#[test]
fn a_length_is_written_as_it_was_read() {
    let (origin, gate) = stand();
    let mut client = gate.connect();
    for length in ["05", "0000000000000000000005"] {
        client.send(with_headers("1.1", &format!("Content-Length: {length}\r\n"), "hello"));
        client.response().is_ok();
    }
    let seen = origin.seen();
    assert!(seen.requests.iter().all(|request| request.head.get("content-length") == Some("5")));
    assert_eq!(seen.requests.len(), 2);
}

#[test]
fn what_comes_before_a_broken_head_is_answered_first() {
    let (origin, gate) = stand();
    let mut client = gate.connect();
    client.send([post("/").token(7).body("whole").bytes(), b"nonsense\r\n\r\n".to_vec()].concat());
    client.response().is_ok();
    client.response().is_refused(400, "malformed");
    assert!(client.is_closed_within(PATIENCE));
    assert_eq!(origin.only_request().body, b"whole");
}

#[test]
fn a_refusal_is_read_although_the_client_goes_on_sending() {
    let (origin, gate) = stand();
    let mut client = gate.connect();
    client.send("nonsense\r\n\r\n").send(vec![b'x'; 4 << 20]);
    client.response().is_refused(400, "malformed");
    assert!(origin.received_nothing());
}

#[test]
fn a_broken_chunk_is_refused() {
    for chunks in [
        "ffffffffffffffff1\r\nhello\r\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "5_0\r\nhello\r\n0\r\n\r\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        "5\r\nhelloXX0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\rhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "g\r\nhello\r\n0\r\n\r\n",
    ] {
        never_completes(&with_headers("1.1", "Transfer-Encoding: chunked\r\n", chunks));
    }
}

#[test]
fn a_broken_head_is_refused() {
    for request in [
        with_headers("1.1", "X-A: b\rX-Fencing-Token: 9\r\n", ""),
        with_headers("1.1", "X-A: b\r\n X-Fencing-Token: 9\r\n", ""),
        with_headers("1.1", "X-A: b\0c\r\n", ""),
        with_headers("1.1", "X A: b\r\n", ""),
        with_headers("1.1", ": b\r\n", ""),
        with_headers("1.1", "no colon\r\n", ""),
        with_headers("1.2", "", ""),
        with_headers("3.0", "", ""),
        "POST  /  HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "POST /\0 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "PO ST / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "\0\0\0\0\r\n\r\n".to_owned(),
        " POST / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "POST /a#b HTTP/1.1\r\nHost: a\r\nX-Fencing-Token: 7\r\n\r\n".to_owned(),
        "POST /\u{e9} HTTP/1.1\r\nHost: a\r\nX-Fencing-Token: 7\r\n\r\n".to_owned(),
        "POST /?q=\u{e9} HTTP/1.1\r\nHost: a\r\nX-Fencing-Token: 7\r\n\r\n".to_owned(),
    ] {
        is_thrown_out(&request);
    }
}

#[test]
fn bare_line_feeds_mean_the_same_on_both_sides() {
    for request in [
        "POST / HTTP/1.1\nHost: ledger.test\nX-Fencing-Token: 7\nContent-Length: 0\n\n".to_owned(),
        with_headers("1.1", "X-A: b\nX-B: c\r\nContent-Length: 0\r\n", ""),
        with_headers("1.1", "X-A: b\nContent-Length: 0\r\n", ""),
        with_headers("1.1", "Content-Length: 0\r\nX-A: b\n", ""),
    ] {
        let (origin, gate) = stand();
        let mut client = gate.connect();
        client.send(&request).send(get("/honest").header("Connection", "close").bytes());
        let answers: Vec<_> =
            std::iter::from_fn(|| client.response_if_any()).map(|answer| answer.status).collect();
        let received = origin.count();
        match answers.as_slice() {
            [400] | [] => assert_eq!(received, 0, "{request:?}"),
            [200, 200] => assert_eq!(received, 2, "{request:?}"),
            other => panic!("{request:?} was answered with {other:?}"),
        }
        let seen = origin.seen();
        for request in &seen.requests {
            let text = String::from_utf8_lossy(&request.head.raw).replace("\r\n", "");
            assert!(!text.contains(['\r', '\n']), "{text:?}");
        }
    }
}

#[test]
fn a_bare_line_feed_cannot_hide_a_token() {
    let (origin, gate) = stand();
    let mut client = gate.connect();
    client.send(with_headers("1.1", "X-A: b\nX-Fencing-Token: 9\r\nContent-Length: 0\r\n", ""));
    assert_eq!(client.response_if_any().map(|answer| answer.status), Some(400));
    assert!(origin.received_nothing());
}

#[test]
fn requests_in_one_piece_are_answered_in_order() {
    let (origin, gate) = stand();
    let mut client = gate.connect();
    let requests = [
        post("/one").token(7).body("first").bytes(),
        get("/two").bytes(),
        post("/three").token(6).bytes(),
        post("/four").token(7).body("last").chunked().bytes(),
    ];
    client.send(requests.concat());
    let statuses: Vec<_> = (0..4).map(|_| client.response().status).collect();
    assert_eq!(statuses, [200, 200, 412, 200]);
    let seen = origin.seen();
    let received: Vec<_> =
        seen.requests.iter().map(|request| (request.target(), request.body.as_slice())).collect();
    let expected: [(&str, &[u8]); 3] = [("/one", b"first"), ("/two", b""), ("/four", b"last")];
    assert_eq!(received, expected);
}

#[test]
fn an_upgrade_is_not_a_tunnel() {
    let (origin, gate) = stand();
    let mut client = gate.connect();
    let upgrade =
        post("/").token(7).header("Connection", "Upgrade").header("Upgrade", "websocket").body("hi");
    client.send([upgrade.bytes(), post("/next").token(7).header("Connection", "close").bytes()].concat());
    let answers: Vec<_> =
        std::iter::from_fn(|| client.response_if_any()).map(|answer| answer.status).collect();
    assert!(!answers.contains(&101), "{answers:?}");
    let seen = origin.seen();
    for request in &seen.requests {
        assert_eq!(request.head.get("upgrade"), None);
        assert_ne!(request.head.get("connection").map(str::to_ascii_lowercase).as_deref(), Some("upgrade"));
    }
    assert!(seen.requests.len() <= 2);
}

#[test]
fn connect_is_not_a_tunnel() {
    let (origin, gate) = stand();
    let mut client = gate.connect();
    client.send("CONNECT ledger.test:80 HTTP/1.1\r\nHost: ledger.test:80\r\n\r\n");
    let status = client.response_without_body().status;
    assert!((400..500).contains(&status), "{status}");
    assert!(origin.received_nothing());
}
