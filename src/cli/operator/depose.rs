//! Orders that depose a leader: `evict`, and `raise` above the token of somebody who leads.
//!
//! Both look first who leads. What is ordered then is about that leader, by its token or its mark: whoever is elected
//! between the look and the order is not deposed. What must stay true: the same command given twice deposes one leader.

use highgate_elector::Resource;
use serde_json::{Value, json};

use super::super::client::{Client, Failed, encoded};
use super::super::confirm::{Consent, confirm};
use super::{EvictArgs, RaiseArgs, give};

/// An eviction without a token so soon after another is taken for the same one, said again: its answer was lost, or somebody
/// looked for the last command and pressed return. Counted by the gateway's clock.
const SAID_AGAIN: &str = "60s";

/// Asks before somebody is deposed who leads.
pub(super) async fn raise(args: &RaiseArgs) -> Result<String, Failed> {
    let RaiseArgs { resource, to, force, new, yes, how } = args;
    let client = how.target.client()?;
    let mut order = json!({"resource": resource.as_str(), "to": to.get(), "force": force, "new": new});
    if !yes && !how.dry_run {
        let tried = give(&client, "raise", &order, true).await?;
        if let Some((holder, token)) = leader(&tried["deposed"]) {
            let what = format!(
                "{holder} leads {resource} with token {token}: it is deposed, and every token below {to} is refused for good\n"
            );
            confirm(&what, Consent { yes: false, dry_run: false })?;
            order["from"] = tried["mark"].clone();
        }
    }
    let told = give(&client, "raise", &order, how.dry_run).await?;
    Ok(how.words("raise", &order, &told))
}

/// Deposes the leader that is shown, and nobody after it.
pub(super) async fn evict(args: &EvictArgs) -> Result<String, Failed> {
    let EvictArgs { resource, token, how } = args;
    let client = how.target.client()?;
    let mut order = json!({"resource": resource.as_str()});
    order["token"] = match token {
        Some(token) => token.get().into(),
        None => {
            let mut tried = give(&client, "evict", &order, true).await?;
            let Some((_, token)) = leader(&tried["evicted"]) else {
                return Ok(how.words("evict", &order, &undone(tried, how.dry_run)));
            };
            if let Some(before) = evicted_before(&client, resource, token).await? {
                tried["evicted_before"] = before;
                tried["would_change"] = false.into();
                return Ok(how.words("evict", &order, &undone(tried, how.dry_run)));
            }
            token.into()
        }
    };
    let told = give(&client, "evict", &order, how.dry_run).await?;
    Ok(how.words("evict", &order, &told))
}

/// Who was evicted a moment ago, before the leader with this token. A gateway whose history cannot be read knows of nobody:
/// the order still names the leader that was shown.
async fn evicted_before(client: &Client, resource: &Resource, token: u64) -> Result<Option<Value>, Failed> {
    let path = format!("/v1/history?resource={}&since={SAID_AGAIN}", encoded(resource));
    let Ok(history) = client.get(&path).await?.json() else { return Ok(None) };
    let terms = history["terms"].as_array().map_or(&[][..], Vec::as_slice);
    let is_evicted = |term: &&Value| term["ended_by"] == "evicted" && term["token"].as_u64() < Some(token);
    Ok(terms.iter().rev().find(is_evicted).cloned())
}

/// The answer to an order that was not given, because there is nothing to do.
fn undone(mut tried: Value, dry_run: bool) -> Value {
    if !dry_run && let Some(told) = tried.as_object_mut() {
        told.remove("dry_run");
        told.remove("would_change");
    }
    tried
}

/// Holder and token.
fn leader(told: &Value) -> Option<(&str, u64)> {
    Some((told["holder"].as_str()?, told["token"].as_u64()?))
}
