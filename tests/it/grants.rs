//! Who may write what on the data port, and whose token it has to be.

use std::path::Path;

use serde_json::json;
use toml::{Table, Value};

use crate::support::{
    Ask, Authority, Client, GateBuilder, H2, Origin, Running, eventually, gateway_to, get, json_post, origin,
    post, reply, secure, stays,
};

trait By {
    /// Sent by somebody, who says so with a secret.
    fn by(self, name: &str) -> Self;
}

impl By for Ask {
    fn by(self, name: &str) -> Self {
        self.header("X-Fencing-Credential", &format!("{name}-s3cret"))
    }
}

/// Job A writes below `a/`, job B below `b/`, the watcher only looks.
fn granted(origin: &Origin) -> GateBuilder {
    gateway_to(origin)
        .grant("job-a", "write campaign", "a/*")
        .grant("job-b", "write campaign", "b/* shared")
        .grant("watcher", "observe campaign operate", "*")
}

fn write(resource: &str, token: u64) -> Ask {
    post("/").token(token).resource(resource)
}

/// Wins an election, on the admin port; the token.
fn elected(gate: &Running, name: &str, resource: &str) -> u64 {
    let wish = json!({ "resource": resource, "holder": name, "ttl_seconds": 60, "wait_seconds": 10 });
    let ask =
        json_post("/v1/elections/campaign", &wish).header("Authorization", &format!("Bearer {name}-s3cret"));
    let won = Client::connect(gate.admin_address()).ask(&ask);
    assert_eq!(won.status, 200, "{}", won.text());
    won.json()["token"].as_u64().expect("a token")
}

#[test]
fn only_who_was_granted_to_write_reaches_the_upstream() {
    let origin = origin().start();
    let gate = granted(&origin).start();
    let h2 = H2::connect(gate.address);
    for (who, resource, allowed) in [
        (Some("job-a"), "a/1", true),
        (Some("job-a"), "a/1/x", true),
        (Some("job-a"), "b/1", false),
        (Some("job-a"), "a", false),
        (Some("job-a"), "shared", false),
        (Some("job-b"), "b/1", true),
        (Some("job-b"), "shared", true),
        (Some("job-b"), "a/1", false),
        (Some("watcher"), "a/1", false),
        (Some("stranger"), "a/1", false),
        (Some(""), "a/1", false),
        (None, "a/1", false),
    ] {
        let request = who.map_or_else(|| write(resource, 7), |who| write(resource, 7).by(who));
        for answer in [gate.ask(&request), h2.ask(&request)] {
            match allowed {
                true => drop(answer.is_ok()),
                false => answer.is_refused(403, "forbidden"),
            }
            assert!(!answer.text().contains("s3cret"), "{}", answer.text());
        }
    }
    assert_eq!((origin.count(), gate.mark("a"), gate.mark("shared")), (8, 0, 7), "the refused raise nothing");
    let metrics = Client::connect(gate.admin_address())
        .ask(&get("/metrics").header("Authorization", "Bearer watcher-s3cret").header("Connection", "close"))
        .text();
    let series = r#"highgate_requests_total{route="ledger",decision="refused",reason="forbidden"} 16"#;
    assert!(metrics.contains(series), "{metrics}");
}

#[test]
fn who_may_not_use_a_resource_does_not_learn_its_mark() {
    let origin = origin().start();
    let gate = granted(&origin).start();
    gate.ask(&write("a/1", 9).by("job-a")).is_ok();
    let forbidden = gate.ask(&write("a/1", 7).by("job-b"));
    forbidden.is_refused(403, "forbidden");
    assert!(forbidden.json()["mark"].is_null());
    let stale = gate.ask(&write("a/1", 7).by("job-a"));
    stale.is_refused(412, "stale");
    assert_eq!(stale.json()["mark"], 9);
}

#[test]
fn a_forbidden_request_is_answered_before_its_body_is_read() {
    let origin = origin().start();
    let gate = granted(&origin).start();
    let mut client = gate.connect();
    client.send(write("a/1", 7).by("job-b").body(vec![b'x'; 1 << 20]).head());
    client.response().is_refused(403, "forbidden");
}

#[test]
fn the_credential_is_the_gateways_alone() {
    let origin = origin().start();
    let gate = granted(&origin).start();
    gate.ask(&write("a/1", 7).by("job-a")).is_ok();
    gate.ask(&get("/").by("job-a")).is_ok();
    let seen = origin.seen();
    for request in &seen.requests {
        assert!(request.head.get("x-fencing-credential").is_none(), "{:?}", request.head);
    }
    assert_eq!(seen.requests[0].head.get("x-fencing-token"), Some("7"));
}

