//! Sealed leadership: a winner is told when the gateways pass its token, and not before.

use std::time::{Duration, Instant};

use highgate_elector::Token;
use highgate_elector::backend::{Backend, BackendError};
use highgate_etcd::fence::Fence;

use super::relay::Relay;
use super::sealer::Sealer;
use super::server::Cluster;
use super::{campaign, candidacy, connect, eventually, lead, renew, within};

const TEN_SECONDS: Duration = Duration::from_secs(10);

/// Waits until the mark is raised; its token.
async fn raised(sealer: &Sealer, name: &str) -> u64 {
    sealer.mark_when(name, |mark| mark.raised).await.token
}

/// The create revision of a key.
fn created(cluster: &Cluster, key: &str) -> u64 {
    let found = cluster.ask(&["get", "-w", "json", key]);
    let (_, number) = found.split_once("\"create_revision\":").expect("it is there");
    number.split(|digit: char| !digit.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_winner_is_told_once_the_gateways_have_opened_its_mark() {
    let name = "a_winner_is_told_once_the_gateways_have_opened_its_mark";
    let Some(cluster) = Cluster::start(name, 1) else { return };
    // Longer than the lease lasts without being kept alive.
    let sealer = Sealer::start(&cluster, Duration::from_secs(4)).await;
    let (changes, started) = (sealer.changes().await, Instant::now());
    let backend = connect(&cluster.url());
    let winner = campaign(&backend, candidacy("ledger/acct-7", "me", 2));
    let token = raised(&sealer, "ledger/acct-7").await;
    let mark = Fence { token, raised: true, issued: true, ..Fence::default() };
    assert_eq!(sealer.mark("ledger/acct-7").await, Some(mark));
    assert_eq!(sealer.changes().await, changes + 1, "a raise is counted");

    let grant = within(TEN_SECONDS, winner).await.unwrap();
    assert_eq!(grant.token.get(), token, "it kept its place meanwhile");
    assert!(started.elapsed() > Duration::from_secs(3), "{:?}", started.elapsed());
    assert_eq!(sealer.mark("ledger/acct-7").await, Some(Fence { raised: false, ..mark }));
    renew(&backend, &grant).await.expect("it leads");
    assert_eq!(sealer.changes().await, changes + 2, "neither a wait nor a renewal changes anything");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_whoever_leads_can_raise_and_only_to_its_own_token() {
    let Some(cluster) = Cluster::start("only_whoever_leads_can_raise_and_only_to_its_own_token", 1) else {
        return;
    };
    let backend = connect(&cluster.url());
    let departed = lead(&backend, candidacy("r", "departed", 10)).await;
    backend.resign(&departed).await.unwrap();
    let leads = lead(&backend, candidacy("r", "leads", 10)).await;
    let waits = campaign(&backend, candidacy("r", "waits", 10));
    eventually("it is in line", || cluster.keys("/test/e/r/").len() == 2).await;

    let revision = |token: Token| i64::try_from(token.get()).unwrap();
    let (sealer, leader) = (Sealer::idle(&cluster).await, format!("/test/e/r/{}", leads.lease));
    let waiting = cluster.keys("/test/e/r/").into_iter().find(|key| *key != leader).unwrap();
    let waiting_since = i64::try_from(created(&cluster, &waiting)).unwrap();
    for (key, number, whose) in [
        (&waiting, waiting_since, "of one that waits"),
        (&leader, 1 << 40, "forged"),
        (&leader, revision(leads.token) + 1, "forged, one above"),
        (&leader, revision(departed.token), "of one that has gone"),
        (&"/test/e/r/none".to_owned(), revision(leads.token), "of a candidate that is none"),
        (&"/test/e/r/none".to_owned(), 0, "of nothing at all"),
    ] {
        assert!(!sealer.raise("r", key, number).await, "a token {whose}");
    }
    assert_eq!(sealer.mark("r").await, None);
    assert!(sealer.raise("r", &leader, revision(leads.token)).await);
    waits.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_gateways_or_sealing_a_winner_is_told_at_once() {
    let Some(cluster) = Cluster::start("without_gateways_or_sealing_a_winner_is_told_at_once", 1) else {
        return;
    };
    let sealed = connect(&cluster.url());
    lead(&sealed, candidacy("a", "me", 10)).await;
    assert_eq!(cluster.keys("/test/f/"), [""; 0], "there is nobody to tell");

    let sealer = Sealer::idle(&cluster).await;
    let unsealed = connect(&format!("{}?sealed=no", cluster.url()));
    lead(&unsealed, candidacy("b", "me", 10)).await;
    assert_eq!(cluster.keys("/test/f/"), [""; 0], "a gateway raises it when it sees the token");
    let waiting = campaign(&sealed, candidacy("c", "me", 10));
    raised(&sealer, "c").await;
    assert!(!waiting.is_finished(), "the gateways do not open it");
    waiting.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_operators_and_routes_said_outlives_a_raise_and_a_frozen_mark_is_waited_for() {
    let name = "what_operators_and_routes_said_outlives_a_raise_and_a_frozen_mark_is_waited_for";
    let Some(cluster) = Cluster::start(name, 1) else { return };
    let sealer = Sealer::start(&cluster, Duration::ZERO).await;
    let old = Fence {
        token: 1,
        frozen: true,
        vacant: true,
        block: true,
        block_next: true,
        settled: 1,
        ..Fence::default()
    };
    sealer.set("r", old).await;
    let backend = connect(&cluster.url());
    let waiting = campaign(&backend, candidacy("r", "me", 10));
    eventually("its key is there", || cluster.keys("/test/e/r/").len() == 1).await;
    let token = created(&cluster, &cluster.keys("/test/e/r/")[0]);
    let opened = sealer.mark_when("r", |mark| mark.token == token && !mark.raised).await;
    let frozen = Fence { token, vacant: false, issued: true, ..old };
    assert_eq!(opened, frozen);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished(), "it is frozen");
    sealer.set("r", Fence { frozen: false, ..frozen }).await;
    assert_eq!(within(TEN_SECONDS, waiting).await.unwrap().token.get(), token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_above_the_winner_sends_it_to_the_end_of_the_line() {
    let Some(cluster) = Cluster::start("a_mark_above_the_winner_sends_it_to_the_end_of_the_line", 1) else {
        return;
    };
    let sealer = Sealer::start(&cluster, Duration::ZERO).await;
    let backend = connect(&cluster.url());
    let first = lead(&backend, candidacy("r", "first", 10)).await;
    let second = campaign(&backend, candidacy("r", "second", 10));
    eventually("it is in line", || cluster.keys("/test/e/r/").len() == 2).await;
    let leader = format!("/test/e/r/{}", first.lease);
    let waits = cluster.keys("/test/e/r/").into_iter().find(|key| *key != leader).unwrap();
    // The revision of this change itself is beyond both.
    let above = created(&cluster, &waits) + 1;
    sealer.set("r", Fence { token: above, ..Fence::default() }).await;
    backend.resign(&first).await.unwrap();
    let second = within(TEN_SECONDS, second).await.unwrap();
    assert!(second.token.get() > above);
    assert!(sealer.is_open("r", second.token).await);
    eventually("its old key is gone", || cluster.keys("/test/e/r/").len() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_that_no_token_can_reach_is_refused_until_the_era_is_bumped() {
    let name = "a_mark_that_no_token_can_reach_is_refused_until_the_era_is_bumped";
    let Some(cluster) = Cluster::start(name, 1) else { return };
    let sealer = Sealer::start(&cluster, Duration::ZERO).await;
    sealer.set("r", Fence { token: 1 << 40, ..Fence::default() }).await;
    let backend = connect(&cluster.url());
    let refused = within(TEN_SECONDS, backend.campaign(&candidacy("r", "me", 10))).await.unwrap_err();
    assert!(matches!(refused, BackendError::Refused { .. }), "{refused}");
    println!("{refused}");
    assert!(refused.to_string().contains("highgate era bump"), "{refused}");
    eventually("its key is gone", || cluster.keys("/test/e/r/").is_empty()).await;

    cluster.ask(&["put", "/test/era", "1"]);
    let grant = lead(&backend, candidacy("r", "me", 10)).await;
    assert_eq!(grant.token.era(), 1);
    assert!(sealer.is_open("r", grant.token).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_that_is_none_is_refused_and_named() {
    let Some(cluster) = Cluster::start("a_mark_that_is_none_is_refused_and_named", 1) else { return };
    let _sealer = Sealer::idle(&cluster).await;
    cluster.ask(&["put", "/test/f/r", "seven"]);
    let backend = connect(&cluster.url());
    let refused = within(TEN_SECONDS, backend.campaign(&candidacy("r", "me", 10))).await.unwrap_err();
    assert!(refused.to_string().contains("/test/f/r holds no mark"), "{refused}");
    assert_eq!(cluster.ask(&["get", "--print-value-only", "/test/f/r"]).trim(), "seven");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_winner_does_not_wait_for_gateways_that_are_gone() {
    let Some(cluster) = Cluster::start("a_winner_does_not_wait_for_gateways_that_are_gone", 1) else {
        return;
    };
    let sealer = Sealer::idle(&cluster).await;
    let backend = connect(&cluster.url());
    let waiting = campaign(&backend, candidacy("r", "me", 10));
    let token = raised(&sealer, "r").await;
    assert!(!waiting.is_finished());
    sealer.leave().await;
    let left = Instant::now();
    assert_eq!(within(TEN_SECONDS, waiting).await.unwrap().token.get(), token);
    println!("the last gateway's leave to the grant: {:?}", left.elapsed());
    assert!(left.elapsed() < Duration::from_secs(3), "{:?}", left.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_campaign_that_is_dropped_while_it_waits_for_the_gateways_leaves_the_line() {
    let name = "a_campaign_that_is_dropped_while_it_waits_for_the_gateways_leaves_the_line";
    let Some(cluster) = Cluster::start(name, 1) else { return };
    let mut sealer = Sealer::idle(&cluster).await;
    let backend = connect(&cluster.url());
    let dropped = campaign(&backend, candidacy("r", "dropped", 10));
    let token = raised(&sealer, "r").await;
    let next = campaign(&backend, candidacy("r", "next", 10));
    eventually("both are in line", || cluster.keys("/test/e/r/").len() == 2).await;
    dropped.abort();
    eventually("one has left", || cluster.keys("/test/e/r/").len() == 1).await;
    sealer.open_after(Duration::ZERO).await;
    let next = within(TEN_SECONDS, next).await.unwrap();
    assert!(next.holder == "next" && next.token.get() > token);
    assert!(sealer.is_open("r", next.token).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_winner_that_is_evicted_while_it_waits_for_the_gateways_queues_up_again() {
    let name = "a_winner_that_is_evicted_while_it_waits_for_the_gateways_queues_up_again";
    let Some(cluster) = Cluster::start(name, 1) else { return };
    let mut sealer = Sealer::idle(&cluster).await;
    let backend = connect(&cluster.url());
    let waiting = campaign(&backend, candidacy("r", "me", 10));
    let evicted = raised(&sealer, "r").await;
    let killed = Instant::now();
    cluster.ask(&["del", "--prefix", "/test/e/r/"]);
    let again = sealer.mark_when("r", |mark| mark.token > evicted && mark.raised).await.token;
    println!("eviction to the next raise: {:?}", killed.elapsed());
    assert!(!waiting.is_finished());
    sealer.open_after(Duration::ZERO).await;
    assert_eq!(within(TEN_SECONDS, waiting).await.unwrap().token.get(), again);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_era_while_the_gateways_are_waited_for_makes_another_token() {
    let name = "a_new_era_while_the_gateways_are_waited_for_makes_another_token";
    let Some(cluster) = Cluster::start(name, 1) else { return };
    let mut sealer = Sealer::idle(&cluster).await;
    let backend = connect(&cluster.url());
    let waiting = campaign(&backend, candidacy("r", "me", 10));
    let old = raised(&sealer, "r").await;
    cluster.ask(&["put", "/test/era", "2"]);
    sealer.open_after(Duration::from_millis(500)).await;
    let grant = within(TEN_SECONDS, waiting).await.unwrap();
    assert_eq!((grant.token.era(), grant.token.value()), (2, old));
    assert!(sealer.is_open("r", grant.token).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_opening_that_the_watch_missed_and_that_was_compacted_is_heard_of() {
    let name = "an_opening_that_the_watch_missed_and_that_was_compacted_is_heard_of";
    let Some(cluster) = Cluster::start(name, 1) else { return };
    let sealer = Sealer::idle(&cluster).await;
    let relay = Relay::start(cluster.nodes[0].port).await;
    let backend = connect(&format!("etcd://127.0.0.1:{}/test", relay.port));
    let waiting = campaign(&backend, candidacy("r", "me", 60));
    let token = raised(&sealer, "r").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    relay.close();
    sealer.set("r", Fence { token, issued: true, ..Fence::default() }).await;
    cluster.ask(&["put", "/test/later", "1"]);
    let later = created(&cluster, "/test/later");
    cluster.ask(&["compact", &later.to_string()]);
    assert!(!waiting.is_finished());
    relay.heal();
    assert_eq!(within(Duration::from_secs(20), waiting).await.unwrap().token.get(), token);
}
