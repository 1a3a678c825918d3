//! What an origin has seen, in one order over all its connections, and what must be true of that order.
//!
//! A request's first byte is logged when it is read, and a response's end just before its last byte is
//! written: so a log never shows an overlap that was not there.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::PATIENCE;
use super::wire::Head;

/// The recording, shared by the origin's connections and the test.
#[derive(Default)]
pub(crate) struct Log {
    seen: Mutex<Seen>,
    changed: Condvar,
}

#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) events: Vec<Event>,
    pub(crate) requests: Vec<Request>,
    pub(crate) connections: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) at: Instant,
    pub(crate) request: Option<usize>,
    pub(crate) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    FirstByte,
    Head,
    /// The request is there to its last byte.
    Complete,
    /// The first byte of the response goes out.
    Started,
    /// The last byte of the response goes out.
    Ended,
    /// The gateway closed the connection in the orderly way.
    Closed,
    Reset,
    /// The gateway sent what is no request.
    Garbage,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
    /// How much of the body has come, kept or not.
    pub(crate) received: u64,
    /// How much of a streamed response the gateway has taken.
    pub(crate) sent: u64,
    pub(crate) trailers: Vec<(String, String)>,
    /// When a byte of it last came, where that is noted.
    pub(crate) last_byte: Option<Instant>,
}

impl Request {
    pub(crate) fn method(&self) -> &str {
        self.head.start.split(' ').next().unwrap_or_default()
    }

    pub(crate) fn target(&self) -> &str {
        self.head.start.split(' ').nth(1).unwrap_or_default()
    }

    pub(crate) fn token(&self) -> Option<u64> {
        self.head.get("x-fencing-token").map(|token| token.parse().expect("a forwarded token is a number"))
    }
}

impl Log {
    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        // A test that fails with the log in its hands is no reason for the origin to fail, too.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write<R>(&self, change: impl FnOnce(&mut Seen) -> R) -> R {
        let result = change(&mut self.seen());
        self.changed.notify_all();
        result
    }

    /// Waits until the log shows something.
    pub(crate) fn wait(&self, what: &str, done: impl Fn(&Seen) -> bool) {
        let (seen, timeout) = self
            .changed
            .wait_timeout_while(self.seen(), PATIENCE, |seen| !done(seen))
            .unwrap_or_else(PoisonError::into_inner);
        let events = format!("{:#?}", seen.events.iter().rev().take(20).collect::<Vec<_>>());
        drop(seen);
        assert!(!timeout.timed_out(), "the origin never saw: {what}\nlast events first: {events}");
    }
}

impl Seen {
    pub(super) fn note(&mut self, request: Option<usize>, what: What) {
        self.events.push(Event { at: Instant::now(), request, what });
    }

    /// When this happened to the request, if it did.
    pub(crate) fn when(&self, request: usize, what: What) -> Option<Instant> {
        self.events
            .iter()
            .find(|event| event.request == Some(request) && event.what == what)
            .map(|event| event.at)
    }

    pub(crate) fn count(&self, what: What) -> usize {
        self.events.iter().filter(|event| event.what == what).count()
    }

    /// The requests that showed this token, oldest first.
    pub(crate) fn with_token(&self, token: u64) -> Vec<usize> {
        (0..self.requests.len()).filter(|index| self.requests[*index].token() == Some(token)).collect()
    }

    /// The promise: per resource tokens never go down, and two tokens never overlap. A request that was cut
    /// counts as under way for `lock_delay` more. One log is one resource here.
    pub(crate) fn check_fenced(&self, lock_delay: Duration) {
        // The cut is seen here later than it was made.
        let lock_delay = lock_delay.saturating_sub(Duration::from_millis(60));
        let mut under_way: BTreeMap<usize, (u64, Option<Instant>)> = BTreeMap::new();
        let mut highest = 0;
        for event in &self.events {
            let Some(request) = event.request else { continue };
            let Some(token) = self.requests[request].token() else { continue };
            match event.what {
                What::FirstByte => {
                    assert!(token >= highest, "{token} was sent after {highest}");
                    highest = token;
                    let overlaps = under_way.values().find(|(lower, cut)| {
                        *lower < token && cut.is_none_or(|cut| event.at < cut + lock_delay)
                    });
                    assert!(overlaps.is_none(), "{token} was sent while {overlaps:?} was under way");
                    under_way.insert(request, (token, None));
                }
                What::Ended => drop(under_way.remove(&request)),
                What::Closed | What::Reset => {
                    if let Some((_, cut)) = under_way.get_mut(&request) {
                        cut.get_or_insert(event.at);
                    }
                }
                What::Head | What::Complete | What::Started | What::Garbage => {}
            }
        }
    }
}
