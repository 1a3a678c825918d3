//! One forwarded request, from admission to its certain end.
//!
//! Three parties touch a flight, all on one core: the exchange that waits for the response head, the download
//! that reads its body, and the sweeper that ends it when a time-out passes or a higher token has waited long
//! enough. Whoever sees the end first takes what is inside, so there is exactly one end.
//!
//! What must stay true: the permit is given back only after a complete response that says how the request ended, or
//! when nothing was sent; every other end keeps it for the route's lock-delay, whatever the client does.

mod outstayed;

use std::cell::{Cell, RefCell};
use std::error::Error as _;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use slab::Slab;

use super::body::{Download, Passage, Upload, UploadError};
use super::dialect::Responding;
use super::grpc::Said;
use super::headers;
use super::pool::Line;
use super::upgrade::{self, Asked};
use super::wire::Wire;
use crate::config::{OnUnknown, Protocol, Route, UnknownStatuses};
use crate::controls::{Rule, breaks};
use crate::events::Notice;
use crate::gate::accept::Conduct;
use crate::gate::respond::{RequestFault, Warning};
use crate::gate::{InFlight, Worker};
use outstayed::Outstayed;

pub(crate) struct Flight {
    worker: Rc<Worker>,
    route: Arc<Route>,
    /// What the request asks to go on with in HTTP's place.
    upgrade: Option<Asked>,
    client: Rc<Conduct>,
    /// Gone once the flight has ended.
    live: RefCell<Option<Live>>,
    /// Why the sweeper ended it, for whoever polls next.
    cut: Cell<Option<&'static str>>,
    /// The task that polls this flight now.
    waker: Cell<Option<Waker>>,
    fenced: bool,
    started: Instant,
    /// How far the request has come, and when a byte last moved in either direction.
    passage: Rc<Passage>,
    has_body: bool,
    /// The status, once the response head is in.
    status: Cell<Option<StatusCode>>,
    /// Nothing but the connection's end tells where the response ends, so a broken one looks whole.
    open_ended: Cell<bool>,
    /// The connections go on without HTTP, and the tunnel between them sees to the client.
    switched: Cell<bool>,
    /// What the response says of its call, if it is gRPC.
    said: Cell<Option<Said>>,
    /// Since when nobody but the fence waits for the end.
    orphaned_since: Cell<Option<Instant>>,
    /// Since when it keeps somebody waiting, and why.
    outstayed: Cell<Option<(Instant, Outstayed)>>,
    slot: Cell<usize>,
}

struct Live {
    line: Box<Line>,
    fenced: Option<InFlight>,
}

/// Waits for the response head. Dropped early, a fenced one goes on without its client.
pub(crate) struct Exchange {
    flight: Rc<Flight>,
    responding: Option<Responding>,
}

/// Why there is no response.
#[derive(Debug)]
pub(crate) enum Lost {
    /// Not a byte was sent.
    NotSent(hyper::Error),
    /// The upstream says that it did not process what was sent.
    Refused(hyper::Error),
    /// Something was sent, and the connection ended without a response.
    Broken(hyper::Error),
    /// A part of the request was sent, and the client did not send the rest as it should.
    CutShort(RequestFault),
    /// The gateway gave up waiting.
    Cut(&'static str),
}

/// Flights of one core that go on without a client. They hold upstream connections that no limit on clients
/// counts.
const MAX_ORPHANS: usize = 1024;

/// Why the sweeper cuts.
pub(crate) const SLOW_HEAD: &str = "the upstream did not answer in time";
const STANDSTILL: &str = "no byte moved for the idle time-out";
const TOTAL: &str = "the request took longer than its total time-out";
const ORPHANED: &str = "the client hung up and the response does not end";
pub(crate) const FENCED: &str = "this gateway was fenced while the request was under way";
const UNASKED: &str = "protocols were switched unasked";
const EARLY: &str = "the response ended before the request was sent whole";

impl Flight {
    pub(super) fn begin(
        worker: Rc<Worker>,
        (route, upgrade): (Arc<Route>, Option<Protocol>),
        client: Rc<Conduct>,
        line: Box<Line>,
        fenced: Option<InFlight>,
        request: Request<Upload>,
    ) -> Exchange {
        let mut line = line;
        let now = Instant::now();
        let passage = request.body().depart();
        let has_body = !request.body().is_end_stream();
        let upgrade = upgrade.map(|protocol| Asked::new(protocol, request.headers()));
        line.carry(passage.clone());
        let responding = line.dialect.send(request);
        let flight = Rc::new(Self {
            worker: worker.clone(),
            route,
            upgrade,
            client,
            fenced: fenced.is_some(),
            live: RefCell::new(Some(Live { line, fenced })),
            cut: Cell::new(None),
            waker: Cell::new(None),
            started: now,
            passage,
            has_body,
            status: Cell::new(None),
            open_ended: Cell::new(false),
            switched: Cell::new(false),
            said: Cell::new(None),
            orphaned_since: Cell::new(None),
            outstayed: Cell::new(None),
            slot: Cell::new(0),
        });
        flight.slot.set(worker.flights.insert(flight.clone()));
        Exchange { flight, responding: Some(responding) }
    }

