//! `highgate raise`, `freeze`, `thaw` and `evict`: an operator's orders. Done when the gateway says that they are durable.

use std::process::ExitCode;

use highgate_elector::{Resource, Token};
use serde_json::{Value, json};

use super::client::{EXIT_FAILED, Target, print};

/// Raises a resource's mark: every lower token is refused from then on, for good
#[derive(Clone, Debug, clap::Args)]
pub(super) struct RaiseArgs {
    /// The resource
    pub(super) resource: Resource,
    /// The new mark, above the current one
    #[arg(long, value_name = "TOKEN")]
    pub(super) to: Token,
    /// Also above what any election could reach in years
    #[arg(long)]
    pub(super) force: bool,
    #[command(flatten)]
    pub(super) target: Target,
}

/// The resource of an order
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ResourceArgs {
    /// The resource
    pub(super) resource: Resource,
    #[command(flatten)]
    pub(super) target: Target,
}

/// Raises a mark by hand.
pub(super) async fn raise(args: RaiseArgs) -> anyhow::Result<ExitCode> {
    let order = json!({"resource": args.resource.as_str(), "to": args.to.get(), "force": args.force});
    give(&args.target, "raise", &order).await
}

/// Lets nothing pass any more.
pub(super) async fn freeze(args: ResourceArgs) -> anyhow::Result<ExitCode> {
    give(&args.target, "freeze", &json!({"resource": args.resource.as_str()})).await
}

/// Lets a frozen resource go on, and settles unknown outcomes that block it.
pub(super) async fn thaw(args: ResourceArgs) -> anyhow::Result<ExitCode> {
    give(&args.target, "thaw", &json!({"resource": args.resource.as_str()})).await
}

/// Deposes whoever leads a resource.
pub(super) async fn evict(args: ResourceArgs) -> anyhow::Result<ExitCode> {
    give(&args.target, "evict", &json!({"resource": args.resource.as_str()})).await
}

async fn give(target: &Target, action: &str, order: &Value) -> anyhow::Result<ExitCode> {
    let client = match target.client() {
        Ok(client) => client,
        Err(error) => return Ok(error.report()),
    };
    let answer = match client.post(&format!("/v1/operator/{action}"), order).await {
        Ok(answer) => answer,
        Err(error) => return Ok(error.report()),
    };
    if !answer.status.is_success() {
        eprintln!("highgate: {}", answer.detail());
        return Ok(ExitCode::from(EXIT_FAILED));
    }
    Ok(print(&changed(action, &serde_json::from_slice(&answer.body)?))?)
}

/// What the order has changed, in a sentence.
fn changed(action: &str, view: &Value) -> String {
    let (resource, mark) = (view["resource"].as_str().unwrap_or_default(), &view["mark"]);
    let in_flight = match view["in_flight"].as_u64().unwrap_or_default() {
        0 => String::new(),
        1 => "; 1 request is still in flight".to_owned(),
        many => format!("; {many} requests are still in flight"),
    };
    match action {
        "raise" => format!("{resource}: raised to {mark}; lower tokens are refused{in_flight}\n"),
        "freeze" => format!("{resource}: frozen at {mark}; nothing passes until it is thawed{in_flight}\n"),
        "evict" => {
            format!("{resource}: the leader was deposed; its token {mark} passes no longer{in_flight}\n")
        }
        _ => format!("{resource}: thawed at {mark}; {}\n", view["state"].as_str().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::client::tests::gateway;

    fn is(code: ExitCode, expected: u8) -> bool {
        format!("{code:?}") == format!("{:?}", ExitCode::from(expected))
    }

    #[tokio::test]
    async fn an_order_is_carried_out_or_fails_with_its_exit_code() {
        let gateway = gateway().await;
        let target = Target { admin: gateway.address.to_string().parse().unwrap() };
        let resource = Resource::parse("a").unwrap();
        let args = ResourceArgs { resource: resource.clone(), target: target.clone() };
        let to = Token::new(9).unwrap();
        let raise_args = RaiseArgs { resource, to, force: false, target };

        assert!(is(thaw(args.clone()).await.unwrap(), 1), "it was never seen");
        assert!(is(raise(raise_args.clone()).await.unwrap(), 0));
        assert!(is(raise(raise_args).await.unwrap(), 1), "it is there already");
        assert!(is(freeze(args.clone()).await.unwrap(), 0));
        let cell = gateway.admin.store.ledger().get("a").unwrap();
        assert!(cell.is_frozen() && cell.mark() == 9);
        assert!(is(thaw(args.clone()).await.unwrap(), 0));
        assert!(!cell.is_frozen());
        gateway.stop.send(true).unwrap();
        gateway.served.await.unwrap();
        assert!(is(thaw(args).await.unwrap(), 69));
    }

    #[test]
    fn what_changed_is_told_in_a_sentence() {
        let view =
            |state, in_flight| json!({"resource": "a", "mark": 9, "state": state, "in_flight": in_flight});
        assert_eq!(changed("raise", &view("open", 0)), "a: raised to 9; lower tokens are refused\n");
        assert_eq!(
            changed("raise", &view("raising", 2)),
            "a: raised to 9; lower tokens are refused; 2 requests are still in flight\n"
        );
        assert_eq!(
            changed("freeze", &view("frozen", 1)),
            "a: frozen at 9; nothing passes until it is thawed; 1 request is still in flight\n"
        );
        assert_eq!(changed("thaw", &view("open", 0)), "a: thawed at 9; open\n");
    }
}
