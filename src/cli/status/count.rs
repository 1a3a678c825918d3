//! What each replica has counted: requests in flight and requests refused are its own, everything else is shared.

use highgate_elector::Resource;
use http::StatusCode;
use serde_json::{Value, json};

use super::fetch;
use crate::cli::client::{Client, Failed};

/// The state of all gateways that were named.
pub(super) struct Count {
    /// As one of them shows it, with the numbers of all.
    pub(super) state: Value,
    /// What the same one says of all replicas.
    pub(super) overview: Value,
    /// Who has counted.
    pub(super) replicas: Vec<String>,
    /// Why others have not.
    pub(super) missing: Vec<String>,
}

/// What one gateway has said.
struct Said {
    name: String,
    state: Value,
    overview: Value,
}

/// Asks every gateway that was named. Fails only if none can say.
pub(super) async fn count(client: &Client, resource: Option<&Resource>) -> Result<Count, Failed> {
    let (mut said, mut failed) = (Vec::new(), Vec::new());
    for gateway in client.each() {
        match ask(&gateway, resource).await {
            Ok(one) => said.push(one),
            Err(error) => failed.push(error),
        }
    }
    // One that takes part knows more than one that is fenced.
    said.sort_by_key(|one| one.overview["valid"] == false);
    let Some(first) = said.first() else { return Err(failed.swap_remove(0)) };
    let mut state = first.state.clone();
    for view in views(&mut state) {
        add_up(view, &said);
    }
    if resource.is_none() {
        state["refused"] = said.iter().filter_map(|one| one.state["refused"].as_u64()).sum::<u64>().into();
        state["replicas"] = first.overview.clone();
    }
    let overview = first.overview.clone();
    let missing = failed.iter().map(ToString::to_string).collect();
    Ok(Count { state, overview, replicas: said.into_iter().map(|one| one.name).collect(), missing })
}

async fn ask(gateway: &Client, resource: Option<&Resource>) -> Result<Said, Failed> {
    let state = fetch(gateway, resource).await?;
    let overview = gateway.get("/v1/replicas").await?;
    // Who was granted to observe some resources is not told of the replicas.
    let overview = if overview.status == StatusCode::FORBIDDEN { Value::Null } else { overview.json()? };
    let all = overview["replicas"].as_array().into_iter().flatten();
    let me = all.filter(|replica| replica["me"] == true).find_map(|replica| replica["name"].as_str());
    // A replica that is fenced is none of them, and has no name.
    let name = me.map_or_else(|| gateway.names(), str::to_owned);
    Ok(Said { name, state, overview })
}

/// The resources that an answer shows.
fn views(state: &mut Value) -> &mut [Value] {
    if state.get("resources").is_some() {
        return state["resources"].as_array_mut().map(Vec::as_mut_slice).unwrap_or_default();
    }
    std::slice::from_mut(state)
}

fn add_up(view: &mut Value, said: &[Said]) {
    let name = view["resource"].as_str().unwrap_or_default().to_owned();
    let mut counted = Vec::new();
    for one in said {
        let Some(its) = find(&one.state, &name) else { continue };
        counted
            .push(json!({ "replica": one.name, "in_flight": its["in_flight"], "refused": its["refused"] }));
    }
    for number in ["in_flight", "refused"] {
        view[number] = counted.iter().filter_map(|its| its[number].as_u64()).sum::<u64>().into();
    }
    view["counted"] = counted.into();
}

fn find<'a>(state: &'a Value, name: &str) -> Option<&'a Value> {
    match state.get("resources").and_then(Value::as_array) {
        // In the order of their names, as the gateway lists them.
        Some(all) => {
            let at = all.binary_search_by_key(&name, |view| view["resource"].as_str().unwrap_or_default());
            at.ok().map(|at| &all[at])
        }
        None => (state["resource"] == name).then_some(state),
    }
}

/// How many were refused, and where, if several replicas have counted.
pub(super) fn refused(view: &Value) -> String {
    let total = view["refused"].as_u64().unwrap_or_default();
    let counted = view["counted"].as_array().map(Vec::as_slice).unwrap_or_default();
    if counted.len() < 2 || total == 0 {
        return total.to_string();
    }
    let some = counted.iter().filter(|its| its["refused"] != 0);
    let list: Vec<_> = some
        .map(|its| format!("{} on {}", its["refused"], its["replica"].as_str().unwrap_or_default()))
        .collect();
    format!("{total} ({})", list.join(", "))
}

/// On whose word the numbers are, below the table. Nothing where there can be only one.
pub(super) fn footnote(count: &Count) -> String {
    let overview = &count.overview;
    let all = overview["replicas"].as_array().map_or(0, Vec::len);
    if overview["store"] != "etcd" && count.replicas.len() < 2 && count.missing.is_empty() {
        return String::new();
    }
    let mut text = format!("\nIN FLIGHT and REFUSED are counted on {}\n", count.replicas.join(", "));
    if all > count.replicas.len() {
        let others = all - count.replicas.len();
        let verb = if others == 1 { "counts its" } else { "count their" };
        text.push_str(&format!("{others} more {verb} own: name them all, --admin ADDRESS,ADDRESS\n"));
    }
    for why in &count.missing {
        text.push_str(&format!("not counted: {why}\n"));
    }
    text
}
