//! Elections for jobs in any language: campaign by long poll, renew, resign and watch.

use std::time::Duration;

use highgate_elector::Resource;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use super::answer::{Answer, Problem, answer, as_json};
use super::operator::{parse, stopped};
use super::stream::{self, Feed};
use super::{Admin, Server, query};
use crate::elections::{Candidate, Lease};
use crate::store::elections::{CampaignError, Leader};

const TTL: std::ops::RangeInclusive<f64> = 1.0..=86_400.0;
const WAIT: std::ops::RangeInclusive<f64> = 0.0..=3600.0;
const DEFAULT_TTL: f64 = 15.0;
const DEFAULT_WAIT: f64 = 60.0;
const MAX_HOLDER: usize = 256;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Campaign {
    resource: String,
    holder: String,
    #[serde(default = "default_ttl")]
    ttl_seconds: f64,
    #[serde(default = "default_wait")]
    wait_seconds: f64,
}

/// A leadership, as its holder names it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Held {
    pub(super) resource: String,
    pub(super) lease: String,
}

fn default_ttl() -> f64 {
    DEFAULT_TTL
}

fn default_wait() -> f64 {
    DEFAULT_WAIT
}

/// Waits in line. A client that hangs up leaves the line.
pub(super) async fn campaign(server: &Server, body: &[u8]) -> Result<Answer, Problem> {
    let admin = &server.admin;
    let wish: Campaign = parse(body)?;
    let resource = query::parse_resource(&wish.resource)?;
    let ttl = seconds("ttl_seconds", wish.ttl_seconds, TTL)?;
    let wait = seconds("wait_seconds", wish.wait_seconds, WAIT)?;
    let holder = text("holder", wish.holder, MAX_HOLDER)?;
    let lease = admin.store.fresh_lease();
    let _place = stream::place(server)?;
    let mut campaign = admin.store.campaign(resource.clone(), Candidate { lease, holder, ttl });
    // The wait is for the time in line; who has won by then is told, however long the old leader drains.
    let decided = match timeout(wait, &mut campaign).await {
        Ok(decided) => decided,
        Err(_) if campaign.leave().await => return Err(taken(admin, resource).await),
        Err(_) => campaign.await,
    };
    let token = decided.map_err(|error| lost(&resource, error))?;
    Ok(as_json(&json!({
        "resource": resource.as_str(),
        "token": token.get(),
        "lease": format!("{lease:x}"),
        "ttl_seconds": ttl.as_secs_f64(),
    })))
}

pub(super) async fn renew(admin: &Admin, body: &[u8]) -> Result<Answer, Problem> {
    let held: Held = parse(body)?;
    let (resource, lease) = held.parse()?;
    let renewed = admin.store.renew(resource.clone(), lease).await.map_err(stopped)?;
    let ttl = renewed.ok_or_else(|| gone(&resource))?;
    Ok(as_json(&json!({ "resource": resource.as_str(), "ttl_seconds": ttl.as_secs_f64() })))
}

pub(super) async fn resign(admin: &Admin, body: &[u8]) -> Result<Answer, Problem> {
    let held: Held = parse(body)?;
    let (resource, lease) = held.parse()?;
    if !admin.store.resign(resource.clone(), lease).await.map_err(stopped)? {
        return Err(gone(&resource));
    }
    Ok(answer(StatusCode::NO_CONTENT, "application/json", ""))
}

pub(super) async fn show(admin: &Admin, query: Option<&str>) -> Result<Answer, Problem> {
    let resource = named(query)?;
    let election = admin.store.election(resource.clone()).await.map_err(stopped)?;
    Ok(as_json(&json!({
        "resource": resource.as_str(),
        "leader": election.leader.as_ref().map(leader),
        "waiting": election.waiting,
    })))
}

/// Who leads now, and then every change.
pub(super) async fn watch(server: &Server, query: Option<&str>) -> Result<Answer, Problem> {
    let resource = named(query)?;
    // Listen first, look second: a change in between is heard, and what is older than the look is passed over.
    let notices = server.admin.bus.subscribe();
    let election = server.admin.store.election(resource.clone()).await.map_err(stopped)?;
    let leads = election.leader.as_ref().map(|leader| (leader.holder.as_str(), leader.token.get()));
    let first = stream::leader(&resource, leads);
    let shown = leads.map_or((0, false), |(_, token)| (token, true));
    stream::listen(server, notices, Feed::Leader { resource, shown }, Some(first))
}

fn leader(leader: &Leader) -> serde_json::Value {
    let (token, ttl) = (leader.token.get(), leader.ttl.map(|ttl| ttl.as_secs_f64()));
    json!({ "holder": leader.holder, "token": token, "ttl_seconds": ttl })
}

/// The wait is over, and somebody else leads.
async fn taken(admin: &Admin, resource: Resource) -> Problem {
    match admin.store.election(resource.clone()).await {
        Ok(election) => {
            let leads = election.leader.as_ref().map(|leader| (leader.holder.as_str(), leader.token.get()));
            let detail = match leads {
                Some((holder, token)) => format!("{resource} is led by {holder} with token {token}"),
                None => format!("{resource} has no leader yet; an election is under way"),
            };
            Problem::new(StatusCode::CONFLICT, detail).about(&resource).led_by(leads)
        }
        Err(error) => stopped(error),
    }
}

fn lost(resource: &Resource, error: CampaignError) -> Problem {
    match error {
        CampaignError::Exhausted => Problem::new(StatusCode::CONFLICT, error.to_string()).about(resource),
        CampaignError::Failed(_) => {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()).about(resource)
        }
        CampaignError::Stopped(error) => stopped(error),
    }
}

pub(super) fn gone(resource: &Resource) -> Problem {
    let detail = format!("this lease does not lead {resource} (any more); stop, and campaign again");
    Problem::new(StatusCode::GONE, detail).about(resource)
}

fn named(query: Option<&str>) -> Result<Resource, Problem> {
    let missing = || query::bad_request("the parameter resource says which election".to_owned());
    query::resource(query, "resource")?.ok_or_else(missing)
}

fn seconds(name: &str, value: f64, range: std::ops::RangeInclusive<f64>) -> Result<Duration, Problem> {
    if !range.contains(&value) {
        let (least, most) = range.into_inner();
        return Err(query::bad_request(format!("{name} is a number from {least} to {most}, not {value}")));
    }
    Ok(Duration::from_secs_f64(value))
}

pub(super) fn text(name: &str, value: String, most: usize) -> Result<String, Problem> {
    if value.is_empty() || value.len() > most || value.chars().any(char::is_control) {
        return Err(query::bad_request(format!(
            "{name} is 1 to {most} bytes of text without control characters"
        )));
    }
    Ok(value)
}

impl Held {
    pub(super) fn parse(&self) -> Result<(Resource, Lease), Problem> {
        let lease = Lease::from_str_radix(&self.lease, 16)
            .map_err(|_| query::bad_request("lease is what campaign answered".to_owned()))?;
        Ok((query::parse_resource(&self.resource)?, lease))
    }
}
