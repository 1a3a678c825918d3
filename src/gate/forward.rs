//! An admitted request to its upstream and the response back. Nothing is ever sent twice.
//!
//! The line was checked out before admission, so from here on the request is only written. How it ends is
//! the [`flight`]'s business; this module turns heads into heads.

pub(super) mod body;
pub(super) mod flight;
mod headers;
pub(super) mod pool;
#[cfg(feature = "controls")]
mod resend;
pub(crate) mod sockets;
mod wire;

use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use futures_util::future::LocalBoxFuture;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use tower::Service;

use super::respond::{Answer, Body, Fault, Outcome, Refusal, Refused, Story};
use super::{Admitted, Worker};
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
            let Admitted { mut request, client, route, line, permit, mut story } = admitted;
            if !headers::outbound(&mut request, &route.upstream, client.address()) {
                worker.pool.check_in(line);
                return Err(Refused { refusal: Refusal::TargetTooLong, story });
            }
            frame(&mut request);
            let started = Instant::now();
            #[cfg(feature = "controls")]
            let again = resend::Again::of(&worker, &route, &client, &request);
            let exchange = Flight::begin(worker, route, client, line, permit, request);
            let flight = exchange.flight();
            let answer = exchange.await;
            #[cfg(feature = "controls")]
            let (flight, answer) = resend::Again::if_broken(again, flight, answer).await;
            story.upstream = Some(started.elapsed());
            match answer {
                Ok((head, body)) => answer_with(head, flight, body, story),
                Err(lost) => Err(Refused { refusal: lost.into(), story }),
            }
        })
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
    if head.status() == StatusCode::SWITCHING_PROTOCOLS {
        // No upgrade was asked for: whatever speaks there now is not HTTP.
        flight.lose("the upstream switched protocols unasked");
        return Err(Refused { refusal: Refusal::upstream_broken("it switched protocols unasked"), story });
    }
    let is_framed = |name| head.headers().contains_key(name);
    if !is_framed(CONTENT_LENGTH) && !is_framed(TRANSFER_ENCODING) && !body.is_end_stream() {
        flight.is_open_ended();
    }
    headers::inbound(&mut head);
    let body = if body.is_end_stream() {
        // Nobody polls a body that is empty, so its end is now.
        flight.complete();
        Body::empty()
    } else {
        Body::download(Download::new(flight, body))
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
            Lost::Broken(error) => {
                debug(&error);
                Self::upstream_broken("it closed the connection without a complete response head")
            }
            Lost::Cut(why @ flight::FENCED) => Self::upstream_broken(why),
            Lost::Cut(why) => Self::Upstream { fault: Fault::Slow(why), outcome: Outcome::Unknown },
        }
    }
}

fn debug(error: &hyper::Error) {
    tracing::debug!(error = error as &dyn std::error::Error, "no response");
}
