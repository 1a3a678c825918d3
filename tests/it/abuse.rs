//! Nobody gets more than a fair share by having many names, connections or bogus tokens.

use std::time::{Duration, Instant};

use crate::support::h2_raw::{END_HEADERS, END_STREAM, GET, GOAWAY, HEADERS, RawH2, SETTINGS, frame};
use crate::support::{
    Client, H2, PATIENCE, Pending, Response, Running, eventually, gateway_to, get, origin, post, reply,
};

fn is_overloaded(answer: &Response) {
    answer.is_refused(503, "overloaded");
    assert_eq!(answer.header("retry-after"), Some("1"), "{answer:?}");
}

#[test]
fn names_beyond_the_limit_are_refused_and_known_ones_go_on() {
    let origin = origin().start();
    let gate = gateway_to(&origin).store("max_resources", 3).start();
    let name = |number: usize| post("/").resource(&format!("name/{number}"));
    for number in 0..3 {
        gate.ask(&name(number).token(7)).is_ok();
    }
    let mut client = gate.connect();
    for number in 3..50 {
        is_overloaded(&client.ask(&name(number).token(7)));
    }
    client.ask(&name(0).token(8)).is_ok();
    client.ask(&name(0).token(7)).is_refused(412, "stale");
    assert_eq!((gate.ledger().len(), origin.count()), (3, 4));
    let listed = gate.admin("/v1/resources").json();
    assert_eq!((&listed["total"], &listed["max_resources"]), (&3.into(), &3.into()));
    assert_eq!(gate.limited("max_resources"), 47);
}

#[test]
fn of_many_new_names_at_once_only_so_many_are_taken() {
    let origin = origin().start();
    let gate = gateway_to(&origin).store("max_resources", 5).start();
    let asked: Vec<_> =
        (0..20).map(|number| gate.begin(post("/").resource(&format!("name/{number}")).token(7))).collect();
    let passed = asked.into_iter().map(Pending::answer).filter(|one| one.status == 200);
    assert_eq!((passed.count(), gate.ledger().len()), (5, 5));
}

/// A gateway that lets a client fail three times.
fn strict_about_tokens(origin: &crate::support::Origin, tokens: &str) -> Running {
    let gate = gateway_to(origin).listen("refusals_per_second", 1).listen("refusals_burst", 3);
    gate.route("tokens", tokens).start()
}

/// Uses up what the client may fail: after that, only what has come since passes, one a second.
fn use_up(client: &mut Client, mut fail: impl FnMut(&mut Client) -> Response, status: u16) {
    for _ in 0..3 {
        assert_eq!(fail(client).status, status);
    }
    let begun = Instant::now();
    loop {
        let answer = fail(client);
        if answer.status == 503 {
            return is_overloaded(&answer);
        }
        assert_eq!(answer.status, status);
        assert!(begun.elapsed() < PATIENCE, "it may fail as often as it likes");
    }
}

#[test]
fn who_brings_too_many_bogus_tokens_is_turned_away_and_its_leaders_are_not() {
    let origin = origin().start();
    let gate = strict_about_tokens(&origin, "trusted");
    let mut client = gate.connect();
    client.ask(&post("/").token(7)).is_ok();
    use_up(&mut client, |client| client.ask(&post("/").header("X-Fencing-Token", "bogus")), 400);
    client.ask(&post("/").token(7)).is_ok();
    client.ask(&post("/").token(6)).is_refused(412, "stale");
    client.ask(&get("/")).is_ok();
    client.ask(&post("/")).is_refused(428, "missing");
    assert!(gate.limited("refusals_per_second") >= 1);
}

#[test]
fn a_client_without_credit_raises_no_mark_until_it_has_some_again() {
    let origin = origin().start();
    let gate = gateway_to(&origin).listen("refusals_per_second", 1).listen("refusals_burst", 1000).start();
    let mut client = gate.connect();
    client.ask(&post("/").token(7)).is_ok();
    let begun = Instant::now();
    let mut raised = 7;
    // Faster than one a second, the credit is used up at some time, and then a raise is refused.
    loop {
        for _ in 0..100 {
            client.ask(&post("/").header("X-Fencing-Token", "bogus"));
        }
        let answer = client.ask(&post("/").token(raised + 1));
        if answer.status == 503 {
            is_overloaded(&answer);
            break;
        }
        answer.is_ok();
        raised += 1;
        assert!(begun.elapsed() < 3 * PATIENCE, "the store is asked as often as it likes");
    }
    assert_eq!(gate.mark("default"), raised, "nothing was asked of the store");
    client.ask(&post("/").token(raised)).is_ok();
    eventually("a raise passes again", || client.ask(&post("/").token(raised + 1)).status == 200);
}

#[test]
fn tokens_that_nobody_was_issued_count_as_well() {
    let origin = origin().start();
    let gate = strict_about_tokens(&origin, "issued");
    let mut client = gate.connect();
    use_up(&mut client, |client| client.ask(&post("/").token(99)), 403);
    assert!(origin.received_nothing());
}

