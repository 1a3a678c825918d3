//! Many candidates, and many elections.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use highgate_elector::{Elector, Renewer, Resource, TokenSource, connect};
use tokio::task::JoinSet;

use super::fixture::{Fixture, within};

const PATIENCE: Duration = Duration::from_secs(40);

pub(crate) async fn never_are_two_leaderships_valid_at_once<F: Fixture>(fixture: F) {
    let latest: Arc<Mutex<Option<TokenSource>>> = Arc::default();
    let mut crowd = JoinSet::new();
    for number in 0..6 {
        let (latest, parties) = (latest.clone(), [fixture.party(), fixture.party(), fixture.party()]);
        crowd.spawn(async move {
            for party in parties {
                let leadership = party.elector.campaign().await.unwrap();
                let before = latest.lock().unwrap().replace(leadership.source());
                let valid = before.and_then(|before| before.token().ok());
                assert_eq!(valid, None, "still valid when {leadership:?} began");
                tokio::time::sleep(Duration::from_millis(30)).await;
                if number % 3 == 0 {
                    party.crash();
                    // It goes on believing for as long as it may.
                    tokio::spawn(async move { leadership.lost().await });
                } else {
                    leadership.resign().await.unwrap();
                }
            }
        });
    }
    let all = async { while crowd.join_next().await.transpose().unwrap().is_some() {} };
    within(PATIENCE, "everybody has led three times", all).await;
}

pub(crate) async fn a_thousand_elections_share_one_renewer<F: Fixture>(fixture: F) {
    let renewer = Renewer::new(connect(&fixture.url()).unwrap());
    let ttl = Duration::from_secs(6);
    let mut campaigns = JoinSet::new();
    for number in 0..1000 {
        let resource = Resource::parse(&format!("job/{number}")).unwrap();
        let elector = Elector::builder(&renewer, resource).ttl(ttl).build().unwrap();
        campaigns.spawn(async move { elector.campaign().await.unwrap() });
    }
    let mut held = Vec::new();
    let all = async {
        while let Some(leadership) = campaigns.join_next().await {
            held.push(leadership.unwrap());
        }
    };
    within(PATIENCE, "a thousand elections are won", all).await;
    tokio::time::sleep(ttl + ttl / 6).await;
    assert!(held.iter().all(|leadership| leadership.is_valid()), "a ttl later all of them lead");
    let leases: HashSet<_> = held.iter().map(|leadership| leadership.resource().clone()).collect();
    assert_eq!(leases.len(), 1000);
}
