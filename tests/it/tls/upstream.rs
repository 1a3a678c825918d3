//! TLS to upstreams: who is trusted, what is shown, and that nothing is sent to anybody else.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use toml::Table;

use super::{Setting, metric};
use crate::support::{
    Authority, Client, Front, GateBuilder, Origin, PATIENCE, Upstream, eventually, front, front_of, gateway,
    get, h2_origin, ok, origin, post, put, reply, secure,
};

/// A gateway whose one route goes to this front, with these keys of `upstream_tls`.
fn gateway_to_front(front: &Front, tls: &[(&str, String)]) -> GateBuilder {
    let table: Table = tls.iter().map(|(key, value)| ((*key).to_owned(), value.clone().into())).collect();
    gateway(front.address)
        .route("upstream", format!("https://{}", front.address))
        .route("upstream_tls", table)
        .route("response_timeout", "2s")
}

fn ca(setting: &Setting) -> (&'static str, String) {
    ("ca", setting.folder.path().join("ca.pem").display().to_string())
}

fn own(setting: &Setting) -> [(&'static str, String); 2] {
    let at = |name: &str| setting.folder.path().join(name).display().to_string();
    [("cert", at("own.pem")), ("key", at("own-key.pem"))]
}

/// An origin behind a front with a certificate for 127.0.0.1.
fn upstream(setting: &Setting) -> (Origin, Front) {
    let origin = origin().start();
    let front = front(&origin, &setting.renew()).start();
    (origin, front)
}

#[test]
fn an_upstream_that_is_trusted_is_spoken_to_over_tls_on_kept_connections() {
    let setting = Setting::new();
    let (origin, front) = upstream(&setting);
    let gate = gateway_to_front(&front, &[ca(&setting)]).listen("workers", 1).start();
    for round in 0..5 {
        gate.ask(&post("/").token(7).body(vec![b'x'; 100 << (4 * (round % 4))])).is_ok();
    }
    gate.ask(&post("/").token(6)).is_refused(412, "stale");
    assert_eq!(front.callers().len(), 1, "one connection was enough");
    assert_eq!(front.callers()[0].protocol.as_deref(), Some(&b"http/1.1"[..]));
    assert_eq!(origin.count(), 5);
    origin.seen().check_fenced(Duration::ZERO);
}

#[test]
fn a_websocket_passes_with_tls_on_both_sides() {
    let setting = Setting::new();
    let upstream = Upstream::start();
    let front = front_of(upstream.address, &setting.renew()).start();
    let builder = gateway_to_front(&front, &[ca(&setting)]).route("upgrades", vec!["websocket"]);
    let gate =
        builder.route("lock_delay", "60s").listen("tls", super::tls(setting.folder.path(), &[])).start();
    let port = secure(gate.address, &setting.authority).alpn(&["http/1.1"]).caller().behind_a_plain_port();
    let mut client = Client::connect(port);
    let asks = get("/").token(7).header("Connection", "Upgrade").header("Upgrade", "websocket");
    // Frames of a client: an empty one, and the head of one of a megabyte.
    let (empty, large) = (b"\x82\x80mask", b"\x82\xff\0\0\0\0\0\x10\0\0mask");
    client.send([&asks.bytes()[..], empty].concat());
    let mut line = upstream.accept();
    assert_eq!(line.next_head().get("x-forwarded-proto"), Some("https"));
    line.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .unwrap();
    client.response_head();
    assert_eq!(line.bytes(6), empty);
    client.send(large);
    assert_eq!(line.bytes(14), large);
    let many = vec![b'x'; 1 << 20];
    for piece in many.chunks(64 << 10) {
        client.send(piece);
        assert_eq!(line.bytes(piece.len()), piece);
    }
    client.send(b"\x88\x80mask");
    assert_eq!(line.bytes(6), b"\x88\x80mask");
    line.send(b"\x88\x02\x03\xe8").unwrap();
    drop(line);
    assert_eq!(client.body_bytes(4), b"\x88\x02\x03\xe8");
    assert!(client.is_closed_within(PATIENCE));
    // An end that is not in order would be waited for longer than this has patience.
    eventually("it ends in order", || gate.ledger().in_flight() == 0);
}

#[test]
fn http2_is_agreed_on_with_an_upstream_whose_route_wants_it() {
    let setting = Setting::new();
    let origin = h2_origin(|_| ok());
    let front = front_of(origin.address, &setting.renew()).start();
    let gate = gateway_to_front(&front, &[ca(&setting)]).route("upstream_protocol", "h2").start();
    for _ in 0..3 {
        gate.ask(&post("/").token(7).body(vec![b'x'; 50_000])).is_ok();
    }
    gate.ask(&post("/").token(6)).is_refused(412, "stale");
    assert!(front.callers().iter().all(|caller| caller.protocol.as_deref() == Some(&b"h2"[..])));
    assert_eq!(origin.seen().requests.len(), 3);
}

#[test]
fn nothing_is_sent_to_an_upstream_that_is_not_trusted() {
    let setting = Setting::new();
    let (origin, _) = upstream(&setting);
    let yesterday = SystemTime::now() - Duration::from_secs(86_400);
    let strange = Authority::new().server(&["127.0.0.1"]);
    let other_name = setting.authority.server(&["elsewhere.test"]);
    let ended = setting.authority.server_until(&["127.0.0.1"], yesterday);
    for (issued, why) in [
        (&strange, "not signed by an authority that is trusted here"),
        (&other_name, "its certificate is for another name"),
        (&ended, "its certificate has ended"),
    ] {
        let front = front(&origin, issued).start();
        let gate = gateway_to_front(&front, &[ca(&setting)]).start();
        let answer = gate.ask(&post("/").token(7).body("x"));
        answer.is_refused(502, "upstream");
        assert_eq!(answer.outcome(), Some("not-sent"));
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(why), "{detail}");
        assert_eq!(gate.ledger().in_flight(), 0, "no outcome is unknown");
    }
    assert_eq!(origin.count(), 0);
}

