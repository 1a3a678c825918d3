//! Nobody holds a connection, a place at the fence or memory longer or larger than the config says.

use std::time::{Duration, Instant};

use crate::support::{
    Client, H2, PATIENCE, Running, config_for, eventually, gateway_to, get, highgate, origin, post, reply,
    stays,
};

fn slow_limits() -> (crate::support::Origin, Running) {
    let origin = origin().start();
    let gate = gateway_to(&origin)
        .listen("header_timeout", "300ms")
        .listen("idle_timeout", "600ms")
        .listen("request_timeout", "300ms")
        .start();
    (origin, gate)
}

/// Whether the connection ends, whatever is said before, no sooner than `least`.
fn ends_after(client: &mut Client, least: Duration) {
    let begun = Instant::now();
    if let Some(answer) = client.response_if_any() {
        assert_eq!(answer.status, 408, "{answer:?}");
    }
    assert!(client.is_closed_within(PATIENCE));
    let took = begun.elapsed();
    assert!(took >= least && took < least + Duration::from_secs(3), "closed after {took:?}");
}

#[test]
fn a_head_that_does_not_end_is_cut() {
    let (origin, gate) = slow_limits();
    let mut client = gate.connect();
    client.send("POST / HTTP/1.1\r\nHost: ledger.test\r\nX-Fencing-");
    ends_after(&mut client, Duration::from_millis(200));
    assert!(origin.received_nothing());
}

#[test]
fn a_second_head_that_does_not_end_is_cut() {
    let (_origin, gate) = slow_limits();
    let mut client = gate.connect();
    client.ask(&get("/")).is_ok();
    client.send("GET / HTTP/1.1\r\nHost: led");
    ends_after(&mut client, Duration::from_millis(200));
}

/// Sends a byte now and then, until the gateway has enough of it.
fn drip(client: &mut Client, bytes: &str) {
    let begun = Instant::now();
    for byte in bytes.bytes().cycle() {
        client.send([byte]);
        if client.ends_within(Duration::from_millis(50)) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(3), "it may drip for ever");
    }
}

#[test]
fn a_head_that_drips_is_cut() {
    let (_origin, gate) = slow_limits();
    let mut client = gate.connect();
    client.send("GET / HTTP/1.1\r\nHost: ledger.test\r\nX-Long: ");
    drip(&mut client, "x");
}

#[test]
fn a_small_body_that_drips_is_cut() {
    let (origin, gate) = slow_limits();
    let mut client = gate.connect();
    client.send(post("/").token(7).body(vec![b'x'; 60_000]).head());
    drip(&mut client, "x");
    assert!(origin.received_nothing());
}

#[test]
fn a_connection_that_says_nothing_is_closed() {
    let (_origin, gate) = slow_limits();
    let mut client = gate.connect();
    ends_after(&mut client, Duration::from_millis(200));
}

#[test]
fn a_connection_at_rest_is_closed_after_the_idle_timeout() {
    let (_origin, gate) = slow_limits();
    let mut client = gate.connect();
    client.ask(&get("/")).is_ok();
    ends_after(&mut client, Duration::from_millis(450));
}

#[test]
fn a_connection_that_is_used_is_not_idle() {
    let (origin, gate) = slow_limits();
    let mut client = gate.connect();
    for round in 1..=6 {
        client.ask(&get("/")).is_ok();
        stays("nothing is asked meanwhile", || origin.count() == round);
    }
    assert_eq!(origin.count(), 6);
}

#[test]
fn a_slow_answer_is_not_an_idle_connection() {
    let origin = origin().answering(|_| reply(200).body("late").after(Duration::from_millis(900))).start();
    let gate = gateway_to(&origin).listen("idle_timeout", "300ms").listen("header_timeout", "300ms").start();
    assert_eq!(gate.ask(&post("/").token(7)).is_ok().text(), "late");
    assert_eq!(H2::connect(gate.address).ask(&post("/").token(7)).is_ok().text(), "late");
}

#[test]
fn an_http2_connection_at_rest_is_closed() {
    let (_origin, gate) = slow_limits();
    let mut client = gate.connect();
    // The preface and empty settings, then nothing.
    client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    assert!(client.ends_within(Duration::from_secs(4)));
}

#[test]
fn an_http2_preface_that_does_not_end_is_cut() {
    let (_origin, gate) = slow_limits();
    let mut client = gate.connect();
    client.send("PRI * HTTP/2.0\r\n");
    assert!(client.ends_within(Duration::from_secs(4)));
}

#[test]
fn a_small_body_that_does_not_come_is_cut() {
    let (origin, gate) = slow_limits();
    let mut client = gate.connect();
    client.send(post("/").token(7).body("twenty bytes of body").head()).send("twenty");
    ends_after(&mut client, Duration::from_millis(200));
    assert!(origin.received_nothing());
    gate.ask(&post("/").token(8)).is_ok();
}

#[test]
fn a_stalled_upload_holds_the_fence_no_longer_than_the_route_says() {
    let origin = origin().start();
    let gate = gateway_to(&origin)
        .route("idle_timeout", "300ms")
        .route("response_timeout", "300ms")
        .route("drain_timeout", "20s")
        .start();
    let mut seven = gate.connect();
    seven.send(post("/").token(7).chunked().head()).send_chunk(vec![b'x'; 100 * 1024]);
    origin.receives_token(7);
    gate.ask(&post("/").token(8)).is_ok();
    origin.seen().check_fenced(Duration::from_millis(300));
}

