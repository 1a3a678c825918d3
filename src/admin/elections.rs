//! Elections for jobs in any language: campaign by long poll, renew, resign and watch.

use std::time::{Duration, SystemTime};

use highgate_elector::Resource;
use http::StatusCode;
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use super::answer::{Answer, Problem, answer, as_json};
use super::caller::Caller;
use super::operator::{parse, stopped};
use super::stream::{self, Feed};
use super::{Admin, Server, query};
use crate::elections::{Candidate, Lease, NotHeld};
use crate::signing::{Holder, Issue};
use crate::store::elections::{CampaignError, Leader};
use crate::tls::Identity;

const TTL: std::ops::RangeInclusive<f64> = 1.0..=86_400.0;
const WAIT: std::ops::RangeInclusive<f64> = 0.0..=3600.0;
const DEFAULT_TTL: f64 = 15.0;
const DEFAULT_WAIT: f64 = 60.0;
const MAX_HOLDER: usize = 256;
/// What etcd can have, without the small numbers that are nobody's secret.
const NAMED_LEASES: std::ops::RangeInclusive<Lease> = 1 << 32..=i64::MAX as Lease;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Campaign {
    resource: String,
    holder: String,
    #[serde(default = "default_ttl")]
    ttl_seconds: f64,
    #[serde(default = "default_wait")]
    wait_seconds: f64,
    /// The candidate's own name for its lease: whoever campaigns with it again, at any gateway of the same etcd, goes
    /// on where it was.
    lease: Option<String>,
}

/// The lease that a candidate names, or a fresh one. What a candidate with an identity names is its own: another's name for
/// a lease, though it be the same, is another lease.
fn lease(admin: &Admin, caller: &Caller, named: Option<&str>) -> Result<Lease, Problem> {
    let Some(named) = named else { return Ok(admin.store.fresh_lease()) };
    if !admin.store.proves() {
        // To its client, other gateways would stand for this one and could not.
        let detail = "the elections of this gateway are its own, because its store is embedded: name this gateway alone \
                      in highgate://, and no lease; several gateways hold the same elections only over one etcd";
        return Err(query::bad_request(detail.to_owned()));
    }
    let lease = Lease::from_str_radix(named, 16).ok().filter(|lease| NAMED_LEASES.contains(lease));
    let bad = || "lease is a random number in hex, from 100000000 to 7fffffffffffffff".to_owned();
    let lease = lease.ok_or_else(|| query::bad_request(bad()))?;
    Ok(caller.identity.as_ref().map_or(lease, |owner| lease_of(owner, lease)))
}

