//! What a client would do that sends a request again when it is broken off, as ready-made pools do: for the control
//! `client-retries-on` only. No release has this file.

use std::rc::Rc;
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;

use super::body::Upload;
use super::flight::{Flight, Lost};
use crate::config::Route;
use crate::controls::{Rule, breaks};
use crate::gate::Worker;
use crate::gate::accept::Conduct;

/// A request that may be sent once more.
pub(super) struct Again {
    worker: Rc<Worker>,
    route: Arc<Route>,
    client: Rc<Conduct>,
    request: Request<Upload>,
}

type Answered = Result<(Response<()>, Incoming), Lost>;

impl Again {
    /// As far as the body was read before the request is sent. None if the rule is kept.
    pub(super) fn of(
        worker: &Rc<Worker>,
        route: &Arc<Route>,
        client: &Rc<Conduct>,
        request: &Request<Upload>,
    ) -> Option<Self> {
        if !breaks(Rule::SendOnce) {
            return None;
        }
        let mut copy = Request::new(request.body().copy());
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.headers_mut() = request.headers().clone();
        Some(Self { worker: worker.clone(), route: route.clone(), client: client.clone(), request: copy })
    }

    /// On a fresh connection, without asking the fence.
    pub(super) async fn if_broken(
        again: Option<Self>,
        flight: Rc<Flight>,
        answer: Answered,
    ) -> (Rc<Flight>, Answered) {
        let (Some(Self { worker, route, client, request }), Err(Lost::Broken(_))) = (again, &answer) else {
            return (flight, answer);
        };
        let Ok(line) = worker.pool.check_out(&route).await else { return (flight, answer) };
        let exchange = Flight::begin(worker, (route, None), client, line, None, request);
        (exchange.flight(), exchange.await)
    }
}
