//! A claim before its fence: admitted with a permit, or refused with the reason.
//!
//! The order matters. A deposed leader is refused before its body is read. A token above the mark waits here
//! for the raise, without a connection. The upstream connection is checked out *before* the final
//! compare-and-swap, so that nothing but the write lies between admission and the wire.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use futures_util::future::LocalBoxFuture;
use highgate_elector::{Resource, Token};
use http::Request;
use http::request::Parts;
use hyper::body::Incoming;
use tokio::time::timeout_at;
use tower::{Layer, Service};

use super::claim::{Stand, Waiver};
use super::forward::body::{Upload, UploadError};
use super::forward::pool::{ConnectError, Line};
use super::respond::{Answer, Fault, Outcome, Refusal, Refused};
use super::{Admitted, Claimed, Worker};
use crate::config::{OnUnknown, Route, Tokens};
use crate::controls::{Rule, breaks};
use crate::ledger::{Cell, Denied, Permit};
use crate::metrics::Decision;
use crate::store::Unproved;

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
            let Claimed { head, body, route, stand, client, mut story } = claimed;
            let judged = judge(&worker, &route, stand, &head, body).await;
            worker.metrics.decided(story.started.elapsed());
            let (upload, line, permit, decision) = match judged {
                Ok(passed) => passed,
                Err(refusal) => return Err(Refused { refusal, story }),
            };
            story.decision = decision;
            let request = Request::from_parts(head, upload);
            inner.call(Admitted { request, client, route, line, permit, story }).await
        })
    }
}

type Passed = (Upload, Box<Line>, Option<Permit>, Decision);

