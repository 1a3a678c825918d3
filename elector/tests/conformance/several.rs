//! A URL of several gateways. What they do for each other over a shared etcd is in the gateway's own `tests/cluster`.

use std::error::Error;
use std::time::Duration;

use highgate_elector::connect;

use super::fixture::{Fixture, settings, within};
use super::gateway::Gateway;

pub(crate) async fn gateways_with_elections_of_their_own_are_not_taken_for_one(gateway: Gateway) {
    let other = Gateway::start().await.expect("a second gateway");
    let both = connect(&format!("highgate://{},{}", gateway.admin, other.admin)).unwrap();
    let elector = settings(both).build().unwrap();
    // Elected by both, a job would lead where another leads already.
    let refused = within(Duration::from_secs(20), "an answer", elector.campaign()).await.unwrap_err();
    let why = refused.source().expect("the gateway's own words").to_string();
    assert!(why.contains("its store is embedded") && why.contains("alone"), "{why}");
}
