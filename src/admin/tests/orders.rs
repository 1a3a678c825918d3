//! Orders that change nothing, are only tried, or are about something that nobody has seen.

use super::*;

/// How often an order was given, by the metric.
async fn given(gateway: &Gateway, action: &str) -> usize {
    let metrics = gateway.get("/metrics").await.body;
    let series = format!("highgate_operator_actions_total{{action=\"{action}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok()).unwrap_or(0)
}

/// Elects somebody on the gateway's own store; the token.
async fn elect(gateway: &Gateway, holder: &str) -> u64 {
    let wish = json!({"resource": "a", "holder": holder, "ttl_seconds": 60, "wait_seconds": 10}).to_string();
    let won = gateway.send("POST /v1/elections/campaign HTTP/1.1", &wish).await;
    assert_eq!(won.status, 200, "{}", won.body);
    won.json()["token"].as_u64().unwrap()
}

#[tokio::test]
async fn an_order_said_again_changes_nothing_and_says_so() {
    let gateway = gateway().await;
    for (action, order) in [
        ("raise", json!({"resource": "a", "to": 9})),
        ("freeze", json!({"resource": "a"})),
        ("thaw", json!({"resource": "a"})),
    ] {
        let first = gateway.order(action, order.clone()).await;
        assert_eq!((first.status, &first.json()["changed"]), (200, &json!(true)), "{action}: {}", first.body);
        let again = gateway.order(action, order).await;
        assert_eq!(
            (again.status, &again.json()["changed"]),
            (200, &json!(false)),
            "{action}: {}",
            again.body
        );
        assert_eq!(again.json()["mark"], 9);
    }
    assert_eq!((given(&gateway, "raise").await, given(&gateway, "freeze").await), (1, 1));
}

/// A route may leave unknown outcomes to an operator; that does not mean that there are any.
#[tokio::test]
async fn a_thaw_of_a_resource_that_only_may_block_changes_nothing_and_is_not_counted() {
    let gateway = gateway().await;
    let (store, resource) = (&gateway.admin.store, Resource::parse("a").unwrap());
    store.want(resource.clone(), Token::new(9).unwrap(), Some(true)).unwrap();
    let open = || store.ledger().get("a").is_some_and(|cell| cell.is_open() && cell.blocks());
    timeout(PATIENCE, async {
        while !open() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    let thaw = async || {
        let tried = gateway.order("thaw", json!({"resource": "a", "dry_run": true})).await.json();
        let done = gateway.order("thaw", json!({"resource": "a"})).await.json();
        assert_eq!(tried["would_change"], done["changed"], "{tried} {done}");
        done["changed"].clone()
    };
    assert_eq!((thaw().await, given(&gateway, "thaw").await), (json!(false), 0));
    gateway.order("freeze", json!({"resource": "a"})).await;
    assert_eq!((thaw().await, given(&gateway, "thaw").await), (json!(true), 1));
    assert_eq!((thaw().await, given(&gateway, "thaw").await), (json!(false), 1));
    let permit = store.ledger().get("a").unwrap().admit(Token::new(9).unwrap()).unwrap();
    store.ledger().block(permit);
    assert_eq!((thaw().await, given(&gateway, "thaw").await), (json!(true), 2), "a request was kept");
    let settled = || !store.ledger().is_blocked(&resource);
    timeout(PATIENCE, async {
        while !settled() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    assert_eq!((thaw().await, given(&gateway, "thaw").await), (json!(false), 2));
}

#[tokio::test]
async fn an_order_that_is_only_tried_changes_nothing() {
    let gateway = gateway().await;
    let cell = |name: &str| gateway.admin.store.ledger().get(name);
    let unseen = gateway.order("freeze", json!({"resource": "unseen", "dry_run": true})).await.json();
    assert_eq!((&unseen["changed"], &unseen["would_change"]), (&json!(false), &json!(true)), "{unseen}");
    gateway.order("raise", json!({"resource": "a", "to": 5})).await;
    for (action, order, would_change) in [
        ("raise", json!({"resource": "a", "to": 9, "dry_run": true}), true),
        ("raise", json!({"resource": "a", "to": 5, "dry_run": true}), false),
        ("freeze", json!({"resource": "a", "dry_run": true}), true),
        ("thaw", json!({"resource": "a", "dry_run": true}), false),
        ("evict", json!({"resource": "a", "dry_run": true}), false),
    ] {
        let tried = gateway.order(action, order).await.json();
        let told = (&tried["changed"], &tried["dry_run"], &tried["would_change"]);
        assert_eq!(told, (&json!(false), &json!(true), &json!(would_change)), "{action}: {tried}");
        assert_eq!(tried["mark"], 5);
    }
    assert!(cell("unseen").is_none() && !cell("a").unwrap().is_frozen());
    assert!(gateway.order("raise", json!({"resource": "a", "to": 4, "dry_run": true})).await.is_problem(409));
    assert_eq!((given(&gateway, "raise").await, given(&gateway, "freeze").await), (1, 0));
}

#[tokio::test]
async fn an_order_about_something_unseen_is_refused_if_it_says_that_it_is_not_new() {
    let gateway = gateway().await;
    for (action, order) in [
        ("raise", json!({"resource": "typo", "to": 9, "new": false})),
        ("freeze", json!({"resource": "typo", "new": false})),
    ] {
        let refused = gateway.order(action, order).await;
        assert!(refused.is_problem(404) && refused.body.contains("--new"), "{action}: {}", refused.body);
    }
    assert!(gateway.admin.store.ledger().is_empty());
    assert_eq!(gateway.order("freeze", json!({"resource": "a", "new": true})).await.status, 200);
    assert_eq!(gateway.order("freeze", json!({"resource": "b"})).await.status, 200, "unsaid, it may be new");
    assert_eq!(gateway.order("raise", json!({"resource": "a", "to": 9, "new": false})).await.status, 200);
}

#[tokio::test]
async fn an_eviction_names_who_was_deposed_and_by_its_token_it_deposes_nobody_else() {
    let gateway = gateway().await;
    assert!(gateway.order("evict", json!({"resource": "a"})).await.is_problem(404), "it was never seen");
    let first = elect(&gateway, "first").await;
    let tried = gateway.order("evict", json!({"resource": "a", "dry_run": true})).await.json();
    assert_eq!(tried["evicted"], json!({"holder": "first", "token": first}));
    assert_eq!(tried["leader"], "first", "it leads still");
    // The next one waits already, so it has the mark by the time of the answer.
    let (second, evicted) = tokio::join!(elect(&gateway, "second"), async {
        let in_line = || async { gateway.get("/v1/elections?resource=a").await.json()["waiting"] == 1 };
        timeout(PATIENCE, async { while !in_line().await {} }).await.unwrap();
        gateway.order("evict", json!({"resource": "a"})).await.json()
    });
    assert_eq!(evicted["evicted"], json!({"holder": "first", "token": first}), "{evicted}");
    assert_eq!(evicted["changed"], true);
    let again = gateway.order("evict", json!({"resource": "a", "token": first})).await;
    assert_eq!((again.status, &again.json()["changed"]), (200, &json!(false)), "{}", again.body);
    assert_eq!(again.json()["leader"], "second", "it was not deposed");
    assert_eq!(
        gateway.order("evict", json!({"resource": "a", "token": second})).await.json()["changed"],
        true
    );
    let nobody = gateway.order("evict", json!({"resource": "a"})).await;
    assert!(nobody.is_problem(404) && nobody.json()["leader"].is_null(), "{}", nobody.body);
    assert!(nobody.json().as_object().unwrap().contains_key("leader"));
    assert_eq!(given(&gateway, "evict").await, 2);
}

#[tokio::test]
async fn a_raise_tells_whom_it_deposes_and_deposes_nobody_who_came_meanwhile() {
    let gateway = gateway().await;
    let token = elect(&gateway, "job").await;
    let leader = json!({"holder": "job", "token": token});
    let tried = gateway.order("raise", json!({"resource": "a", "to": 9, "dry_run": true})).await.json();
    assert_eq!((&tried["deposed"], &tried["mark"]), (&leader, &json!(token)), "{tried}");
    // Somebody looked at an earlier mark than this, so it was another leader.
    let late = gateway.order("raise", json!({"resource": "a", "to": 9, "from": token - 1})).await;
    assert!(late.is_problem(409) && late.body.contains("by now"), "{}", late.body);
    assert_eq!(gateway.get("/v1/elections?resource=a").await.json()["leader"]["holder"], "job");
    let order = json!({"resource": "a", "to": 9, "from": token});
    let raised = gateway.order("raise", order.clone()).await.json();
    assert_eq!((&raised["changed"], &raised["deposed"]), (&json!(true), &leader), "{raised}");
    let again = gateway.order("raise", order).await.json();
    assert_eq!((&again["changed"], again.get("deposed")), (&json!(false), None), "{again}");
    let nobody = gateway.order("raise", json!({"resource": "a", "to": 12})).await.json();
    assert!(nobody["changed"] == true && nobody.get("deposed").is_none(), "{nobody}");
}