    /// Moves bytes on the upstream connection. An error says why the flight was cut.
    pub(super) fn drive(&self, cx: &mut Context<'_>) -> Result<(), &'static str> {
        if let Some(why) = self.cut.get() {
            return Err(why);
        }
        self.waker.set(Some(cx.waker().clone()));
        if let Some(live) = self.live.borrow_mut().as_mut() {
            live.line.drive(cx);
        }
        Ok(())
    }

    pub(super) fn moved(&self) {
        self.passage.moved();
    }

    /// The response has ended to its last byte.
    pub(super) fn complete(&self) {
        if !self.passage.is_sent_whole() {
            // Bytes of the request are still leaving, and nobody will say what becomes of them.
            return self.lose(EARLY);
        }
        let Some(mut live) = self.take() else { return };
        if self.may_be_followed() && live.line.is_usable() {
            self.worker.pool.check_in(live.line);
        }
        if !self.switched.get() {
            // How long a stream lives says nothing of how fast its upstream is.
            self.worker.route_metrics(Some(&self.route)).upstream(self.started.elapsed());
        }
        let Some(fenced) = live.fenced else { return };
        match self.doubt() {
            Some(why) => self.unknown(fenced, why),
            None => drop(fenced),
        }
    }

    /// Whether another request may go out on the same connection. An upstream that turned a request down may not have
    /// read its body; it would read it now, as a request, and the answer to that would be taken for another's.
    fn may_be_followed(&self) -> bool {
        if self.upgrade.is_some() {
            // It may not be sure itself what is spoken there now.
            return false;
        }
        if self.ends_with_a_frame() {
            // The frames of one stream are never taken for those of another.
            return self.route.bodies.keep_alive;
        }
        !self.has_body || self.status.get().is_some_and(|status| status.is_success())
    }

    /// Why a complete response does not say that the request has ended.
    fn doubt(&self) -> Option<&'static str> {
        if self.open_ended.get() {
            return Some("the response had no end but that of its connection");
        }
        if self.route.unknown_statuses.is_empty() || breaks(Rule::UnknownStatuses) {
            return None;
        }
        let undecided = |status: &StatusCode| self.route.unknown_statuses.contains(*status);
        let by_status = self.status.get().filter(undecided).map(UnknownStatuses::explain);
        by_status.or_else(|| self.said.get().and_then(Said::doubt))
    }

    /// Whether only a frame can say that the response has ended.
    pub(super) fn ends_with_a_frame(&self) -> bool {
        self.passage.is_in_frames()
    }

    /// The client's side has a place after the body.
    pub(super) fn may_end_with_trailers(&self) -> bool {
        self.client.is_multiplexed()
    }

