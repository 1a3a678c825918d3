//! Upstream connections of one core: checked out before admission, checked back in after a clean end.
//!
//! A line is a connection and its driver together. Nothing runs in the background: a line is polled by the
//! request that has it, so an idle one costs no wake-ups, and whoever has it can cut it. What the upstream did
//! to an idle line is found out at the next check-out, before anything is sent.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::body::Passage;
use super::dialect::Dialect;
use super::sockets::{Registered, Sockets};
use super::wire::{Loan, Wire};
use crate::config::{Destination, Route, UpstreamProtocol};
use crate::ledger::Permit;
use crate::ledger::validity::Validity;

/// Idle lines kept for one upstream on one core.
const MAX_IDLE: usize = 256;
/// Idle lines older than this are closed.
const MAX_IDLE_AGE: Duration = Duration::from_secs(30);
/// What the kernel may still send after this process has died is bounded by this.
const SEND_BUFFER: usize = 128 << 10;

/// A connection to an upstream, with at most one request on it. Large, so it travels in a box.
pub(crate) struct Line {
    pub(super) dialect: Dialect,
    to: Destination,
    terms: Terms,
    idle_since: Instant,
    /// Where a fence can reset it from outside; none in a gateway that nobody fences.
    registered: Option<Registered>,
    /// For which request its socket is written to.
    loan: Rc<Loan>,
}

/// What a route wants of its lines beyond where they lead.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Terms {
    lock_delay: Duration,
    protocol: UpstreamProtocol,
}

