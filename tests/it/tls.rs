//! TLS on the gateway's own ports: versions, names, protocols, clients' certificates, and files that change.

mod commands;
mod elector;
mod files;
mod strangers;
mod upstream;

use toml::Table;

use crate::support::{
    Authority, Issued, Running, Secure, eventually, gateway_to, get, origin, post, reply, secure,
};

/// The table `tls` of a port, over files in a folder.
fn tls(folder: &std::path::Path, more: &[(&str, &str)]) -> Table {
    let at = |name: &str| folder.join(name).display().to_string();
    let mut table = Table::new();
    table.insert("cert".into(), at("server.pem").into());
    table.insert("key".into(), at("server-key.pem").into());
    table.extend(more.iter().map(|(key, value)| {
        let value = if *key == "client_auth" { (*value).to_owned() } else { at(value) };
        ((*key).to_owned(), value.into())
    }));
    table
}

/// What every test here begins with: an authority, and a folder with a certificate of it for `localhost`.
struct Setting {
    authority: Authority,
    folder: tempfile::TempDir,
}

impl Setting {
    fn new() -> Self {
        let setting = Self { authority: Authority::new(), folder: tempfile::tempdir().unwrap() };
        setting.renew();
        setting.authority.write(setting.folder.path(), "ca.pem");
        setting
    }

    /// Puts another certificate in the place of the one that is there.
    fn renew(&self) -> Issued {
        let issued = self.authority.server(&["localhost", "127.0.0.1"]);
        issued.write(self.folder.path(), "server");
        issued
    }

    fn tls(&self, more: &[(&str, &str)]) -> Table {
        tls(self.folder.path(), more)
    }
}

/// What a metric of the gateway says, by the start of its line.
fn metric(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map(|value| value.parse().unwrap())
}

fn failures(gate: &Running, reason: &str) -> f64 {
    let series = format!("highgate_tls_handshake_failures_total{{listener=\"data\",reason=\"{reason}\"}}");
    metric(&gate.admin("/metrics").text(), &series).unwrap_or_else(|| panic!("no series for {reason}"))
}

#[test]
fn both_versions_and_both_protocols_pass_the_fence() {
    let setting = Setting::new();
    let origin = origin().start();
    let gate = gateway_to(&origin).listen("tls", setting.tls(&[])).start();
    let connect = || secure(gate.address, &setting.authority);
    for (tls12, protocol, is_http2) in
        [(false, "h2", true), (true, "h2", true), (false, "http/1.1", false), (true, "http/1.1", false)]
    {
        let builder = if tls12 { connect().tls12() } else { connect() };
        let mut client = builder.alpn(&[protocol]).connect().unwrap();
        assert_eq!(
            (client.is_http2(), format!("{:?}", client.version).as_str()),
            (is_http2, if tls12 { "TLSv1_2" } else { "TLSv1_3" })
        );
        client.ask(&post("/").token(7).body("x")).unwrap().is_ok();
        client.ask(&post("/").token(6)).unwrap().is_refused(412, "stale");
        client.ask(&post("/").token(7)).unwrap().is_ok();
    }
    assert!(connect().connect().unwrap().is_http2(), "HTTP/2 if the client likes both");
    assert!(!connect().alpn(&[]).connect().unwrap().is_http2(), "HTTP/1.1 if it says nothing");
    let last = origin.seen().requests.last().unwrap().clone();
    assert_eq!(last.head.get("x-forwarded-proto"), Some("https"));
    origin.seen().check_fenced(std::time::Duration::ZERO);
}

#[test]
fn the_name_that_a_client_asks_for_decides_which_certificate_it_gets() {
    let setting = Setting::new();
    let origin = origin().start();
    let other = setting.authority.server(&["b.test", "*.c.test"]);
    let (cert, key) = other.write(setting.folder.path(), "other");
    let pair = |cert: String, key: String| {
        Table::from_iter([("cert".to_owned(), cert.into()), ("key".to_owned(), key.into())])
    };
    let at = |name: &str| setting.folder.path().join(name).display().to_string();
    let pairs = vec![
        pair(at("server.pem"), at("server-key.pem")),
        pair(cert.display().to_string(), key.display().to_string()),
    ];
    let table = Table::from_iter([("certificates".to_owned(), pairs.into())]);
    let gate = gateway_to(&origin).listen("tls", table).start();
    for (name, is_other) in [("localhost", false), ("127.0.0.1", false), ("b.test", true), ("x.c.test", true)]
    {
        let mut client = secure(gate.address, &setting.authority).named(name).connect().unwrap();
        assert_eq!(client.certificate == *other.cert.der(), is_other, "{name}");
        client.ask(&get("/")).unwrap().is_ok();
    }
    let elsewhere = secure(gate.address, &setting.authority).named("elsewhere.test").connect();
    assert!(elsewhere.is_err(), "it gets the first, which is not for that name");
}

