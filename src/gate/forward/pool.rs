//! Upstream connections of one core: checked out before admission, checked back in after a clean end.
//!
//! A line is a connection and its driver together. Nothing runs in the background: a line is polled by the
//! request that has it, so an idle one costs no wake-ups, and whoever has it can cut it. What the upstream did
//! to an idle line is found out at the next check-out, before anything is sent.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use http::uri::Authority;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::net::TcpStream;

use super::body::{Passage, Upload};
use super::sockets::{Registered, Sockets};
use super::wire::{Loan, Wire};
use crate::config::Route;
use crate::controls::{Rule, breaks};
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
    pub(super) send: SendRequest<Upload>,
    /// None once it has ended: dropping it makes hyper hand back what it has not sent.
    connection: Option<Connection<TokioIo<Wire>, Upload>>,
    authority: Authority,
    lock_delay: Duration,
    idle_since: Instant,
    /// Where a fence can reset it from outside; none in a gateway that nobody fences.
    registered: Option<Registered>,
    /// For which request its socket is written to.
    loan: Rc<Loan>,
}

/// Why there is no line. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("cannot connect to the upstream")]
    Refused(#[source] std::io::Error),
    #[error("the upstream did not accept a connection in time")]
    Slow,
    #[error("cannot start HTTP on the upstream connection")]
    Handshake(#[source] hyper::Error),
}

pub(crate) struct Pool {
    sockets: Option<Arc<Sockets>>,
    validity: Arc<Validity>,
    #[expect(clippy::vec_box, reason = "a line goes in and out with every request, and moves as a pointer")]
    idle: RefCell<HashMap<Authority, Vec<Box<Line>>, foldhash::fast::RandomState>>,
}

impl Pool {
    /// `sockets`: where lines are to be known, if a fence may have to reset them. `validity`: what every write of a
    /// fenced request asks.
    pub(crate) fn new(sockets: Option<Arc<Sockets>>, validity: Arc<Validity>) -> Self {
        Self { sockets, validity, idle: RefCell::default() }
    }

    /// A line that was alive a moment ago: the idle one used last, or a new one.
    pub(crate) async fn check_out(&self, route: &Route) -> Result<Box<Line>, ConnectError> {
        match self.take_idle(&route.upstream.authority, route.lock_delay) {
            Some(line) => Ok(line),
            None => Line::connect(route, self.sockets.as_ref(), Loan::new(self.validity.clone())).await,
        }
    }

    fn take_idle(&self, authority: &Authority, lock_delay: Duration) -> Option<Box<Line>> {
        let mut idle = self.idle.borrow_mut();
        let lines = idle.get_mut(authority)?;
        while let Some(last) = lines.iter().rposition(|line| line.lock_delay == lock_delay) {
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
        let lines = idle.entry(line.authority.clone()).or_default();
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

impl Line {
    async fn connect(
        route: &Route,
        sockets: Option<&Arc<Sockets>>,
        loan: Rc<Loan>,
    ) -> Result<Box<Self>, ConnectError> {
        let authority = route.upstream.authority.clone();
        let connecting = TcpStream::connect(authority.as_str());
        let stream = tokio::time::timeout(route.connect_timeout, connecting)
            .await
            .map_err(|_| ConnectError::Slow)?
            .map_err(ConnectError::Refused)?;
        discipline(&stream, route.lock_delay).map_err(ConnectError::Refused)?;
        let registered = sockets.map(|sockets| sockets.register(&stream)).transpose();
        let registered = registered.map_err(ConnectError::Refused)?;
        let wire = TokioIo::new(Wire::new(stream, loan.clone()));
        let (send, connection) =
            http1::Builder::new().handshake(wire).await.map_err(ConnectError::Handshake)?;
        let lock_delay = route.lock_delay;
        let idle_since = Instant::now();
        let connection = Some(connection);
        Ok(Box::new(Self { send, connection, authority, lock_delay, idle_since, registered, loan }))
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
        self.loan.carry(passage);
    }

    /// Moves bytes in both directions. Whoever waits for a response has to call this.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        if self.connection.as_mut().is_some_and(|connection| Pin::new(connection).poll(cx).is_ready()) {
            self.connection = None;
        }
    }

    /// Whether the next request may go out on it, as far as this side has heard.
    pub(super) fn is_usable(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.connection.is_some() && self.send.is_ready()
    }

    /// Ends the connection so that nothing still buffered is delivered: a reset, not a goodbye.
    pub(super) fn reset(self) {
        let Some(connection) = self.connection else { return };
        let stream = connection.into_parts().io.into_inner().into_stream();
        if breaks(Rule::NoLinger) {
            return;
        }
        // If the option cannot be set the socket is closed all the same, and the lock-delay covers the rest.
        let _ = stream.set_zero_linger();
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