async fn judge(
    worker: &Worker,
    route: &Arc<Route>,
    stand: Stand,
    head: &Parts,
    body: Incoming,
) -> Result<Passed, Refusal> {
    let (resource, token) = match stand {
        Stand::Fenced { resource, token } => (resource, token),
        Stand::Unfenced => return pass(worker, route, head, body, Decision::Unfenced).await,
        Stand::Unchecked { resource, waiver } => {
            if waiver == Waiver::Audited {
                tracing::warn!(route = %route.name, %resource, "a fenced request without a token was let through");
            }
            return pass(worker, route, head, body, Decision::Allowed).await;
        }
    };
    let mut approach = Approach::new(worker, route, &resource, token);
    approach.wait_until_open().await?;
    let upload = Upload::prepare(body, head, worker.request_timeout).await?;
    loop {
        // Open, most often at the first look; not, if the gate moved while the body was on its way.
        let cell = approach.wait_until_open().await?;
        let line = worker.pool.check_out(route).await?;
        line.arm();
        match cell.admit(token) {
            Ok(permit) => {
                line.lend(&permit);
                let permit = Some(permit).filter(|_| !breaks(Rule::Guard));
                return Ok((upload, line, permit, Decision::Admitted));
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

/// Without a fence: the connection is all that is needed.
async fn pass(
    worker: &Worker,
    route: &Route,
    head: &Parts,
    body: Incoming,
    decision: Decision,
) -> Result<Passed, Refusal> {
    let upload = Upload::prepare(body, head, worker.request_timeout).await?;
    Ok((upload, worker.pool.check_out(route).await?, None, decision))
}

/// A token on its way to an open gate.
struct Approach<'a> {
    worker: &'a Worker,
    route: &'a Route,
    resource: &'a Resource,
    token: Token,
    /// Since when it waits: the hold time-out counts over all waits of one request.
    held_since: Option<Instant>,
    asked: bool,
}

impl<'a> Approach<'a> {
    fn new(worker: &'a Worker, route: &'a Route, resource: &'a Resource, token: Token) -> Self {
        Self { worker, route, resource, token, held_since: None, asked: false }
    }

    /// Waits, no longer than the route's hold time-out, until the gate is open at this token.
    async fn wait_until_open(&mut self) -> Result<Arc<Cell>, Refusal> {
        let cell = match self.find()? {
            Some(cell) => cell,
            None => self.prove().await?,
        };
        if let View::Open = self.look(&cell)? {
            return Ok(cell);
        }
        loop {
            let changed = cell.changed();
            match self.look(&cell)? {
                View::Open => return Ok(cell),
                View::Unproved => drop(self.prove().await?),
                View::Shut => {
                    if timeout_at(self.deadline().into(), changed).await.is_err() {
                        return Err(self.late());
                    }
                }
            }
        }
    }

    /// The hold time-out counts over all waits of one request.
    fn deadline(&mut self) -> Instant {
        *self.held_since.get_or_insert_with(Instant::now) + self.route.hold_timeout
    }

    fn late(&self) -> Refusal {
        if self.worker.store.is_away() { Refusal::StoreUnavailable } else { Refusal::Raising }
    }

    /// The resource's cell. Only a token that may raise makes a new one: others cost no memory.
    fn find(&self) -> Result<Option<Arc<Cell>>, Refusal> {
        match (self.worker.ledger.get(self.resource.as_str()), self.route.tokens) {
            (Some(cell), _) => Ok(Some(cell)),
            (None, Tokens::Trusted) => Ok(Some(self.worker.ledger.enter(self.resource))),
            (None, Tokens::Issued) if self.worker.store.proves() => Ok(None),
            (None, Tokens::Issued) => Err(Refusal::NotIssued { mark: 0 }),
        }
    }

    fn look(&mut self, cell: &Cell) -> Result<View, Refusal> {
        match cell.look(self.token) {
            Ok(()) if self.route.on_unknown == OnUnknown::Block && !cell.blocks() => {
                // What this request may leave behind has to be known to everybody before it passes.
                self.worker.store.block(self.resource.clone()).map_err(|_| Refusal::Overloaded)?;
                Ok(View::Shut)
            }
            Ok(()) => Ok(View::Open),
            Err(Denied::Raising) => Ok(View::Shut),
            Err(Denied::Ahead { mark }) => match self.route.tokens {
                Tokens::Trusted => self.ask().map(|()| View::Shut),
                Tokens::Issued if self.asked => Ok(View::Shut),
                Tokens::Issued if self.worker.store.proves() => Ok(View::Unproved),
                // Whoever was elected had the mark raised before it was told its token.
                Tokens::Issued => Err(Refusal::NotIssued { mark }),
            },
            Err(denied) => Err(refusal(self.worker, denied)),
        }
    }

    /// Has the store find out whether the token was issued to who leads now, and raise the mark if so.
    async fn prove(&mut self) -> Result<Arc<Cell>, Refusal> {
        self.asked = true;
        let block = self.route.on_unknown == OnUnknown::Block;
        let proof = self.worker.store.prove(self.resource.clone(), self.token, Some(block));
        let deadline = self.deadline();
        match timeout_at(deadline.into(), proof).await {
            Ok(Ok(())) => Ok(self.worker.ledger.enter(self.resource)),
            Ok(Err(Unproved::NotIssued)) => Err(Refusal::NotIssued { mark: self.mark() }),
            Ok(Err(Unproved::Stale { mark })) => Err(Refusal::Stale { mark }),
            Ok(Err(Unproved::Overloaded)) => Err(Refusal::Overloaded),
            Ok(Err(Unproved::Away)) => Err(refusal(self.worker, Denied::Fenced)),
            Err(_) => Err(self.late()),
        }
    }

    fn mark(&self) -> u64 {
        self.worker.ledger.get(self.resource.as_str()).map_or(0, |cell| cell.mark())
    }

    fn ask(&mut self) -> Result<(), Refusal> {
        if self.asked {
            return Ok(());
        }
        self.asked = true;
        let block = self.route.on_unknown == OnUnknown::Block;
        self.worker
            .store
            .want(self.resource.clone(), self.token, Some(block))
            .map_err(|_| Refusal::Overloaded)
    }
}

/// What a token sees of its gate.
enum View {
    Open,
    /// It may open by waiting.
    Shut,
    /// The token is above the mark, and nobody has checked that it was issued.
    Unproved,
}

fn refusal(worker: &Worker, denied: Denied) -> Refusal {
    match denied {
        Denied::Stale { mark } => Refusal::Stale { mark },
        Denied::Ahead { .. } | Denied::Raising => Refusal::Raising,
        Denied::Frozen { mark } => Refusal::Frozen { mark },
        Denied::Vacant { mark } | Denied::Unborn { mark } => Refusal::NotIssued { mark },
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
            ConnectError::Handshake(_) => Fault::Broken("HTTP could not be started on the connection"),
        };
        tracing::debug!(error = &error as &dyn std::error::Error, "no upstream connection");
        Self::Upstream { fault, outcome: Outcome::NotSent }
    }
}

impl From<UploadError> for Refusal {
    fn from(error: UploadError) -> Self {
        match error {
            UploadError::Slow => Self::SlowRequest,
            UploadError::Broken(_) | UploadError::Reset => Self::BrokenRequest,
        }
    }
}