/// A lease that only this owner comes to by this name.
fn lease_of(owner: &Identity, named: Lease) -> Lease {
    let digest = digest(&SHA256, format!("{owner}\n{named:x}").as_bytes());
    let number = digest.as_ref().iter().take(8).fold(0, |number, byte| number << 8 | Lease::from(*byte));
    (number & NAMED_LEASES.end()).max(*NAMED_LEASES.start())
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
pub(super) async fn campaign(server: &Server, caller: &Caller, body: &[u8]) -> Result<Answer, Problem> {
    let admin = &server.admin;
    let wish: Campaign = parse(body)?;
    let resource = query::parse_resource(&wish.resource)?;
    caller.check(&resource)?;
    let ttl = seconds("ttl_seconds", wish.ttl_seconds, TTL)?;
    let wait = seconds("wait_seconds", wish.wait_seconds, WAIT)?;
    let holder = text("holder", wish.holder, MAX_HOLDER)?;
    let lease = lease(admin, caller, wish.lease.as_deref())?;
    let owner = caller.identity.as_ref().map(Identity::to_string);
    let _place = stream::place(server)?;
    let signed_holder = signed_holder(&holder, owner.as_deref());
    let mut campaign = admin.store.campaign(resource.clone(), Candidate { lease, holder, ttl, owner });
    // The wait is for the time in line; who has won by then is told, however long the old leader drains.
    let decided = match timeout(wait, &mut campaign).await {
        Ok(decided) => decided,
        Err(_) if campaign.leave().await => return Err(taken(admin, resource).await),
        Err(_) => match campaign.await {
            Err(CampaignError::TooLate) => return Err(taken(admin, resource).await),
            decided => decided,
        },
    };
    let token = decided.map_err(|error| lost(&resource, error))?;
    if let Err(forbidden) = caller.check(&resource) {
        // The grant was taken away while it stood in line: what it has won it gives up before anybody hears of it.
        let _ = admin.store.resign(resource, lease, caller.actor()).await;
        return Err(forbidden);
    }
    let mut won = json!({
        "resource": resource.as_str(),
        "token": token.get(),
        "lease": format!("{lease:x}"),
        "ttl_seconds": ttl.as_secs_f64(),
    });
    sign(admin, Issue { resource: &resource, token, holder: &signed_holder, ttl }, &mut won);
    Ok(as_json(&won))
}

/// Adds the token with its signature, good for as long as the lease, where the gateway has a key to sign with.
fn sign(admin: &Admin, issue: Issue<'_>, answer: &mut serde_json::Value) {
    if let Some(signed) = admin.signing.keys().sign(issue, SystemTime::now()) {
        answer["signed_token"] = signed.into();
    }
}

/// Whom a token is issued to: an identity is worth more than what the candidate calls itself.
fn signed_holder(holder: &str, owner: Option<&str>) -> Holder {
    owner.map_or_else(|| Holder::Named(holder.into()), |owner| Holder::Identity(owner.into()))
}

pub(super) async fn renew(admin: &Admin, caller: &Caller, body: &[u8]) -> Result<Answer, Problem> {
    let held: Held = parse(body)?;
    let (resource, lease) = held.parse(caller)?;
    let renewed = admin.store.renew(resource.clone(), lease, caller.actor()).await.map_err(stopped)?;
    let leader = renewed.map_err(|why| not_held(&resource, why))?;
    let ttl = leader.ttl.unwrap_or_default();
    let mut answer = json!({ "resource": resource.as_str(), "ttl_seconds": ttl.as_secs_f64() });
    let holder = signed_holder(&leader.holder, leader.owner.as_deref());
    sign(admin, Issue { resource: &resource, token: leader.token, holder: &holder, ttl }, &mut answer);
    Ok(as_json(&answer))
}

pub(super) async fn resign(admin: &Admin, caller: &Caller, body: &[u8]) -> Result<Answer, Problem> {
    let held: Held = parse(body)?;
    let (resource, lease) = held.parse(caller)?;
    let resigned = admin.store.resign(resource.clone(), lease, caller.actor()).await.map_err(stopped)?;
    resigned.map_err(|why| not_held(&resource, why))?;
    Ok(answer(StatusCode::NO_CONTENT, "application/json", ""))
}

pub(super) async fn show(admin: &Admin, caller: &Caller, query: Option<&str>) -> Result<Answer, Problem> {
    let resource = named(query)?;
    caller.check(&resource)?;
    let election = admin.store.election(resource.clone()).await.map_err(stopped)?;
    Ok(as_json(&json!({
        "resource": resource.as_str(),
        "leader": election.leader.as_ref().map(leader),
        "waiting": election.waiting,
    })))
}

/// Who leads now, and then every change.
pub(super) async fn watch(server: &Server, caller: Caller, query: Option<&str>) -> Result<Answer, Problem> {
    let resource = named(query)?;
    caller.check(&resource)?;
    // Listen first, look second: a change in between is heard, and what is older than the look is passed over.
    let notices = server.admin.bus.subscribe();
    let election = server.admin.store.election(resource.clone()).await.map_err(stopped)?;
    let leads = election.leader.as_ref().map(|leader| (leader.holder.as_str(), leader.token.get()));
    let first = stream::leader(&resource, leads);
    let shown = leads.map_or((0, false), |(_, token)| (token, true));
    stream::listen(server, caller, notices, Feed::Leader { resource, shown }, Some(first))
}

fn leader(leader: &Leader) -> serde_json::Value {
    let (token, ttl) = (leader.token.get(), leader.ttl.map(|ttl| ttl.as_secs_f64()));
    let mut shown = json!({ "holder": leader.holder, "token": token, "ttl_seconds": ttl });
    if let Some(owner) = &leader.owner {
        shown["identity"] = owner.as_str().into();
    }
    shown
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
        CampaignError::Exhausted | CampaignError::TooLate => {
            Problem::new(StatusCode::CONFLICT, error.to_string()).about(resource)
        }
        CampaignError::Failed(_) => {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()).about(resource)
        }
        CampaignError::Stopped(error) => stopped(error),
    }
}

pub(super) fn not_held(resource: &Resource, why: NotHeld) -> Problem {
    let (status, detail) = match why {
        NotHeld::Gone => (
            StatusCode::GONE,
            format!("this lease does not lead {resource} (any more); stop, and campaign again"),
        ),
        NotHeld::Anothers => (
            StatusCode::FORBIDDEN,
            format!(
                "this lease of {resource} was won by another identity, and is of no use to you; campaign yourself"
            ),
        ),
    };
    Problem::new(status, detail).about(resource)
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
    /// What is named, if the caller may campaign for it.
    pub(super) fn parse(&self, caller: &Caller) -> Result<(Resource, Lease), Problem> {
        let lease = Lease::from_str_radix(&self.lease, 16)
            .map_err(|_| query::bad_request("lease is what campaign answered".to_owned()))?;
        let resource = query::parse_resource(&self.resource)?;
        caller.check(&resource)?;
        Ok((resource, lease))
    }
}