#[test]
fn a_second_connection_resumes_the_session_of_the_first() {
    let setting = Setting::new();
    let origin = origin().start();
    let gate = gateway_to(&origin).listen("tls", setting.tls(&[])).start();
    for tls12 in [false, true] {
        let builder = secure(gate.address, &setting.authority);
        let caller = if tls12 { builder.tls12().caller() } else { builder.caller() };
        let mut first = caller.connect().unwrap();
        assert!(!first.resumed);
        // With TLS 1.3 the tickets come after the handshake.
        first.ask(&get("/")).unwrap().is_ok();
        assert!(caller.connect().unwrap().resumed, "tls12: {tls12}");
        setting.renew();
        eventually("the new certificate is in force", || {
            let fresh = secure(gate.address, &setting.authority).connect().unwrap();
            fresh.certificate != first.certificate
        });
        assert!(caller.connect().unwrap().resumed, "after a renewal as well, tls12: {tls12}");
    }
}

fn ask_as(
    gate: &Running,
    setting: &Setting,
    client: Option<&Issued>,
    tls12: bool,
) -> std::io::Result<Secure> {
    let builder = secure(gate.address, &setting.authority);
    let builder = if tls12 { builder.tls12() } else { builder };
    let builder = client.into_iter().fold(builder, |builder, client| builder.shows(client));
    let mut connection = builder.connect()?;
    // With TLS 1.3 a client learns only now that it was turned away.
    connection.ask(&post("/").token(7))?.is_ok();
    Ok(connection)
}

#[test]
fn clients_show_a_certificate_where_it_is_required_and_a_good_one_where_they_show_one() {
    let setting = Setting::new();
    let origin = origin().start();
    let own = setting.authority.client("spiffe://corp/job-a");
    let strange = Authority::new().client("spiffe://corp/job-a");
    let server_only = setting.authority.server(&["job-a.internal"]);
    for (auth, without) in [("required", false), ("optional", true)] {
        let table = setting.tls(&[("client_ca", "ca.pem"), ("client_auth", auth)]);
        let gate = gateway_to(&origin).listen("tls", table).start();
        for tls12 in [false, true] {
            assert!(ask_as(&gate, &setting, Some(&own), tls12).is_ok(), "{auth}");
            assert_eq!(ask_as(&gate, &setting, None, tls12).is_ok(), without, "{auth}");
            assert!(ask_as(&gate, &setting, Some(&strange), tls12).is_err(), "{auth}");
            assert!(ask_as(&gate, &setting, Some(&server_only), tls12).is_err(), "{auth}");
        }
        eventually("they are counted", || {
            failures(&gate, "bad-certificate") == 4.0
                && failures(&gate, "no-certificate") == if without { 0.0 } else { 2.0 }
        });
    }
    let gate = gateway_to(&origin).listen("tls", setting.tls(&[])).start();
    assert!(ask_as(&gate, &setting, Some(&strange), false).is_ok(), "nobody has asked for one");
}

#[test]
fn an_http2_connection_over_tls_streams_and_goes_on_after_a_refusal() {
    let setting = Setting::new();
    let origin = origin().answering(|_| reply(200).body(vec![b'x'; 300_000])).start();
    let gate = gateway_to(&origin).listen("tls", setting.tls(&[])).start();
    let mut client = secure(gate.address, &setting.authority).alpn(&["h2"]).connect().unwrap();
    for round in 7..10 {
        let answer = client.ask(&post("/").token(round).body(vec![b'y'; 200_000])).unwrap();
        assert_eq!(answer.is_ok().body.len(), 300_000);
        client.ask(&post("/").token(round - 1)).unwrap().is_refused(412, "stale");
    }
}

#[test]
fn the_ports_of_operators_and_jobs_speak_tls_as_well() {
    let setting = Setting::new();
    let origin = origin().start();
    let (operators, jobs) = (setting.tls(&[("client_ca", "ca.pem")]), setting.tls(&[]));
    let gate =
        gateway_to(&origin).secrets("operators", "jobs").admin_tls(operators).elections_tls(jobs).start();
    let own = setting.authority.client("ops.internal");
    let to_admin = || secure(gate.admin_address(), &setting.authority).shows(&own);
    assert_eq!(to_admin().ask(&get("/readyz")).unwrap().is_ok().text(), "ready\n");
    assert!(!to_admin().connect().unwrap().is_http2(), "there is one protocol here");
    assert!(secure(gate.admin_address(), &setting.authority).ask(&get("/readyz")).is_err());
    let campaign = serde_json::json!({"resource": "a", "holder": "h", "ttl_seconds": 10, "wait_seconds": 1});
    let ask =
        crate::support::json_post("/v1/elections/campaign", &campaign).header("Authorization", "Bearer jobs");
    let won = secure(gate.elections_address(), &setting.authority).ask(&ask).unwrap();
    assert_eq!(won.is_ok().json()["token"], 1);
    let listeners = to_admin().ask(&get("/v1/replicas").header("Authorization", "Bearer operators")).unwrap();
    let listeners = listeners.json()["listeners"].clone();
    let shown: Vec<_> =
        listeners.as_array().unwrap().iter().map(|one| (one["name"].clone(), one["tls"].clone())).collect();
    assert_eq!(
        serde_json::json!(shown),
        serde_json::json!([["data", false], ["admin", true], ["elections", true]])
    );
}
