//! Jobs have a port and a secret of their own, and are not operators.

use serde_json::json;

use crate::support::{Client, Running, gateway_to, get, json_post, origin, post};

const OPERATORS: &str = "0perators";
const JOBS: &str = "j0bs";

fn bearer(secret: &str) -> String {
    format!("Bearer {secret}")
}

fn campaign(gate: &Running, address: std::net::SocketAddr, secret: &str) -> (u16, String) {
    let wish = json!({ "resource": "default", "holder": "job", "ttl_seconds": 60.0, "wait_seconds": 5.0 });
    let ask = json_post("/v1/elections/campaign", &wish).header("Authorization", &bearer(secret));
    let answer = Client::connect(address).ask(&ask);
    assert_eq!(gate.mark("default"), answer.json()["token"].as_u64().unwrap_or_default());
    (answer.status, answer.text())
}

#[test]
fn a_job_wins_on_the_port_of_the_jobs_and_its_secret_gives_no_orders() {
    let origin = origin().start();
    let gate = gateway_to(&origin).route("tokens", "issued").secrets(OPERATORS, JOBS).start();
    let (admin, elections) = (gate.admin_address(), gate.elections_address());

    for secret in [JOBS, OPERATORS] {
        let (status, text) = campaign(&gate, admin, secret);
        assert_eq!(status, 403, "{text}");
        assert!(text.contains(&format!("jobs use the elections port, {elections}")), "{text}");
    }
    assert_eq!(campaign(&gate, elections, OPERATORS).0, 401);
    let (status, text) = campaign(&gate, elections, JOBS);
    assert_eq!(status, 200, "{text}");
    gate.ask(&post("/").token(gate.mark("default"))).is_ok();

    let freeze = json_post("/v1/operator/freeze", &json!({ "resource": "default" }));
    let with = |secret: &str| freeze.clone().header("Authorization", &bearer(secret));
    assert_eq!(Client::connect(admin).ask(&with(JOBS)).status, 401);
    assert_eq!(Client::connect(elections).ask(&with(JOBS)).status, 404);
    gate.ask(&post("/").token(gate.mark("default"))).is_ok();
    assert_eq!(Client::connect(admin).ask(&with(OPERATORS)).status, 200);
    gate.ask(&post("/").token(gate.mark("default"))).is_refused(423, "frozen");
    assert_eq!(Client::connect(elections).ask(&get("/readyz").header("Connection", "close")).status, 200);
}

#[test]
fn an_admin_port_on_loopback_without_a_secret_serves_the_jobs() {
    let origin = origin().start();
    let gate = gateway_to(&origin).route("tokens", "issued").start();
    assert_eq!(campaign(&gate, gate.admin_address(), "").0, 200);
}
