//! Who leads, as others see it.

use std::pin::Pin;
use std::time::Duration;

use highgate_elector::backend::{Leader, Observation};
use highgate_elector::{Token, connect};

use super::fixture::{Fixture, settings, within};

const PATIENCE: Duration = Duration::from_secs(10);

async fn next(stream: &mut Observation) -> Option<Leader> {
    let item =
        std::future::poll_fn(|context| futures_core::Stream::poll_next(Pin::new(&mut *stream), context));
    within(PATIENCE, "a change", item).await.expect("the stream goes on").expect("it is available")
}

/// The tokens of the next leaders, with any gaps between them.
async fn leaders(stream: &mut Observation, count: usize) -> Vec<Token> {
    let mut tokens = Vec::new();
    while tokens.len() < count {
        tokens.extend(next(stream).await.map(|leader| leader.token));
    }
    tokens
}

pub(crate) async fn observers_see_every_change<F: Fixture>(fixture: F) {
    let elector = settings(connect(&fixture.url()).unwrap()).ttl(F::TTL).build().unwrap();
    let mut stream = elector.observe();
    assert_eq!(next(&mut stream).await, None, "the current state comes first");
    let mut tokens = Vec::new();
    for _ in 0..10 {
        let leadership = elector.campaign().await.unwrap();
        tokens.push(leadership.token());
        leadership.resign().await.unwrap();
    }
    assert_eq!(leaders(&mut stream, 10).await, tokens);
    assert_eq!(next(&mut stream).await, None, "the last one has resigned");

    let party = fixture.party();
    let leadership = party.elector.campaign().await.unwrap();
    // News of it is under way to this process; once one observer has it, another begins with it.
    assert_eq!(leaders(&mut stream, 1).await, [leadership.token()]);
    let mut late = elector.observe();
    let seen = next(&mut late).await.expect("who leads already");
    assert_eq!((seen.holder.as_str(), seen.token), (leadership.holder(), leadership.token()));
    party.crash();
    assert_eq!(next(&mut late).await, None, "the lease has run out");
}

pub(crate) async fn a_campaign_tells_who_leads<F: Fixture>(fixture: F) {
    let leadership = fixture.party().elector.campaign().await.unwrap();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let elector = settings(connect(&fixture.url()).unwrap())
        .on_wait(move |waiting| tell.send(waiting.to_string()).unwrap())
        .build()
        .unwrap();
    let campaign = tokio::spawn(async move { elector.campaign().await.map(drop) });
    let first = within(PATIENCE, "it is told", told.recv()).await.unwrap();
    assert_eq!(first, format!("{} with token {} leads", leadership.holder(), leadership.token()));
    leadership.resign().await.unwrap();
    within(PATIENCE, "it leads", campaign).await.unwrap().unwrap();
}
