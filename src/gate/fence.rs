//! A claim before its fence: admitted with a permit, or refused with the reason.
//!
//! The order matters. A deposed leader is refused before its body is read. A token above the mark waits here
//! for the raise, without a connection. The upstream connection is checked out *before* the final
//! compare-and-swap, so that nothing but the write lies between admission and the wire.

mod approach;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::LocalBoxFuture;
use highgate_elector::{Resource, Token};
use http::Request;
use http::request::Parts;
use hyper::body::Incoming;
use tower::{Layer, Service};

use super::claim::{ClaimError, Malformed, Signature, Stand, Waiver, claim_again, names_resource};
use super::claimant::Claimant;
use super::forward::body::{Upload, UploadError};
use super::forward::pool::{ConnectError, Line};
use super::respond::{Answer, Fault, Outcome, Refusal, Refused, Warning};
use super::signature::drop_signature;
use super::{Admitted, Claimed, InFlight, InUse, Worker};
use crate::config::{Route, Tokens};
use crate::controls::{Rule, breaks};
use crate::ledger::Denied;
use crate::metrics::Decision;
use crate::tls::ClientFailure;
use approach::Waiting;

#[derive(Clone)]
pub(crate) struct FenceLayer {
    worker: Rc<Worker>,
}

impl FenceLayer {
    pub(crate) fn new(worker: Rc<Worker>) -> Self {
        Self { worker }
    }
}

impl<S> Layer<S> for FenceLayer {
    type Service = Fence<S>;

    fn layer(&self, inner: S) -> Fence<S> {
        Fence { worker: self.worker.clone(), inner }
    }
}

#[derive(Clone)]
pub(crate) struct Fence<S> {
    worker: Rc<Worker>,
    inner: S,
}

impl<S> Service<Claimed> for Fence<S>
where
    S: Service<Admitted, Response = Answer, Error = Refused> + Clone + 'static,
{
    type Response = Answer;
    type Error = Refused;
    type Future = LocalBoxFuture<'static, Result<Answer, Refused>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refused>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, claimed: Claimed) -> Self::Future {
        let worker = self.worker.clone();
        let mut inner = self.inner.clone();
        Box::pin(async move {
            let Claimed { mut head, body, route, stand, client, mut story, .. } = claimed;
            let Claimed { upgrade, aliases, signature, floor, entitled, table, .. } = claimed;
            let names = Names { aliases, floor, upgrades: upgrade.is_some(), table };
            let claimant = Claimant::new(entitled, &client, &head);
            let mut body = Some(body);
            let judged = judge(&worker, &route, (stand, signature), names, claimant, &mut body).await;
            worker.metrics.decided(story.started.elapsed());
            let (upload, line, fenced, decision) = match judged {
                Ok(passed) => passed,
                Err(refusal) => {
                    story.names_resource = names_resource(&head.headers);
                    let refused = Refused { refusal, story };
                    if let Some(body) = body {
                        refused.read_and_forget(&head.headers, body);
                    }
                    return Err(refused);
                }
            };
            story.decision = decision;
            drop_signature(&mut head.headers, &worker.token_header);
            let request = Request::from_parts(head, upload);
            inner.call(Admitted { request, client, route, upgrade, line, fenced, story }).await
        })
    }
}

type Passed = (Upload, Box<Line>, Option<InFlight>, Decision);

/// What a request has to pass beside its own resource, by the table that was in force when that was looked up.
struct Names {
    aliases: Vec<Resource>,
    floor: u64,
    /// Whether the request asks for another protocol.
    upgrades: bool,
    table: Rc<InUse>,
}