    /// Judges a response by its head, whether or not there is a client left to have it: how its end is to be told. An
    /// error says why it has none that anybody could tell; the flight is lost.
    pub(super) fn judge(&self, head: &mut Response<()>, body: &Incoming) -> Result<(), &'static str> {
        if upgrade::is_switch(head) {
            // No upgrade was asked for, or nobody is left to have it: whatever speaks there now is not HTTP.
            self.lose(UNASKED);
            return Err(UNASKED);
        }
        self.said.set(Said::in_head(head.headers()));
        match headers::settle(head) {
            // The end of an HTTP/2 stream is a frame of its own.
            Ok(headers::End::Connection) if head.version() < Version::HTTP_2 && !body.is_end_stream() => {
                self.open_ended.set(true);
            }
            Ok(_) => {}
            Err(why) => {
                self.lose("nobody can tell where the response ends");
                return Err(why);
            }
        }
        Ok(())
    }

    /// Goes on without HTTP after a 101: the protocol that was agreed on, and what the upstream has said in it already. An
    /// error says why not; the flight is lost.
    pub(super) fn switch(&self, head: &Response<()>) -> Result<(Protocol, Bytes), &'static str> {
        let switched = match &self.upgrade {
            None => Err(UNASKED),
            // Bytes of the request are still leaving: nobody knows what it has granted.
            Some(_) if !self.passage.is_sent_whole() => {
                Err("protocols were switched before the request was sent whole")
            }
            Some(asked) => asked.check(head).and_then(|()| {
                let said = self.live.borrow_mut().as_mut().and_then(|live| live.line.dialect.switch());
                said.map(|said| (asked.protocol.clone(), said)).ok_or("the connection ended with the switch")
            }),
        };
        match &switched {
            Ok((protocol, _)) => {
                self.switched.set(true);
                self.open_ended.set(!protocol.is_websocket());
            }
            Err(why) => self.lose(why),
        }
        switched
    }

    /// Acts on the upstream connection of a flight that has switched. Nothing, once it has ended.
    pub(super) fn on_wire<T>(&self, act: impl FnOnce(&mut Wire) -> T) -> Option<T> {
        self.live.borrow_mut().as_mut()?.line.dialect.wire().map(act)
    }

    pub(super) fn client(&self) -> &Rc<Conduct> {
        &self.client
    }

    pub(super) fn route(&self) -> &Route {
        &self.route
    }

    /// How long it has been under way.
    pub(super) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether lines about requests that passed are wanted in the log.
    pub(super) fn is_told(&self) -> bool {
        self.worker.answers.tell_of_passed()
    }

    /// What the client of a stream that has outstayed its time is told.
    pub(super) fn farewell(&self) -> Option<&'static str> {
        self.outstayed.get().map(|(_, why)| why.farewell())
    }

    /// What follows the response's body.
    pub(super) fn hear(&self, trailers: &HeaderMap) {
        self.said.set(self.said.get().map(|said| said.and_in(trailers)));
    }

    /// The flight ended, and nobody knows whether the request took effect.
    pub(super) fn lose(&self, why: &'static str) {
        let Some(live) = self.take() else { return };
        live.line.reset();
        if let Some(fenced) = live.fenced {
            self.unknown(fenced, why);
        }
    }

    /// Ends a flight that needs no certain end: nothing was sent or processed, or it is not fenced.
    fn abandon(&self) {
        drop(self.take());
    }

    /// A fenced flight goes on apart from the client that hung up; any other ends here.
    pub(super) fn go_on_without_client(
        self: Rc<Self>,
        rest: impl FnOnce(Rc<Self>) -> LocalBoxFuture<'static, ()>,
    ) {
        if !self.fenced || breaks(Rule::GuardWithoutClient) {
            return self.abandon();
        }
        self.orphaned_since.set(Some(Instant::now()));
        if self.worker.flights.orphans() > MAX_ORPHANS {
            self.cut(ORPHANED);
        }
        self.worker.clone().run_apart(rest(self));
    }

    fn take(&self) -> Option<Live> {
        let live = self.live.borrow_mut().take()?;
        self.worker.flights.remove(self.slot.get());
        Some(live)
    }

    /// Keeps the permit as the route says: the cut is not the end of what is already on its way.
    fn unknown(&self, fenced: InFlight, why: &'static str) {
        let permit = &fenced.permit;
        self.worker.route_metrics(Some(&self.route)).unknown();
        let (route, resource, token) =
            (self.route.name.clone(), permit.resource().clone(), permit.token().get());
        self.worker.answers.warn(Warning::OutcomeUnknown {
            route: route.clone(),
            resource: resource.clone(),
            token,
            why,
        });
        self.worker.bus.publish(Notice::Unknown { route, resource, token, why });
        match self.route.on_unknown {
            OnUnknown::Proceed => drop(fenced),
            OnUnknown::Delay if breaks(Rule::LockDelay) => drop(fenced),
            OnUnknown::Block => self.worker.ledger.block(fenced.permit),
            OnUnknown::Delay => {
                let delay = self.route.lock_delay;
                self.worker.run_apart(Box::pin(async move {
                    tokio::time::sleep(delay).await;
                    drop(fenced);
                }));
            }
        }
    }

    /// The sweeper's question: is it time to end this?
    pub(super) fn overdue(&self, now: Instant) -> Option<&'static str> {
        let since = |start: Instant| now.saturating_duration_since(start);
        let standstill = since(self.passage.moved_at());
        if self.status.get().is_none() && standstill >= self.route.response_timeout {
            return Some(SLOW_HEAD);
        }
        if self.status.get().is_some() && standstill >= self.route.idle_timeout {
            return Some(STANDSTILL);
        }
        if self.route.total_timeout.is_some_and(|limit| since(self.started) >= limit) {
            return Some(TOTAL);
        }
        let patience = self.route.response_timeout + self.route.idle_timeout;
        if self.orphaned_since.get().is_some_and(|left| since(left) >= patience) {
            return Some(ORPHANED);
        }
        let (outstayed, why) = self.look_whether_outstayed(now)?;
        (since(outstayed) >= self.route.drain_timeout).then(|| why.cut())
    }

    /// Whether the incarnation that admitted it has ended.
    pub(super) fn is_over(&self) -> bool {
        let live = self.live.borrow();
        live.as_ref().and_then(|live| live.fenced.as_ref()).is_some_and(|fenced| fenced.permit.is_over())
    }

    /// Whether what was sent has had no effect for certain.
    fn is_unprocessed(&self) -> bool {
        self.live.borrow().as_ref().is_some_and(|live| live.line.dialect.is_unprocessed())
    }

    /// Since when it keeps somebody waiting, and why.
    fn look_whether_outstayed(&self, now: Instant) -> Option<(Instant, Outstayed)> {
        let (before, why) = (self.outstayed.get(), self.outstays());
        // Somebody who gave up waiting, or an order that was taken back, leaves nothing behind: the next has it wait its
        // whole time again. What a client was told is not taken back.
        let outstayed = match before.filter(|_| why.is_some() || self.is_told_to_go()) {
            Some(before) => Some(before),
            None => why.map(|why| (now, why)),
        };
        self.outstayed.set(outstayed);
        if before.is_none() && outstayed.is_some() && self.switched.get() {
            // So that the client learns of it in time for an end in order.
            self.wake();
        }
        outstayed
    }

    fn outstays(&self) -> Option<Outstayed> {
        let live = self.live.borrow();
        let InFlight { permit, table } = live.as_ref()?.fenced.as_ref()?;
        if !self.switched.get() {
            permit.is_superseded().then_some(Outstayed::Superseded)
        } else if permit.is_shut_out() {
            Some(Outstayed::ShutOut)
        } else {
            self.worker.is_in_the_way_of_names(table).then_some(Outstayed::Renamed)
        }
    }

    /// Whether the client of a WebSocket has heard, if it has outstayed its time, that it is to go.
    fn is_told_to_go(&self) -> bool {
        self.switched.get() && self.upgrade.as_ref().is_some_and(|asked| asked.protocol.is_websocket())
    }

    /// Ends the flight from outside, and tells the task that polls it.
    pub(super) fn cut(&self, why: &'static str) {
        self.cut.set(Some(why));
        self.lose(why);
        self.wake();
        // A client that does not read is not polled either: its connection has to go from outside.
        if self.status.get().is_some() && !self.switched.get() {
            self.client.break_off();
        }
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Future for Exchange {
    type Output = Result<(Response<()>, Incoming), Lost>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let responding = this.responding.as_mut().expect("an exchange is not polled after its end");
        // Dropping the line ends the other side of `responding`, so after a cut it must not be polled.
        if let Err(why) = this.flight.drive(cx) {
            this.responding = None;
            return Poll::Ready(Err(Lost::Cut(why)));
        }
        let Poll::Ready(answer) = responding.as_mut().poll(cx) else { return Poll::Pending };
        this.responding = None;
        Poll::Ready(match answer {
            Ok(response) => {
                this.flight.status.set(Some(response.status()));
                this.flight.moved();
                if breaks(Rule::GuardToTheEnd)
                    && let Some(live) = this.flight.live.borrow_mut().as_mut()
                {
                    live.fenced = None;
                }
                let (head, body) = response.into_parts();
                Ok((Response::from_parts(head, ()), body))
            }
            Err(mut error) => Err(match error.take_message() {
                Some(_) => {
                    this.flight.abandon();
                    Lost::NotSent(error.into_error())
                }
                None if this.flight.is_unprocessed() => {
                    this.flight.abandon();
                    Lost::Refused(error.into_error())
                }
                None if this.flight.is_over() => {
                    this.flight.lose(FENCED);
                    Lost::Cut(FENCED)
                }
                None => match RequestFault::of(error.error()) {
                    Some(fault) => {
                        this.flight.lose("the request's body broke off, or was too large");
                        Lost::CutShort(fault)
                    }
                    None => {
                        this.flight.lose("the upstream closed without a response");
                        Lost::Broken(error.into_error())
                    }
                },
            }),
        })
    }
}