/// Why there is no line. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("cannot connect to the upstream")]
    Refused(#[source] std::io::Error),
    #[error("the upstream did not accept a connection in time")]
    Slow,
    #[error("cannot make a TLS handshake with the upstream")]
    Tls(#[source] std::io::Error),
    #[error("cannot start HTTP on the upstream connection")]
    Handshake(#[source] hyper::Error),
    #[error("the upstream does not speak HTTP/2 on the connection")]
    NotHttp2,
}

pub(crate) struct Pool {
    sockets: Option<Arc<Sockets>>,
    validity: Arc<Validity>,
    #[expect(clippy::vec_box, reason = "a line goes in and out with every request, and moves as a pointer")]
    idle: RefCell<HashMap<Destination, Vec<Box<Line>>, foldhash::fast::RandomState>>,
}

impl Pool {
    /// `sockets`: where lines are to be known, if a fence may have to reset them. `validity`: what every write of a
    /// fenced request asks.
    pub(crate) fn new(sockets: Option<Arc<Sockets>>, validity: Arc<Validity>) -> Self {
        Self { sockets, validity, idle: RefCell::default() }
    }

    /// A line that was alive a moment ago: the idle one used last, or a new one.
    pub(crate) async fn check_out(&self, route: &Route) -> Result<Box<Line>, ConnectError> {
        match self.take_idle(&route.upstream.to, Terms::of(route)) {
            Some(line) => Ok(line),
            // In a box, so that a request that finds a line need not keep the room for a handshake.
            None => {
                let loan = Loan::new(self.validity.clone());
                Box::pin(Line::connect(route, self.sockets.as_ref(), loan)).await
            }
        }
    }

    fn take_idle(&self, to: &Destination, terms: Terms) -> Option<Box<Line>> {
        let mut idle = self.idle.borrow_mut();
        let lines = idle.get_mut(to)?;
        while let Some(last) = lines.iter().rposition(|line| line.terms == terms) {
            let mut line = lines.swap_remove(last);
            if line.is_usable() {
                return Some(line);
            }
        }
        None
    }

    pub(crate) fn check_in(&self, mut line: Box<Line>) {
        line.idle_since = Instant::now();
        line.loan.end();
        if let Some(registered) = &line.registered {
            registered.disarm();
        }
        let mut idle = self.idle.borrow_mut();
        let lines = match idle.get_mut(&line.to) {
            Some(lines) => lines,
            None => idle.entry(line.to.clone()).or_default(),
        };
        if lines.len() < MAX_IDLE {
            lines.push(line);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.idle.borrow().is_empty()
    }

    /// Closes what has been idle for too long or was closed by its upstream.
    pub(crate) fn sweep(&self, now: Instant) {
        self.idle.borrow_mut().retain(|_, lines| {
            lines.retain_mut(|line| {
                now.saturating_duration_since(line.idle_since) < MAX_IDLE_AGE && line.is_usable()
            });
            !lines.is_empty()
        });
    }
}

impl Terms {
    fn of(route: &Route) -> Self {
        Self { lock_delay: route.lock_delay, protocol: route.upstream_protocol }
    }
}

impl Line {
    async fn connect(
        route: &Route,
        sockets: Option<&Arc<Sockets>>,
        loan: Rc<Loan>,
    ) -> Result<Box<Self>, ConnectError> {
        let connecting = Self::connect_and_greet(route, sockets, loan);
        timeout(route.connect_timeout, connecting).await.map_err(|_| ConnectError::Slow)?
    }

    /// Before anything was admitted: with TLS where the upstream speaks it.
    async fn connect_and_greet(
        route: &Route,
        sockets: Option<&Arc<Sockets>>,
        loan: Rc<Loan>,
    ) -> Result<Box<Self>, ConnectError> {
        let (to, terms) = (route.upstream.to.clone(), Terms::of(route));
        let stream = TcpStream::connect(to.authority.as_str()).await.map_err(ConnectError::Refused)?;
        discipline(&stream, terms.lock_delay).map_err(ConnectError::Refused)?;
        let registered = sockets.map(|sockets| sockets.register(&stream)).transpose();
        let registered = registered.map_err(ConnectError::Refused)?;
        let wire = match &to.tls {
            None => Wire::plain(stream, loan.clone()),
            Some(client) => {
                let encrypted = Wire::encrypted(stream, loan.clone(), client, alpn(terms.protocol));
                encrypted.await.map_err(ConnectError::Tls)?
            }
        };
        let dialect = Dialect::start(terms.protocol, wire, loan.clone()).await?;
        let idle_since = Instant::now();
        Ok(Box::new(Self { dialect, to, terms, idle_since, registered, loan }))
    }

    /// Before a fenced request asks to be admitted: from now on a fence resets this line.
    pub(crate) fn arm(&self) {
        if let Some(registered) = &self.registered {
            registered.arm();
        }
    }

    /// The request was admitted: from now on every write asks whether its incarnation is still valid.
    pub(crate) fn lend(&self, permit: &Permit) {
        self.loan.fence(permit.counted());
    }

    /// A request is about to be written; `passage` is told when it was written whole.
    pub(super) fn carry(&self, passage: Rc<Passage>) {
        self.dialect.begin(&passage);
        self.loan.carry(passage);
    }

    /// Moves bytes in both directions. Whoever waits for a response has to call this.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        self.dialect.drive(cx);
    }

    /// Whether the next request may go out on it, as far as this side has heard.
    pub(super) fn is_usable(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.dialect.is_usable()
    }

    /// Ends the connection so that nothing still buffered is delivered: a reset, not a goodbye.
    pub(super) fn reset(self) {
        self.loan.reset_at_the_end();
    }
}

/// What is offered to an upstream that speaks TLS: the one thing that its route wants.
fn alpn(protocol: UpstreamProtocol) -> &'static str {
    match protocol {
        UpstreamProtocol::Http1 => "http/1.1",
        UpstreamProtocol::H2 => "h2",
    }
}

/// Bounds what can still arrive after a cut or a death: unacknowledged bytes die with the lock-delay, and
/// few are buffered.
fn discipline(stream: &TcpStream, lock_delay: Duration) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    if !lock_delay.is_zero() {
        socket.set_tcp_user_timeout(Some(lock_delay))?;
    }
    socket.set_send_buffer_size(SEND_BUFFER)
}
