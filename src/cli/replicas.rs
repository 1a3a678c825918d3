//! `highgate era bump` and `highgate retire`: the orders that concern every replica of an etcd store.

use std::process::ExitCode;
use std::str::FromStr;

use serde_json::json;

use super::client::{Client, Failed, Target, print};
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
    Bump {
        #[command(flatten)]
        target: Target,
    },
}

/// Takes a replica out
#[derive(Clone, Debug, clap::Args)]
pub(super) struct RetireArgs {
    /// The replica's id as `highgate status` shows it, or the first of its digits
    replica: Digits,
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
    let EraOrder::Bump { target } = args.order;
    finish(async { bump(&target.client()?).await }.await)
}

/// Takes a replica out, whatever it does.
pub(super) async fn retire(args: RetireArgs) -> anyhow::Result<ExitCode> {
    finish(async { take_out(&args.target.client()?, &args.replica).await }.await)
}

fn finish(outcome: Result<String, Failed>) -> anyhow::Result<ExitCode> {
    match outcome {
        Ok(text) => Ok(print(&text)?),
        Err(failed) => Ok(failed.report()),
    }
}

async fn bump(client: &Client) -> Result<String, Failed> {
    let done = client.post("/v1/operator/era-bump", &json!({})).await?.json()?;
    Ok(format!(
        "era {}: every token issued before is stale, on every resource and for good\n\
         leaders have to be elected anew, and no mark opens until nothing of the old era can be under way: \
         highgate status shows how long\n",
        done["era"]
    ))
}

async fn take_out(client: &Client, digits: &Digits) -> Result<String, Failed> {
    // A whole id is not looked up: the gateway that is asked may be the one that knows least.
    let id = if digits.0.len() == DIGITS { digits.0.clone() } else { find(client, digits).await? };
    client.post("/v1/operator/retire", &json!({"replica": id})).await?.json()?;
    Ok(format!(
        "replica {} is retired: raises wait for it no longer than its tombstone lasts\n\
         if it lives, it fences itself and joins anew\n",
        &id[..SHORT_ID]
    ))
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
    use serde_json::Value;
    use tokio::net::TcpListener;

    use super::*;
    use crate::cli::client::tests::gateway;

    /// What was posted, as the path and the body.
    type Orders = Arc<Mutex<Vec<(String, Value)>>>;

    fn overview() -> Value {
        let replica = |id: &str, name: &str| json!({"id": format!("{id:0<32}"), "name": name});
        json!({"replicas": [replica("abcd1", "one:1"), replica("abcd2", "two:1"), replica("beef", "three:1")]})
    }

    /// An admin port of an etcd store that obeys.
    async fn cluster() -> (Client, Orders) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(&listener.local_addr().unwrap().to_string().parse().unwrap(), None).unwrap();
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
        let answer = match path.as_str() {
            "/v1/replicas" => overview(),
            "/v1/operator/era-bump" => json!({"era": 3}),
            _ => json!({}),
        };
        if !body.is_empty() {
            orders.lock().push((path, serde_json::from_slice(&body).unwrap()));
        }
        Ok(Response::new(Full::new(answer.to_string().into())))
    }

    #[tokio::test]
    async fn a_bump_says_the_new_era_and_what_it_means() {
        let (client, orders) = cluster().await;
        let text = bump(&client).await.unwrap();
        assert!(text.starts_with("era 3: every token issued before is stale"), "{text}");
        assert_eq!(*orders.lock(), [("/v1/operator/era-bump".to_owned(), json!({}))]);
    }

    #[tokio::test]
    async fn a_replica_is_retired_by_the_first_digits_of_its_id() {
        let (client, orders) = cluster().await;
        let text = take_out(&client, &"ABCD2".parse().unwrap()).await.unwrap();
        assert!(text.starts_with("replica abcd2000 is retired: "), "{text}");
        let id = format!("{:0<32}", "abcd2");
        assert_eq!(*orders.lock(), [("/v1/operator/retire".to_owned(), json!({"replica": id}))]);
    }

    #[tokio::test]
    async fn digits_of_several_replicas_or_of_none_retire_nobody() {
        let (client, orders) = cluster().await;
        let several = take_out(&client, &"abcd".parse().unwrap()).await.unwrap_err().to_string();
        assert!(several.starts_with("several ids begin with abcd: abcd1000"), "{several}");
        assert!(several.contains("(one:1), abcd2") && several.ends_with("(two:1)"), "{several}");
        let none = take_out(&client, &"abce".parse().unwrap()).await.unwrap_err().to_string();
        assert_eq!(none, "no replica's id begins with abce; highgate status shows them");
        assert!(orders.lock().is_empty());
    }

    #[tokio::test]
    async fn a_whole_id_is_not_looked_up() {
        let (client, orders) = cluster().await;
        take_out(&client, &"C".repeat(32).parse().unwrap()).await.unwrap();
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
        let client = Client::new(&gateway.address.to_string().parse().unwrap(), None).unwrap();
        for refused in [bump(&client).await, take_out(&client, &"0".repeat(32).parse().unwrap()).await] {
            let detail = refused.unwrap_err().to_string();
            assert!(detail.contains("it has no eras and no other replicas"), "{detail}");
        }
    }
}