#[test]
fn an_upstream_that_does_not_speak_tls_gets_no_request() {
    let setting = Setting::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let seen = thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").unwrap();
        let mut bytes = Vec::new();
        // How the connection ends makes no difference here.
        let _ = stream.read_to_end(&mut bytes);
        bytes
    });
    let gate = gateway(address)
        .route("upstream", format!("https://{address}"))
        .route("upstream_tls", Table::from_iter([("ca".to_owned(), ca(&setting).1.into())]))
        .start();
    let answer = gate.ask(&post("/secret").token(7).body("x"));
    answer.is_refused(502, "upstream");
    assert_eq!(answer.outcome(), Some("not-sent"));
    assert!(answer.json()["detail"].as_str().unwrap().contains("it does not speak TLS"), "{answer:?}");
    let bytes = seen.join().unwrap();
    assert!(!bytes.windows(7).any(|window| window == b"/secret"), "nothing went out in the clear");
}

#[test]
fn the_name_of_the_certificate_may_be_another_than_that_of_the_url() {
    let setting = Setting::new();
    let origin = origin().start();
    let front = front(&origin, &setting.authority.server(&["ledger.test"])).start();
    let gate = gateway_to_front(&front, &[ca(&setting), ("server_name", "ledger.test".into())]).start();
    gate.ask(&post("/").token(7)).is_ok();
    assert_eq!(front.callers()[0].name.as_deref(), Some("ledger.test"));
    assert_eq!(origin.only_request().head.get("host"), Some("ledger.test"), "the client's own, as always");
}

#[test]
fn the_gateway_shows_its_certificate_and_a_renewed_one_on_new_connections() {
    let setting = Setting::new();
    let first = setting.authority.client("gateway.internal");
    first.write(setting.folder.path(), "own");
    let origin = origin().start();
    let front = front(&origin, &setting.renew()).asking(&setting.authority).start();
    let keys = [&[ca(&setting)][..], &own(&setting)].concat();
    let keeping = gateway_to_front(&front, &keys).listen("workers", 1).start();
    let fresh = gateway_to_front(&front, &keys).route("upstream_keep_alive", false).start();
    keeping.ask(&post("/").token(7)).is_ok();
    let shown = || front.callers().last().and_then(|caller| caller.certificate.clone());
    assert_eq!(shown().as_deref(), Some(&first.cert.der()[..]));
    let series = "highgate_upstream_certificate_expiry_timestamp_seconds{route=\"ledger\"}";
    assert!(metric(&fresh.admin("/metrics").text(), series).is_some());
    let second = setting.authority.client("gateway.internal");
    second.write(setting.folder.path(), "own");
    eventually("a new connection shows the new one", || {
        fresh.ask(&post("/").token(7)).is_ok();
        shown().as_deref() == Some(&second.cert.der()[..])
    });
    let before = front.callers().len();
    keeping.ask(&post("/").token(7)).is_ok();
    assert_eq!(front.callers().len(), before, "a kept connection goes on with what it began with");
}

