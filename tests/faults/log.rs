//! The log of a run in one total order: a line of JSON for everything that the upstream saw, that a writer was told,
//! that a leader won or lost, and that the nemesis did.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::account::Account;
use crate::support::record::Entry;

pub(crate) fn write(account: &Account, folder: &Path) -> std::io::Result<()> {
    let mut events: Vec<(Duration, Value)> = Vec::new();
    account.entries.iter().for_each(|entry| events.extend(of_entry(account, entry)));
    events.extend(of_writers(account));
    events.extend(of_leaders(account));
    events.extend(of_faults(account));
    events.sort_by_key(|(at, _)| *at);
    let mut text = String::new();
    for (at, mut event) in events {
        event["at"] = json!(at.as_secs_f64());
        text.push_str(&format!("{event}\n"));
    }
    fs::write(folder.join("events.ndjson"), text)?;
    let violations: Vec<_> =
        account.violations.iter().map(|violation| account.tell(violation) + "\n").collect();
    fs::write(folder.join("violations.txt"), violations.concat())
}

fn of_entry(account: &Account, entry: &Entry) -> Vec<(Duration, Value)> {
    let Entry { id, resource, token, gateway, .. } = entry;
    let moments = [
        ("received", Some(entry.received)),
        ("effect", entry.effect),
        ("responded", entry.responded),
        ("cut", entry.cut.map(|(at, _)| at)),
    ];
    let event = |(what, at): (&str, Option<std::time::Instant>)| {
        let event = json!({
            "what": what, "write": id, "resource": resource, "token": token, "gateway": gateway
        });
        Some((account.clock.at(at?), event))
    };
    moments.into_iter().filter_map(event).collect()
}

fn of_writers(account: &Account) -> Vec<(Duration, Value)> {
    let mut events = Vec::new();
    for (resource, wrote) in &account.heard.wrote {
        let event = |what: &str| {
            json!({
                "what": what, "write": wrote.id, "resource": resource, "token": wrote.token,
                "gateway": format!("gateway-{}", wrote.gateway), "leads": wrote.led
            })
        };
        events.push((account.clock.of(wrote.sent), event("sent")));
        let mut answered = event("answered");
        answered["outcome"] = json!(wrote.outcome);
        events.push((account.clock.of(wrote.answered), answered));
    }
    events
}

fn of_leaders(account: &Account) -> Vec<(Duration, Value)> {
    let mut events = Vec::new();
    for term in &account.heard.terms {
        let event = |what: &str| json!({ "what": what, "resource": term.resource, "writer": term.writer, "token": term.token });
        events.push((account.clock.of(term.won), event("leads")));
        if let Some((at, how)) = &term.over {
            let mut over = event("leads no longer");
            over["how"] = json!(how);
            events.push((account.clock.of(*at), over));
        }
    }
    events
}

fn of_faults(account: &Account) -> Vec<(Duration, Value)> {
    let mut events = Vec::new();
    for fault in &account.faults {
        let event =
            |what: &str| json!({ "what": what, "kind": fault.kind.to_string(), "victim": fault.victim });
        events.push((fault.began, event("fault begins")));
        events.extend(fault.ended.map(|ended| (ended, event("fault ends"))));
    }
    events
}