#[test]
fn reads_need_no_grant() {
    let origin = origin().start();
    let gate = granted(&origin).start();
    gate.ask(&get("/").resource("a/1")).is_ok();
    gate.ask(&get("/").resource("a/1").by("stranger")).is_ok();
}

#[test]
fn a_credential_has_one_reading() {
    let origin = origin().start();
    let gate = granted(&origin).start();
    gate.ask(&write("a/1", 7).by("job-a").by("job-a")).is_refused(400, "malformed");
    gate.ask(&write("a/1", 7).header("X_Fencing_Credential", "job-a-s3cret")).is_refused(400, "malformed");
    gate.ask(&write("a/1", 7).by("job-a").header("Connection", "X-Fencing-Credential"))
        .is_refused(400, "malformed");
    assert!(origin.received_nothing());
}

#[test]
fn a_write_that_needs_no_token_needs_its_grant() {
    let origin = origin().start();
    let gate = granted(&origin).route("missing_token", "allow").start();
    gate.ask(&post("/").resource("a/1").by("job-a")).is_ok();
    gate.ask(&post("/").resource("a/1").by("job-b")).is_refused(403, "forbidden");
    gate.ask(&post("/").resource("a/1")).is_refused(403, "forbidden");
}

#[test]
fn without_grants_a_credential_makes_no_difference() {
    let origin = origin().start();
    let gate = gateway_to(&origin).start();
    gate.ask(&write("a/1", 7)).is_ok();
    gate.ask(&write("a/1", 7).by("stranger")).is_ok();
}

/// Holds the answer to token 7 until it is released.
fn slow_for_seven() -> Origin {
    let answers = |request: &crate::support::Request| match request.token() {
        Some(7) => reply(200).body("seven").held("seven"),
        _ => reply(200).body("other"),
    };
    origin().answering(answers).start()
}

#[test]
fn a_grant_that_is_taken_away_does_not_count_for_who_waits() {
    let origin = slow_for_seven();
    let gate = granted(&origin).start();
    let seven = gate.begin(write("a/1", 7).by("job-a"));
    origin.receives_token(7);
    let eight = gate.begin(write("a/1", 8).by("job-a"));
    eventually("the higher token waits", || gate.mark("a/1") == 8);
    gate.grant(&gateway_to(&origin).grant("job-b", "write", "b/*").grant("job-a", "observe", "a/*"));
    origin.release("seven");
    seven.answer().is_ok();
    eight.answer().is_refused(403, "forbidden");
    assert!(!origin.has_token(8), "what waited is not sent");
}

#[test]
fn a_grant_that_is_taken_away_does_not_count_for_a_body_on_its_way() {
    let origin = origin().start();
    let gate = granted(&origin).start();
    gate.ask(&write("a/1", 7).by("job-a")).is_ok();
    let mut client = gate.connect();
    let request = write("a/1", 7).by("job-a").body("two halves");
    client.send(request.head()).send("two ");
    stays("it waits for the rest", || origin.count() == 1);
    gate.grant(&gateway_to(&origin).grant("job-b", "write", "b/*"));
    client.send("halves");
    client.response().is_refused(403, "forbidden");
    assert_eq!(origin.count(), 1);
}

#[test]
fn what_is_under_way_ends_though_its_grant_is_taken_away() {
    let origin = slow_for_seven();
    let gate = granted(&origin).start();
    let seven = gate.begin(write("a/1", 7).by("job-a"));
    origin.receives_token(7);
    gate.grant(&gateway_to(&origin).grant("job-b", "write", "b/*"));
    origin.release("seven");
    seven.answer().is_ok();
    gate.ask(&write("a/1", 7).by("job-a")).is_refused(403, "forbidden");
}

#[test]
fn a_copied_token_is_of_no_use_where_it_is_bound_to_its_holder() {
    let origin = origin().start();
    let bound = granted(&origin).grant("job-c", "write campaign", "b/*");
    let gate = bound.route("tokens", "issued").route("bind_holder", true).start();
    let token = elected(&gate, "job-b", "b/1");
    gate.ask(&write("b/1", token).by("job-b")).is_ok();
    let copied = gate.ask(&write("b/1", token).by("job-c"));
    copied.is_refused(403, "forbidden");
    assert!(copied.text().contains("issued to another identity"), "{}", copied.text());
    assert!(!copied.text().contains("job-b"), "whose it is does not concern the thief");
    gate.ask(&write("b/1", token + 1).by("job-c")).is_refused(403, "not-issued");
    let resigned = json_post("/v1/operator/evict", &json!({ "resource": "b/1" }));
    let resigned = resigned.header("Authorization", "Bearer watcher-s3cret");
    assert_eq!(Client::connect(gate.admin_address()).ask(&resigned).status, 200);
    let next = elected(&gate, "job-c", "b/1");
    gate.ask(&write("b/1", next).by("job-c")).is_ok();
    gate.ask(&write("b/1", next).by("job-b")).is_refused(403, "forbidden");
    gate.ask(&write("b/1", token).by("job-b")).is_refused(412, "stale");
    gate.ask(&write("b/1", token).by("job-c")).is_refused(412, "stale");
    assert_eq!(origin.count(), 2);
}

