//! What follows a body changes nothing about the message before it, in either direction.

use crate::support::{Ask, H2, Origin, Running, gateway_to, get, origin, post, reply};

fn listing(names: &[&str]) -> (Origin, Running) {
    let origin = origin().start();
    let gate = gateway_to(&origin).route("request_trailers", names.to_vec()).start();
    (origin, gate)
}

fn checksum(value: &str) -> Vec<(String, String)> {
    vec![("x-checksum".to_owned(), value.to_owned())]
}

/// The chunked request with these lines after its body.
fn with_trailers(ask: Ask, lines: &str) -> Vec<u8> {
    let whole = ask.chunked().bytes();
    [&whole[..whole.len() - 2], lines.as_bytes(), b"\r\n"].concat()
}

/// Fields by which an upstream would read another request, and one that a route could list.
const CHANGES: [&str; 9] = [
    "Connection: close",
    "Upgrade: h2c",
    "X-Fencing-Token: 9",
    "X_Fencing_Token: 9",
    "X-HTTP-Method-Override: DELETE",
    "Host: other.test",
    "Content-Length: 5",
    "X-Forwarded-Host: other.test",
    "X-Checksum: up",
];

#[test]
fn trailers_that_a_route_lists_reach_the_origin() {
    for body in ["body".to_owned(), "large".repeat(40_000)] {
        let (origin, gate) = listing(&["X-Checksum"]);
        let mut client = gate.connect();
        let ask = post("/").token(7).header("Trailer", "X-Checksum, X-Other, X-Checksum").body(body.clone());
        client.send(with_trailers(ask, "X-Checksum: up\r\nX-Other: x\r\n"));
        client.response().is_ok();
        let got = origin.only_request();
        assert_eq!((got.trailers, got.received), (checksum("up"), body.len() as u64));
        assert_eq!(got.head.get("trailer"), Some("x-checksum"));
    }
}

#[test]
fn trailers_that_no_route_lists_are_dropped_and_the_request_goes_on() {
    for body in ["".to_owned(), "body".to_owned(), "large".repeat(40_000)] {
        for line in CHANGES {
            let (origin, gate) = listing(&[]);
            let mut client = gate.connect();
            let name = line.split(':').next().unwrap();
            let ask = post("/").token(7).header("Trailer", name).body(body.clone());
            client.send(with_trailers(ask, &format!("{line}\r\n")));
            client.response().is_ok();
            client.ask(&get("/next")).is_ok();
            let seen = origin.seen();
            assert_eq!(seen.requests.len(), 2, "{line}");
            let got = &seen.requests[0];
            assert_eq!((got.trailers.len(), got.head.get("trailer")), (0, None), "{line}");
            assert_eq!(got.received, body.len() as u64, "{line}");
        }
    }
}

#[test]
fn trailers_that_change_the_request_are_dropped_from_grpc_too() {
    let (origin, gate) = listing(&["x-checksum"]);
    let client = H2::connect(gate.address);
    for (grpc, line) in CHANGES.iter().flat_map(|line| [(false, line), (true, line)]) {
        let (name, value) = line.split_once(": ").unwrap();
        // HTTP/2 has no place for these two, and hyper's client does not send them.
        if matches!(name, "Connection" | "Upgrade") {
            continue;
        }
        let mut ask = post("/").token(7).header("trailer", name).body("body");
        if grpc {
            ask = ask.header("content-type", "application/grpc");
        }
        let upload = client.upload(&ask);
        upload.send_trailer(name, value);
        upload.finish().answer().is_ok();
        let last = origin.seen().requests.last().unwrap().clone();
        let expected = if name == "X-Checksum" { checksum("up") } else { Vec::new() };
        assert_eq!(last.trailers, expected, "{line}, gRPC: {grpc}");
        assert_eq!(last.body, b"body");
    }
}

#[test]
fn trailers_of_grpc_pass_without_being_listed() {
    let (origin, gate) = listing(&[]);
    let ask =
        post("/").token(7).header("content-type", "application/grpc+proto").header("trailer", "x-checksum");
    let client = H2::connect(gate.address);
    let upload = client.upload(&ask.body("body"));
    upload.send_trailer("x-checksum", "up");
    upload.finish().answer().is_ok();
    assert_eq!(origin.only_request().trailers, checksum("up"));
}

/// An origin whose answers end in these lines, announced.
fn ending_in(lines: &'static str) -> (Origin, Running) {
    let names: Vec<_> = lines.split("\r\n").filter_map(|line| line.split(':').next()).collect();
    let answer = reply(200)
        .header("Trailer", names.join(", ").trim_end_matches(", "))
        .chunked(&format!("2\r\nok\r\n0\r\n{lines}\r\n"));
    let origin = origin().answering(move |_| answer.clone()).start();
    let gate = gateway_to(&origin).start();
    (origin, gate)
}

#[test]
fn response_trailers_reach_clients_that_want_them() {
    let (_origin, gate) = ending_in("X-Checksum: down\r\n");
    let got = gate.ask(&post("/").token(7).header("TE", "trailers"));
    assert_eq!((got.is_ok().text().as_str(), got.trailers), ("ok", checksum("down")));
    let got = H2::connect(gate.address).ask(&post("/").token(7).header("te", "trailers"));
    assert_eq!((got.is_ok().text().as_str(), got.trailers), ("ok", checksum("down")));
}

#[test]
fn an_upstream_does_not_speak_for_the_gateway_in_trailers() {
    for lines in [
        "X-Fencing-Reason: stale\r\nX-Fencing-Outcome: not-sent\r\n",
        "X-Checksum: down\r\nX_Fencing_Reason: stale\r\n",
        "Connection: close\r\nTransfer-Encoding: gzip\r\nX-Checksum: down\r\n",
    ] {
        let (_origin, gate) = ending_in(lines);
        let client = H2::connect(gate.address);
        let asks = [
            gate.ask(&post("/").token(7).header("TE", "trailers")),
            client.ask(&post("/").token(7).header("te", "trailers")),
        ];
        for got in asks {
            assert_eq!(got.is_ok().text(), "ok", "{lines}");
            assert!(got.trailers.iter().all(|(name, _)| name == "x-checksum"), "{lines}: {:?}", got.trailers);
        }
        gate.comes_to_rest();
    }
}
