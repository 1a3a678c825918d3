//! Who may ask what on which port: every endpoint with every secret.

use std::collections::BTreeSet;

use super::*;
use crate::admin::dispatch::ENDPOINTS;

const OPERATORS: &str = "0perators";
const JOBS: &str = "j0bs";

/// The secrets that a request may carry, in the order of the columns of [`MATRIX`].
const SECRETS: [Option<&str>; 4] = [None, Some(JOBS), Some(OPERATORS), Some("wr0ng")];

/// Method and path; the status on the admin port with each of [`SECRETS`]; the same on the elections port. Where it is
/// admitted, the request has no body and no query, so most of them are 400 and change nothing.
type Row = (&'static str, &'static str, [u16; 4], [u16; 4]);

const PROBE: [u16; 4] = [200; 4];
/// Jobs' endpoints on an admin port that has a secret, whatever is shown.
const ELSEWHERE: [u16; 4] = [403; 4];
/// Operators' endpoints on the elections port: nothing is there for whoever may ask, and nobody else may ask.
const NOT_HERE: [u16; 4] = [401, 404, 401, 401];

const fn operators(status: u16) -> [u16; 4] {
    [401, 401, status, 401]
}

const fn jobs(status: u16) -> [u16; 4] {
    [401, status, 401, 401]
}

const MATRIX: &[Row] = &[
    ("GET", "/healthz", PROBE, PROBE),
    ("GET", "/readyz", PROBE, PROBE),
    ("GET", "/metrics", PROBE, NOT_HERE),
    ("GET", "/", operators(200), NOT_HERE),
    ("GET", "/v1/resources", operators(200), NOT_HERE),
    ("GET", "/v1/resource", operators(400), NOT_HERE),
    ("GET", "/v1/replicas", operators(200), NOT_HERE),
    ("HEAD", "/v1/events", operators(200), NOT_HERE),
    ("GET", "/v1/history", operators(400), NOT_HERE),
    ("POST", "/v1/operator/raise", operators(400), NOT_HERE),
    ("POST", "/v1/operator/freeze", operators(400), NOT_HERE),
    ("POST", "/v1/operator/thaw", operators(400), NOT_HERE),
    ("POST", "/v1/operator/evict", operators(400), NOT_HERE),
    ("POST", "/v1/operator/era-bump", operators(409), NOT_HERE),
    ("POST", "/v1/operator/retire", operators(400), NOT_HERE),
    ("GET", "/v1/elections", ELSEWHERE, jobs(400)),
    ("GET", "/v1/elections/watch", ELSEWHERE, jobs(400)),
    ("POST", "/v1/elections/campaign", ELSEWHERE, jobs(400)),
    ("POST", "/v1/elections/renew", ELSEWHERE, jobs(400)),
    ("POST", "/v1/elections/resign", ELSEWHERE, jobs(400)),
    ("POST", "/v1/operator/once-reset", operators(400), NOT_HERE),
    ("GET", "/v1/once", operators(200), NOT_HERE),
    ("POST", "/v1/once/begin", ELSEWHERE, jobs(400)),
    ("POST", "/v1/once/complete", ELSEWHERE, jobs(400)),
];

/// What is nobody's path, told only to whoever may ask.
const UNKNOWN: Row = ("GET", "/v1/nothing", operators(404), NOT_HERE);

/// Both ports of one gateway, each with a secret.
struct Ports {
    admin: Gateway,
    elections: Gateway,
}

fn secret(text: &str) -> Option<Secret> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, text).unwrap();
    let config = format!("[admin]\nauth = {{ bearer_file = {file:?} }}\n");
    let overrides = Overrides { upstream: Some("http://127.0.0.1:1".into()), ..Overrides::default() };
    Config::parse(&config, Path::new("a.toml"), &overrides).unwrap().admin.auth
}

async fn ports() -> Ports {
    let folder = tempfile::tempdir().unwrap();
    let store = embedded::start(folder.path(), Duration::ZERO, OwnNames::default(), |_| ()).unwrap().store;
    let jobs_at = Jobs::At("127.0.0.1:9902".parse().unwrap());
    let admin = serving(store.clone(), secret(OPERATORS), jobs_at, Port::Admin).await;
    let port = Port::Elections { auth: secret(JOBS) };
    let elections = serving(store, secret(OPERATORS), jobs_at, port).await;
    Ports { admin: Gateway { _folder: Some(folder), ..admin }, elections }
}