async fn judge(
    worker: &Worker,
    route: &Arc<Route>,
    (stand, signature): (Stand, Option<Signature>),
    names: Names,
    mut claimant: Claimant<'_>,
    body: &mut Option<Incoming>,
) -> Result<Passed, Refusal> {
    match stand {
        Stand::Fenced { resource, token } => {
            names.check_floor(worker, route, &resource, token)?;
            if let Some(signature) = signature {
                // First: a deposed leader hears that it was, whatever has become of its signature.
                names.refuse_stale(worker, &resource, token)?;
                claimant.prove(worker, route, (token, signature), names.all(&resource))?;
            }
            judge_fenced(worker, route, (resource, token), names, claimant, body).await
        }
        Stand::Unfenced => pass(worker, route, claimant.head, body, Decision::Unfenced).await,
        Stand::Unchecked { resource, waiver } => {
            if waiver == Waiver::Audited {
                let (route, resource) = (route.name.clone(), resource.clone());
                worker.answers.warn(Warning::TokenMissing { route, resource });
            }
            let passed = pass(worker, route, claimant.head, body, Decision::Allowed).await?;
            claimant.is_entitled(worker, route, &resource)?;
            Ok(passed)
        }
    }
}

async fn judge_fenced(
    worker: &Worker,
    route: &Arc<Route>,
    (resource, token): (Resource, Token),
    mut names: Names,
    claimant: Claimant<'_>,
    body: &mut Option<Incoming>,
) -> Result<Passed, Refusal> {
    let passed = admit(worker, route, (&resource, token), &mut names, claimant, body).await;
    // Whatever else it ran into while it waited: who was deposed meanwhile is to hear of that.
    passed.map_err(|refusal| names.refuse_stale(worker, &resource, token).err().unwrap_or(refusal))
}

async fn admit(
    worker: &Worker,
    route: &Arc<Route>,
    (resource, token): (&Resource, Token),
    names: &mut Names,
    mut claimant: Claimant<'_>,
    body: &mut Option<Incoming>,
) -> Result<Passed, Refusal> {
    let address = claimant.address();
    let request = Waiting { worker, route, address, token, held_since: Cell::new(None) };
    request.to(resource, &names.aliases).wait_until_open().await?;
    claimant.holds(worker, route, token, names.all(resource))?;
    let upload = prepare(worker, route, claimant.head, body).await?;
    loop {
        if !worker.is_current(&names.table) {
            *names = names.again(worker, resource, claimant.head)?;
            names.check_floor(worker, route, resource, token)?;
        }
        // Open, most often at the first look; not, if the gate moved while the body was on its way.
        let cells = request.to(resource, &names.aliases).wait_until_open().await?;
        let line = worker.pool.check_out(route).await?;
        claimant.still(worker, route, (resource, token), names.all(resource))?;
        line.arm();
        match cells.admit(token) {
            // Asked after the admission: a replica that has joined anew has put its table into force before, and whoever
            // finishes a change of names need not wait for what was only claimed under an older one.
            Ok(permit) if !worker.is_current(&names.table) => {
                drop(permit);
                worker.pool.check_in(line);
            }
            Ok(permit) => {
                line.lend(&permit);
                let fenced = InFlight { permit, table: names.table.clone() };
                return Ok((upload, line, Some(fenced).filter(|_| !breaks(Rule::Guard)), Decision::Admitted));
            }
            Err(denied) => {
                worker.pool.check_in(line);
                if !matches!(denied, Denied::Raising | Denied::Ahead { .. }) {
                    return Err(refusal(worker, denied));
                }
            }
        }
    }
}

impl Names {
    /// By the table in force now, of a request that was claimed by an earlier one.
    fn again(&self, worker: &Worker, resource: &Resource, head: &Parts) -> Result<Self, Refusal> {
        let (upgrades, table) = (self.upgrades, worker.table());
        let (aliases, floor) = claim_again((head, upgrades), &table, resource)
            .map_err(|malformed| Refusal::Unclaimed(malformed.into()))?;
        Ok(Self { aliases, floor, upgrades, table })
    }

    /// The resource under all its names.
    fn all<'n>(&'n self, resource: &'n Resource) -> impl Iterator<Item = &'n Resource> + Clone {
        std::iter::once(resource).chain(&self.aliases)
    }

    /// A token below the mark of one of the names is stale.
    fn refuse_stale(&self, worker: &Worker, resource: &Resource, token: Token) -> Result<(), Refusal> {
        self.all(resource).try_for_each(|name| refuse_stale(worker, name, token))
    }

