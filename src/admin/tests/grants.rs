//! Who may do what with grants: every endpoint by every identity, filters, leases, and what a change of grants ends.

use std::collections::BTreeSet;

use super::*;
use crate::admin::dispatch::ENDPOINTS;
use crate::config::Config;

/// Jobs A and B have resources of their own, the desk gives orders for A's, the watcher sees all, the root does all.
const GRANTS: &str = r#"
    [[grants]]
    who = ["bearer:job-a"]
    may = ["write", "campaign"]
    resources = ["a/*"]
    [[grants]]
    who = ["bearer:job-b"]
    may = ["write", "campaign"]
    resources = ["b/*", "shared"]
    [[grants]]
    who = ["bearer:job-c"]
    may = ["campaign"]
    resources = ["shared"]
    [[grants]]
    who = ["bearer:desk"]
    may = ["operate", "observe"]
    resources = ["a/*"]
    [[grants]]
    who = ["bearer:watcher"]
    may = ["observe"]
    resources = ["*"]
    [[grants]]
    who = ["bearer:root"]
    may = ["campaign", "observe", "operate"]
    resources = ["*"]
"#;

/// A secret for each; theirs is `<name>-s3cret`.
const NAMES: [&str; 7] = ["job-a", "job-b", "job-c", "desk", "watcher", "root", "idle"];

