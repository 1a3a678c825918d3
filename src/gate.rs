//! The gate: a request's way through one core, from the socket to the upstream and back.
//!
//! The rooms are its files, in the order in which a request walks through them: [`accept`], [`mod@claim`], `entitle`,
//! [`fence`] with `claimant` and `signature`, [`forward`], [`respond`]. Each core has its own [`Worker`] with a runtime, connections and pool
//! of its own; the ledger and the store are the only things that cores share.

pub(crate) mod accept;
pub mod claim;
mod claimant;
mod entitle;
mod fence;
mod forward;
mod respond;
mod signature;
pub mod table;
mod unread;
mod worker;

use std::convert::Infallible;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use futures_util::future::{Either, Ready, ready};
use highgate_elector::Resource;
use http::{Request, Response, Version, request};
use hyper::body::Incoming;
use hyper::service::service_fn;
use tower::{Layer, Service, ServiceBuilder};

use crate::config::{Protocol, Route};
use crate::ledger::Permit;
use crate::metrics::Decision;
use accept::{Conduct, too_large};
use claim::{Claim, Signature, Stand, claim, names_resource};
use entitle::{Entitled, Forbidden, Sender, entitle};
use fence::FenceLayer;
use forward::Forward;
use forward::body::Upload;
use forward::pool::Line;
pub(crate) use forward::sockets::Sockets;
pub(crate) use respond::Answers;
use respond::{Answer, Body, Refusal, Refused, RespondLayer, Story};
pub(crate) use worker::{InUse, Setup, Worker, run};

/// A request as it came in.
type Inbound = Request<Incoming>;

/// A request whose route, resource and token are known.
pub(crate) struct Claimed {
    head: request::Parts,
    body: Incoming,
    route: Arc<Route>,
    stand: Stand,
    upgrade: Option<Protocol>,
    aliases: Vec<Resource>,
    signature: Option<Signature>,
    floor: u64,
    entitled: Entitled,
    table: Rc<InUse>,
    client: Rc<Conduct>,
    story: Story,
}

/// A request that may be written to the line now.
pub(crate) struct Admitted {
    request: Request<Upload>,
    client: Rc<Conduct>,
    route: Arc<Route>,
    /// What the request asks to go on with in HTTP's place.
    upgrade: Option<Protocol>,
    line: Box<Line>,
    fenced: Option<InFlight>,
    story: Story,
}

/// A fenced request from its admission to its certain end.
pub(crate) struct InFlight {
    permit: Permit,
    /// Keeps the table that it was claimed by in use until then: see [`table`].
    table: Rc<InUse>,
}

/// The stack for one client connection, from top to bottom.
fn gate(
    worker: Rc<Worker>,
    client: Rc<Conduct>,
) -> impl hyper::service::Service<
    Inbound,
    Response = Response<Body>,
    Error = Infallible,
    Future = impl Future<Output = Result<Response<Body>, Infallible>>,
> {
    let stack = ServiceBuilder::new()
        // Outermost, so that every answer is counted and logged, whoever made it.
        .layer(RespondLayer::new(worker.clone(), client.clone()))
        // Before anything is read of the body: what is malformed, has no route or may not write costs nothing more.
        .layer(ClaimLayer { worker: worker.clone(), client })
        // Reads small bodies, checks a connection out, and only then admits.
        .layer(FenceLayer::new(worker.clone()))
        // Writes, once; owns the permit until the response has certainly ended.
        .service(Forward::new(worker));
    service_fn(move |request| stack.clone().call(request))
}

/// Puts the pure [`claim()`] and what it entitles to into the stack.
#[derive(Clone)]
struct ClaimLayer {
    worker: Rc<Worker>,
    client: Rc<Conduct>,
}

#[derive(Clone)]
struct Claims<S> {
    layer: ClaimLayer,
    inner: S,
}

impl<S> Layer<S> for ClaimLayer {
    type Service = Claims<S>;

    fn layer(&self, inner: S) -> Claims<S> {
        Claims { layer: self.clone(), inner }
    }
}

impl<S: Service<Claimed, Response = Answer, Error = Refused>> Service<Inbound> for Claims<S> {
    type Response = Answer;
    type Error = Refused;
    type Future = Either<Ready<Result<Answer, Refused>>, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refused>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Inbound) -> Self::Future {
        match self.layer.claim(request) {
            Ok(claimed) => Either::Right(self.inner.call(claimed)),
            Err(refused) => Either::Left(ready(Err(refused))),
        }
    }
}

impl ClaimLayer {
    fn claim(&self, request: Inbound) -> Result<Claimed, Refused> {
        let (head, body) = request.into_parts();
        let table = self.worker.table();
        match self.judge(&head, &table) {
            Ok((claim, entitled, story)) => {
                let Claim { route, stand, upgrade, aliases, signature, floor } = claim;
                let client = self.client.clone();
                Ok(Claimed {
                    head,
                    body,
                    route,
                    stand,
                    upgrade,
                    aliases,
                    signature,
                    floor,
                    entitled,
                    table,
                    client,
                    story,
                })
            }
            Err(refused) => {
                refused.read_and_forget(&head.headers, body);
                Err(refused)
            }
        }
    }

    fn judge(&self, head: &request::Parts, table: &InUse) -> Result<(Claim, Entitled, Story), Refused> {
        let mut story = Story {
            started: Instant::now(),
            route: None,
            resource: None,
            names_resource: false,
            token: None,
            identity: None,
            decision: Decision::Refused,
            upstream: None,
        };
        let too_large =
            || (head.version == Version::HTTP_2).then(|| too_large(head, self.worker.limits.head)).flatten();
        if let Some(why) = self.client.unreadable().or_else(too_large) {
            return Err(Refused { refusal: Refusal::Unreadable(why), story });
        }
        match claim(head, table, &self.worker.token_header) {
            Ok(claimed) => {
                story.route = Some(claimed.route.clone());
                match &claimed.stand {
                    Stand::Unfenced => {}
                    Stand::Unchecked { resource, .. } => story.resource = Some(resource.clone()),
                    Stand::Fenced { resource, token } => {
                        story.resource = Some(resource.clone());
                        story.token = Some(*token);
                    }
                }
                let entitled = match self.entitle(&claimed.route, &claimed.stand, head) {
                    Ok(entitled) => entitled,
                    Err(forbidden) => {
                        story.names_resource = names_resource(&head.headers);
                        return Err(Refused::forbidden(forbidden, story));
                    }
                };
                story.identity = entitled.identity().cloned().map(Box::new);
                Ok((claimed, entitled, story))
            }
            Err(unclaimed) => {
                story.route = unclaimed.route;
                story.resource = unclaimed.resource;
                story.names_resource = names_resource(&head.headers);
                Err(Refused { refusal: Refusal::Unclaimed(unclaimed.why), story })
            }
        }
    }

    fn entitle(&self, route: &Route, stand: &Stand, head: &request::Parts) -> Result<Entitled, Forbidden> {
        match stand {
            Stand::Unfenced => Ok(Entitled::default()),
            Stand::Unchecked { resource, .. } | Stand::Fenced { resource, .. } => {
                let sender = Sender { certificate: self.client.identity(), headers: &head.headers };
                entitle(&self.worker.access.load(), route, resource, sender)
            }
        }
    }
}