#[tokio::test]
async fn every_endpoint_answers_each_secret_on_each_port_as_the_matrix_says() {
    let rows: BTreeSet<_> = MATRIX.iter().map(|(_, path, ..)| *path).collect();
    let known: BTreeSet<_> = ENDPOINTS.iter().map(|(path, _)| *path).collect();
    assert_eq!(rows, known, "every endpoint has its row, and every row its endpoint");
    let ports = ports().await;
    for (method, path, on_admin, on_elections) in MATRIX.iter().chain([&UNKNOWN]) {
        for (name, port, expected) in
            [("admin", &ports.admin, on_admin), ("elections", &ports.elections, on_elections)]
        {
            for (secret, status) in SECRETS.iter().zip(expected) {
                let reply = port.ask(method, path, *secret, "").await;
                assert_eq!(reply.status, *status, "{method} {path} with {secret:?} on the {name} port");
            }
        }
    }
    assert!(ports.admin.admin.store.ledger().is_empty(), "none of them changed anything");
}

#[tokio::test]
async fn a_job_leads_by_its_own_secret_and_can_do_nothing_else() {
    let ports = ports().await;
    let campaign = json!({"resource": "ledger", "holder": "job-1"}).to_string();
    let won = ports.elections.ask("POST", "/v1/elections/campaign", Some(JOBS), &campaign).await;
    assert_eq!(won.status, 200, "{}", won.body);
    let held = json!({"resource": "ledger", "lease": won.json()["lease"]}).to_string();
    assert_eq!(ports.elections.ask("POST", "/v1/elections/renew", Some(JOBS), &held).await.status, 200);

    let raise = json!({"resource": "ledger", "to": 99}).to_string();
    for port in [&ports.admin, &ports.elections] {
        let refused = port.ask("POST", "/v1/operator/raise", Some(JOBS), &raise).await;
        assert!(matches!(refused.status, 401 | 404), "{}", refused.body);
        let refused = port.ask("GET", "/v1/resource?name=ledger", Some(JOBS), "").await;
        assert!(matches!(refused.status, 401 | 404), "{}", refused.body);
    }
    assert_eq!(ports.admin.admin.store.ledger().get("ledger").unwrap().mark(), won.json()["token"]);

    let lost = ports.admin.ask("POST", "/v1/elections/campaign", Some(JOBS), &campaign).await;
    assert!(lost.is_problem(403) && lost.body.contains("jobs use the elections port, 127.0.0.1:9902"));
}

#[tokio::test]
async fn a_wrong_secret_is_called_wrong_and_a_missing_one_is_asked_for() {
    let ports = ports().await;
    for (port, path, whose, variable) in [
        (&ports.admin, "/v1/resources", "operators'", "HIGHGATE_ADMIN_TOKEN"),
        (&ports.elections, "/v1/elections", "jobs'", "HIGHGATE_ELECTIONS_TOKEN"),
    ] {
        let missing = port.ask("GET", path, None, "").await;
        assert!(missing.is_problem(401) && missing.head.contains("www-authenticate: bearer"));
        let detail = missing.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.starts_with(&format!("no secret: set {variable}")), "{detail}");
        let wrong = port.ask("GET", path, Some("wr0ng"), "").await.json();
        let detail = wrong["detail"].as_str().unwrap();
        assert!(detail.starts_with("wrong secret") && detail.contains(whose), "{detail}");
    }
}

#[tokio::test]
async fn an_admin_port_without_a_secret_serves_the_jobs_only_where_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let store = embedded::start(folder.path(), Duration::ZERO, OwnNames::default(), |_| ()).unwrap().store;
    let nowhere = serving(store, None, Jobs::Nowhere, Port::Admin).await;
    let refused = nowhere.get("/v1/elections?resource=a").await;
    assert!(refused.is_problem(403) && refused.body.contains("[elections]"), "{}", refused.body);
    assert_eq!(gateway().await.get("/v1/elections?resource=a").await.status, 200);
}

#[tokio::test]
async fn a_mark_that_no_election_reaches_has_to_be_forced_and_one_at_the_very_top_is_refused() {
    let gateway = gateway().await;
    let far = 1u64 << 41;
    let refused = gateway.order("raise", json!({"resource": "a", "to": far})).await;
    assert!(refused.is_problem(409) && refused.body.contains("force"), "{}", refused.body);
    let top = gateway.order("raise", json!({"resource": "a", "to": Token::MAX, "force": true})).await;
    assert!(top.is_problem(409) && top.body.contains("freeze"), "{}", top.body);
    assert!(gateway.admin.store.ledger().is_empty());
    assert_eq!(gateway.order("raise", json!({"resource": "a", "to": far, "force": true})).await.status, 200);
    let near = far + (1 << 40);
    assert_eq!(
        gateway.order("raise", json!({"resource": "a", "to": near})).await.status,
        200,
        "from the mark"
    );

    // Elections go on from whatever mark an order can set.
    let highest = Token::MAX - (1 << 40);
    gateway.order("raise", json!({"resource": "a", "to": highest, "force": true})).await;
    let body = json!({"resource": "a", "holder": "next"}).to_string();
    let won = gateway.send("POST /v1/elections/campaign HTTP/1.1", &body).await;
    assert_eq!((won.status, &won.json()["token"]), (200, &json!(highest + 1)), "{}", won.body);
}
