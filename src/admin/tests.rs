mod access;
mod grants;
mod orders;
mod replicas;

use std::net::SocketAddr;
use std::path::Path;

use highgate_elector::{Resource, Token};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::task::JoinHandle;

use super::*;
use crate::config::{Config, Overrides};
use crate::events::Notice;
use crate::journal::{Limits, Writer};
use crate::store::{OwnNames, embedded};

const PATIENCE: Duration = Duration::from_secs(10);

/// A running admin port over a real store.
struct Gateway {
    admin: Arc<Admin>,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    served: JoinHandle<()>,
    _folder: Option<TempDir>,
}

struct Reply {
    status: u16,
    head: String,
    body: String,
}

/// As many as a test can open.
const FEW_STREAMS: usize = 100;

async fn gateway() -> Gateway {
    start(None).await
}

async fn start(auth: Option<Secret>) -> Gateway {
    let folder = tempfile::tempdir().unwrap();
    let store = embedded::start(folder.path(), Duration::ZERO, OwnNames::default(), |_| ()).unwrap().store;
    Gateway { _folder: Some(folder), ..over(store, auth).await }
}

async fn over(store: Store, auth: Option<Secret>) -> Gateway {
    serving(store, auth, Jobs::Here, Port::Admin).await
}

async fn serving(store: Store, auth: Option<Secret>, jobs: Jobs, port: Port) -> Gateway {
    let limits = Limits { keep: Duration::from_secs(3600), max_size: 1 << 20 };
    let journal = Journal::open(tempfile::tempdir().unwrap().path(), limits, Writer::Thread).unwrap();
    let admin = Arc::new(Admin {
        store,
        metrics: Arc::new(Metrics::new(10)),
        bus: Bus::new(),
        journal: Arc::new(journal),
        draining: Arc::default(),
        auth,
        access: Arc::default(),
        signing: Arc::default(),
        jobs,
        doors: Vec::new(),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, shutdown) = watch::channel(false);
    let door = Door::new("admin", address, None, &admin.metrics);
    let served = tokio::spawn(serve_with(listener, door, admin.clone(), port, shutdown, FEW_STREAMS));
    Gateway { admin, address, stop, served, _folder: None }
}

impl Gateway {
    /// Sends these lines and a blank one, and reads to the end.
    async fn send(&self, head: &str, body: &str) -> Reply {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let length = body.len();
        let head = head.replace('\n', "\r\n");
        let request = format!(
            "{head}\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut reply = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut reply)).await.unwrap().unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    /// Asks with a secret; of the stream of events only the head is read.
    async fn ask(&self, method: &str, path: &str, secret: Option<&str>, body: &str) -> Reply {
        let secret = secret.map(|secret| format!("\nAuthorization: Bearer {secret}")).unwrap_or_default();
        let head = format!("{method} {path} HTTP/1.1{secret}");
        if path != "/v1/events" {
            return self.send(&head, body).await;
        }
        // A stream does not end by itself: its head is enough.
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("{}\r\nHost: 127.0.0.1\r\n\r\n", head.replace('\n', "\r\n"));
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut line = String::new();
        timeout(PATIENCE, BufReader::new(stream).read_line(&mut line)).await.unwrap().unwrap();
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head: line, body: String::new() }
    }

    async fn get(&self, path: &str) -> Reply {
        self.send(&format!("GET {path} HTTP/1.1"), "").await
    }

    async fn order(&self, action: &str, body: Value) -> Reply {
        self.send(&format!("POST /v1/operator/{action} HTTP/1.1"), &body.to_string()).await
    }

    /// The lines of an event stream, from behind its head on.
    async fn listen(&self, query: &str) -> Lines<BufReader<TcpStream>> {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("GET /v1/events{query} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut lines = BufReader::new(stream).lines();
        while next(&mut lines).await.unwrap() != ": listening" {}
        lines
    }

    fn stale(&self, name: &str, token: u64) {
        let resource = Resource::parse(name).unwrap();
        let (route, client) = ("r".into(), [127, 0, 0, 1].into());
        self.admin.bus.publish(Notice::Stale { route, resource, token, mark: 9, client, count: 1 });
    }
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    fn is_problem(&self, status: u16) -> bool {
        self.status == status
            && self.head.contains("content-type: application/problem+json")
            && self.json()["status"] == status
    }
}

async fn next(lines: &mut Lines<BufReader<TcpStream>>) -> Option<String> {
    timeout(PATIENCE, lines.next_line()).await.expect("a line in time").ok().flatten()
}

async fn next_data(lines: &mut Lines<BufReader<TcpStream>>) -> Value {
    loop {
        let line = next(lines).await.expect("the stream goes on");
        if let Some(data) = line.strip_prefix("data: ") {
            return serde_json::from_str(data).unwrap();
        }
    }
}

#[tokio::test]
async fn health_needs_nothing_and_readiness_says_why_not() {
    let gateway = gateway().await;
    assert_eq!(gateway.get("/readyz").await.status, 200);
    gateway.admin.store.ledger().halt();
    let unready = gateway.get("/readyz").await;
    assert_eq!(unready.status, 503);
    assert!(unready.body.starts_with("store failed"), "{}", unready.body);
    gateway.admin.draining.store(true, Ordering::Relaxed);
    assert!(gateway.get("/readyz").await.body.starts_with("draining"));
    assert_eq!(gateway.get("/healthz").await.status, 200);
    let head = gateway.send("HEAD /healthz HTTP/1.1", "").await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[tokio::test]
async fn an_order_is_answered_when_it_is_in_force_and_is_counted() {
    let gateway = gateway().await;
    let raised = gateway.order("raise", json!({"resource": "Ledger/Acct-7", "to": 9})).await;
    assert_eq!(raised.status, 200, "{}", raised.body);
    assert_eq!((&raised.json()["resource"], &raised.json()["mark"]), (&json!("ledger/acct-7"), &json!(9)));
    let cell = gateway.admin.store.ledger().get("ledger/acct-7").unwrap();
    assert_eq!(cell.mark(), 9);

    let frozen = gateway.order("freeze", json!({"resource": "ledger/acct-7"})).await;
    assert_eq!((frozen.status, &frozen.json()["state"]), (200, &json!("frozen")));
    assert!(!cell.is_open());
    let raised = gateway.order("raise", json!({"resource": "ledger/acct-7", "token": 10})).await;
    assert_eq!((raised.status, &raised.json()["state"]), (200, &json!("frozen")), "a raise does not thaw");
    let thawed = gateway.order("thaw", json!({"resource": "ledger/acct-7"})).await;
    assert_eq!((thawed.status, &thawed.json()["mark"]), (200, &json!(10)));
    assert!(!cell.is_frozen());

    let metrics = gateway.get("/metrics").await;
    assert!(metrics.head.contains("content-type: text/plain; version=0.0.4"));
    assert!(metrics.body.contains("highgate_operator_actions_total{action=\"raise\"} 2\n"));
    assert!(metrics.body.contains("highgate_operator_actions_total{action=\"thaw\"} 1\n"));
}

#[tokio::test]
async fn a_mark_never_goes_down_by_an_order() {
    let gateway = gateway().await;
    gateway.order("raise", json!({"resource": "a", "to": 9})).await;
    let refused = gateway.order("raise", json!({"resource": "a", "to": 8})).await;
    assert!(refused.is_problem(409), "{}", refused.body);
    assert_eq!((&refused.json()["mark"], &refused.json()["resource"]), (&json!(9), &json!("a")));
    assert_eq!(gateway.admin.store.ledger().get("a").unwrap().mark(), 9);
}

#[tokio::test]
async fn orders_that_make_no_sense_are_refused_and_change_nothing() {
    let gateway = gateway().await;
    for (action, body) in [
        ("raise", json!({"resource": "a", "to": 0})),
        ("raise", json!({"resource": "a", "to": Token::MAX + 1})),
        ("raise", json!({"resource": "a", "to": -1})),
        ("raise", json!({"resource": "a", "to": "9"})),
        ("raise", json!({"resource": "a", "to": 9.0})),
        ("raise", json!({"resource": "a"})),
        ("raise", json!({"resource": "a//b", "to": 9})),
        ("freeze", json!({"resource": "a", "for": "ever"})),
        ("freeze", json!([])),
    ] {
        let refused = gateway.order(action, body.clone()).await;
        assert!(refused.is_problem(400), "{body}: {}", refused.body);
    }
    assert!(gateway.order("thaw", json!({"resource": "a"})).await.is_problem(404));
    assert!(gateway.admin.store.ledger().is_empty());
    gateway.admin.store.ledger().halt();
    assert!(gateway.order("freeze", json!({"resource": "a"})).await.is_problem(503));
}

#[tokio::test]
async fn resources_come_in_parts_in_the_order_of_their_names() {
    let gateway = gateway().await;
    for name in ["b", "a/1", "c"] {
        gateway.order("raise", json!({"resource": name, "to": 5})).await;
    }
    let first = gateway.get("/v1/resources?limit=2").await.json();
    let names = |list: &Value| {
        let names = list["resources"].as_array().unwrap().iter().map(|view| view["resource"].clone());
        names.collect::<Vec<_>>()
    };
    assert_eq!((names(&first), &first["next"]), (vec![json!("a/1"), json!("b")], &json!("b")));
    let second = gateway.get("/v1/resources?limit=2&after=b").await.json();
    assert_eq!((names(&second), &second["next"]), (vec![json!("c")], &Value::Null));
    assert_eq!(second["total"], 3);
    for limit in ["0", "x", "10001"] {
        assert!(gateway.get(&format!("/v1/resources?limit={limit}")).await.is_problem(400));
    }
}

#[tokio::test]
async fn one_resource_is_shown_with_its_state_and_what_was_refused() {
    let gateway = gateway().await;
    gateway.order("raise", json!({"resource": "a", "to": 7})).await;
    let cell = gateway.admin.store.ledger().get("a").unwrap();
    while !cell.is_open() {
        timeout(PATIENCE, cell.changed()).await.unwrap();
    }
    let _permit = cell.clone().admit(Token::new(7).unwrap()).ok().unwrap();
    gateway.admin.store.ledger().count_refused(Some(cell.resource()));
    let open =
        json!({"resource": "a", "mark": 7, "state": "open", "in_flight": 1, "refused": 1, "leader": null});
    assert_eq!(gateway.get("/v1/resource?name=A").await.json(), open);
    gateway.order("raise", json!({"resource": "a", "to": 8})).await;
    let raising =
        json!({"resource": "a", "mark": 8, "state": "raising", "in_flight": 1, "refused": 1, "leader": null});
    assert_eq!(gateway.get("/v1/resource?name=a").await.json(), raising);
    assert_eq!(gateway.get("/v1/resources").await.json()["refused"], 1);
    assert!(gateway.get("/v1/resource?name=b").await.is_problem(404));
    assert!(gateway.get("/v1/resource?name=a//b").await.is_problem(400));
    assert!(gateway.get("/v1/resource").await.is_problem(400));
}

#[tokio::test]
async fn paths_and_methods_that_are_not_there_say_so() {
    let gateway = gateway().await;
    assert!(gateway.get("/v2").await.is_problem(404));
    let wrong = gateway.get("/v1/operator/raise").await;
    assert!(wrong.is_problem(405) && wrong.head.contains("allow: post"), "{}", wrong.head);
    let wrong = gateway.send("DELETE /metrics HTTP/1.1", "").await;
    assert!(wrong.is_problem(405) && wrong.head.contains("allow: get, head"), "{}", wrong.head);
    let huge = "x".repeat(64 * 1024 + 1);
    assert!(gateway.send("POST /v1/operator/raise HTTP/1.1", &huge).await.is_problem(413));
}

#[tokio::test]
async fn a_page_of_another_origin_gives_no_orders() {
    let gateway = gateway().await;
    let post = |origin: &str| format!("POST /v1/operator/freeze HTTP/1.1\nOrigin: {origin}");
    let body = json!({"resource": "a"}).to_string();
    for origin in ["http://evil", "http://127.0.0.1.evil", "http://127.0.0.1:81", "null", "127.0.0.1/x"] {
        assert!(gateway.send(&post(origin), &body).await.is_problem(403), "{origin}");
    }
    assert!(gateway.admin.store.ledger().is_empty());
    assert_eq!(gateway.send(&post("http://127.0.0.1"), &body).await.status, 200);
    let rebound = "POST /v1/operator/freeze HTTP/1.1\nHost: evil\nOrigin: http://evil";
    assert!(gateway.send(rebound, &body).await.is_problem(403), "a name may be anybody's");
}

#[tokio::test]
async fn with_a_secret_only_probes_and_metrics_stay_open() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "s3cret\n").unwrap();
    let text = format!("[admin]\nauth = {{ bearer_file = {file:?} }}\n");
    let overrides = Overrides { upstream: Some("http://127.0.0.1:1".into()), ..Overrides::default() };
    let config = Config::parse(&text, Path::new("a.toml"), &overrides).unwrap();
    let gateway = start(config.admin.auth).await;
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(gateway.get(path).await.status, 200, "{path}");
    }
    for path in [
        "/",
        "/v1/resources",
        "/v1/resource?name=a",
        "/v1/replicas",
        "/v1/events",
        "/v1/operator/raise",
        "/nothing",
    ] {
        let refused = gateway.get(path).await;
        assert!(refused.is_problem(401) && refused.head.contains("www-authenticate: bearer"), "{path}");
    }
    let with = |secret: &str| format!("GET /v1/resources HTTP/1.1\nAuthorization: {secret}");
    for wrong in ["Bearer s3cre", "Bearer s3cret2", "Basic s3cret", "Bearer", "s3cret"] {
        assert!(gateway.send(&with(wrong), "").await.is_problem(401), "{wrong}");
    }
    for right in ["Bearer s3cret", "bearer s3cret"] {
        assert_eq!(gateway.send(&with(right), "").await.status, 200, "{right}");
    }
}

#[tokio::test]
async fn a_listener_hears_its_resource_and_the_whole_gateway() {
    let gateway = gateway().await;
    let mut all = gateway.listen("").await;
    let mut one = gateway.listen("?resource=A").await;
    gateway.stale("b", 7);
    gateway.stale("a", 8);
    gateway.admin.bus.publish(Notice::Reloaded { routes: 2 });
    assert_eq!(next_data(&mut all).await["resource"], "b");
    let heard = next_data(&mut one).await;
    assert_eq!(
        (&heard["type"], &heard["resource"], &heard["token"]),
        (&json!("stale"), &json!("a"), &json!(8))
    );
    assert_eq!(next_data(&mut one).await["type"], "reloaded");
}

#[tokio::test]
async fn a_slow_listener_is_told_how_much_it_missed() {
    let gateway = gateway().await;
    let mut lines = gateway.listen("").await;
    // This runtime has one thread: nobody reads the bus before all of them are published.
    for token in 1..=2000 {
        gateway.stale("a", token);
    }
    assert_eq!(next_data(&mut lines).await, json!({"type": "lagged", "missed": 2000 - 1024}));
    assert_eq!(next_data(&mut lines).await["token"], 2000 - 1024 + 1);
}

#[tokio::test]
async fn streams_end_with_the_gateway_after_its_last_notice() {
    let gateway = gateway().await;
    let mut lines = gateway.listen("").await;
    gateway.admin.bus.publish(Notice::Draining);
    gateway.stop.send(true).unwrap();
    assert_eq!(next_data(&mut lines).await["type"], "draining");
    while next(&mut lines).await.is_some() {}
    timeout(PATIENCE, gateway.served).await.expect("the port ends in time").unwrap();
    assert!(TcpStream::connect(gateway.address).await.is_err());
}

#[tokio::test]
async fn listeners_cannot_take_all_connections() {
    let gateway = gateway().await;
    let mut listeners = Vec::new();
    for _ in 0..FEW_STREAMS {
        listeners.push(gateway.listen("").await);
    }
    assert!(gateway.get("/v1/events").await.is_problem(503));
    assert_eq!(gateway.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn the_page_is_whole_and_runs_nothing_but_itself() {
    let gateway = gateway().await;
    let page = gateway.get("/").await;
    assert_eq!(page.status, 200);
    let nonce = page.head.split("script-src 'nonce-").nth(1).unwrap().split('\'').next().unwrap();
    assert!(page.body.contains(&format!("<script nonce=\"{nonce}\">")));
    assert!(page.body.contains(&format!("<style nonce=\"{nonce}\">")));
    assert!(page.head.contains("default-src 'none'"));
    for forbidden in ["http://", "https://", "innerHTML", "{nonce}", " onclick=", " style="] {
        assert!(!page.body.contains(forbidden), "{forbidden}");
    }
    assert!(!gateway.get("/").await.body.contains(nonce), "the next page has another one");
}
