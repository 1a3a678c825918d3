//! How a client connection behaves: what the gate, the reader and the sweeper know of it together.

use std::cell::{Cell, OnceCell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

use http::HeaderValue;
use slab::Slab;

use super::framing::Unreadable;
use crate::gate::forward::tunnel::Tunnel;
use crate::tls::Identity;

/// How long an idle connection may take over its own end.
const GOODBYE: Duration = Duration::from_secs(1);

/// One client connection. Lives on one core; everything is a cell.
pub(crate) struct Conduct {
    peer: SocketAddr,
    /// The peer's address without its port, as upstreams are told it with every request.
    address: HeaderValue,
    /// Set once the connection speaks TLS: whose certificate the client has shown, if it has.
    encrypted: OnceCell<Option<Identity>>,
    /// Requests (or streams) that are not answered to the end.
    busy: Cell<usize>,
    /// Of these, answers that have something to say and are not asked for it: the client does not read.
    unread: Cell<usize>,
    /// When an answer was last asked for more.
    asked_at: Cell<Instant>,
    /// Since when there is something to write and the client takes none of it.
    stalled_since: Cell<Option<Instant>>,
    /// Since when nothing is busy, or when the connection began.
    idle_since: Cell<Instant>,
    /// Since when a request head is incomplete.
    head_since: Cell<Option<Instant>>,
    /// Requests that have begun.
    begun: Cell<u64>,
    /// Which request only stands in for one that has no reading, and why that has none. It is the last.
    unreadable: Cell<Option<(u64, Unreadable)>>,
    /// Answers after which the connection goes on with HTTP, and whether bytes are held until there is one more.
    answered: Cell<u64>,
    held: Cell<bool>,
    /// What it goes on as once the 101 that was answered has left.
    tunnel: RefCell<Option<Box<Tunnel>>>,
    one_at_a_time: Cell<bool>,
    order: Cell<Order>,
    /// Since when it is to finish.
    finishing_since: Cell<Option<Instant>>,
    waker: Cell<Option<Waker>>,
}

/// What the connection's task is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Order {
    Serve,
    /// Finish what is under way, take nothing new.
    Finish,
    /// Drop it now.
    Break,
}

/// How long clients may take.
pub(crate) struct Patience {
    /// Over a head.
    pub(crate) header: Duration,
    /// Between two requests.
    pub(crate) idle: Duration,
    /// Without taking anything of an answer.
    pub(crate) send: Duration,
}

/// A request under way on a connection, to the end of its answer.
pub(crate) struct Busy {
    conduct: Rc<Conduct>,
    unread: bool,
}

impl Conduct {
    pub(super) fn new(peer: SocketAddr) -> Rc<Self> {
        Rc::new(Self {
            peer,
            address: HeaderValue::from_str(&peer.ip().to_string()).expect("an address is plain ASCII"),
            encrypted: OnceCell::new(),
            busy: Cell::new(0),
            unread: Cell::new(0),
            asked_at: Cell::new(Instant::now()),
            stalled_since: Cell::new(None),
            idle_since: Cell::new(Instant::now()),
            head_since: Cell::new(None),
            begun: Cell::new(0),
            unreadable: Cell::new(None),
            answered: Cell::new(0),
            held: Cell::new(false),
            tunnel: RefCell::default(),
            one_at_a_time: Cell::new(true),
            order: Cell::new(Order::Serve),
            finishing_since: Cell::new(None),
            waker: Cell::new(None),
        })
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(crate) fn address(&self) -> &HeaderValue {
        &self.address
    }

    /// The handshake has ended.
    pub(super) fn is_encrypted_for(&self, client: Option<Identity>) {
        let first = self.encrypted.set(client).is_ok();
        debug_assert!(first, "a connection has one handshake");
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.encrypted.get().is_some()
    }

    /// Who the client is, by its certificate.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.encrypted.get()?.as_ref()
    }

    pub(crate) fn begin_request(self: &Rc<Self>) -> Busy {
        self.begun.set(self.begun.get() + 1);
        self.keep_busy()
    }

    /// Something is under way beside requests.
    pub(crate) fn keep_busy(self: &Rc<Self>) -> Busy {
        self.busy.set(self.busy.get() + 1);
        Busy { conduct: self.clone(), unread: false }
    }

    /// A request was answered, and not by a switch to another protocol: what follows it is HTTP. Told in the order of the
    /// requests.
    pub(crate) fn goes_on_with_http(&self) {
        self.answered.set(self.answered.get() + 1);
        if self.held.take()
            && let Some(waker) = self.waker.take()
        {
            // Nothing else would wake who reads what was held.
            waker.wake();
        }
    }

    /// Whether so many requests were answered, and HTTP goes on after the last of them. If not, what comes is held until
    /// then.
    pub(super) fn has_gone_on(&self, requests: u64) -> bool {
        let gone_on = self.answered.get() >= requests;
        self.held.set(!gone_on);
        gone_on
    }

    /// The last request was answered with a 101. Its answer has to leave first.
    pub(crate) fn hand_over(&self, tunnel: Tunnel) {
        self.tunnel.replace(Some(Box::new(tunnel)));
    }

    pub(super) fn take_tunnel(&self) -> Option<Box<Tunnel>> {
        self.tunnel.take()
    }

