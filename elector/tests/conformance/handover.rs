//! From one leader to the next.

use std::time::Duration;

use highgate_elector::{Leadership, Moment, connect};

use super::fixture::{Fixture, settings, within};

const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) async fn tokens_grow_over_two_hundred_handovers_with_crashes<F: Fixture>(fixture: F) {
    let mut last: Option<Leadership> = None;
    let mut party = fixture.party();
    let mut slow = 0;
    for term in 0..200 {
        let started = Moment::now();
        let leadership = within(PATIENCE, "a handover", party.elector.campaign()).await.unwrap();
        let took = Moment::now().since(started);
        if let Some(last) = last.take() {
            assert!(leadership.token() > last.token(), "{leadership:?} after {last:?}");
            assert!(!last.is_valid());
            assert!(took <= F::TTL + Duration::from_secs(1), "{took:?} after a crash");
        } else if took > F::TTL / 2 {
            slow += 1;
        }
        match term {
            _ if term % 25 == 24 => {
                party.crash();
                last = Some(leadership);
                party = fixture.party();
            }
            _ if term % 2 == 0 => leadership.resign().await.unwrap(),
            _ => drop(leadership),
        }
        if term % 3 == 0 {
            party = fixture.party();
        }
    }
    assert!(slow < 10, "{slow} handovers without a crash took as long as a lease");
}

pub(crate) async fn candidates_lead_in_the_order_in_which_they_came<F: Fixture>(fixture: F) {
    if !F::FIFO {
        return;
    }
    let first = fixture.party().elector.campaign().await.unwrap();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..8 {
        let (party, tell) = (fixture.party(), tell.clone());
        tokio::spawn(async move {
            let leadership = party.elector.campaign().await.unwrap();
            tell.send((number, leadership.token())).unwrap();
            leadership.resign().await.unwrap();
        });
        // The order of arrival is only certain with some time between.
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    let mut highest = first.token();
    first.resign().await.unwrap();
    for number in 0..8 {
        let (came, token) = within(PATIENCE, "a turn", told.recv()).await.unwrap();
        assert_eq!(came, number);
        assert!(token > highest);
        highest = token;
    }
}

pub(crate) async fn resigning_hands_over_at_once<F: Fixture>(fixture: F) {
    let backend = connect(&fixture.url()).unwrap();
    let elector = settings(backend).ttl(Duration::from_secs(60)).build().unwrap();
    let mut leadership = elector.campaign().await.unwrap();
    let mut spans = Vec::new();
    for _ in 0..20 {
        let next = elector.clone();
        let campaign = tokio::spawn(async move { (next.campaign().await.unwrap(), Moment::now()) });
        tokio::time::sleep(Duration::from_millis(30)).await;
        let resigned = Moment::now();
        leadership.resign().await.unwrap();
        let (next, won) = within(PATIENCE, "the next leader", campaign).await.unwrap();
        spans.push(won.since(resigned));
        leadership = next;
    }
    spans.sort();
    println!("from resigning to the next leader: p50 {:?}, worst {:?}", spans[10], spans[19]);
    assert!(spans[10] < Duration::from_secs(1), "a round trip, not a ttl: {spans:?}");
}

pub(crate) async fn a_withdrawn_candidate_is_not_in_the_way<F: Fixture>(fixture: F) {
    let backend = connect(&fixture.url()).unwrap();
    let elector = settings(backend).ttl(Duration::from_secs(60)).build().unwrap();
    let leadership = elector.campaign().await.unwrap();
    let withdrawn = tokio::time::timeout(Duration::from_millis(200), elector.campaign()).await;
    assert!(withdrawn.is_err(), "somebody leads");
    leadership.resign().await.unwrap();
    let next = within(PATIENCE, "the next leader", elector.campaign()).await.unwrap();
    assert!(next.is_valid());
}

/// As a guardian does for a process that was killed.
pub(crate) async fn whoever_knows_the_grant_can_resign<F: Fixture>(fixture: F) {
    let elector = settings(connect(&fixture.url()).unwrap()).ttl(Duration::from_secs(60)).build().unwrap();
    let first = elector.campaign().await.unwrap();
    let stranger = connect(&fixture.url()).unwrap();
    stranger.resign(first.grant()).await.unwrap();
    let second = within(PATIENCE, "the next leads", fixture.party().elector.campaign()).await.unwrap();
    assert!(second.token() > first.token());
    stranger.resign(first.grant()).await.unwrap();
    assert!(second.is_valid(), "the word of an old grant takes nothing from a new one");
}
