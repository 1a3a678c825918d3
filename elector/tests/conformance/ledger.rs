//! The run-once ledger.

use std::time::{Duration, UNIX_EPOCH};

use highgate_elector::backend::{OnceError, OnceStep};
use highgate_elector::{Elector, Once, Resource, connect};

use super::fixture::Fixture;

const KEY: &str = "daily-report/2026-02-28";

pub(crate) async fn what_was_completed_is_not_run_again<F: Fixture>(fixture: F) {
    let first = fixture.party();
    let leadership = first.elector.campaign().await.unwrap();
    let Once::Run(_begun) = Once::begin(&leadership, KEY).await.unwrap() else { panic!("nobody has run it") };
    first.crash();
    drop(leadership);

    let second = fixture.party().elector.campaign().await.unwrap();
    let Once::Run(run) = Once::begin(&second, KEY).await.unwrap() else {
        panic!("a dead leader's run is open")
    };
    run.complete().await.unwrap();
    run.complete().await.unwrap();
    let (holder, token) = (second.holder().to_owned(), second.token());
    second.resign().await.unwrap();

    let third = fixture.party().elector.campaign().await.unwrap();
    match Once::begin(&third, KEY).await.unwrap() {
        Once::AlreadyCompleted { holder: by, token: with, at } => {
            assert_eq!((by, with), (holder, token));
            assert!(at > UNIX_EPOCH + Duration::from_secs(1_700_000_000), "{at:?}");
        }
        Once::Run(run) => panic!("{run:?} again"),
    }
    assert!(matches!(Once::begin(&third, "daily-report/2026-03-01").await.unwrap(), Once::Run(_)));
}

pub(crate) async fn a_departed_leader_completes_nothing<F: Fixture>(fixture: F) {
    let backend = connect(&fixture.url()).unwrap();
    let party = fixture.party();
    let leadership = party.elector.campaign().await.unwrap();
    let Once::Run(run) = Once::begin(&leadership, KEY).await.unwrap() else { panic!("nobody has run it") };
    let grant = leadership.grant().clone();
    leadership.resign().await.unwrap();
    assert!(matches!(run.complete().await, Err(OnceError::Deposed)));
    // Even one that does not know: the backend itself refuses.
    let late = backend.once(&grant, KEY, OnceStep::Complete).await;
    assert!(matches!(late, Err(OnceError::Deposed)), "{late:?}");
    let next = fixture.party().elector.campaign().await.unwrap();
    assert!(matches!(Once::begin(&next, KEY).await.unwrap(), Once::Run(_)));
}

pub(crate) async fn a_key_belongs_to_the_resource_that_is_led<F: Fixture>(fixture: F) {
    let backend = connect(&fixture.url()).unwrap();
    let leadership = fixture.party().elector.campaign().await.unwrap();
    let Once::Run(run) = Once::begin(&leadership, KEY).await.unwrap() else { panic!("nobody has run it") };
    run.complete().await.unwrap();
    let other = Resource::parse("reports").unwrap();
    let other = Elector::builder(backend, other).ttl(F::TTL).build().unwrap().campaign().await.unwrap();
    assert!(matches!(Once::begin(&other, KEY).await.unwrap(), Once::Run(_)), "another resource's work");
}
