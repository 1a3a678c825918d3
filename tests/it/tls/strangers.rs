//! Who does not speak what a port speaks, or does not speak at all: told so where that is possible, and never in the way.

use std::time::Duration;

use super::{Setting, failures, metric};
use crate::support::{
    Client, PATIENCE, config_for, eventually, gateway_to, get, highgate, origin, post, secure, stays,
};

#[test]
fn plain_http_on_a_tls_port_is_told_what_to_do() {
    let setting = Setting::new();
    let origin = origin().start();
    let gate = gateway_to(&origin)
        .listen("tls", setting.tls(&[]))
        .secrets("o", "j")
        .admin_tls(setting.tls(&[]))
        .start();
    for (address, ask) in
        [(gate.address, post("/").token(7).body("x")), (gate.admin_address(), get("/readyz"))]
    {
        let mut client = Client::connect(address);
        let answer = client.ask(&ask);
        answer.is_refused(400, "malformed");
        assert_eq!(answer.json()["detail"], "this port speaks TLS: use https://");
        assert!(client.is_closed_within(PATIENCE));
    }
    let mut client = gate.connect();
    client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert!(client.ends_within(PATIENCE));
    assert!(origin.received_nothing());
    let mut operators = secure(gate.admin_address(), &setting.authority).connect().unwrap();
    eventually("each is counted", || {
        let metrics = operators.ask(&get("/metrics")).unwrap().text();
        [("data", 2.0), ("admin", 1.0)].iter().all(|(listener, count)| {
            let labels = format!("{{listener=\"{listener}\",reason=\"plain-http\"}}");
            metric(&metrics, &format!("highgate_tls_handshake_failures_total{labels}")) == Some(*count)
        })
    });
}

#[test]
fn tls_on_a_plain_port_is_closed_and_told_in_the_log() {
    let setting = Setting::new();
    let origin = origin().start();
    let config = setting.folder.path().join("highgate.toml");
    std::fs::write(&config, config_for(origin.address, "")).unwrap();
    let gate = highgate().config(&config).data(&setting.folder.path().join("data")).start();
    let words = "a client speaks TLS to this port, which speaks plain HTTP";
    for (address, listener) in [(gate.address(), "data"), (gate.admin_address(), "admin")] {
        for _ in 0..20 {
            assert!(secure(address, &setting.authority).connect().is_err());
        }
        let lines = || {
            let said = gate.said();
            let named = format!("listener=\"{listener}\"");
            said.lines().filter(|line| line.contains(words) && line.contains(&named)).count()
        };
        eventually("the log says so", || lines() > 0);
        assert!(lines() < 20, "not once for each");
    }
    gate.ask(&post("/").token(7)).is_ok();
}

#[test]
fn a_handshake_that_does_not_end_or_is_none_is_cut_and_others_go_on() {
    let setting = Setting::new();
    let origin = origin().start();
    let gate = gateway_to(&origin).listen("tls", setting.tls(&[])).listen("header_timeout", "300ms").start();
    // The beginning of a ClientHello, and then nothing.
    let mut slow = gate.connect();
    slow.send([0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]);
    assert!(slow.ends_within(Duration::from_secs(4)));
    let mut silent = gate.connect();
    assert!(silent.ends_within(Duration::from_secs(4)));
    for garbage in [&[0u8; 64][..], &[0x16; 64], &[0x80, 0x2e, 1, 3, 1], &[0x16, 3, 1, 0xff, 0xff]] {
        let mut client = gate.connect();
        client.send(garbage);
        assert!(client.ends_within(Duration::from_secs(4)), "{garbage:?}");
    }
    drop(gate.connect());
    eventually("each is counted by its reason", || {
        failures(&gate, "timeout") >= 2.0
            && failures(&gate, "malformed") >= 1.0
            && failures(&gate, "closed") >= 1.0
    });
    secure(gate.address, &setting.authority).ask(&post("/").token(7)).unwrap().is_ok();
}

#[test]
fn a_client_that_says_nothing_after_its_handshake_is_closed() {
    let setting = Setting::new();
    let origin = origin().start();
    let gate = gateway_to(&origin).listen("tls", setting.tls(&[])).listen("header_timeout", "300ms").start();
    let mut client = secure(gate.address, &setting.authority).alpn(&["http/1.1"]).connect().unwrap();
    eventually("it is counted", || failures(&gate, "timeout") == 1.0);
    assert!(client.ask(&get("/")).is_err());
}

