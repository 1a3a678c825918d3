//! `highgate once ls|show|reset`: the run-once ledger, and how an operator has something run again.

use std::process::ExitCode;

use highgate_elector::Resource;
use http::StatusCode;
use serde_json::{Value, json};

use super::client::{Client, Failed, Target, encoded, finish, percent_encoded};
use super::table::Side::{Left, Right};
use super::table::table;

/// The run-once ledger
#[derive(Clone, Debug, clap::Args)]
pub(super) struct OnceArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// List what leaders have begun and completed
    Ls {
        /// Only of this resource
        resource: Option<Resource>,
        /// As JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        target: Target,
    },
    /// Show one entry
    Show {
        #[command(flatten)]
        entry: EntryArgs,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Forget one entry, so that the next leader runs it again
    Reset {
        #[command(flatten)]
        entry: EntryArgs,
        /// Say what would happen, and change nothing
        #[arg(long)]
        dry_run: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

/// Which entry
#[derive(Clone, Debug, clap::Args)]
struct EntryArgs {
    /// The resource
    resource: Resource,
    /// The key that `run --once` was given
    key: String,
    #[command(flatten)]
    target: Target,
}

/// Prints what was asked for, or why there is nothing.
pub(super) async fn run(args: OnceArgs) -> anyhow::Result<ExitCode> {
    let outcome = match args.command {
        Command::Ls { resource, json, target } => list(&target, resource.as_ref(), json).await,
        Command::Show { entry, json } => show(&entry, json).await,
        Command::Reset { entry, dry_run: true, json } => try_reset(&entry, json).await,
        Command::Reset { entry, dry_run: false, json } => reset(&entry, json).await,
    };
    finish(outcome)
}

async fn list(target: &Target, resource: Option<&Resource>, json: bool) -> Result<String, Failed> {
    let entries = whole(&target.client()?, resource).await?;
    if json {
        return Ok(format!("{:#}\n", json!({ "entries": entries })));
    }
    if entries.is_empty() {
        return Ok("the run-once ledger has no entries here\n".to_owned());
    }
    Ok(in_columns(&entries))
}

/// All parts of the list.
async fn whole(client: &Client, resource: Option<&Resource>) -> Result<Vec<Value>, Failed> {
    let only = resource.map(|resource| format!("&resource={}", encoded(resource))).unwrap_or_default();
    let (mut entries, mut after) = (Vec::new(), String::new());
    loop {
        let mut part = client.get(&format!("/v1/once?limit=5000{only}{after}")).await?.json()?;
        entries.extend(part["entries"].as_array_mut().map(std::mem::take).unwrap_or_default());
        let (Some(resource), Some(key)) = (part["next"]["resource"].as_str(), part["next"]["key"].as_str())
        else {
            return Ok(entries);
        };
        let (resource, key) = (percent_encoded(resource), percent_encoded(key));
        after = format!("&after_resource={resource}&after_key={key}");
    }
}

async fn show(entry: &EntryArgs, json: bool) -> Result<String, Failed> {
    let (resource, key) = (encoded(&entry.resource), percent_encoded(&entry.key));
    let client = entry.target.client()?;
    let shown = client.get(&format!("/v1/once?resource={resource}&key={key}")).await?.json()?;
    Ok(if json { format!("{shown:#}\n") } else { in_columns(std::slice::from_ref(&shown)) })
}

async fn reset(entry: &EntryArgs, json: bool) -> Result<String, Failed> {
    let order = json!({ "resource": entry.resource.as_str(), "key": entry.key });
    let answer = entry.target.client()?.post("/v1/operator/once-reset", &order).await?.json()?;
    if json {
        return Ok(format!("{answer:#}\n"));
    }
    let what = "the next leader runs it again";
    Ok(sentence(entry, Some(&answer["was"]).filter(|was| !was.is_null()), what))
}

/// What a reset would forget.
async fn try_reset(entry: &EntryArgs, json: bool) -> Result<String, Failed> {
    let (resource, key) = (encoded(&entry.resource), percent_encoded(&entry.key));
    let shown = entry.target.client()?.get(&format!("/v1/once?resource={resource}&key={key}")).await?;
    let was = if shown.status == StatusCode::NOT_FOUND { None } else { Some(shown.json()?) };
    if json {
        let (resource, key) = (entry.resource.as_str(), &entry.key);
        let tried = json!({ "resource": resource, "key": key, "changed": false, "dry_run": true,
            "would_change": was.is_some(), "was": was });
        return Ok(format!("{tried:#}\n"));
    }
    Ok(sentence(entry, was.as_ref(), "the next leader would run it again; nothing was changed"))
}

fn sentence(EntryArgs { resource, key, .. }: &EntryArgs, was: Option<&Value>, then: &str) -> String {
    match was {
        Some(was) => {
            let (state, holder, token) = (text(&was["state"]), text(&was["holder"]), &was["token"]);
            format!("{resource}: {key} was {state} by {holder} with token {token}; {then}\n")
        }
        None => format!("{resource}: the ledger has no {key}; nothing was changed\n"),
    }
}

fn in_columns(entries: &[Value]) -> String {
    let columns = [
        ("RESOURCE", Left),
        ("KEY", Left),
        ("STATE", Left),
        ("TOKEN", Right),
        ("HOLDER", Left),
        ("AT", Left),
    ];
    let row = |entry: &Value| {
        let token = entry["token"].as_u64().map(|token| token.to_string()).unwrap_or_default();
        let of = |name: &str| text(&entry[name]);
        [of("resource"), of("key"), of("state"), token, of("holder"), of("at")]
    };
    table(columns, entries.iter().map(row).collect())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
