//! What the admin port shows of the replicas, and the orders that concern all of them.

use super::*;
use crate::store::OverrideError;
use crate::store::elections::StoreStopped;
use crate::store::overview::{Overview, RaiseView, TombstoneView, incarnation_text};
use crate::store::pretend::{self, Obeys};

const ME: u128 = 0x1f2e;

/// Two replicas on etcd, one tombstone and a raise that waits for it.
fn two() -> Overview {
    let mut overview = Overview::alone("etcd://h:1/p".to_owned(), ME, 40);
    let mut other = overview.replicas[0].clone();
    (other.id, other.me, other.name) = (u128::MAX, false, "other:1".to_owned());
    (other.watermark, other.draining, other.renewed) = (39, vec![40], Duration::from_millis(1500));
    overview.replicas.push(other);
    let left = Duration::from_millis(2500);
    let raise = RaiseView {
        resource: "a".to_owned(),
        mark: 9,
        revision: 40,
        sealer: "other:1".to_owned(),
        waits_for: vec!["era-1".to_owned()],
    };
    Overview {
        store: "etcd",
        era: 1,
        tombstones: vec![TombstoneView { id: "era-1".to_owned(), left }],
        raises: vec![raise],
        raising: 1,
        ..overview
    }
}

async fn sharing(overview: Overview, obeys: Obeys) -> Gateway {
    over(pretend::store(overview, obeys), None).await
}

async fn counted(gateway: &Gateway, action: &str) -> bool {
    let series = format!("highgate_operator_actions_total{{action=\"{action}\"}} 1\n");
    gateway.get("/metrics").await.body.contains(&series)
}

#[tokio::test]
async fn the_replicas_are_shown_with_ids_times_and_what_is_waited_for() {
    let gateway = sharing(two(), Obeys::Stopped).await;
    let shown = gateway.get("/v1/replicas").await;
    assert_eq!(shown.status, 200);
    let shown = shown.json();
    assert_eq!((&shown["store"], &shown["era"], &shown["valid"]), (&json!("etcd"), &json!(1), &json!(true)));
    assert_eq!(shown["me"], incarnation_text(ME));
    assert_eq!(shown["replicas"][1]["id"], "f".repeat(32));
    assert_eq!(shown["replicas"][1]["renewed_seconds_ago"], 1.5);
    assert_eq!(shown["tombstones"], json!([{"id": "era-1", "seconds_left": 2.5}]));
    assert_eq!(shown["raises"][0]["waits_for"], json!(["era-1"]));
    let metrics = gateway.get("/metrics").await.body;
    assert!(metrics.contains("highgate_replicas 2\n") && metrics.contains("highgate_replica_valid 1\n"));
}

#[tokio::test]
async fn an_embedded_store_shows_itself_and_has_no_eras_and_nobody_to_retire() {
    let gateway = gateway().await;
    let shown = gateway.get("/v1/replicas").await.json();
    assert_eq!((&shown["store"], &shown["replicas"][0]["me"]), (&json!("embedded"), &json!(true)));
    let refused = gateway.order("era-bump", json!({})).await;
    assert!(refused.is_problem(409) && refused.body.contains("embedded store"), "{}", refused.body);
    let itself = json!({"replica": shown["me"]});
    assert!(gateway.order("retire", itself).await.is_problem(409));
    assert!(gateway.order("era-bump", json!({"dry_run": true})).await.is_problem(409));
    assert!(!counted(&gateway, "era-bump").await && !counted(&gateway, "retire").await);
}

#[tokio::test]
async fn a_fenced_replica_is_alive_but_not_ready_and_says_why() {
    let fenced = Overview { valid: false, ..two() };
    let because = Some("etcd has not answered for 4 s".to_owned());
    let gateway = sharing(Overview { fenced_because: because, ..fenced.clone() }, Obeys::Fully(2)).await;
    let unready = gateway.get("/readyz").await;
    assert_eq!((unready.status, unready.body.as_str()), (503, "fenced: etcd has not answered for 4 s\n"));
    assert_eq!(gateway.get("/healthz").await.status, 200);
    assert!(gateway.get("/metrics").await.body.contains("highgate_replica_valid 0\n"));
    assert_eq!(gateway.order("era-bump", json!({})).await.status, 200, "the way out of a restored etcd");
    gateway.admin.draining.store(true, Ordering::Relaxed);
    assert!(gateway.get("/readyz").await.body.starts_with("draining"));

    let warnings = vec!["etcd is full".to_owned()];
    let gateway = sharing(Overview { warnings, ..fenced.clone() }, Obeys::Stopped).await;
    let unready = gateway.get("/readyz").await.body;
    assert_eq!(unready, "fenced: this replica does not take part now; etcd is full\n");
    let gateway = sharing(fenced, Obeys::Stopped).await;
    assert_eq!(gateway.get("/readyz").await.body, "fenced: this replica does not take part now\n");
}

