//! `highgate status [RESOURCE]`: what is fenced, at which token, what was refused, and which replicas serve.

pub(super) mod replicas;

use std::process::ExitCode;

use highgate_elector::Resource;
use serde_json::Value;

use super::client::{Client, Failed, Target, encoded, print};
use super::table;
use super::table::Side::{Left, Right};

/// How many resources are asked for at once.
const PART: usize = 5000;

/// Shows what is fenced, at which token, what was refused, and which replicas serve
#[derive(Clone, Debug, clap::Args)]
pub(super) struct StatusArgs {
    /// Only this resource
    pub(super) resource: Option<Resource>,
    /// As JSON
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) target: Target,
}

/// Prints the state, or why there is none.
pub(super) async fn run(args: StatusArgs) -> anyhow::Result<ExitCode> {
    let shown = match args.target.client() {
        Ok(client) => show(&client, args.resource.as_ref(), args.json).await,
        Err(error) => Err(error.into()),
    };
    Ok(match shown {
        Ok(text) => print(&text)?,
        Err(failed) => failed.report(),
    })
}

async fn show(client: &Client, resource: Option<&Resource>, json: bool) -> Result<String, Failed> {
    let state = match resource {
        Some(resource) => client.get(&format!("/v1/resource?name={}", encoded(resource))).await?.json()?,
        None => whole(client).await?,
    };
    if json {
        return Ok(format!("{state:#}\n"));
    }
    Ok(match state["resources"].as_array() {
        Some(resources) => in_words(resources) + &replicas::text(&state["replicas"]),
        None => table(std::slice::from_ref(&state)),
    })
}

/// All resources and all replicas.
async fn whole(client: &Client) -> Result<Value, Failed> {
    let mut whole = list(client, PART).await?;
    let overview = client.get("/v1/replicas").await?.json()?;
    if let Some(whole) = whole.as_object_mut() {
        whole.insert("replicas".to_owned(), overview);
    }
    Ok(whole)
}

fn in_words(resources: &[Value]) -> String {
    if resources.is_empty() { "no token has been seen yet\n".to_owned() } else { table(resources) }
}

/// All resources, as if they had come in one part.
async fn list(client: &Client, part_size: usize) -> Result<Value, Failed> {
    let mut whole = client.get(&format!("/v1/resources?limit={part_size}")).await?.json()?;
    while let Some(after) = whole["next"].as_str().and_then(|next| Resource::parse(next).ok()) {
        let path = format!("/v1/resources?limit={part_size}&after={}", encoded(&after));
        let mut part = client.get(&path).await?.json()?;
        whole["next"] = part["next"].take();
        if let (Value::Array(all), Value::Array(more)) = (&mut whole["resources"], part["resources"].take()) {
            all.extend(more);
        }
    }
    Ok(whole)
}

fn table(resources: &[Value]) -> String {
    let columns = [
        ("RESOURCE", Left),
        ("MARK", Right),
        ("STATE", Left),
        ("IN FLIGHT", Right),
        ("REFUSED", Right),
        ("LEADER", Left),
    ];
    table::table(columns, resources.iter().map(row).collect())
}

fn row(view: &Value) -> [String; 6] {
    ["resource", "mark", "state", "in_flight", "refused", "leader"].map(|key| match &view[key] {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::client::tests::{Running, gateway};

    async fn raised(names: &[&str]) -> (Running, Client) {
        let gateway = gateway().await;
        let client = Client::new(&gateway.address.to_string().parse().unwrap(), None).unwrap();
        for name in names {
            let order = json!({"resource": name, "to": 9});
            assert!(client.post("/v1/operator/raise", &order).await.ok().unwrap().status.is_success());
        }
        (gateway, client)
    }

    #[tokio::test]
    async fn a_list_in_parts_is_shown_as_a_whole() {
        let names = ["a%20b", "a+b", "c/d%2Fe", "f", "g"];
        let (_gateway, client) = raised(&names).await;
        let whole = list(&client, 2).await.ok().unwrap();
        let shown =
            whole["resources"].as_array().unwrap().iter().map(|view| view["resource"].as_str().unwrap());
        assert_eq!(shown.collect::<Vec<_>>(), names);
        assert_eq!(whole["next"], Value::Null);
    }

    #[tokio::test]
    async fn one_resource_is_shown_and_an_unknown_one_is_refused() {
        let (_gateway, client) = raised(&["c/d%2Fe"]).await;
        let resource = Resource::parse("C/d%2fe").unwrap();
        let text = show(&client, Some(&resource), true).await.ok().unwrap();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["mark"], 9);
        let text = show(&client, Some(&resource), false).await.ok().unwrap();
        assert!(text.lines().nth(1).unwrap().starts_with("c/d%2Fe "), "{text}");
        let unknown = show(&client, Some(&Resource::parse("x").unwrap()), false).await;
        assert!(matches!(unknown, Err(Failed::Refused(detail)) if detail.contains('x')));
    }

    #[tokio::test]
    async fn an_empty_gateway_says_so() {
        let (_gateway, client) = raised(&[]).await;
        assert_eq!(show(&client, None, false).await.ok().unwrap(), "no token has been seen yet\n");
    }

    #[tokio::test]
    async fn as_json_the_replicas_are_there_whatever_the_store() {
        let (_gateway, client) = raised(&["a"]).await;
        let whole: Value = serde_json::from_str(&show(&client, None, true).await.ok().unwrap()).unwrap();
        assert_eq!((&whole["resources"][0]["mark"], &whole["total"]), (&json!(9), &json!(1)));
        assert_eq!(whole["replicas"]["store"], "embedded");
        assert_eq!(whole["replicas"]["replicas"][0]["me"], true);
        let plain = show(&client, None, false).await.ok().unwrap();
        assert_eq!(plain.lines().count(), 2, "{plain}");
    }

    #[test]
    fn the_table_is_aligned() {
        let resources = [
            json!({"resource": "ledger/acct-7", "mark": 9, "state": "open", "in_flight": 12, "refused": 0, "leader": "job-1"}),
            json!({"resource": "a", "mark": 9_223_372_036_854_775_807u64, "state": "raising", "in_flight": 0, "refused": 3, "leader": null}),
        ];
        let lines = [
            "RESOURCE                      MARK  STATE    IN FLIGHT  REFUSED  LEADER",
            "ledger/acct-7                    9  open            12        0  job-1",
            "a              9223372036854775807  raising          0        3  -",
        ];
        assert_eq!(table(&resources), lines.map(|line| format!("{line}\n")).concat());
    }
}
