//! The elector library against a real gateway: what an answer of the fence does to a leadership.

use std::future::{Ready, ready};
use std::task::{Context, Poll};
use std::time::Duration;

use highgate_elector::header::FencingLayer;
use highgate_elector::{Elector, LeadError, Lost, headers};
use http::{Request, Response};
use tower::{Layer, Service};

use crate::support::{Running, gateway_to, origin, post};

/// A client of the gateway, as a tower service.
struct Client<'a>(&'a Running);

impl Service<Request<()>> for Client<'_> {
    type Response = Response<()>;
    type Error = std::convert::Infallible;
    type Future = Ready<Result<Response<()>, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let sent = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
        let ask = post(request.uri().path()).header(headers::TOKEN, &sent(headers::TOKEN));
        let answer = self.0.ask(&ask.header(headers::RESOURCE, &sent(headers::RESOURCE)));
        let mut response = Response::builder().status(answer.status);
        for name in [headers::REASON, headers::RESOURCE] {
            if let Some(value) = answer.header(name) {
                response = response.header(name, value);
            }
        }
        ready(Ok(response.body(()).unwrap()))
    }
}

#[test]
fn a_stale_answer_ends_the_leadership_that_it_is_about_and_no_other() {
    let origin = origin().start();
    let gate = gateway_to(&origin).start();
    let other = gateway_to(&origin).route("resource", "another").start();
    other.ask(&post("/").token(1000)).is_ok();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let write = |path: &str| Request::builder().uri(path).body(()).unwrap();
    // Nothing but the answer can end it while this test runs.
    let elector = Elector::named("Ledger/a b")
        .backend(format!("highgate://{}", gate.admin_address()))
        .ttl(Duration::from_secs(600));
    let led = runtime.block_on(elector.lead(async |leadership| {
        let mut client = FencingLayer::new(leadership.source()).layer(Client(&gate));
        assert_eq!(client.call(write("/")).await.unwrap().status(), 200);
        // A route that knows its resource by itself takes the token for one of that.
        let mut elsewhere = FencingLayer::new(leadership.source()).layer(Client(&other));
        assert_eq!(elsewhere.call(write("/")).await.unwrap().status(), 412);
        assert!(leadership.proceed().is_ok(), "that was about another resource");

        gate.ask(&post("/").token(1000).resource("ledger/a b")).is_ok();
        assert!(leadership.proceed().is_ok(), "nobody has told it yet");
        assert_eq!(client.call(write("/")).await.unwrap().status(), 412, "the caller gets the answer");
        assert_eq!(leadership.proceed(), Err(Lost::Stale));
    }));
    assert!(matches!(led, Err(LeadError::Lost(Lost::Stale))), "{led:?}");
}
