//! `highgate era bump` and `highgate retire`: the orders that concern every replica of an etcd store. They say what will
//! happen and ask first.

use std::process::ExitCode;
use std::str::FromStr;

use serde_json::{Value, json};

use super::client::{Client, Failed, Target, finish};
use super::confirm::{Consent, confirm};
use super::status::replicas::SHORT_ID;

/// Fewer digits are too easily those of another replica.
const MIN_DIGITS: usize = 4;
const DIGITS: usize = 32;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct EraArgs {
    #[command(subcommand)]
    order: EraOrder,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum EraOrder {
    /// Begin a new era: every token issued so far is stale, on every resource, for good
    Bump(BumpArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct BumpArgs {
    /// Only if this is the era still: said again, the order begins no other
    #[arg(long, value_name = "ERA")]
    from: Option<u64>,
    #[command(flatten)]
    how: How,
}

/// Takes a replica out
#[derive(Clone, Debug, clap::Args)]
pub(super) struct RetireArgs {
    /// The replica's id as `highgate status` shows it, or the first of its digits
    replica: Digits,
    #[command(flatten)]
    how: How,
}

/// How such an order is given and answered
#[derive(Clone, Debug, clap::Args)]
struct How {
    #[command(flatten)]
    consent: Consent,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

/// The first digits of a replica's id.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Digits(String);

/// A text is no [`Digits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a replica is named by {MIN_DIGITS} to {DIGITS} hex digits of its id; `highgate status` shows them")]
struct DigitsError;

impl FromStr for Digits {
    type Err = DigitsError;

    fn from_str(text: &str) -> Result<Self, DigitsError> {
        let is_id = (MIN_DIGITS..=DIGITS).contains(&text.len())
            && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        if is_id { Ok(Self(text.to_ascii_lowercase())) } else { Err(DigitsError) }
    }
}

/// Makes every token issued so far stale.
pub(super) async fn era(args: EraArgs) -> anyhow::Result<ExitCode> {
    let EraOrder::Bump(BumpArgs { from, how }) = args.order;
    finish(async { bump(&how.target.client()?, from, &how).await }.await)
}

/// Takes a replica out, whatever it does.
pub(super) async fn retire(args: RetireArgs) -> anyhow::Result<ExitCode> {
    finish(async { take_out(&args.how.target.client()?, &args.replica, &args.how).await }.await)
}

async fn bump(client: &Client, from: Option<u64>, how: &How) -> Result<String, Failed> {
    let mut order = from.map_or_else(|| json!({}), |from| json!({ "from": from }));
    let tried = tried(client, "era-bump", &order).await?;
    if tried["would_change"] == true && !how.consent.dry_run {
        confirm(&what_a_bump_does(client, &tried).await?, how.consent)?;
    }
    if how.consent.dry_run {
        order["dry_run"] = true.into();
    }
    let done = client.post("/v1/operator/era-bump", &order).await?.json()?;
    Ok(match () {
        () if how.json => format!("{done:#}\n"),
        () if done["would_change"] == true => {
            format!("{}nothing was changed\n", what_a_bump_does(client, &done).await?)
        }
        () if done["changed"] == true => format!(
            "era {}: every token issued before is stale, on every resource and for good\n\
             leaders have to be elected anew, and no mark opens until nothing of the old era can be under way: \
             highgate status shows how long\n",
            done["era"]
        ),
        () => format!("the era is {}; nothing was changed\n", done["era"]),
    })
}

async fn what_a_bump_does(client: &Client, tried: &Value) -> Result<String, Failed> {
    let resources = client.get("/v1/resources?limit=1").await?.json()?;
    let era = tried["era"].as_u64().unwrap_or_default();
    Ok(format!(
        "a new era begins after era {era}: every token issued so far becomes stale, on all {} resources and for good\n\
         every leader has to be elected anew, and no mark opens until nothing of the old era can be under way\n",
        resources["total"]
    ))
}

async fn take_out(client: &Client, digits: &Digits, how: &How) -> Result<String, Failed> {
    // A whole id is not looked up: the gateway that is asked may be the one that knows least.
    let id = if digits.0.len() == DIGITS { digits.0.clone() } else { find(client, digits).await? };
    let short = &id[..SHORT_ID];
    let what = format!(
        "replica {short} is taken out: raises wait for it no longer than its tombstone lasts\n\
         if it lives, it fences itself, cuts what it has under way, and joins anew\n"
    );
    let mut order = json!({ "replica": id });
    if how.consent.dry_run {
        order["dry_run"] = true.into();
    } else if tried(client, "retire", &order).await?["would_change"] == true {
        confirm(&what, how.consent)?;
    }
    let done = client.post("/v1/operator/retire", &order).await?.json()?;
    Ok(match () {
        () if how.json => format!("{done:#}\n"),
        () if done["would_change"] == true => format!("{what}nothing was changed\n"),
        () if done["changed"] == true => format!(
            "replica {short} is retired: raises wait for it no longer than its tombstone lasts\n\
             if it lives, it fences itself and joins anew\n"
        ),
        () => format!("replica {short} is retired already; nothing was changed\n"),
    })
}

/// What an order would do.
async fn tried(client: &Client, action: &str, order: &Value) -> Result<Value, Failed> {
    let mut order = order.clone();
    order["dry_run"] = true.into();
    client.post(&format!("/v1/operator/{action}"), &order).await?.json()
}

/// The one replica whose id begins with these digits.
async fn find(client: &Client, Digits(digits): &Digits) -> Result<String, Failed> {
    let overview = client.get("/v1/replicas").await?.json()?;
    let all = overview["replicas"].as_array().into_iter().flatten();
    let named = all.filter_map(|replica| Some((replica["id"].as_str()?, replica["name"].as_str()?)));
    let found: Vec<_> = named.filter(|(id, _)| id.len() == DIGITS && id.starts_with(digits)).collect();
    match found.as_slice() {
        [(id, _)] => Ok((*id).to_owned()),
        [] => {
            let detail = format!("no replica's id begins with {digits}; highgate status shows them");
            Err(Failed::Refused(detail))
        }
        several => {
            let list: Vec<_> = several.iter().map(|(id, name)| format!("{id} ({name})")).collect();
            Err(Failed::Refused(format!("several ids begin with {digits}: {}", list.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::{BodyExt, Full};
    use hyper::body::Incoming;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use parking_lot::Mutex;
    use tokio::net::TcpListener;

    use super::*;
    use crate::cli::client::tests::gateway;
    use crate::cli::tls::TlsArgs;
    use highgate_elector::ClientTls;

    /// What was ordered and not only tried, as the path and the body.
    type Orders = Arc<Mutex<Vec<(String, Value)>>>;

    fn overview() -> Value {
        let replica = |id: &str, name: &str| json!({"id": format!("{id:0<32}"), "name": name});
        json!({"replicas": [replica("abcd1", "one:1"), replica("abcd2", "two:1"), replica("beef", "three:1")]})
    }

    /// An admin port of an etcd store that obeys.
    async fn cluster() -> (Client, Orders) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(
            &[listener.local_addr().unwrap().to_string().parse().unwrap()],
            None,
            &ClientTls::default(),
        )
        .unwrap();
        let orders = Orders::default();
        let heard = orders.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let heard = heard.clone();
                let service = service_fn(move |request| answer(request, heard.clone()));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        (client, orders)
    }

    async fn answer(request: Request<Incoming>, orders: Orders) -> Result<Response<Full<Bytes>>, Infallible> {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let mut answer = match path.as_str() {
            "/v1/replicas" => overview(),
            "/v1/resources" => json!({"total": 12}),
            "/v1/operator/era-bump" => json!({"era": 3}),
            _ => json!({}),
        };
        let order: Option<Value> = serde_json::from_slice(&body).ok();
        let is_tried = order.as_ref().is_some_and(|order| order["dry_run"] == true);
        if is_tried {
            (answer["dry_run"], answer["would_change"]) = (true.into(), true.into());
        }
        answer["changed"] = (!is_tried).into();
        if let Some(order) = order.filter(|_| !is_tried) {
            orders.lock().push((path, order));
        }
        Ok(Response::new(Full::new(answer.to_string().into())))
    }

    fn how(yes: bool, dry_run: bool) -> How {
        let target = Target { admin: Vec::new(), token_file: None, tls: TlsArgs::default() };
        How { consent: Consent { yes, dry_run }, json: false, target }
    }

    #[tokio::test]
    async fn what_is_only_tried_is_told_and_not_done() {
        let (client, orders) = cluster().await;
        let text = bump(&client, None, &how(false, true)).await.unwrap();
        assert!(
            text.starts_with("a new era begins after era 3: every token issued so far becomes stale"),
            "{text}"
        );
        assert!(text.contains("all 12 resources") && text.ends_with("nothing was changed\n"), "{text}");
        let text = take_out(&client, &"beef".parse().unwrap(), &how(false, true)).await.unwrap();
        assert!(text.starts_with("replica beef0000 is taken out") && text.ends_with("nothing was changed\n"));
        assert!(orders.lock().is_empty());
    }

    #[tokio::test]
    async fn a_bump_says_the_new_era_and_what_it_means() {
        let (client, orders) = cluster().await;
        let text = bump(&client, None, &how(true, false)).await.unwrap();
        assert!(text.starts_with("era 3: every token issued before is stale"), "{text}");
        assert_eq!(*orders.lock(), [("/v1/operator/era-bump".to_owned(), json!({}))]);
    }

    #[tokio::test]
    async fn a_replica_is_retired_by_the_first_digits_of_its_id() {
        let (client, orders) = cluster().await;
        let text = take_out(&client, &"ABCD2".parse().unwrap(), &how(true, false)).await.unwrap();
        assert!(text.starts_with("replica abcd2000 is retired: "), "{text}");
        let id = format!("{:0<32}", "abcd2");
        assert_eq!(*orders.lock(), [("/v1/operator/retire".to_owned(), json!({"replica": id}))]);
    }

    #[tokio::test]
    async fn digits_of_several_replicas_or_of_none_retire_nobody() {
        let (client, orders) = cluster().await;
        let several =
            take_out(&client, &"abcd".parse().unwrap(), &how(true, false)).await.unwrap_err().to_string();
        assert!(several.starts_with("several ids begin with abcd: abcd1000"), "{several}");
        assert!(several.contains("(one:1), abcd2") && several.ends_with("(two:1)"), "{several}");
        let none =
            take_out(&client, &"abce".parse().unwrap(), &how(true, false)).await.unwrap_err().to_string();
        assert_eq!(none, "no replica's id begins with abce; highgate status shows them");
        assert!(orders.lock().is_empty());
    }

    #[tokio::test]
    async fn a_whole_id_is_not_looked_up() {
        let (client, orders) = cluster().await;
        take_out(&client, &"C".repeat(32).parse().unwrap(), &how(true, false)).await.unwrap();
        assert_eq!(orders.lock()[0].1, json!({"replica": "c".repeat(32)}));
    }

    #[test]
    fn a_replica_is_named_by_hex_digits() {
        for text in ["", "abc", "abcg", "+abcd", &"a".repeat(33)] {
            assert_eq!(text.parse::<Digits>(), Err(DigitsError), "{text:?}");
        }
    }

    #[tokio::test]
    async fn the_embedded_store_has_no_eras_and_the_command_fails() {
        let gateway = gateway().await;
        let client =
            Client::new(&[gateway.address.to_string().parse().unwrap()], None, &ClientTls::default())
                .unwrap();
        let whole = "0".repeat(32).parse().unwrap();
        let sure = how(true, false);
        for refused in [bump(&client, None, &sure).await, take_out(&client, &whole, &sure).await] {
            let detail = refused.unwrap_err().to_string();
            assert!(detail.contains("it has no eras and no other replicas"), "{detail}");
        }
    }
}
