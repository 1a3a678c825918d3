//! What ends a leadership, and what does not.

use std::time::Duration;

use highgate_elector::{Lost, Moment, connect};

use super::fixture::{Fixture, settings, within};

const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) async fn loss_is_noticed_before_anybody_else_leads<F: Fixture>(fixture: F) {
    for _ in 0..3 {
        let (party, rival) = (fixture.party(), fixture.party());
        let leadership = party.elector.campaign().await.unwrap();
        let noticed = tokio::spawn({
            let lost = leadership.lost();
            async move { (lost.await, Moment::now()) }
        });
        let won = tokio::spawn(async move {
            let leadership = rival.elector.campaign().await.unwrap();
            let won = Moment::now();
            leadership.resign().await.unwrap();
            won
        });
        tokio::time::sleep(F::TTL / 2).await;
        party.crash();
        let won = within(PATIENCE, "the rival leads", won).await.unwrap();
        let (lost, noticed) = within(PATIENCE, "the loss is noticed", noticed).await.unwrap();
        assert_eq!(lost, Lost::BackendAway);
        assert!(noticed < won, "noticed {:?} after the rival led", noticed.since(won));
    }
}

pub(crate) async fn a_leader_survives_a_restart_of_the_backend<F: Fixture>(mut fixture: F) {
    let ttl = F::TTL * 8;
    let backend = connect(&fixture.url()).unwrap();
    let elector = settings(backend).ttl(ttl).heartbeat(ttl / 16).build().unwrap();
    let leadership = elector.campaign().await.unwrap();
    let rival = elector.clone();
    let waiting = tokio::spawn(async move { rival.campaign().await.unwrap() });
    fixture.restart().await;
    let restarted = Moment::now();
    let renewed = async {
        while leadership.valid_until() < restarted + ttl * 15 / 16 {
            assert_eq!(leadership.check(), Ok(leadership.token()));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(PATIENCE, "it is renewed by the backend that came back", renewed).await;
    assert!(!waiting.is_finished());
    let token = leadership.token();
    leadership.resign().await.unwrap();
    let next = within(PATIENCE, "the candidate that waited all the time", waiting).await.unwrap();
    assert!(next.token() > token);
}

pub(crate) async fn a_blocked_runtime_keeps_leading<F: Fixture>(fixture: F) {
    let (party, rival) = (fixture.party(), fixture.party());
    let leadership = party.elector.campaign().await.unwrap();
    let mut campaign = Box::pin(rival.elector.campaign());
    let early = tokio::time::timeout(Duration::from_millis(50), &mut campaign).await;
    assert!(early.is_err(), "two leaders");
    // This test's runtime has one thread, and that is now blocked.
    std::thread::sleep(F::TTL * 5 / 2);
    assert!(leadership.is_valid());
    let meanwhile = tokio::time::timeout(Duration::from_millis(50), &mut campaign).await;
    assert!(meanwhile.is_err(), "two leaders");
}

pub(crate) async fn a_blocked_runtime_gives_up_by_the_watchdog<F: Fixture>(fixture: F) {
    let backend = connect(&fixture.url()).unwrap();
    let elector = settings(backend).ttl(F::TTL).watchdog(F::TTL / 2).build().unwrap();
    let leadership = elector.campaign().await.unwrap();
    for _ in 0..8 {
        tokio::time::sleep(F::TTL / 5).await;
        leadership.progress();
    }
    assert!(leadership.is_valid());
    std::thread::sleep(F::TTL * 2);
    assert_eq!(leadership.check(), Err(Lost::Stuck));
    let next = within(PATIENCE, "the next leader", fixture.party().elector.campaign()).await.unwrap();
    assert!(next.token() > leadership.token());
}
