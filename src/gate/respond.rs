//! Every answer the gateway makes itself, from one table, and the record of every answer.
//!
//! The outermost service of the stack: whatever happened inside comes out as an [`Answer`] or a [`Refused`],
//! and leaves as HTTP, one metric and at most one log line. Refusals that are alike share theirs.

mod detail;
mod grpc;
mod log;
mod table;
mod warnings;

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use highgate_elector::{Resource, Token};
use http::header::CONNECTION;
use http::{HeaderValue, Response, StatusCode, Version};
use http_body::{Frame, SizeHint};
use http_body_util::Full;
use tower::{Layer, Service};

use super::accept::{Busy, Conduct, Unreadable};
use super::claim::{ClaimError, Malformed};
use super::entitle::Forbidden;
use super::forward::body::{Download, DownloadError};
use super::{Inbound, Worker};
use crate::config::Route;
use crate::metrics::Decision;
use crate::signing::Unverified;
use crate::tls::Identity;
pub(crate) use grpc::broken_off;
pub(crate) use log::Answers;
pub(crate) use table::is_grpc;
pub(crate) use warnings::Warning;

/// What is known of a request by the time it is answered.
pub(crate) struct Story {
    pub(crate) started: Instant,
    pub(crate) route: Option<Arc<Route>>,
    pub(crate) resource: Option<Resource>,
    /// Whether the request names a resource; known of what was refused.
    pub(crate) names_resource: bool,
    pub(crate) token: Option<Token>,
    /// Who sent it, where that was asked.
    pub(crate) identity: Option<Box<Identity>>,
    pub(crate) decision: Decision,
    /// How many microseconds the upstream took to its response head.
    pub(crate) upstream: Option<u32>,
}

impl Story {
    /// The reason of a request that passed, for metrics and logs.
    fn reason(&self) -> &'static str {
        if self.decision == Decision::Allowed { "missing" } else { "none" }
    }
}

/// The upstream's own answer.
pub(crate) struct Answer {
    pub(crate) response: Response<Body>,
    pub(crate) story: Story,
}

/// No answer from the upstream, and why.
pub(crate) struct Refused {
    pub(crate) refusal: Refusal,
    pub(crate) story: Story,
}

/// Why the gateway answers itself. A value, not an error: refusing is its work.
#[derive(Debug)]
pub(crate) enum Refusal {
    Unclaimed(ClaimError),
    /// The bytes on the connection are not one clear sequence of requests, or a head is too large.
    Unreadable(Unreadable),
    TargetTooLong,
    SlowRequest,
    BrokenRequest,
    /// The body broke off after a part of it was forwarded.
    CutShort(RequestFault),
    /// Whoever sent it may not use the resource.
    Forbidden(Forbidden),
    Stale {
        mark: u64,
    },
    NotIssued {
        mark: u64,
    },
    /// Its signature is not one over this token and this resource, or not good any more.
    Unverified(Unverified),
    /// The token is the mark, and its leader has gone.
    Departed {
        mark: u64,
    },
    Frozen {
        mark: u64,
    },
    Raising,
    StoreUnavailable,
    /// This replica is not one of those that may pass requests.
    Fenced,
    Overloaded,
    /// Too many requests of this client have failed for their tokens.
    Throttled,
    /// The resource is new, and there are as many as there may be.
    NoRoom {
        limit: usize,
    },
    Upstream {
        fault: Fault,
        outcome: Outcome,
    },
}

/// What was wrong with a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestFault {
    Broken,
    /// It is larger than this limit.
    TooLarge(u64),
}

/// What the upstream did not do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Broken(&'static str),
    Slow(&'static str),
}

/// Whether a request that failed may have taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    NotSent,
    Unknown,
}

impl Refused {
    pub(crate) fn forbidden(why: Forbidden, story: Story) -> Self {
        let story = Story { identity: why.identity().cloned().map(Box::new), ..story };
        Self { refusal: Refusal::Forbidden(why), story }
    }

    /// Whether the connection cannot be trusted for another request.
    pub(crate) fn closes_connection(&self) -> bool {
        table::verdict(&self.refusal).close
    }
}

impl From<Unverified> for Refusal {
    fn from(why: Unverified) -> Self {
        Self::Unverified(why)
    }
}

impl From<Forbidden> for Refusal {
    fn from(why: Forbidden) -> Self {
        Self::Forbidden(why)
    }
}

impl Refusal {
    /// Whether the token or the name is to blame, and not the gateway or the moment: a raise that only takes long is
    /// not, or thousands of resources that fail over together would look like an attack.
    pub(crate) fn blames_token(&self) -> bool {
        let of_token = |why: &Malformed| {
            matches!(why, Malformed::Token(_) | Malformed::DuplicateToken | Malformed::Signature(_))
        };
        match self {
            Self::NotIssued { .. } | Self::NoRoom { .. } => true,
            // What was good once is shown by honest jobs, too, until they renew; and so is what was signed by a key that this
            // gateway was not given yet.
            Self::Unverified(why) => {
                !matches!(why, Unverified::Expired(_) | Unverified::Retired(_) | Unverified::UnknownKey(_))
            }
            Self::Unclaimed(ClaimError::Malformed(why)) => of_token(why),
            _ => false,
        }
    }

