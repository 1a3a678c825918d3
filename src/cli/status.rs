//! `highgate status [RESOURCE]`: what is fenced, at which token, what was refused, and which replicas serve.

mod count;
pub(super) mod replicas;

use std::process::ExitCode;

use highgate_elector::Resource;
use serde_json::Value;

use super::client::{Client, Failed, Target, encoded, finish};
use super::table;
use super::table::Side::{Left, Right};
use count::{count, footnote, refused};

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
    finish(async { show(&args.target.client()?, args.resource.as_ref(), args.json).await }.await)
}

async fn show(client: &Client, resource: Option<&Resource>, json: bool) -> Result<String, Failed> {
    let count = count(client, resource).await?;
    let state = &count.state;
    if json {
        return Ok(format!("{state:#}\n"));
    }
    Ok(match state["resources"].as_array() {
        Some(resources) => {
            in_words(resources) + &room(state) + &footnote(&count) + &replicas::text(&count.overview)
        }
        None => table(std::slice::from_ref(state)) + &footnote(&count),
    })
}

/// One resource or all, as one gateway shows them.
async fn fetch(client: &Client, resource: Option<&Resource>) -> Result<Value, Failed> {
    match resource {
        Some(resource) => client.get(&format!("/v1/resource?name={}", encoded(resource))).await?.json(),
        None => list(client, PART).await,
    }
}

fn in_words(resources: &[Value]) -> String {
    if resources.is_empty() { "no token has been seen yet\n".to_owned() } else { table(resources) }
}

/// A word on how many resources there may be, once most of the room is taken.
fn room(state: &Value) -> String {
    let number = |key: &str| state[key].as_u64().unwrap_or_default();
    let (total, most) = (number("total"), number("max_resources"));
    if most == 0 || total < most - most / 10 {
        return String::new();
    }
    let beyond = if total < most { "beyond, new names will be" } else { "new names are" };
    format!(
        "\n{total} of {most} resources (max_resources of [store]): {beyond} refused, and those that are known go on\n"
    )
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
        Value::Number(_) if key == "refused" => refused(view),
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
    use highgate_elector::ClientTls;

    async fn raised(names: &[&str]) -> (Running, Client) {
        let gateway = gateway().await;
        let client =
            Client::new(&[gateway.address.to_string().parse().unwrap()], None, &ClientTls::default())
                .unwrap();
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

    #[tokio::test]
    async fn the_numbers_of_several_gateways_are_added_up_with_who_has_counted_what() {
        let (first, _) = raised(&["a", "b"]).await;
        let (second, _) = raised(&["a"]).await;
        for (gateway, times) in [(&first, 3), (&second, 2)] {
            let ledger = gateway.admin.store.ledger();
            (0..times).for_each(|_| ledger.count_refused(Some(&Resource::parse("a").unwrap())));
        }
        let address = |gateway: &Running| gateway.address.to_string().parse().unwrap();
        let absent = "127.0.0.1:1".parse().unwrap();
        let client =
            Client::new(&[address(&first), address(&second), absent], None, &ClientTls::default()).unwrap();
        let shown: Value = serde_json::from_str(&show(&client, None, true).await.unwrap()).unwrap();
        assert_eq!((&shown["resources"][0]["refused"], &shown["refused"]), (&json!(5), &json!(5)), "{shown}");
        assert_eq!(shown["resources"][0]["counted"][1]["refused"], 2);
        assert_eq!(shown["resources"][1]["counted"].as_array().unwrap().len(), 1, "{shown}");
        let text = show(&client, None, false).await.unwrap();
        assert!(text.contains("5 (") && text.contains("counted on this process, this process"), "{text}");
        assert!(text.contains("not counted: no gateway answers at 127.0.0.1:1"), "{text}");
        let one = Client::new(&[address(&first)], None, &ClientTls::default()).unwrap();
        let text = show(&one, Some(&Resource::parse("a").unwrap()), false).await.unwrap();
        assert_eq!(text.lines().nth(1).unwrap().split_whitespace().nth(4), Some("3"), "{text}");
    }

    #[test]
    fn a_store_that_is_nearly_full_of_names_is_told_of() {
        let at = |total: u64| room(&json!({ "total": total, "max_resources": 100 }));
        assert_eq!((at(0), at(89)), (String::new(), String::new()));
        assert!(at(90).contains("90 of 100") && at(90).contains("will be refused"), "{}", at(90));
        assert!(at(100).contains("new names are refused"), "{}", at(100));
        assert_eq!(room(&json!({ "total": 5 })), "", "an older gateway does not say");
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