#[test]
fn a_client_that_stops_reading_holds_the_fence_no_longer_than_the_drain_timeout() {
    let origin = origin()
        .answering(|request| match request.token() {
            Some(7) => reply(200).streaming(1 << 30),
            _ => reply(200),
        })
        .start();
    let gate = gateway_to(&origin).route("drain_timeout", "300ms").start();
    let mut seven = gate.connect();
    seven.send(post("/").token(7).bytes());
    seven.response_head();
    gate.ask(&post("/").token(8)).is_ok();
    origin.seen().check_fenced(Duration::from_millis(300));
}

#[test]
fn a_head_that_is_too_large_is_refused() {
    let (origin, gate) = slow_limits();
    for request in [
        post("/").token(7).header("X-Large", &"x".repeat(2 << 20)),
        (0..300).fold(post("/").token(7), |ask, number| ask.header(&format!("X-{number}"), "x")),
    ] {
        let mut client = gate.connect();
        client.send(request.bytes());
        client.response().is_refused(431, "malformed");
        assert!(client.is_closed_within(PATIENCE));
    }
    let mut client = gate.connect();
    client.send(post(&format!("/{}", "x".repeat(2 << 20))).token(7).bytes());
    client.response().is_refused(414, "malformed");
    let h2 = H2::connect(gate.address);
    let many = (0..101).fold(post("/").token(7), |ask, number| ask.header(&format!("x-{number}"), "x"));
    for request in [many, post("/").token(7).header("x-large", &"x".repeat(70 << 10))] {
        h2.ask(&request).is_refused(431, "malformed");
    }
    assert!(origin.received_nothing());
}

#[test]
fn an_ordinary_large_head_passes() {
    let (_origin, gate) = slow_limits();
    gate.ask(&post("/").token(7).header("Cookie", &"x".repeat(12 << 10))).is_ok();
}

#[test]
fn connections_beyond_the_limit_wait_or_are_turned_away() {
    // The limit is of the whole port, whichever core the connections come to: that differs from round to round.
    for _ in 0..5 {
        let origin = origin().start();
        let gate = gateway_to(&origin).listen("max_connections", 8).start();
        let mut kept: Vec<Client> = (0..8).map(|_| gate.connect()).collect();
        for client in &mut kept {
            client.ask(&get("/")).is_ok();
        }
        let mut one_more = gate.connect();
        one_more.send(get("/one-more").bytes());
        stays("one more is not served", || origin.count() == 8);
        drop((kept, one_more));
        eventually("there is room again", || {
            let mut client = gate.connect();
            client.send(get("/again").header("Connection", "close").bytes());
            client.response_if_any().is_some_and(|answer| answer.status == 200)
        });
    }
}

#[test]
fn a_flood_of_resets_is_no_leak() {
    let origin = origin().answering(|_| reply(200).held("never")).start();
    let gate = gateway_to(&origin).start();
    let client = H2::connect(gate.address);
    for _ in 0..500 {
        drop(client.upload(&get("/")));
    }
    let other = H2::connect(gate.address);
    other.ask(&post("/").header("x-fencing-token", "0")).is_refused(400, "malformed");
    gate.comes_to_rest();
}

/// HEADERS of `GET / HTTP/2` for stream 1, as HPACK from the static table.
const GET_ROOT: &[u8] = b"\0\0\x06\x01\x05\0\0\0\x01\x82\x86\x84\x41\x01a";
/// SETTINGS with INITIAL_WINDOW_SIZE = 0: the peer may send no body at all.
const NO_WINDOW: &[u8] = b"\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0";

#[test]
fn an_http2_client_that_never_reads_its_answer_is_cut() {
    let origin = origin().answering(|_| reply(200).body("unread")).start();
    let gate = gateway_to(&origin).listen("send_timeout", "500ms").start();
    let mut client = gate.connect();
    client.send([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", NO_WINDOW, GET_ROOT].concat());
    origin.wait("the request", |seen| seen.requests.len() == 1);
    assert!(client.ends_within(Duration::from_secs(5)), "it kept its place without reading");
}

/// Its etcd never answers, so no token becomes a mark, and clients may bring any number of names.
#[test]
fn resources_of_refused_requests_are_not_kept() {
    let (origin, folder) = (origin().start(), tempfile::tempdir().unwrap());
    let file = folder.path().join("highgate.toml");
    let store = format!("kind = \"etcd\"\nendpoints = [\"http://127.0.0.1:1\"]\npath = {:?}", folder.path());
    std::fs::write(&file, format!("[store]\n{store}\n\n{}", config_for(origin.address, ""))).unwrap();
    let gate = highgate().config(&file).start();
    let mut client = Client::connect(gate.address());
    for number in 0..100 {
        let refused = client.ask(&post("/").resource(&format!("name/{number}")).token(7));
        assert_eq!(refused.status, 503, "{refused:?}");
    }
    let kept = Client::connect(gate.admin_address()).ask(&get("/v1/resources")).json();
    assert_eq!(kept["resources"].as_array().map(Vec::len), Some(0), "{kept}");
}
