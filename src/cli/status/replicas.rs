//! The replicas as `highgate status` prints them: who serves, who may still believe that it does, and what the
//! raises that are under way wait for.

use serde_json::Value;

use crate::cli::table::Side::{Left, Right};
use crate::cli::table::table;

/// Enough to tell replicas apart, and to name one to `highgate retire`.
pub(crate) const SHORT_ID: usize = 8;
/// More raises than these that a replica drains are only counted.
const MAX_DRAINING: usize = 3;

/// What `/v1/replicas` said that is worth telling.
pub(super) fn text(overview: &Value) -> String {
    listeners(&overview["listeners"]) + &change_of_names(&overview["change_of_names"]) + &cluster(overview)
}

/// What is wrong with the ports of the gateway that was asked.
fn listeners(listeners: &Value) -> String {
    let wrong = items(listeners).filter_map(|listener| {
        let (name, address) = (word(&listener["name"]), word(&listener["address"]));
        if listener["insecure"] == true {
            return Some(format!(
                "the {name} port {address} has no TLS: everything on it goes over the network in the clear"
            ));
        }
        let trouble = listener["certificate_trouble"].as_str()?;
        Some(format!("the {name} port {address} serves with its old certificate, since {trouble}"))
    });
    let lines: String = wrong.map(|warning| format!("warning: {warning}\n")).collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

/// A change of the config that renames resources and is not finished; it waits for requests under way, and for
/// gateways that have the old config.
fn change_of_names(change: &Value) -> String {
    let names = |naming: &Value| {
        let entry = |entry: &Value| {
            let name = entry["resource"].as_str().unwrap_or("named by the client");
            format!("{} ({name})", word(&entry["path"]))
        };
        items(naming).map(entry).collect::<Vec<_>>().join(", ")
    };
    if change.is_null() {
        return String::new();
    }
    let (from, to) = (names(&change["from"]), names(&change["to"]));
    format!("\na change of names is under way, and requests are fenced under both: {from} becomes {to}\n")
}

fn cluster(overview: &Value) -> String {
    if overview["store"] != "etcd" {
        return String::new();
    }
    let (location, era) = (word(&overview["location"]), &overview["era"]);
    let mut text = format!("\n{location}, era {era}\n");
    if overview["valid"] == false {
        let why = overview["fenced_because"].as_str().unwrap_or("it does not take part now");
        text.push_str(&format!("this replica is fenced, and passes nothing: {why}\n"));
    }
    for warning in items(&overview["warnings"]) {
        text.push_str(&format!("warning: {}\n", word(warning)));
    }
    text.push_str(&replicas(overview));
    text.push_str(&tombstones(overview));
    text.push_str(&raises(overview));
    text
}

fn replicas(overview: &Value) -> String {
    let columns = [
        ("REPLICA", Left),
        ("NAME", Left),
        ("WATERMARK", Right),
        ("LAG", Right),
        ("DRAINING", Left),
        ("RENEWED", Right),
        ("", Left),
    ];
    let row = |replica: &Value| {
        [
            short(&replica["id"]),
            word(&replica["name"]),
            word(&replica["watermark"]),
            word(&replica["lag"]),
            draining(&replica["draining"]),
            format!("{} ago", seconds(&replica["renewed_seconds_ago"])),
            if replica["me"] == true { "this".to_owned() } else { String::new() },
        ]
    };
    table(columns, items(&overview["replicas"]).map(row).collect())
}

fn tombstones(overview: &Value) -> String {
    let row = |tombstone: &Value| [short(&tombstone["id"]), seconds(&tombstone["seconds_left"])];
    section(table([("TOMBSTONE", Left), ("LEFT", Right)], items(&overview["tombstones"]).map(row).collect()))
}

fn raises(overview: &Value) -> String {
    let columns =
        [("RAISE", Left), ("MARK", Right), ("REVISION", Right), ("SEALER", Left), ("WAITS FOR", Left)];
    let row = |raise: &Value| {
        let waits_for: Vec<_> = items(&raise["waits_for"]).map(short).collect();
        [
            word(&raise["resource"]),
            word(&raise["mark"]),
            word(&raise["revision"]),
            word(&raise["sealer"]),
            if waits_for.is_empty() { "-".to_owned() } else { waits_for.join(", ") },
        ]
    };
    let shown: Vec<_> = items(&overview["raises"]).map(row).collect();
    let all = overview["raising"].as_u64().unwrap_or_default();
    let more = all.saturating_sub(shown.len() as u64);
    let mut text = section(table(columns, shown));
    if more > 0 {
        text.push_str(&format!("and {more} more\n"));
    }
    text
}

/// A table after a blank line; nothing if it has no rows.
fn section(table: String) -> String {
    if table.lines().nth(1).is_none() { String::new() } else { format!("\n{table}") }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// An id is cut; a name is not.
fn short(id: &Value) -> String {
    let text = word(id);
    let is_id = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    if is_id { text[..SHORT_ID].to_owned() } else { text }
}

fn draining(revisions: &Value) -> String {
    let all: Vec<_> = items(revisions).map(word).collect();
    let shown = all.iter().take(MAX_DRAINING).cloned().collect::<Vec<_>>().join(",");
    match all.len() {
        0 => "-".to_owned(),
        count if count <= MAX_DRAINING => shown,
        count => format!("{shown} and {} more", count - MAX_DRAINING),
    }
}

fn seconds(value: &Value) -> String {
    format!("{:.1} s", value.as_f64().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn overview() -> Value {
        let id = |digit: &str| digit.repeat(32);
        json!({
            "store": "etcd", "location": "etcd://h1:2379/highgate/default", "era": 1, "valid": true,
            "me": id("a"), "watermark": 812,
            "replicas": [
                {"id": id("a"), "name": "10.0.0.1:8080", "me": true, "created": 3, "watermark": 812, "lag": 0,
                 "draining": [], "renewed_seconds_ago": 0.31},
                {"id": id("b"), "name": "gate-2:8080", "me": false, "created": 9, "watermark": 90, "lag": 12,
                 "draining": [70, 71, 80, 90, 91], "renewed_seconds_ago": 10.0},
            ],
            "tombstones": [], "raises": [], "raising": 0,
        })
    }

    #[test]
    fn replicas_are_shown_one_a_line_with_a_mark_at_the_one_that_was_asked() {
        let lines = [
            "",
            "etcd://h1:2379/highgate/default, era 1",
            "REPLICA   NAME           WATERMARK  LAG  DRAINING                RENEWED",
            "aaaaaaaa  10.0.0.1:8080        812    0  -                     0.3 s ago  this",
            "bbbbbbbb  gate-2:8080           90   12  70,71,80 and 2 more  10.0 s ago",
        ];
        assert_eq!(text(&overview()).lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn a_port_in_the_clear_and_a_certificate_that_was_not_taken_are_named() {
        let mut overview = json!({"store": "embedded", "listeners": [
            {"name": "data", "address": "0.0.0.0:8080", "tls": false, "insecure": true, "certificate_trouble": null},
            {"name": "admin", "address": "10.0.0.5:9901", "tls": true, "insecure": false,
             "certificate_trouble": "/etc/a.pem holds no certificate in PEM"},
        ]});
        let lines = [
            "",
            "warning: the data port 0.0.0.0:8080 has no TLS: everything on it goes over the network in the clear",
            "warning: the admin port 10.0.0.5:9901 serves with its old certificate, since /etc/a.pem holds no certificate in PEM",
        ];
        assert_eq!(text(&overview).lines().collect::<Vec<_>>(), lines);
        overview["listeners"] = json!([{"name": "data", "address": "127.0.0.1:8080", "insecure": false}]);
        assert_eq!(text(&overview), "");
    }

    #[test]
    fn what_is_wrong_with_the_store_comes_first() {
        let mut overview = overview();
        overview["warnings"] = json!(["etcd has raised the alarm NOSPACE"]);
        assert_eq!(text(&overview).lines().nth(2), Some("warning: etcd has raised the alarm NOSPACE"));
    }

    #[test]
    fn tombstones_and_raises_are_shown_when_there_are_some() {
        let mut overview = overview();
        let gone = "c".repeat(32);
        overview["tombstones"] = json!([
            {"id": gone, "seconds_left": 6.24}, {"id": "era-1", "seconds_left": 12.0}
        ]);
        overview["raises"] = json!([
            {"resource": "ledger/7", "mark": 281_474_976_711_466u64, "revision": 810, "sealer": "gate-2:8080",
             "waits_for": ["10.0.0.1:8080", gone]},
            {"resource": "a", "mark": 9, "revision": 811, "sealer": "10.0.0.1:8080", "waits_for": []},
        ]);
        overview["raising"] = json!(7);
        let lines = [
            "",
            "TOMBSTONE    LEFT",
            "cccccccc    6.2 s",
            "era-1      12.0 s",
            "",
            "RAISE                MARK  REVISION  SEALER         WAITS FOR",
            "ledger/7  281474976711466       810  gate-2:8080    10.0.0.1:8080, cccccccc",
            "a                       9       811  10.0.0.1:8080  -",
            "and 5 more",
        ];
        assert_eq!(text(&overview).lines().skip(5).collect::<Vec<_>>(), lines);
    }

    #[test]
    fn a_fenced_replica_says_so_and_an_embedded_store_says_nothing() {
        let mut overview = overview();
        overview["valid"] = json!(false);
        overview["fenced_because"] = json!("etcd is away");
        let shown = text(&overview);
        assert_eq!(shown.lines().nth(2), Some("this replica is fenced, and passes nothing: etcd is away"));
        overview["store"] = json!("embedded");
        assert_eq!(text(&overview), "");
    }
}
