//! What the receivers of requests see, and what their answers do to a leadership.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use http::{HeaderMap, HeaderValue, Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::*;
use crate::backend::SignedToken;
use crate::header::{Fencing, FencingError, FencingLayer};
use crate::{Leadership, Lost};

/// A gateway that answers with these headers and with what it was sent.
struct Echo(HeaderMap);

impl Service<Request<()>> for Echo {
    type Response = Response<Vec<String>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let all = |name: &str| request.headers().get_all(name).into_iter().cloned().collect::<Vec<_>>();
        let values =
            [all("x-fencing-token"), all("x-fencing-resource"), all("x-fencing-credential")].concat();
        let mut answer =
            Response::new(values.iter().map(|value| value.to_str().unwrap().to_owned()).collect());
        *answer.headers_mut() = self.0.clone();
        ready(Ok(answer))
    }
}

/// A client of a gateway that answers with these headers.
fn client(leadership: &Leadership, answer: &[(&'static str, &'static str)]) -> Fencing<Echo> {
    let headers = answer.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
    FencingLayer::new(leadership.source()).layer(Echo(headers.collect()))
}

#[tokio::test]
async fn requests_carry_the_token_and_its_resource_and_none_are_sent_once_the_leadership_is_over() {
    let world = World::new();
    let leadership = world.elector().campaign().await.unwrap();
    let mut client = client(&leadership, &[]);
    let request = || {
        let request = Request::builder().header("X-Fencing-Token", "1000000");
        request.header("X-Fencing-Resource", "another").body(()).unwrap()
    };
    let sent = client.call(request()).await.unwrap().into_body();
    assert_eq!(sent, [leadership.token().to_string(), world.resource.to_string()]);
    drop(leadership);
    assert!(matches!(client.call(request()).await, Err(FencingError::Lost(Lost::Resigned))));
}

#[tokio::test]
async fn a_signed_token_is_sent_in_place_of_the_number_and_another_after_a_renewal() {
    let world = World::new();
    world.fake.signs.store(true, std::sync::atomic::Ordering::SeqCst);
    let leadership = world.settings().ttl(ms(300)).build().unwrap().campaign().await.unwrap();
    let mut client = client(&leadership, &[]);
    let first = leadership.source().shown().unwrap();
    assert!(first.starts_with(&format!("{}.after-", leadership.token())), "{first}");
    let until = tokio::time::Instant::now() + ms(10_000);
    loop {
        let sent = client.call(Request::new(())).await.unwrap().into_body();
        if sent[0] != first {
            assert!(sent[0].starts_with(&format!("{}.after-", leadership.token())), "{sent:?}");
            break;
        }
        assert!(tokio::time::Instant::now() < until, "it is renewed");
        tokio::time::sleep(ms(10)).await;
    }
    let shown = leadership.source().headers().unwrap();
    assert_ne!(shown[0].1, first);
    assert!(!format!("{leadership:?}").contains("after-"), "it is never printed");
    leadership.resign().await.unwrap();
}

#[test]
fn only_what_a_header_can_carry_is_a_signed_token() {
    let parse = |text: &str| SignedToken::parse(text).map(|signed| signed.as_str().to_owned());
    assert_eq!(parse("7.aZ0-_").as_deref(), Some("7.aZ0-_"));
    for text in ["7", "7.", ".a", "07.a", "7.a\"", "7.a b", "7.a\n", "7.a.b", "x.a"] {
        assert_eq!(parse(text), None, "{text}");
    }
    assert_eq!(parse(&format!("7.{}", "a".repeat(5000))), None);
}

#[tokio::test]
async fn an_answer_that_the_token_is_stale_ends_the_leadership() {
    for own in [
        &[("x-fencing-reason", "stale")][..],
        &[("x-fencing-reason", "stale"), ("x-fencing-resource", "ledger/acct-7")],
    ] {
        let world = World::new();
        let leadership = world.settings().ttl(ms(60_000)).build().unwrap().campaign().await.unwrap();
        let mut client = client(&leadership, own);
        assert!(client.call(Request::new(())).await.is_ok(), "the caller gets the answer");
        assert_eq!(leadership.check(), Err(Lost::Stale));
        assert_eq!(leadership.stopping().await, Lost::Stale);
        assert!(matches!(client.call(Request::new(())).await, Err(FencingError::Lost(Lost::Stale))));
        drop(leadership);
        eventually("it is resigned", || world.fake.leader(&world.resource).is_none()).await;
    }
}

#[tokio::test]
async fn an_answer_about_something_else_ends_nothing() {
    let world = World::new();
    let leadership = world.elector().campaign().await.unwrap();
    for answer in [
        &[][..],
        &[("x-fencing-reason", "raising")],
        &[("x-fencing-reason", "stale"), ("x-fencing-resource", "ledger/acct-8")],
        &[("x-fencing-resource", "ledger/acct-7")],
    ] {
        assert!(client(&leadership, answer).call(Request::new(())).await.is_ok());
        assert!(leadership.proceed().is_ok(), "{answer:?}");
    }
}

#[tokio::test]
async fn requests_carry_the_secret_that_says_who_sends_them_where_one_is_given() {
    let world = World::new();
    let leadership = world.elector().campaign().await.unwrap();
    let layer = FencingLayer::new(leadership.source());
    assert!(layer.clone().credential("two\nlines").is_err());
    let layer = layer.credential("s3cret").unwrap();
    assert!(!format!("{layer:?}").contains("s3cret"), "it is not shown to who looks at the layer");
    let request = Request::builder().header("X-Fencing-Credential", "another").body(()).unwrap();
    let sent = layer.layer(Echo(HeaderMap::new())).call(request).await.unwrap();
    assert_eq!(sent.body()[2..], ["s3cret"]);
}