#[test]
fn a_client_has_no_more_connections_than_it_may() {
    let origin = origin().start();
    let gate = gateway_to(&origin).listen("connections_per_client", 3).start();
    let mut kept: Vec<Client> = (0..3).map(|_| gate.connect()).collect();
    for client in &mut kept {
        client.ask(&get("/")).is_ok();
    }
    let mut one_more = gate.connect();
    let turned_away = one_more.response();
    is_overloaded(&turned_away);
    assert!(turned_away.text().contains("your address"), "{turned_away:?}");
    assert!(one_more.is_closed_within(PATIENCE));
    assert!(gate.limited("connections_per_client") >= 1);
    kept.pop();
    eventually("there is room again", || {
        let mut client = gate.connect();
        client.send(get("/again").header("Connection", "close").bytes());
        client.response_if_any().is_some_and(|answer| answer.status == 200)
    });
}

#[test]
fn a_connection_ends_after_as_many_requests_as_it_may_have() {
    let origin = origin().start();
    let gate = gateway_to(&origin).listen("requests_per_connection", 3).start();
    let mut client = gate.connect();
    for last in [false, false, true] {
        let answer = client.ask(&get("/"));
        answer.is_ok();
        assert_eq!(answer.header("connection") == Some("close"), last, "{answer:?}");
    }
    assert!(client.is_closed_within(PATIENCE));
    let mut h2 = RawH2::connect(gate.address);
    for stream in [1, 3, 5] {
        h2.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, GET));
    }
    origin.wait("all of them", |seen| seen.requests.len() == 6);
    let last_words = h2.wait_for(GOAWAY).expect("it is told to go elsewhere");
    assert_eq!(last_words[4..8], [0; 4], "there is nothing wrong");
}

#[test]
fn heads_are_limited_as_the_config_says() {
    let origin = origin().start();
    let gate = gateway_to(&origin).listen("max_head", "8KiB").listen("max_headers", 300).start();
    let many =
        |count: usize| (0..count).fold(get("/"), |ask, number| ask.header(&format!("x-{number}"), "x"));
    gate.ask(&many(250)).is_ok();
    gate.ask(&many(301)).is_refused(431, "malformed");
    gate.ask(&get("/").header("x-large", &"x".repeat(9 << 10))).is_refused(431, "malformed");
    gate.ask(&get(&format!("/{}", "x".repeat(9 << 10)))).is_refused(414, "malformed");
    let h2 = H2::connect(gate.address);
    h2.ask(&many(250)).is_ok();
    h2.ask(&many(301)).is_refused(431, "malformed");
    h2.ask(&get("/").header("x-large", &"x".repeat(9 << 10))).is_refused(431, "malformed");
    let large = gateway_to(&origin).listen("max_head", "256KiB").start();
    large.ask(&get("/").header("x-large", &"x".repeat(200 << 10))).is_ok();
    H2::connect(large.address).ask(&get("/").header("x-large", &"x".repeat(200 << 10))).is_ok();
}

/// Its client takes nothing of an answer that is larger than all buffers; the upstream's answer is read to its end all the
/// same, so nobody has to wait for an outcome that is unknown.
#[test]
fn a_client_that_does_not_read_is_cut_and_its_request_goes_on_to_its_end() {
    const SIZE: u64 = 32 << 20;
    let origin = origin()
        .answering(|request| match request.token() {
            Some(7) => reply(200).streaming(SIZE),
            _ => reply(200),
        })
        .start();
    let gate = gateway_to(&origin)
        .listen("send_timeout", "300ms")
        .route("drain_timeout", "60s")
        .route("hold_timeout", "30s")
        .route("lock_delay", "60s")
        .start();
    let mut seven = gate.connect();
    seven.send(post("/").token(7).bytes());
    seven.response_head();
    eventually("the client is cut", || gate.limited("send_timeout") == 1);
    origin.wait("the answer is read to its end", |seen| seen.requests[0].sent == SIZE);
    gate.comes_to_rest();
    gate.ask(&post("/").token(8)).is_ok();
    assert!(gate.admin("/metrics").text().contains("highgate_unknown_outcomes_total{route=\"ledger\"} 0"));
}

/// Each answer fits into the gateway's own buffers, so that nobody asks its body for more.
#[test]
fn a_client_that_asks_and_asks_and_never_reads_is_cut() {
    let origin = origin().answering(|_| reply(200).body("x".repeat(30 << 10))).start();
    let gate = gateway_to(&origin).listen("send_timeout", "300ms").start();
    let mut client = gate.connect();
    for _ in 0..1000 {
        client.send(get("/").bytes());
    }
    eventually("the client is cut", || gate.limited("send_timeout") == 1);
    gate.ask(&get("/")).is_ok();
}

#[test]
fn an_http2_client_is_told_how_many_streams_it_may_have() {
    let origin = origin().start();
    let gate = gateway_to(&origin).listen("streams_per_connection", 7).start();
    let settings = RawH2::connect(gate.address).wait_for(SETTINGS).expect("the gateway greets");
    let most = settings.chunks(6).find(|setting| setting[..2] == [0, 3]).expect("it says how many");
    assert_eq!(most[2..], [0, 0, 0, 7]);
}

/// Within every idle time-out, a byte at a time.
#[test]
fn a_body_that_trickles_is_cut_by_the_total_timeout() {
    let origin = origin().start();
    let gate = gateway_to(&origin).route("total_timeout", "1s").start();
    let mut client = gate.connect();
    client.send(post("/").token(7).chunked().head()).send_chunk(vec![b'x'; 100 * 1024]);
    origin.receives_token(7);
    let begun = Instant::now();
    while !client.ends_within(Duration::from_millis(50)) {
        client.send_chunk("x");
        assert!(begun.elapsed() < PATIENCE, "it may trickle for ever");
    }
    gate.comes_to_rest();
}