    /// A token below the mark that the resource had under another name is stale. The one that was the mark was issued for
    /// that name, if it was issued at all: while both names counted it passed under the new one as well, and its gate may
    /// still be open there.
    fn check_floor(
        &self,
        worker: &Worker,
        route: &Route,
        resource: &Resource,
        token: Token,
    ) -> Result<(), Refusal> {
        let issued = u64::from(route.tokens == Tokens::Issued);
        if token.get() >= self.floor + issued {
            return Ok(());
        }
        let marks = self.all(resource).filter_map(|name| worker.ledger.get(name.as_str()));
        let mark = marks.map(|cell| cell.mark()).max().unwrap_or(0).max(self.floor);
        Err(if token.get() < mark { Refusal::Stale { mark } } else { Refusal::NotIssued { mark } })
    }
}

/// Without a fence: the connection is all that is needed.
async fn pass(
    worker: &Worker,
    route: &Route,
    head: &Parts,
    body: &mut Option<Incoming>,
    decision: Decision,
) -> Result<Passed, Refusal> {
    let upload = prepare(worker, route, head, body).await?;
    Ok((upload, worker.pool.check_out(route).await?, None, decision))
}

/// Takes the body: what is refused from here on is refused with it read, or for it.
async fn prepare(
    worker: &Worker,
    route: &Route,
    head: &Parts,
    body: &mut Option<Incoming>,
) -> Result<Upload, Refusal> {
    let body = body.take().expect("a request is prepared once");
    let upload = Upload::prepare(body, head, route, &worker.token_header, worker.request_timeout);
    upload.await.map_err(|error| match error {
        UploadError::Slow => Refusal::SlowRequest,
        UploadError::Broken(_) | UploadError::Reset => Refusal::BrokenRequest,
        UploadError::TooLarge(limit) => Refusal::Unclaimed(ClaimError::TooLarge(limit)),
        UploadError::Unwanted => Refusal::Unclaimed(Malformed::Content(head.method.clone()).into()),
    })
}

/// A token below the mark is stale, whatever else is to be said of it.
fn refuse_stale(worker: &Worker, resource: &Resource, token: Token) -> Result<(), Refusal> {
    match worker.ledger.look(resource, token) {
        Err(denied @ Denied::Stale { .. }) => Err(refusal(worker, denied)),
        _ => Ok(()),
    }
}

fn refusal(worker: &Worker, denied: Denied) -> Refusal {
    match denied {
        Denied::Stale { mark } => Refusal::Stale { mark },
        Denied::Ahead { .. } | Denied::Raising => Refusal::Raising,
        Denied::Frozen { mark } => Refusal::Frozen { mark },
        Denied::Vacant { mark } => Refusal::Departed { mark },
        Denied::Unborn { mark } => Refusal::NotIssued { mark },
        Denied::NoRoom { limit } => Refusal::NoRoom { limit },
        Denied::Full => Refusal::Overloaded,
        Denied::Halted => Refusal::StoreUnavailable,
        Denied::Fenced if worker.store.is_away() => Refusal::StoreUnavailable,
        Denied::Fenced => Refusal::Fenced,
    }
}

impl From<ConnectError> for Refusal {
    fn from(error: ConnectError) -> Self {
        let fault = match &error {
            ConnectError::Slow => Fault::Slow("it did not accept a connection in time"),
            ConnectError::Refused(_) => Fault::Broken("no connection could be made"),
            ConnectError::NotHttp2 => Fault::Broken("it does not speak HTTP/2, as its route wants"),
            ConnectError::Tls(error) => Fault::Broken(ClientFailure::of_handshake(error).words()),
            ConnectError::Handshake(_) => Fault::Broken("HTTP could not be started on the connection"),
        };
        tracing::debug!(error = &error as &dyn std::error::Error, "no upstream connection");
        Self::Upstream { fault, outcome: Outcome::NotSent }
    }
}