fn config(grants: &str, folder: &Path) -> Config {
    let (secrets, operators) = (folder.join("secrets"), folder.join("operators"));
    let lines: Vec<_> = NAMES.iter().map(|name| format!("{name} {name}-s3cret\n")).collect();
    std::fs::write(&secrets, lines.concat()).unwrap();
    std::fs::write(&operators, "port-s3cret\n").unwrap();
    let text = format!(
        "[admin]\nauth = {{ bearer_file = {operators:?} }}\n[secrets]\nfile = {secrets:?}\n{grants}\n\
         [[routes]]\nname = 'all'\nupstream = 'http://127.0.0.1:1'\nresource = {{ client = true }}\n"
    );
    Config::parse(&text, Path::new("a.toml"), &Overrides::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// Both ports of one gateway with these grants.
struct Ports {
    folder: TempDir,
    admin: Gateway,
    elections: Gateway,
}

async fn ports() -> Ports {
    let folder = tempfile::tempdir().unwrap();
    let Config { grants, secrets, admin, .. } = config(GRANTS, folder.path());
    let data = folder.path().join("data");
    let store = embedded::start(&data, Duration::ZERO, OwnNames::default(), |_| ()).unwrap().store;
    let jobs = Jobs::At("127.0.0.1:9902".parse().unwrap());
    let operators = serving(store.clone(), admin.auth, jobs, Port::Admin).await;
    let elections = serving(store, None, jobs, Port::Elections { auth: None }).await;
    for port in [&operators, &elections] {
        port.admin.access.set(grants.clone(), secrets.clone());
    }
    Ports { folder, admin: operators, elections }
}

impl Ports {
    /// New grants for both ports, as a reload brings them.
    fn reload(&self, grants: &str) {
        let Config { grants, secrets, .. } = config(grants, self.folder.path());
        for port in [&self.admin, &self.elections] {
            port.admin.access.set(grants.clone(), secrets.clone());
        }
    }

    async fn campaign(&self, name: &str, resource: &str) -> Reply {
        let wish = json!({"resource": resource, "holder": name, "ttl_seconds": 60, "wait_seconds": 10});
        self.elections.by(name, "POST", "/v1/elections/campaign", &wish).await
    }
}

impl Gateway {
    /// Asks as somebody.
    async fn by(&self, name: &str, method: &str, path: &str, body: &Value) -> Reply {
        let secret = format!("{name}-s3cret");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.ask(method, path, Some(&secret), &body).await
    }
}

/// Who may ask for an endpoint at all, whatever it is about. The requests of the table have no resource, so whoever may
/// ask gets another answer than 401 and 403.
fn may_ask(path: &str) -> &'static [&'static str] {
    match path {
        "/healthz" | "/readyz" => {
            &["job-a", "job-b", "job-c", "desk", "watcher", "root", "idle", "port", "wrong", "nobody"]
        }
        "/metrics" | "/v1/replicas" => &["watcher", "root", "port"],
        "/v1/operator/era-bump" | "/v1/operator/retire" => &["root", "port"],
        "/v1/once" => &["watcher", "root", "port"],
        path if path.starts_with("/v1/operator/") => &["desk", "root", "port"],
        "/v1/elections" | "/v1/elections/watch" => &["desk", "watcher", "root"],
        path if path.starts_with("/v1/elections/") || path.starts_with("/v1/once/") => {
            &["job-a", "job-b", "job-c", "root"]
        }
        _ => &["desk", "watcher", "root", "port"],
    }
}

#[tokio::test]
async fn every_endpoint_of_the_admin_port_answers_only_who_was_granted_its_right() {
    let ports = ports().await;
    let everybody: BTreeSet<_> = NAMES.into_iter().chain(["port", "wrong", "nobody"]).collect();
    for (path, endpoint) in ENDPOINTS {
        let method = if endpoint.gives_orders() { "POST" } else { "GET" };
        for name in &everybody {
            let secret = format!("{name}-s3cret");
            let secret = Some(secret.as_str()).filter(|_| *name != "nobody");
            let reply = ports.admin.ask(method, path, secret, "").await;
            let refusal = if matches!(*name, "nobody" | "wrong") { 401 } else { 403 };
            let may = may_ask(path).contains(name);
            let as_expected = if may { !matches!(reply.status, 401 | 403) } else { reply.status == refusal };
            assert!(as_expected, "{name} {path}: {} {}", reply.status, reply.body);
            assert!(!reply.body.contains("s3cret"), "{}", reply.body);
        }
    }
    assert!(ports.admin.admin.store.ledger().is_empty(), "none of them changed anything");
}

#[tokio::test]
async fn the_elections_port_has_the_jobs_endpoints_and_no_others() {
    let ports = ports().await;
    for (path, _) in ENDPOINTS {
        let for_jobs = path.starts_with("/v1/elections") || path.starts_with("/v1/once/");
        let status = ports.elections.by("root", "GET", path, &Value::Null).await.status;
        let expected = matches!(*path, "/healthz" | "/readyz") || for_jobs;
        assert_eq!(status != 404, expected, "{path} {status}");
        let stranger = ports.elections.ask("GET", path, None, "").await.status;
        assert_eq!(stranger == 200, matches!(*path, "/healthz" | "/readyz"), "{path} {stranger}");
    }
}

/// What job A does to its own resource, to B's, and to one that nobody was granted.
#[tokio::test]
async fn a_job_can_do_to_its_own_resource_what_it_can_do_to_no_other() {
    let ports = ports().await;
    let held = |won: &Reply, resource: &str| json!({"resource": resource, "lease": won.json()["lease"]});
    let own = ports.campaign("job-a", "a/1").await;
    assert_eq!(own.status, 200, "{}", own.body);
    let theirs = ports.campaign("job-b", "b/1").await;
    assert_eq!(theirs.status, 200, "{}", theirs.body);
    for resource in ["b/1", "c", "a"] {
        let refused = ports.campaign("job-a", resource).await;
        assert!(refused.is_problem(403) && refused.body.contains("may not campaign"), "{}", refused.body);
    }
    for path in ["/v1/elections/renew", "/v1/elections/resign", "/v1/once/begin", "/v1/once/complete"] {
        let mut body = held(&theirs, "b/1");
        if path.contains("once") {
            body["key"] = "k".into();
        }
        let refused = ports.elections.by("job-a", "POST", path, &body).await;
        assert!(refused.is_problem(403), "{path} {}", refused.body);
    }
    for action in ["raise", "freeze", "thaw", "evict"] {
        let order = json!({"resource": "a/1", "to": 99});
        let refused = ports.admin.by("job-a", "POST", &format!("/v1/operator/{action}"), &order).await;
        assert!(refused.is_problem(403), "{action} {}", refused.body);
    }
    let renewed = ports.elections.by("job-a", "POST", "/v1/elections/renew", &held(&own, "a/1")).await;
    assert_eq!(renewed.status, 200, "{}", renewed.body);
    let leader = ports.admin.by("watcher", "GET", "/v1/elections?resource=b/1", &Value::Null).await;
    assert_eq!(leader.json()["leader"]["identity"], "bearer:job-b", "{}", leader.body);
}

#[tokio::test]
async fn a_lease_is_of_no_use_to_another_identity_that_may_campaign_for_the_same() {
    let ports = ports().await;
    let won = ports.campaign("job-b", "shared").await;
    let held = json!({"resource": "shared", "lease": won.json()["lease"]});
    for path in ["/v1/elections/renew", "/v1/elections/resign"] {
        let refused = ports.elections.by("job-c", "POST", path, &held).await;
        assert!(
            refused.is_problem(403) && refused.body.contains("another identity"),
            "{path} {}",
            refused.body
        );
    }
    let mut step = held.clone();
    step["key"] = "k".into();
    assert_eq!(ports.elections.by("job-c", "POST", "/v1/once/begin", &step).await.status, 403);
    assert_eq!(ports.elections.by("job-b", "POST", "/v1/once/begin", &step).await.status, 200);
    assert_eq!(ports.elections.by("job-b", "POST", "/v1/elections/renew", &held).await.status, 200);
    assert_eq!(ports.elections.by("job-b", "POST", "/v1/elections/resign", &held).await.status, 204);
}

#[tokio::test]
async fn who_observes_a_part_sees_no_word_of_the_rest() {
    let ports = ports().await;
    for (name, resource) in [("job-a", "a/1"), ("job-b", "b/1")] {
        assert_eq!(ports.campaign(name, resource).await.status, 200);
    }
    let seen = ports.admin.by("desk", "GET", "/v1/resources", &Value::Null).await;
    assert_eq!(seen.json()["resources"].as_array().unwrap().len(), 1, "{}", seen.body);
    assert_eq!((&seen.json()["total"], &seen.json()["next"]), (&json!(1), &Value::Null));
    assert!(!seen.body.contains("b/1"), "{}", seen.body);
    let all = ports.admin.by("watcher", "GET", "/v1/resources", &Value::Null).await;
    assert_eq!(all.json()["total"], 2);
    for path in
        ["/v1/resource?name=", "/v1/history?resource=", "/v1/elections?resource=", "/v1/events?resource="]
    {
        let refused = ports.admin.by("desk", "GET", &format!("{path}b/1"), &Value::Null).await;
        assert!(refused.is_problem(403), "{path} {}", refused.body);
        // Whether there is such a resource is not to be learned either.
        let unknown = ports.admin.by("desk", "GET", &format!("{path}x"), &Value::Null).await;
        assert!(unknown.is_problem(403), "{path} {}", unknown.body);
    }
    assert_eq!(ports.admin.by("desk", "GET", "/v1/once?resource=a/1", &Value::Null).await.status, 200);
    assert_eq!(ports.admin.by("desk", "GET", "/v1/once?resource=b/1", &Value::Null).await.status, 403);
}

#[tokio::test]
async fn a_stream_tells_what_its_listener_may_see_and_ends_with_its_grant() {
    let ports = ports().await;
    let mut stream = TcpStream::connect(ports.admin.address).await.unwrap();
    let head = "GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nAuthorization: Bearer desk-s3cret\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut lines = BufReader::new(stream).lines();
    while next(&mut lines).await.unwrap() != ": listening" {}
    ports.admin.stale("b/1", 7);
    ports.admin.admin.bus.publish(Notice::Reloaded { routes: 1 });
    ports.admin.stale("a/1", 8);
    let told = next_data(&mut lines).await;
    assert_eq!((&told["resource"], &told["token"]), (&json!("a/1"), &json!(8)), "{told}");
    ports.reload(&GRANTS.replace("bearer:desk", "bearer:idle"));
    ports.admin.stale("a/1", 9);
    while let Some(line) = next(&mut lines).await {
        assert!(!line.starts_with("data"), "{line}");
    }
}

#[tokio::test]
async fn who_wins_after_its_grant_was_taken_away_does_not_lead() {
    let ports = ports().await;
    let first = ports.campaign("job-b", "shared").await;
    let wish = json!({"resource": "shared", "holder": "job-c", "wait_seconds": 20}).to_string();
    let (address, head) =
        (ports.elections.address, "POST /v1/elections/campaign HTTP/1.1\r\nHost: 127.0.0.1");
    let request = format!(
        "{head}\r\nAuthorization: Bearer job-c-s3cret\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{wish}",
        wish.len()
    );
    let waiting = tokio::spawn(async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut reply = String::new();
        timeout(PATIENCE * 2, stream.read_to_string(&mut reply)).await.unwrap().unwrap();
        reply
    });
    let store = &ports.elections.admin.store;
    let shared = Resource::parse("shared").unwrap();
    timeout(PATIENCE, async {
        while store.election(shared.clone()).await.unwrap().waiting == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    ports.reload(&GRANTS.replace("bearer:job-c", "bearer:idle"));
    let held = json!({"resource": "shared", "lease": first.json()["lease"]});
    assert_eq!(ports.elections.by("job-b", "POST", "/v1/elections/resign", &held).await.status, 204);
    let reply = waiting.await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 403"), "{reply}");
    assert!(!reply.contains("\"token\""), "{reply}");
    assert_eq!(store.election(shared).await.unwrap().leader, None, "what it had won it has given up");
}

#[tokio::test]
async fn the_secret_of_a_port_keeps_its_rights_there_and_has_no_others() {
    let ports = ports().await;
    let raise = json!({"resource": "b/1", "to": 9}).to_string();
    let port = Some("port-s3cret");
    assert_eq!(ports.admin.ask("POST", "/v1/operator/raise", port, &raise).await.status, 200);
    assert_eq!(ports.admin.ask("GET", "/v1/resource?name=b/1", port, "").await.status, 200);
    let wish = json!({"resource": "a/1", "holder": "x"}).to_string();
    let refused = ports.admin.ask("POST", "/v1/elections/campaign", port, &wish).await;
    assert!(refused.is_problem(403) && refused.body.contains("bearer:admin may not"), "{}", refused.body);
    assert_eq!(ports.elections.ask("GET", "/v1/elections?resource=a/1", port, "").await.status, 401);
}

#[tokio::test]
async fn without_grants_named_secrets_open_nothing_and_shut_nothing() {
    let ports = ports().await;
    ports.reload("");
    let admin = ports.admin.by("root", "GET", "/v1/resources", &Value::Null).await;
    assert!(admin.is_problem(401) && admin.body.contains("admin.auth"), "{}", admin.body);
    assert_eq!(
        ports.elections.by("wrong", "GET", "/v1/elections?resource=a", &Value::Null).await.status,
        200
    );
}
