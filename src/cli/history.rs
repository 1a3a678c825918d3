//! `highgate history RESOURCE`: who led when, by which token, and what ended it. All that there is, in as many parts as the
//! gateway gives it in.

use std::process::ExitCode;
use std::time::SystemTime;

use highgate::journal::{SinceError, parse_since};
use highgate_elector::Resource;
use serde_json::Value;

use super::client::{Failed, Target, encoded, percent_encoded, print};
use super::table::Side::{Left, Right};
use super::table::table;

/// How much is asked for at once.
const LIMIT: usize = 10_000;

/// Shows who led a resource when
#[derive(Clone, Debug, clap::Args)]
pub(super) struct HistoryArgs {
    /// The resource
    resource: Resource,
    /// Only what reaches into the time from then on: how long ago (30m, 2h, 7d) or a time (2026-02-28T03:00:00Z)
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

/// The text is the gateway's to read, by its own clock; here it is only looked at.
fn since(text: &str) -> Result<String, SinceError> {
    parse_since(text, SystemTime::now()).map(|_| text.to_owned())
}

/// Prints the history, or why there is none.
pub(super) async fn run(args: HistoryArgs) -> anyhow::Result<ExitCode> {
    Ok(match show(&args).await {
        Ok(text) => print(&text)?,
        Err(failed) => failed.report(),
    })
}

async fn show(args: &HistoryArgs) -> Result<String, Failed> {
    let history = whole(args).await?;
    if args.json {
        return Ok(format!("{history:#}\n"));
    }
    Ok(in_words(&history))
}

/// All parts in one, the oldest row first.
async fn whole(args: &HistoryArgs) -> Result<Value, Failed> {
    let client = args.target.client()?;
    let since = args.since.as_deref().map(|since| format!("&since={}", percent_encoded(since)));
    let name = encoded(&args.resource);
    let path = format!("/v1/history?resource={name}&limit={LIMIT}{}", since.unwrap_or_default());
    let mut parts = vec![client.get(&path).await?.json()?];
    let mut lowest = u64::MAX;
    while let Some(next) = parts.last().and_then(|part| part["next"].as_u64()) {
        // Each part is older than the one before it, or this would never end.
        if next >= lowest {
            let detail = format!("the gateway gives the history of {} in no order", args.resource);
            return Err(Failed::Refused(detail));
        }
        lowest = next;
        parts.push(client.get(&format!("{path}&before={next}")).await?.json()?);
    }
    Ok(joined(&parts))
}

/// Of parts that came the newest first.
fn joined(parts: &[Value]) -> Value {
    let mut whole = parts.last().cloned().unwrap_or_default();
    for key in ["terms", "raises"] {
        whole[key] = parts.iter().rev().flat_map(|part| of(part, key)).cloned().collect();
    }
    whole
}

fn in_words(history: &Value) -> String {
    let mut rows: Vec<&Value> = of(history, "terms").iter().chain(of(history, "raises")).collect();
    if rows.is_empty() {
        return "nobody was elected and no mark was raised in that time\n".to_owned();
    }
    // By token: that is the order in which things happened, also when a clock was set.
    rows.sort_by_key(|row| row["token"].as_u64());
    let columns = [("TOKEN", Right), ("HOLDER", Left), ("FROM", Left), ("UNTIL", Left), ("ENDED BY", Left)];
    table(
        columns,
        rows.into_iter().map(|row| if row["at"].is_string() { raise(row) } else { term(row) }).collect(),
    )
}

fn of<'a>(history: &'a Value, key: &str) -> &'a [Value] {
    history[key].as_array().map_or(&[], Vec::as_slice)
}

fn term(term: &Value) -> [String; 5] {
    let earlier = if term["found"] == true { "<= " } else { "" };
    let (until, ended_by) = match (term["until"].as_str(), term["ended_by"].as_str()) {
        (_, None) => ("leads", ""),
        (until, Some(why)) => (until.unwrap_or("?"), why),
    };
    [
        term["token"].to_string(),
        term["holder"].as_str().unwrap_or_default().to_owned(),
        format!("{earlier}{}", term["from"].as_str().unwrap_or_default()),
        until.to_owned(),
        ended_by.to_owned(),
    ]
}

fn raise(raise: &Value) -> [String; 5] {
    let at = raise["at"].as_str().unwrap_or_default().to_owned();
    [raise["token"].to_string(), "-".to_owned(), at, "-".to_owned(), "raised, no election".to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn terms_and_raises_are_one_table_by_token() {
        let term = |token: u64, holder: &str, from: &str, until: Value, why: Value, found: bool| json!({ "token": token, "holder": holder, "from": from, "until": until, "ended_by": why, "found": found });
        let history = json!({
            "terms": [
                term(7, "job-1", "2026-02-28T02:00:00.000Z", json!("2026-02-28T03:00:00.000Z"), json!("expired"), true),
                term(9, "job-2", "2026-02-28T03:00:05.000Z", Value::Null, Value::Null, false),
            ],
            "raises": [{ "at": "2026-02-28T03:00:02.000Z", "token": 8, "from": 7 }],
            "more": false,
        });
        let lines = [
            "TOKEN  HOLDER  FROM                         UNTIL                     ENDED BY",
            "    7  job-1   <= 2026-02-28T02:00:00.000Z  2026-02-28T03:00:00.000Z  expired",
            "    8  -       2026-02-28T03:00:02.000Z     -                         raised, no election",
            "    9  job-2   2026-02-28T03:00:05.000Z     leads",
        ];
        assert_eq!(in_words(&history), lines.map(|line| format!("{line}\n")).concat());
        let nothing = json!({ "terms": [], "raises": [], "more": false });
        assert_eq!(in_words(&nothing), "nobody was elected and no mark was raised in that time\n");
    }

    #[test]
    fn the_parts_of_a_history_are_put_together_in_order() {
        let part = |tokens: &[u64], raises: &[u64], next: Value| {
            let rows =
                |tokens: &[u64]| tokens.iter().map(|token| json!({ "token": token })).collect::<Vec<_>>();
            json!({ "resource": "a", "terms": rows(tokens), "raises": rows(raises), "more": !next.is_null(), "next": next })
        };
        let parts =
            [part(&[7, 9], &[8], json!(7)), part(&[5], &[], json!(5)), part(&[1, 4], &[3], Value::Null)];
        assert_eq!(joined(&parts), part(&[1, 4, 5, 7, 9], &[3, 8], Value::Null));
        assert_eq!(joined(&parts[2..]), parts[2]);
    }

    #[test]
    fn a_time_that_is_none_is_bad_usage() {
        assert!(since("2h").is_ok() && since("2026-02-28T03:00:00Z").is_ok());
        assert!(since("yesterday").is_err());
    }
}