#[test]
fn what_a_client_does_not_trust_is_counted_as_its_alert() {
    let (setting, other) = (Setting::new(), Setting::new());
    let origin = origin().start();
    let gate = gateway_to(&origin).listen("tls", setting.tls(&[])).start();
    assert!(secure(gate.address, &other.authority).connect().is_err());
    assert!(secure(gate.address, &setting.authority).alpn(&["smtp"]).connect().is_err());
    eventually("both are counted", || {
        failures(&gate, "alert") == 1.0 && failures(&gate, "incompatible") == 1.0
    });
}

#[test]
fn handshakes_under_way_count_as_connections() {
    let setting = Setting::new();
    let origin = origin().start();
    let gate = gateway_to(&origin).listen("tls", setting.tls(&[])).listen("max_connections", 4).start();
    let silent: Vec<_> = (0..4).map(|_| gate.connect()).collect();
    let connections = || gate.admin("/metrics").text().contains("\nhighgate_connections 4\n");
    eventually("all four are counted", connections);
    assert!(gate.connect().is_closed_within(PATIENCE), "one more finds no place");
    stays("they keep theirs", connections);
    drop(silent);
    eventually("there is room again", || {
        secure(gate.address, &setting.authority).ask(&get("/")).is_ok_and(|answer| answer.status == 200)
    });
}

#[test]
fn a_gateway_ends_though_a_handshake_is_under_way() {
    let setting = Setting::new();
    let origin = origin().start();
    let gate = gateway_to(&origin).listen("tls", setting.tls(&[])).start();
    let silent = gate.connect();
    eventually("it is there", || gate.admin("/metrics").text().contains("\nhighgate_connections 1\n"));
    let begun = std::time::Instant::now();
    assert!(gate.stop());
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    drop(silent);
}

#[test]
fn a_port_that_strangers_can_listen_to_does_not_start_unless_that_is_meant() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().start();
    for (listen, admin, flag) in
        [("0.0.0.0:0", "127.0.0.1:0", "--listen"), ("127.0.0.1:0", "[::]:0", "--admin")]
    {
        let builder = highgate().listening(listen, admin).upstream(origin.address).data(folder.path());
        let mut refused = builder.spawn();
        assert_eq!(refused.exit_code(), 2);
        let errors = refused.errors();
        assert!(errors.starts_with(&format!("{flag}: ")), "{errors}");
        assert!(
            errors.contains("is another address than loopback") && errors.contains("--insecure"),
            "{errors}"
        );
    }
}

#[test]
fn who_a_client_is_by_its_certificate_is_in_the_log() {
    let setting = Setting::new();
    let origin = origin().start();
    let config = setting.folder.path().join("highgate.toml");
    let clients = [("client_ca", "ca.pem"), ("client_auth", "optional")];
    let tls = format!("[listen.tls]\n{0}\n[admin.tls]\n{0}", setting.tls(&clients));
    std::fs::write(&config, format!("{tls}\n{}", config_for(origin.address, ""))).unwrap();
    let gate = highgate().config(&config).data(&setting.folder.path().join("data")).start();
    let spiffe = setting.authority.client("spiffe://corp/job-a");
    let dns = setting.authority.client("Ops.internal");
    let connect = || secure(gate.address(), &setting.authority);
    connect().shows(&spiffe).ask(&post("/").token(8)).unwrap().is_ok();
    connect().shows(&dns).ask(&post("/").token(7)).unwrap().is_refused(412, "stale");
    connect().ask(&post("/anonymous").token(8)).unwrap().is_ok();
    let line = |words: &[&str]| {
        eventually(&format!("a line with {words:?}"), || {
            gate.said().lines().any(|line| words.iter().all(|word| line.contains(word)))
        });
    };
    line(&["identity=\"spiffe://corp/job-a\"", "status=200"]);
    line(&["identity=\"dns:ops.internal\"", "status=412"]);
    line(&["path=\"/anonymous\"", "status=200"]);
    assert!(!gate.said().lines().any(|line| line.contains("/anonymous") && line.contains("identity")));
    let freeze =
        crate::support::json_post("/v1/operator/freeze", &serde_json::json!({"resource": "default"}));
    secure(gate.admin_address(), &setting.authority).shows(&dns).ask(&freeze).unwrap().is_ok();
    line(&["event=\"order\"", "action=\"freeze\"", "identity=\"dns:ops.internal\""]);
}