#[tokio::test]
async fn an_era_is_bumped_by_an_empty_order_and_counted() {
    let gateway = sharing(two(), Obeys::Fully(2)).await;
    let post = "POST /v1/operator/era-bump HTTP/1.1";
    assert!(gateway.send(post, r#"{"era": 7}"#).await.is_problem(400));
    assert!(gateway.send(post, "[]").await.is_problem(400));
    assert!(gateway.send(&format!("{post}\nOrigin: http://evil"), "").await.is_problem(403));
    assert!(gateway.get("/v1/operator/era-bump").await.is_problem(405));
    assert!(!counted(&gateway, "era-bump").await);
    let bumped = gateway.send(post, "").await;
    assert_eq!((bumped.status, bumped.json()), (200, json!({"era": 2, "changed": true})));
    assert!(counted(&gateway, "era-bump").await);
    assert_eq!(gateway.order("era-bump", json!({})).await.status, 200);
}

#[tokio::test]
async fn a_replica_is_retired_by_its_whole_id_and_counted() {
    let gateway = sharing(two(), Obeys::Fully(2)).await;
    let whole = "f".repeat(32);
    let signed = format!("+{}", "f".repeat(31));
    for bad in ["ffff", "", "era-1", signed.as_str(), &"g".repeat(32), &"f".repeat(33)] {
        assert!(gateway.order("retire", json!({"replica": bad})).await.is_problem(400), "{bad}");
    }
    assert!(gateway.order("retire", json!({})).await.is_problem(400));
    let absent = gateway.order("retire", json!({"replica": "0".repeat(32)})).await;
    assert!(absent.is_problem(404), "{}", absent.body);
    assert!(!counted(&gateway, "retire").await);
    let retired = gateway.order("retire", json!({"replica": whole.to_uppercase()})).await;
    assert_eq!((retired.status, retired.json()), (200, json!({"replica": whole, "changed": true})));
    assert!(counted(&gateway, "retire").await);
}

#[tokio::test]
async fn an_order_to_all_replicas_can_be_tried_and_said_again_without_effect() {
    let mut overview = two();
    let left = Duration::from_secs(1);
    overview.tombstones.push(TombstoneView { id: "e".repeat(32), left });
    let gateway = sharing(overview, Obeys::Fully(2)).await;
    let tried = gateway.order("era-bump", json!({"dry_run": true})).await.json();
    assert_eq!(tried, json!({"era": 1, "changed": false, "dry_run": true, "would_change": true}));
    let again = gateway.order("era-bump", json!({"from": 0})).await.json();
    assert_eq!(again, json!({"era": 1, "changed": false}), "the era is another one by now");
    let tried = gateway.order("retire", json!({"replica": "f".repeat(32), "dry_run": true})).await.json();
    assert_eq!((&tried["changed"], &tried["would_change"]), (&json!(false), &json!(true)));
    let again = gateway.order("retire", json!({"replica": "e".repeat(32)})).await.json();
    assert_eq!(again, json!({"replica": "e".repeat(32), "changed": false}), "it has a tombstone");
    let absent = json!({"replica": "0".repeat(32), "dry_run": true});
    assert!(gateway.order("retire", absent).await.is_problem(404));
    assert!(!counted(&gateway, "era-bump").await && !counted(&gateway, "retire").await);
    assert_eq!(gateway.order("era-bump", json!({"from": 1})).await.json()["changed"], true);
}

#[tokio::test]
async fn a_store_that_cannot_carry_an_order_out_says_so() {
    let whole = json!({"replica": "f".repeat(32)});
    for (obeys, detail) in [
        (Obeys::No(OverrideError::Failed("etcd is away".to_owned())), "etcd is away"),
        (Obeys::No(OverrideError::Stopped(StoreStopped)), "the store has stopped"),
        (Obeys::Stopped, "the store has stopped"),
    ] {
        let gateway = sharing(two(), obeys).await;
        for (action, body) in [("era-bump", json!({})), ("retire", whole.clone())] {
            let refused = gateway.order(action, body).await;
            assert!(refused.is_problem(503) && refused.body.contains(detail), "{action}: {}", refused.body);
            assert!(!counted(&gateway, action).await);
        }
    }
}