#[test]
fn where_a_token_is_bound_to_its_holder_one_whose_holder_nobody_knows_is_refused() {
    let origin = origin().start();
    let gate = granted(&origin).route("tokens", "issued").route("bind_holder", true).start();
    let raise = json_post("/v1/operator/raise", &json!({ "resource": "b/1", "to": 50 }));
    let raise = raise.header("Authorization", "Bearer watcher-s3cret");
    assert_eq!(Client::connect(gate.admin_address()).ask(&raise).status, 200);
    let refused = gate.ask(&write("b/1", 50).by("job-b"));
    refused.is_refused(403, "forbidden");
    assert!(refused.text().contains("nobody knows to which identity"), "{}", refused.text());
    gate.ask(&write("b/1", 49).by("job-b")).is_refused(412, "stale");
    assert!(origin.received_nothing());
}

#[test]
fn without_grants_a_token_can_be_bound_to_its_holder_but_not_to_nobody() {
    let origin = origin().start();
    let gate = gateway_to(&origin).route("tokens", "issued").route("bind_holder", true).start();
    let wish = json!({ "resource": "default", "holder": "a", "wait_seconds": 5 });
    let token = gate.post_admin("/v1/elections/campaign", &wish).json()["token"].as_u64().unwrap();
    gate.ask(&post("/").token(token)).is_refused(403, "forbidden");
    assert!(origin.received_nothing());
}

/// A gateway whose data and admin ports ask for certificates of one authority.
fn with_certificates(authority: &Authority, folder: &Path, builder: GateBuilder) -> Running {
    authority.server(&["localhost"]).write(folder, "server");
    authority.write(folder, "ca.pem");
    let at = |name: &str| Value::from(folder.join(name).display().to_string());
    let tls = |auth: &str| {
        let keys = [("cert", at("server.pem")), ("key", at("server-key.pem")), ("client_ca", at("ca.pem"))];
        let keys = keys.into_iter().chain([("client_auth", Value::from(auth))]);
        keys.map(|(key, value)| (key.to_owned(), value)).collect::<Table>()
    };
    builder.listen("tls", tls("optional")).admin_tls(tls("optional")).start()
}

#[test]
fn a_certificate_says_who_writes_and_who_campaigns() {
    let (origin, authority, folder) = (origin().start(), Authority::new(), tempfile::tempdir().unwrap());
    let builder = gateway_to(&origin)
        .grant_to("spiffe://corp/job-a", "write campaign", "a/*")
        .grant_to("dns:*.jobs.internal", "write", "b/*")
        .grant("ci", "write", "c/*")
        .route("tokens", "issued")
        .route("bind_holder", true);
    let gate = with_certificates(&authority, folder.path(), builder);
    let (job_a, job_b) = (authority.client("spiffe://corp/job-a"), authority.client("x.jobs.internal"));
    let wish = json!({ "resource": "a/1", "holder": "x", "ttl_seconds": 60, "wait_seconds": 10 });
    let campaign = json_post("/v1/elections/campaign", &wish);
    let admin = || secure(gate.admin_address(), &authority).alpn(&[]);
    let won = admin().shows(&job_a).ask(&campaign).unwrap();
    assert_eq!(won.status, 200, "{}", won.text());
    let token = won.json()["token"].as_u64().unwrap();
    assert_eq!(admin().shows(&job_b).ask(&campaign).unwrap().status, 403, "it may only write");
    assert_eq!(admin().ask(&campaign).unwrap().status, 401, "nobody is known to ask");

    let data = || secure(gate.address, &authority);
    data().shows(&job_a).ask(&write("a/1", token)).unwrap().is_ok();
    let names = |answer: crate::support::Response| answer.json()["detail"].as_str().unwrap().to_owned();
    let other = data().shows(&job_b).ask(&write("a/1", token)).unwrap();
    other.is_refused(403, "forbidden");
    assert!(names(other).starts_with("dns:x.jobs.internal may not write to a/1"));
    data().ask(&write("a/1", token)).unwrap().is_refused(403, "forbidden");
    let unelected = data().shows(&job_b).ask(&write("b/1", token)).unwrap();
    unelected.is_refused(403, "not-issued");
    // A certificate and a secret are two proofs, and each counts.
    data().shows(&job_a).ask(&write("c/1", 1).by("ci")).unwrap().is_refused(403, "not-issued");
    data().shows(&job_a).ask(&write("c/1", 1)).unwrap().is_refused(403, "forbidden");
    assert_eq!(origin.count(), 1);
}