impl RequestFault {
    /// What the client did, if that is why hyper could not send a request.
    fn of(error: &hyper::Error) -> Option<Self> {
        match error.source()?.downcast_ref()? {
            UploadError::TooLarge(limit) => Some(Self::TooLarge(*limit)),
            _ => Some(Self::Broken),
        }
    }
}

impl Exchange {
    pub(super) fn flight(&self) -> Rc<Flight> {
        self.flight.clone()
    }

    /// Without a client: only the end matters.
    async fn finish(mut self) {
        if let Ok((mut head, body)) = (&mut self).await
            && self.flight.judge(&mut head, &body).is_ok()
        {
            Download::new(self.flight(), body).exhaust().await;
        }
    }
}

impl Drop for Exchange {
    /// The client hung up. That does not undo what was sent.
    fn drop(&mut self) {
        if let Some(responding) = self.responding.take() {
            self.flight.clone().go_on_without_client(|flight| {
                Box::pin(Self { flight, responding: Some(responding) }.finish())
            });
        }
    }
}

/// The flights of one core, for the sweeper.
#[derive(Default)]
pub(crate) struct Flights {
    slots: RefCell<Slab<Rc<Flight>>>,
}

impl Flights {
    fn insert(&self, flight: Rc<Flight>) -> usize {
        self.slots.borrow_mut().insert(flight)
    }

    fn remove(&self, slot: usize) {
        self.slots.borrow_mut().remove(slot);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.borrow().is_empty()
    }

    fn orphans(&self) -> usize {
        let slots = self.slots.borrow();
        slots.iter().filter(|(_, flight)| flight.orphaned_since.get().is_some()).count()
    }

    /// Ends every flight whose time is up.
    pub(crate) fn sweep(&self, now: Instant) {
        let overdue: Vec<_> = self
            .slots
            .borrow()
            .iter()
            .filter_map(|(_, flight)| Some((flight.overdue(now)?, flight.clone())))
            .collect();
        for (why, flight) in overdue {
            flight.cut(why);
        }
    }
}
