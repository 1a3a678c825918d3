//! `highgate raise`, `freeze`, `thaw` and `evict`: an operator's orders. Done when the gateway says that they are durable.
//!
//! Every order says whether it changed anything; said again, it changes nothing. What nobody has ever seen is taken for a
//! slip of the hand unless it is called new. Orders that depose a leader look first whom (`depose.rs`).

mod depose;
mod sentence;

use std::process::ExitCode;

use highgate_elector::{Resource, Token};
use http::StatusCode;
use serde_json::{Value, json};

use super::client::{Answer, Client, Failed, Target, finish};
use sentence::sentence;

/// Raises a resource's mark: every lower token is refused from then on, for good
#[derive(Clone, Debug, clap::Args)]
pub(super) struct RaiseArgs {
    /// The resource
    pub(super) resource: Resource,
    /// The new mark, not below the current one
    #[arg(long, value_name = "TOKEN")]
    pub(super) to: Token,
    /// Also above what any election could reach in years
    #[arg(long)]
    pub(super) force: bool,
    /// Also a resource for which no token was ever seen
    #[arg(long)]
    pub(super) new: bool,
    /// Do not ask, although somebody leads and would be deposed
    #[arg(long, short = 'y')]
    pub(super) yes: bool,
    #[command(flatten)]
    pub(super) how: How,
}

/// Shuts a resource
#[derive(Clone, Debug, clap::Args)]
pub(super) struct FreezeArgs {
    /// The resource
    pub(super) resource: Resource,
    /// Also a resource for which no token was ever seen
    #[arg(long)]
    pub(super) new: bool,
    #[command(flatten)]
    pub(super) how: How,
}

/// Lets a resource go on
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ThawArgs {
    /// The resource
    pub(super) resource: Resource,
    #[command(flatten)]
    pub(super) how: How,
}

/// Deposes a leader
#[derive(Clone, Debug, clap::Args)]
pub(super) struct EvictArgs {
    /// The resource
    pub(super) resource: Resource,
    /// Only the leader with this token, also right after another one was evicted
    #[arg(long)]
    pub(super) token: Option<Token>,
    #[command(flatten)]
    pub(super) how: How,
}

/// How an order is given and answered
#[derive(Clone, Debug, clap::Args)]
pub(super) struct How {
    /// Say what would happen, and change nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// As JSON
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) target: Target,
}

/// Raises a mark by hand.
pub(super) async fn raise(args: RaiseArgs) -> anyhow::Result<ExitCode> {
    finish(depose::raise(&args).await)
}

/// Lets nothing pass any more.
pub(super) async fn freeze(args: FreezeArgs) -> anyhow::Result<ExitCode> {
    let FreezeArgs { resource, new, how } = args;
    finish(carry_out(&how, "freeze", json!({"resource": resource.as_str(), "new": new})).await)
}

/// Lets a frozen resource go on, and settles unknown outcomes that block it.
pub(super) async fn thaw(args: ThawArgs) -> anyhow::Result<ExitCode> {
    finish(carry_out(&args.how, "thaw", json!({"resource": args.resource.as_str()})).await)
}

/// Deposes whoever leads a resource.
pub(super) async fn evict(args: EvictArgs) -> anyhow::Result<ExitCode> {
    finish(depose::evict(&args).await)
}

async fn carry_out(how: &How, action: &str, order: Value) -> Result<String, Failed> {
    let told = give(&how.target.client()?, action, &order, how.dry_run).await?;
    Ok(how.words(action, &order, &told))
}

/// What the gateway says of an order that it has carried out, that there was nothing to do for, or that was only tried.
async fn give(client: &Client, action: &str, order: &Value, dry_run: bool) -> Result<Value, Failed> {
    let mut body = order.clone();
    body["dry_run"] = dry_run.into();
    let answer: Answer = client.post(&format!("/v1/operator/{action}"), &body).await?;
    // A resource that was never seen, which the command can call new.
    if answer.status == StatusCode::NOT_FOUND && order["new"] == false {
        return Err(Failed::Usage(answer.detail()));
    }
    answer.json()
}

impl How {
    fn words(&self, action: &str, order: &Value, told: &Value) -> String {
        if self.json { format!("{told:#}\n") } else { sentence(action, order, told) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::client::tests::{Running, gateway};
    use crate::cli::tls::TlsArgs;

    fn is(code: ExitCode, expected: u8) -> bool {
        format!("{code:?}") == format!("{:?}", ExitCode::from(expected))
    }

    fn how(gateway: &Running, dry_run: bool) -> How {
        let target = Target {
            admin: vec![gateway.address.to_string().parse().unwrap()],
            token_file: None,
            tls: TlsArgs::default(),
        };
        How { dry_run, json: false, target }
    }

    fn named() -> Resource {
        Resource::parse("a").unwrap()
    }

    #[tokio::test]
    async fn an_order_is_carried_out_or_fails_with_its_exit_code() {
        let gateway = gateway().await;
        let how = how(&gateway, false);
        let raise_to = |to| {
            let to = Token::new(to).unwrap();
            raise(RaiseArgs { resource: named(), to, force: false, new: true, yes: false, how: how.clone() })
        };
        let freeze_it = || freeze(FreezeArgs { resource: named(), new: false, how: how.clone() });
        let thaw_it = || thaw(ThawArgs { resource: named(), how: how.clone() });

        assert!(is(thaw_it().await.unwrap(), 1), "it was never seen");
        assert!(is(freeze_it().await.unwrap(), 2), "and is not called new");
        assert!(is(raise_to(9).await.unwrap(), 0));
        assert!(is(raise_to(9).await.unwrap(), 0), "it is there already");
        assert!(is(raise_to(8).await.unwrap(), 1), "a mark never goes down");
        assert!(is(freeze_it().await.unwrap(), 0));
        let cell = gateway.admin.store.ledger().get("a").unwrap();
        assert!(cell.is_frozen() && cell.mark() == 9);
        assert!(is(thaw_it().await.unwrap(), 0));
        assert!(!cell.is_frozen());
        gateway.stop.send(true).unwrap();
        gateway.served.await.unwrap();
        assert!(is(thaw(ThawArgs { resource: named(), how }).await.unwrap(), 69));
    }

    #[tokio::test]
    async fn what_is_only_tried_changes_nothing() {
        let gateway = gateway().await;
        let how = how(&gateway, true);
        let told = carry_out(&how, "freeze", json!({"resource": "a", "new": true})).await.unwrap();
        assert_eq!(told, "a: would be frozen; nothing was changed\n");
        let refused = carry_out(&how, "freeze", json!({"resource": "a", "new": false})).await.unwrap_err();
        assert!(matches!(&refused, Failed::Usage(detail) if detail.contains("--new")), "{refused}");
        assert!(gateway.admin.store.ledger().is_empty());
    }

    #[tokio::test]
    async fn an_eviction_of_nobody_is_done_already_and_of_something_unseen_is_refused() {
        let gateway = gateway().await;
        let how = how(&gateway, false);
        let order = EvictArgs { resource: named(), token: None, how: how.clone() };
        let unseen = depose::evict(&order).await.unwrap_err();
        assert!(matches!(&unseen, Failed::Refused(detail) if detail.contains("ever seen")), "{unseen}");
        carry_out(&how, "freeze", json!({"resource": "a", "new": true})).await.unwrap();
        assert_eq!(depose::evict(&order).await.unwrap(), "a: nobody leads; nothing was changed\n");
        let named = EvictArgs { token: Token::new(7), ..order };
        assert_eq!(depose::evict(&named).await.unwrap(), "a: token 7 does not lead; nothing was changed\n");
    }
}