    pub(crate) fn upstream_broken(how: &'static str) -> Self {
        Self::Upstream { fault: Fault::Broken(how), outcome: Outcome::Unknown }
    }
}

/// A response body: the gateway's own, or the upstream's on its way.
pub(crate) struct Body {
    kind: Kind,
    /// The connection is busy until the body has ended.
    busy: Option<Busy>,
}

enum Kind {
    Own(Full<Bytes>),
    Download(Download),
}

impl Body {
    pub(crate) fn empty() -> Self {
        Self::own(Bytes::new())
    }

    fn own(bytes: Bytes) -> Self {
        Self { kind: Kind::Own(Full::new(bytes)), busy: None }
    }

    pub(crate) fn download(download: Download) -> Self {
        Self { kind: Kind::Download(download), busy: None }
    }

    fn keeping(self, mut busy: Busy) -> Self {
        busy.asked(true);
        Self { busy: Some(busy), ..self }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = DownloadError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, DownloadError>>> {
        let this = self.get_mut();
        let frame = match &mut this.kind {
            Kind::Own(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Kind::Download(body) => Pin::new(body).poll_frame(cx),
        };
        if let Some(busy) = &mut this.busy {
            // Pending: it is the upstream that is waited for, not the client.
            busy.asked(matches!(frame, Poll::Ready(Some(_))));
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Own(body) => body.is_end_stream(),
            Kind::Download(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Own(body) => body.size_hint(),
            Kind::Download(body) => body.size_hint(),
        }
    }
}

#[derive(Clone)]
pub(crate) struct RespondLayer {
    worker: Rc<Worker>,
    client: Rc<Conduct>,
}

impl RespondLayer {
    pub(crate) fn new(worker: Rc<Worker>, client: Rc<Conduct>) -> Self {
        Self { worker, client }
    }
}

impl<S> Layer<S> for RespondLayer {
    type Service = Respond<S>;

    fn layer(&self, inner: S) -> Respond<S> {
        Respond { worker: self.worker.clone(), client: self.client.clone(), inner }
    }
}

#[derive(Clone)]
pub(crate) struct Respond<S> {
    worker: Rc<Worker>,
    client: Rc<Conduct>,
    inner: S,
}

impl<S> Service<Inbound> for Respond<S>
where
    S: Service<Inbound, Response = Answer, Error = Refused> + 'static,
{
    type Response = Response<Body>;
    /// Everything that can go wrong has an answer.
    type Error = std::convert::Infallible;
    type Future = LocalBoxFuture<'static, Result<Response<Body>, std::convert::Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Inbound) -> Self::Future {
        let (worker, client) = (self.worker.clone(), self.client.clone());
        let busy = client.begin_request();
        let is_last = client.has_begun(worker.limits.requests_per_connection);
        if is_last {
            client.takes_no_more();
        }
        let line = worker.answers.line(&request, &self.client);
        let grpc = table::is_grpc(request.headers());
        let one_at_a_time = request.version() < Version::HTTP_2;
        let answer = self.inner.call(request);
        Box::pin(async move {
            let (mut response, story, refusal) = match answer.await {
                Ok(Answer { response, story }) => (response, story, None),
                Err(Refused { refusal, story }) => {
                    let turned_away = refusal.blames_token() && !worker.clients.refuse(client.peer().ip());
                    let refusal = if turned_away { Refusal::Throttled } else { refusal };
                    let response = table::response(&refusal, &story, grpc, &worker.token_header);
                    (response, story, Some(refusal))
                }
            };
            let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
            if !switches {
                client.goes_on_with_http();
            }
            if one_at_a_time && !switches && (is_last || worker.is_leaving()) {
                // The next request on this connection would meet its end. HTTP/2 says so for the whole connection.
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            record(&worker, &story, refusal.as_ref());
            match &refusal {
                None => line.write_passed(response.status(), &story),
                Some(refusal) => worker.answers.refused(line, response.status(), &story, refusal),
            }
            Ok(response.map(|body| body.keeping(busy)))
        })
    }
}

/// Counts the answer.
fn record(worker: &Worker, story: &Story, refusal: Option<&Refusal>) {
    let metrics = worker.route_metrics(story.route.as_deref());
    let Some(refusal) = refusal else {
        metrics.count(story.decision, story.reason());
        return;
    };
    let decision = table::decision(refusal);
    metrics.count(decision, table::reason(refusal));
    if let Some(limit) = table::limit(refusal) {
        worker.metrics.limited(limit);
    }
    if decision == Decision::Refused {
        worker.ledger.count_refused(story.resource.as_ref());
    }
    if let (Refusal::Stale { .. }, Some(resource)) = (refusal, &story.resource) {
        metrics.stale(resource);
    }
}
