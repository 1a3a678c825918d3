//! What a leadership outlives, and how it is renewed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::*;
use crate::{BuildError, CampaignError, Once, Waiting, once};

#[tokio::test]
async fn a_leadership_outlives_its_ttl_by_renewals_while_the_application_blocks_its_runtime() {
    let world = World::new();
    let leadership = world.elector().campaign().await.unwrap();
    std::thread::sleep(ms(700));
    assert!(leadership.is_valid());
    assert_eq!(world.fake.leader(&world.resource).unwrap().token, leadership.token());
}

#[tokio::test]
async fn failed_renewals_depose_nobody_while_lease_time_remains() {
    let world = World::new();
    let elector = world.settings().ttl(ms(600)).build().unwrap();
    let leadership = elector.campaign().await.unwrap();
    world.fake.cut(true);
    tokio::time::sleep(ms(400)).await;
    assert!(leadership.is_valid());
    world.fake.cut(false);
    tokio::time::sleep(ms(500)).await;
    assert!(leadership.is_valid());
}

#[tokio::test]
async fn many_leaderships_are_renewed_in_one_call_per_heartbeat() {
    let world = World::new();
    let mut held = Vec::new();
    for number in 0..500 {
        let resource = Resource::parse(&format!("job/{number}")).unwrap();
        let elector = Elector::builder(&world.renewer, resource).ttl(Duration::from_secs(3));
        let elector = elector.heartbeat(Duration::from_secs(1)).build().unwrap();
        held.push(elector.campaign().await.unwrap());
    }
    tokio::time::sleep(ms(2500)).await;
    assert!(held.iter().all(|leadership| leadership.is_valid()));
    let (rounds, renewals) =
        (world.fake.rounds.load(Ordering::SeqCst), world.fake.renewals.load(Ordering::SeqCst));
    assert!((2..=4).contains(&rounds), "{rounds} rounds in two and a half heartbeats");
    assert!((1000..=1500).contains(&renewals), "{renewals} renewals");
}

#[tokio::test]
async fn a_campaign_goes_on_when_the_backend_comes_back_and_tells_what_it_waits_for() {
    let world = World::new();
    world.fake.cut(true);
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let elector = world
        .settings()
        .on_wait(move |waiting| {
            let _ = tell.send(waiting.to_string());
            assert!(matches!(waiting, Waiting::Backend { .. }));
        })
        .build()
        .unwrap();
    let campaign = tokio::spawn(async move { elector.campaign().await });
    let first = told.recv().await.unwrap();
    assert!(first.starts_with("the backend fake is unavailable: cut; next try in 0."), "{first}");
    world.fake.cut(false);
    assert!(campaign.await.unwrap().unwrap().is_valid());
}

#[tokio::test]
async fn a_refused_campaign_fails() {
    let world = World::new();
    world.fake.refuse.store(true, Ordering::SeqCst);
    assert!(matches!(world.elector().campaign().await, Err(CampaignError::Refused(_))));
}

#[test]
fn a_ttl_under_three_heartbeats_is_refused() {
    let world = World::new();
    let build = |heartbeat| world.settings().heartbeat(ms(heartbeat)).build().map(drop);
    assert!(matches!(build(101), Err(BuildError::TooShort { .. })));
    assert!(build(100).is_ok());
    assert!(matches!(build(0), Err(BuildError::NoHeartbeat)));
    let grace = |grace| world.settings().heartbeat(ms(100)).grace(ms(grace)).build().map(drop);
    assert!(grace(189).is_ok());
    let refused = grace(190).unwrap_err().to_string();
    assert!(refused.ends_with("it has to be under 190ms"), "{refused}");
    assert!(matches!(world.settings().grace(ms(300)).build(), Err(BuildError::GraceTooLong { .. })));
    assert!(matches!(world.settings().holder("").build(), Err(BuildError::NoHolder)));
}

#[test]
fn two_electors_of_a_process_have_different_holders_that_name_it() {
    let world = World::new();
    let (one, other) = (world.elector(), world.elector());
    assert_ne!(one.holder(), other.holder());
    assert!(one.holder().contains(&format!("-{}-", std::process::id())));
}

#[tokio::test]
async fn a_deposed_leader_does_not_complete_what_it_began_and_the_next_one_does() {
    let world = World::new();
    let elector = world.elector();
    let first = elector.campaign().await.unwrap();
    let Once::Run(run) = Once::begin(&first, "report/1").await.unwrap() else { panic!("it was done") };
    world.fake.evict(&world.resource);
    assert!(matches!(run.complete().await, Err(crate::backend::OnceError::Deposed)));
    let second = world.elector().campaign().await.unwrap();
    let Once::Run(run) = Once::begin(&second, "report/1").await.unwrap() else { panic!("it was done") };
    run.complete().await.unwrap();
    let done = Once::begin(&second, "report/1").await.unwrap();
    assert!(matches!(done, once::Once::AlreadyCompleted { token, .. } if token == second.token()));
}
