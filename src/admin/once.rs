//! The run-once ledger: leaders begin and complete, operators list, show and reset.

use highgate_elector::timestamp;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{Answer, Problem, as_json};
use super::caller::Caller;
use super::elections::{Held, not_held, text};
use super::operator::{Given, given, parse, stopped};
use super::{Admin, query};
use crate::metrics::Action;
use crate::store::once::{OnceEntry, OnceOrder, Place, Wanted};

const MAX_KEY: usize = 512;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    key: String,
    resource: String,
    lease: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reset {
    resource: String,
    key: String,
}

/// A leader is about to run something once, or has.
pub(super) async fn step(
    admin: &Admin,
    caller: &Caller,
    body: &[u8],
    complete: bool,
) -> Result<Answer, Problem> {
    let Step { key, resource, lease } = parse(body)?;
    let key = text("key", key, MAX_KEY)?;
    let (resource, lease) = Held { resource, lease }.parse(caller)?;
    let place = Place { resource: resource.clone(), key };
    let order = OnceOrder { place, lease, actor: caller.actor(), complete };
    let stepped = admin.store.once(order).await.map_err(stopped)?;
    let entry = stepped.map_err(|why| not_held(&resource, why))?;
    Ok(as_json(&view(&entry)))
}

/// The entries of one resource or of all, in parts; or one entry, if the parameter key names it.
pub(super) async fn list(admin: &Admin, caller: &Caller, query: Option<&str>) -> Result<Answer, Problem> {
    let resource = query::resource(query, "resource")?;
    match &resource {
        Some(resource) => caller.check(resource)?,
        None => caller.check_everything()?,
    }
    let key = query::parameter(query, "key")?;
    let after = query::resource(query, "after_resource")?.zip(query::parameter(query, "after_key")?);
    match (resource, key) {
        (Some(resource), Some(key)) => show(admin, Place { resource, key }).await,
        (None, Some(_)) => Err(query::bad_request("the parameter resource says whose key".to_owned())),
        (resource, None) => {
            let after = after.map(|(resource, key)| Place { resource, key });
            part(admin, Wanted { resource, after, limit: query::limit(query)? }).await
        }
    }
}

async fn show(admin: &Admin, place: Place) -> Result<Answer, Problem> {
    let entry = admin.store.show_once(place.clone()).await.map_err(stopped)?;
    let entry = entry.ok_or_else(|| unknown(&place))?;
    Ok(as_json(&placed(&place, &entry)))
}

async fn part(admin: &Admin, wanted: Wanted) -> Result<Answer, Problem> {
    let limit = wanted.limit;
    // One more than is shown tells whether there is a next part.
    let wanted = Wanted { limit: limit + 1, ..wanted };
    let entries = admin.store.list_once(wanted).await.map_err(stopped)?;
    let shown = &entries[..entries.len().min(limit)];
    let next = shown.last().filter(|_| shown.len() < entries.len());
    let next = next.map(|(place, _)| json!({ "resource": place.resource.as_str(), "key": place.key }));
    let entries: Vec<_> = shown.iter().map(|(place, entry)| placed(place, entry)).collect();
    Ok(as_json(&json!({ "entries": entries, "next": next })))
}

/// An operator has the next leader run something again.
pub(super) async fn reset(admin: &Admin, caller: &Caller, body: &[u8]) -> Result<Answer, Problem> {
    let Reset { resource, key } = parse(body)?;
    let place = Place { resource: query::parse_resource(&resource)?, key: text("key", key, MAX_KEY)? };
    caller.check(&place.resource)?;
    let was = admin.store.reset_once(place.clone()).await.map_err(stopped)?;
    if was.is_some() {
        let about = Given { resource: Some(&place.resource), key: Some(&place.key), ..Given::default() };
        given(&admin.metrics, caller, Action::ResetOnce, &about);
    }
    let (resource, changed) = (place.resource.as_str(), was.is_some());
    let was = was.as_ref().map(view);
    Ok(as_json(&json!({ "resource": resource, "key": place.key, "changed": changed, "was": was })))
}

fn view(entry: &OnceEntry) -> Value {
    let state = if entry.completed { "completed" } else { "running" };
    let (holder, token, at) = (&entry.holder, entry.token.get(), timestamp::format(entry.at));
    json!({ "state": state, "holder": holder, "token": token, "at": at })
}

fn placed(place: &Place, entry: &OnceEntry) -> Value {
    let mut view = view(entry);
    view["resource"] = place.resource.as_str().into();
    view["key"] = place.key.as_str().into();
    view
}

fn unknown(place: &Place) -> Problem {
    let Place { resource, key } = place;
    let detail = format!("nobody has begun {key} of {resource}, or it was reset or is older than once.keep");
    Problem::new(StatusCode::NOT_FOUND, detail).about(resource)
}