    /// Why the request that has begun last has no reading, if it only stands in for one that has none.
    pub(crate) fn unreadable(&self) -> Option<Unreadable> {
        self.unreadable.get().filter(|(number, _)| self.begun.get() >= *number).map(|(_, why)| why)
    }

    /// The request of this number has no reading.
    pub(super) fn cannot_read(&self, number: u64, why: Unreadable) {
        self.unreadable.set(Some((number, why)));
    }

    /// Whether as many requests have begun as a connection may have.
    pub(crate) fn has_begun(&self, most: Option<usize>) -> bool {
        most.is_some_and(|most| self.begun.get() >= most as u64)
    }

    /// The request that has begun is the last. HTTP/1 says so in its answer; HTTP/2 tells the client to go elsewhere.
    pub(crate) fn takes_no_more(&self) {
        if self.is_multiplexed() {
            self.tell(Order::Finish);
        }
    }

    /// The last answer is out; the client has a moment to close as well.
    pub(super) fn say_goodbye(&self) {
        self.tell(Order::Finish);
    }

    /// Streams come and go beside each other: no single one ends the connection.
    pub(super) fn multiplexes(&self) {
        self.one_at_a_time.set(false);
    }

    /// Whether it is HTTP/2.
    pub(crate) fn is_multiplexed(&self) -> bool {
        !self.one_at_a_time.get()
    }

    pub(super) fn set_reading_head(&self, reading: bool) {
        let since = self.head_since.get().unwrap_or_else(Instant::now);
        self.head_since.set(reading.then_some(since));
    }

    /// Whether there is something to write and the client does not take it.
    pub(super) fn set_stalled(&self, stalled: bool) {
        if stalled != self.stalled_since.get().is_some() {
            self.stalled_since.set(stalled.then(Instant::now));
        }
    }

    /// The answer on this connection was cut. If the client does not read, nobody polls it: break it here.
    pub(crate) fn break_off(&self) {
        if self.one_at_a_time.get() {
            self.tell(Order::Break);
        }
    }

    /// Orders only get stricter.
    fn tell(&self, order: Order) {
        if order > self.order.get() {
            self.order.set(order);
            self.finishing_since.set(Some(Instant::now()));
            if let Some(waker) = self.waker.take() {
                waker.wake();
            }
        }
    }

    /// What to do now; the task is woken when that changes.
    pub(super) fn order(&self, waker: &Waker) -> Order {
        self.waker.set(Some(waker.clone()));
        self.order.get()
    }

    /// True: the client is cut because it does not take its answer.
    fn check(&self, now: Instant, patience: &Patience) -> bool {
        let since = |start: Instant| now.saturating_duration_since(start);
        let unasked = (self.unread.get() > 0).then(|| self.asked_at.get());
        let takes_nothing = [unasked, self.stalled_since.get()].into_iter().flatten();
        if takes_nothing.into_iter().any(|start| since(start) >= patience.send) {
            let is_first = self.order.get() < Order::Break;
            self.tell(Order::Break);
            return is_first;
        }
        if self.busy.get() > 0 {
            return false;
        }
        // HTTP/2 waits for the client to agree to the end; one that does not answer is not waited for.
        if self.finishing_since.get().is_some_and(|start| since(start) >= GOODBYE) {
            self.tell(Order::Break);
        }
        let idle = since(self.idle_since.get());
        let head = self.head_since.get().map(|start| since(start).min(idle));
        match head {
            Some(head) if head >= patience.header => self.tell(Order::Break),
            None if idle >= patience.idle => self.tell(Order::Finish),
            _ => {}
        }
        false
    }

    #[cfg(test)]
    pub(super) fn for_tests() -> Rc<Self> {
        Self::new(([127, 0, 0, 1], 1).into())
    }
}

impl Busy {
    /// The answer has been asked for more, or begins; `unread`: it has more to say than it was asked for.
    pub(crate) fn asked(&mut self, unread: bool) {
        self.conduct.asked_at.set(Instant::now());
        let others = self.conduct.unread.get() - usize::from(self.unread);
        self.conduct.unread.set(others + usize::from(unread));
        self.unread = unread;
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.asked(false);
        self.conduct.busy.set(self.conduct.busy.get() - 1);
        self.conduct.idle_since.set(Instant::now());
    }
}

/// The connections of one core.
#[derive(Default)]
pub(crate) struct Connections {
    slots: RefCell<Slab<Rc<Conduct>>>,
}

impl Connections {
    pub(super) fn insert(&self, conduct: Rc<Conduct>) -> usize {
        self.slots.borrow_mut().insert(conduct)
    }

    pub(super) fn remove(&self, slot: usize) {
        self.slots.borrow_mut().remove(slot);
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.borrow().len()
    }

    /// Ends connections that take too long over a head or an answer, or have been idle for too long. How many did not take
    /// their answers.
    pub(crate) fn sweep(&self, now: Instant, patience: &Patience) -> usize {
        self.slots.borrow().iter().filter(|(_, conduct)| conduct.check(now, patience)).count()
    }

    /// Nothing new on any connection.
    pub(crate) fn finish_all(&self) {
        for (_, conduct) in self.slots.borrow().iter() {
            conduct.tell(Order::Finish);
        }
    }
}
