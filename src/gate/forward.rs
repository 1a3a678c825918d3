//! An admitted request to its upstream and the response back. Nothing is ever sent twice.
//!
//! The line was checked out before admission, so from here on the request is only written. How it ends is
//! the [`flight`]'s business; this module turns heads into heads.

pub(super) mod body;
mod dialect;
pub(super) mod flight;
mod frames;
mod grpc;
mod headers;
mod http2;
pub(super) mod pool;
#[cfg(feature = "controls")]
mod resend;
pub(crate) mod sockets;
pub(crate) mod tunnel;
mod upgrade;
mod wire;

use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use futures_util::future::LocalBoxFuture;
use http::header::{CONNECTION, CONTENT_LENGTH, TRAILER, TRANSFER_ENCODING};
use http::{HeaderValue, Request, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use tower::Service;

use super::accept::Conduct;
use super::respond::{Answer, Body, Fault, Outcome, Refusal, Refused, Story, is_grpc};
use super::{Admitted, Worker};
use crate::config::{Protocol, Route, UpstreamProtocol, is_safe};
use body::{Download, Upload};
use flight::{Flight, Lost};

/// The innermost service.
#[derive(Clone)]
pub(crate) struct Forward {
    worker: Rc<Worker>,
}

impl Forward {
    pub(crate) fn new(worker: Rc<Worker>) -> Self {
        Self { worker }
    }
}

impl Service<Admitted> for Forward {
    type Response = Answer;
    type Error = Refused;
    type Future = LocalBoxFuture<'static, Result<Answer, Refused>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refused>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, admitted: Admitted) -> Self::Future {
        let worker = self.worker.clone();
        Box::pin(async move {
            let Admitted { mut request, client, route, upgrade, line, fenced, mut story } = admitted;
            if !prepare(&mut request, &route, &client, (fenced.is_some(), upgrade.as_ref())) {
                worker.pool.check_in(line);
                return Err(Refused { refusal: Refusal::TargetTooLong, story });
            }
            let started = Instant::now();
            #[cfg(feature = "controls")]
            let again = resend::Again::of(&worker, &route, &client, &request);
            let exchange = Flight::begin(worker, (route, upgrade), client, line, fenced, request);
            let flight = exchange.flight();
            let answer = exchange.await;
            #[cfg(feature = "controls")]
            let (flight, answer) = resend::Again::if_broken(again, flight, answer).await;
            story.upstream = Some(u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX));
            match answer {
                Ok((head, _)) if upgrade::is_switch(&head) => upgrade::answer(flight, head, story),
                Ok((head, body)) => answer_with(head, flight, body, story),
                Err(lost) => Err(Refused { refusal: lost.into(), story }),
            }
        })
    }
}

/// Makes of the head that came the one that is sent. False if its target is too long for that.
fn prepare(
    request: &mut Request<Upload>,
    route: &Route,
    client: &Conduct,
    (fenced, upgrade): (bool, Option<&Protocol>),
) -> bool {
    if !headers::outbound(request, &route.upstream, client.address(), client.is_encrypted()) {
        return false;
    }
    announce_trailers(request);
    headers::respell_length(request.headers_mut());
    match route.upstream_protocol {
        UpstreamProtocol::H2 => http2::translate(request, &route.upstream),
        UpstreamProtocol::Http1 => {
            frame(request);
            if let Some(protocol) = upgrade {
                upgrade::name(request.headers_mut(), protocol);
            } else if is_alone(request, route, fenced) {
                request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            true
        }
    }
}

/// Whether a request has its upstream connection for itself, and says so. An upstream that does not read a body takes it
/// for the next request on the connection, unless it was told that there is none. So that whoever has no token cannot
/// write a request that no fence has seen, every body without a permit goes alone, and so does one on a method whose body
/// many servers do not read.
fn is_alone(request: &Request<Upload>, route: &Route, fenced: bool) -> bool {
    let has_body = !request.body().is_end_stream();
    !route.bodies.keep_alive || has_body && (!fenced || is_safe(request.method()))
}

/// Only what follows the body is announced.
fn announce_trailers(request: &mut Request<Upload>) {
    if request.headers_mut().remove(TRAILER).is_some()
        && let Some(names) = request.body().announcement()
    {
        request.headers_mut().insert(TRAILER, names);
    }
}

/// Says how the body is framed where hyper would guess: a body without a length goes out in chunks, whatever
/// the method, and so does one with trailers, which have no other place.
fn frame(request: &mut Request<Upload>) {
    let body = request.body();
    if body.is_end_stream() || body.size_hint().exact().is_some() {
        return;
    }
    let headers = request.headers_mut();
    headers.remove(CONTENT_LENGTH);
    headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
}

/// The upstream's response as the client gets it.
fn answer_with(
    mut head: Response<()>,
    flight: Rc<Flight>,
    body: Incoming,
    story: Story,
) -> Result<Answer, Refused> {
    if let Err(why) = flight.judge(&mut head, &body) {
        return Err(Refused { refusal: Refusal::upstream_broken(why), story });
    }
    let grpc = is_grpc(head.headers()) && flight.may_end_with_trailers();
    headers::inbound(&mut head);
    let body = if body.is_end_stream() {
        // Nobody polls a body that is empty, so its end is now.
        flight.complete();
        Body::empty()
    } else {
        let download = Download::new(flight, body);
        Body::download(if grpc { download.for_grpc() } else { download })
    };
    Ok(Answer { response: head.map(|()| body), story })
}

impl From<Lost> for Refusal {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::NotSent(error) => {
                debug(&error);
                let fault = Fault::Broken("the connection was gone before anything was sent");
                Self::Upstream { fault, outcome: Outcome::NotSent }
            }
            Lost::Refused(error) => {
                debug(&error);
                let fault = Fault::Broken("it refused the request without processing it");
                Self::Upstream { fault, outcome: Outcome::NotSent }
            }
            Lost::Broken(error) => {
                debug(&error);
                Self::upstream_broken("it closed the connection without a complete response head")
            }
            Lost::CutShort(fault) => Self::CutShort(fault),
            Lost::Cut(why @ flight::FENCED) => Self::upstream_broken(why),
            Lost::Cut(why) => Self::Upstream { fault: Fault::Slow(why), outcome: Outcome::Unknown },
        }
    }
}

fn debug(error: &hyper::Error) {
    tracing::debug!(error = error as &dyn std::error::Error, "no response");
}
