//! How a leadership is handed over, and what a campaign that is given up leaves behind: nothing.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::Moment;

#[tokio::test]
async fn resigning_and_dropping_let_the_next_one_lead_at_once() {
    let world = World::new();
    let (one, other) = (world.settings().ttl(ms(60_000)).build().unwrap(), world.elector());
    let first = one.campaign().await.unwrap();
    let before = Moment::now();
    first.resign().await.unwrap();
    let second = other.campaign().await.unwrap();
    drop(second);
    let third = one.campaign().await.unwrap();
    assert!(Moment::now().since(before) < ms(1000));
    assert!(third.is_valid());
}

#[tokio::test]
async fn a_dropped_campaign_leaves_the_queue() {
    let world = World::new();
    let leadership = world.elector().campaign().await.unwrap();
    let other = world.elector();
    let waiting = tokio::time::timeout(ms(50), other.campaign());
    assert!(waiting.await.is_err());
    eventually("the queue is empty", || world.fake.waiting(&world.resource) == 0).await;
    assert!(leadership.is_valid());
}

#[tokio::test]
async fn a_grant_that_nobody_waits_for_any_more_is_resigned() {
    let world = World::new();
    let elector = world.settings().ttl(ms(60_000)).build().unwrap();
    let first = elector.campaign().await.unwrap();
    let token = first.token();
    {
        let mut campaign = pin!(elector.campaign());
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(campaign.as_mut().poll(&mut context), Poll::Pending));
        first.resign().await.unwrap();
        let leads = || world.fake.leader(&world.resource).is_some_and(|leader| leader.token > token);
        eventually("it is granted", leads).await;
    }
    eventually("it is resigned", || world.fake.leader(&world.resource).is_none()).await;
    assert_eq!(world.fake.resigned.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_grant_after_a_long_wait_is_valid_for_a_whole_ttl_from_its_confirmation() {
    let world = World::new();
    let first = world.elector().campaign().await.unwrap();
    let other = world.elector();
    let campaign = tokio::spawn(async move { other.campaign().await.unwrap() });
    tokio::time::sleep(ms(500)).await;
    let rounds = world.fake.rounds.load(Ordering::SeqCst);
    first.resign().await.unwrap();
    let second = campaign.await.unwrap();
    assert!(world.fake.rounds.load(Ordering::SeqCst) > rounds, "it was confirmed");
    assert!(second.remaining() > ms(200), "{:?} remain", second.remaining());
}

#[tokio::test]
async fn the_heart_stops_with_its_last_leadership_and_resigns_that_first() {
    let World { fake, renewer, resource } = World::new();
    let elector = Elector::builder(renewer, resource.clone()).ttl(ms(60_000)).build().unwrap();
    let leadership = elector.campaign().await.unwrap();
    drop(elector);
    drop(leadership);
    eventually("it is resigned", || fake.leader(&resource).is_none()).await;
    eventually("the thread has let go of the backend", || Arc::strong_count(&fake) == 1).await;
}

#[tokio::test]
async fn a_strict_campaign_outlasts_whatever_the_leader_before_believes() {
    let world = World::new();
    let strict = world.settings().strict().watchdog(ms(200)).build().unwrap();
    let first = world.elector().campaign().await.unwrap();
    let believed = first.valid_until();
    let before = Moment::now();
    // The coordination system lets go of it early, and its holder does not hear of that.
    world.fake.evict(&world.resource);
    let second = strict.campaign().await.unwrap();
    assert!(Moment::now() > believed, "the first may still think that it leads");
    assert!(Moment::now().since(before) >= ms(303 + 50), "{:?}", Moment::now().since(before));
    assert!(second.is_valid());
}