#[test]
fn renewals_under_load_lose_no_request_to_an_upstream() {
    let setting = Arc::new(Setting::new());
    setting.authority.client("gateway.internal").write(setting.folder.path(), "own");
    let origin = origin().start();
    let front = front(&origin, &setting.renew()).asking(&setting.authority).start();
    let keys = [&[ca(&setting)][..], &own(&setting)].concat();
    let gate = gateway_to_front(&front, &keys).listen("tls", setting.tls(&[])).start();
    let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = ["h2", "http/1.1", "http/1.1"]
        .into_iter()
        .map(|protocol| {
            let (setting, stop, served, address) =
                (setting.clone(), stop.clone(), served.clone(), gate.address);
            thread::spawn(move || {
                let mut client = secure(address, &setting.authority).alpn(&[protocol]).connect().unwrap();
                while !stop.load(Ordering::Relaxed) {
                    client.ask(&post("/").token(7).body(vec![b'x'; 3000])).unwrap().is_ok();
                    served.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        thread::sleep(Duration::from_millis(100));
        setting.authority.client("gateway.internal").write(setting.folder.path(), "own");
        setting.authority.write(setting.folder.path(), "ca.pem");
    }
    let before = served.load(Ordering::Relaxed);
    eventually("the load goes on", || served.load(Ordering::Relaxed) > before + 20);
    stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().expect("a client all of whose requests passed"));
}

#[test]
fn a_bad_file_of_a_route_keeps_the_old_one_and_says_so() {
    let setting = Setting::new();
    let (_origin, front) = upstream(&setting);
    let gate = gateway_to_front(&front, &[ca(&setting)]).start();
    let taken = || {
        let series = "highgate_upstream_certificate_last_reload_successful{route=\"ledger\"}";
        metric(&gate.admin("/metrics").text(), series)
    };
    assert_eq!(taken(), Some(1.0));
    std::fs::write(setting.folder.path().join("ca.pem"), "nothing").unwrap();
    eventually("it is said", || taken() == Some(0.0));
    gate.ask(&post("/").token(7)).is_ok();
    setting.authority.write(setting.folder.path(), "ca.pem");
    eventually("it is good again", || taken() == Some(1.0));
}

#[test]
fn routes_with_different_certificates_do_not_share_connections() {
    let setting = Setting::new();
    setting.authority.client("gateway.internal").write(setting.folder.path(), "own");
    let origin = origin().start();
    let front = front(&origin, &setting.renew()).start();
    let keys = [&[ca(&setting)][..], &own(&setting)].concat();
    let own: Table = keys.iter().map(|(key, value)| ((*key).to_owned(), value.clone().into())).collect();
    let gate = gateway_to_front(&front, &[ca(&setting)])
        .listen("workers", 1)
        .path("/a", "a")
        .another()
        .path("/b", "b")
        .route("upstream_tls", own)
        .start();
    for path in ["/a", "/b", "/a", "/b"] {
        gate.ask(&put(path).token(7)).is_ok();
    }
    assert_eq!(front.callers().len(), 2, "{:?}", front.callers());
    assert_eq!(origin.count(), 4);
}

#[test]
fn an_answer_before_the_request_was_sent_whole_is_an_unknown_outcome_over_tls_as_well() {
    let setting = Setting::new();
    let origin = origin().answering(|_| reply(200).early()).start();
    let front = front(&origin, &setting.renew()).start();
    let gate = gateway_to_front(&front, &[ca(&setting)]).start();
    let mut client = Client::connect(gate.address);
    // Far more than all buffers between here and the origin hold.
    client.send(post("/").token(7).chunked().head()).send_chunk(vec![b'x'; 1 << 20]);
    origin.receives_token(7);
    eventually("it is counted", || {
        let text = gate.admin("/metrics").text();
        metric(&text, "highgate_unknown_outcomes_total{route=\"ledger\"}") == Some(1.0)
    });
}

#[test]
fn a_cut_resets_a_connection_with_tls() {
    let setting = Setting::new();
    let origin = origin()
        .answering(|request| match request.token() {
            Some(7) => reply(200).held("never"),
            _ => reply(200),
        })
        .start();
    let front = front(&origin, &setting.renew()).start();
    let gate = gateway_to_front(&front, &[ca(&setting)]).route("drain_timeout", "200ms").start();
    let seven = gate.begin(post("/").token(7).body("x"));
    origin.receives_token(7);
    gate.ask(&post("/").token(8)).is_ok();
    let answer = seven.answer();
    assert_eq!((answer.status, answer.outcome()), (504, Some("unknown")), "{answer:?}");
    gate.ask(&get("/")).is_ok();
}
