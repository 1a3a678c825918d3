//! How a leadership ends against its will.

use std::sync::atomic::Ordering;

use super::*;
use crate::{Lost, Moment};

#[tokio::test]
async fn a_leader_that_cannot_renew_notices_before_the_backend_gives_its_leadership_away() {
    let world = World::new();
    let leadership = world.elector().campaign().await.unwrap();
    tokio::time::sleep(ms(350)).await;
    world.fake.cut(true);
    // For an answer that was on its way.
    tokio::time::sleep(ms(20)).await;
    let (believed, until) = (leadership.valid_until(), world.fake.until(&world.resource).unwrap());
    assert!(believed < until, "it is over before the lease is");
    assert_eq!(leadership.lost().await, Lost::BackendAway);
    assert!(!leadership.is_valid() && leadership.remaining().is_zero());
    world.fake.cut(false);
    tokio::time::sleep(ms(150)).await;
    assert_eq!(leadership.check(), Err(Lost::BackendAway), "it is final");
}

#[tokio::test]
async fn validity_counts_from_before_a_renewal_however_late_its_answer() {
    let world = World::new();
    world.fake.lag.store(120, Ordering::SeqCst);
    let elector = world.settings().ttl(ms(600)).build().unwrap();
    let leadership = elector.campaign().await.unwrap();
    for _ in 0..100 {
        tokio::time::sleep(ms(10)).await;
        // This one first: it only grows, and so does the other.
        let believed = leadership.valid_until();
        assert!(leadership.is_valid() && believed < world.fake.until(&world.resource).unwrap());
    }
}

#[tokio::test]
async fn a_leader_that_the_backend_deposed_knows_at_its_next_heartbeat() {
    let world = World::new();
    let elector = world.settings().ttl(ms(3000)).heartbeat(ms(50)).build().unwrap();
    let leadership = elector.campaign().await.unwrap();
    let before = Moment::now();
    world.fake.evict(&world.resource);
    assert_eq!(leadership.lost().await, Lost::Deposed);
    assert!(Moment::now().since(before) < ms(1000));
}

#[tokio::test]
async fn work_that_makes_no_progress_loses_its_leadership_to_the_watchdog() {
    let world = World::new();
    let elector = world.settings().watchdog(ms(250)).build().unwrap();
    let leadership = elector.campaign().await.unwrap();
    for _ in 0..10 {
        tokio::time::sleep(ms(60)).await;
        leadership.progress();
    }
    assert!(leadership.is_valid());
    assert_eq!(leadership.lost().await, Lost::Stuck);
}

#[tokio::test]
async fn a_runtime_that_blocks_gives_its_leadership_up_when_the_watchdog_says_so() {
    let world = World::new();
    let leadership = world.settings().watchdog(ms(150)).build().unwrap().campaign().await.unwrap();
    std::thread::sleep(ms(800));
    assert_eq!(leadership.check(), Err(Lost::Stuck));
    assert_eq!(world.fake.leader(&world.resource), None);
}

#[tokio::test]
async fn a_token_source_gives_no_token_of_a_leadership_that_is_over() {
    let world = World::new();
    let leadership = world.elector().campaign().await.unwrap();
    let (source, token) = (leadership.source(), leadership.token());
    let headers =
        [("x-fencing-token", token.to_string()), ("x-fencing-resource", world.resource.to_string())];
    assert_eq!(source.headers(), Ok(headers));
    leadership.resign().await.unwrap();
    assert_eq!((source.token(), source.headers()), (Err(Lost::Resigned), Err(Lost::Resigned)));
}
