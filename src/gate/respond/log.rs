//! The access log: one line an answer, and for refusals that are alike one line a second.
//!
//! [`Answers`] is shared by all cores. What must stay true: a refusal costs no more than a look at a table when one
//! like it was told this second, and the counts of all lines together are the number of refusals.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use arc_swap::ArcSwap;
use highgate_elector::Resource;
use http::{Method, StatusCode};
use parking_lot::Mutex;
use tracing::Level;

use super::{Refusal, Story, table};
use crate::config::AccessLog;
use crate::events::{Bus, Notice};
use crate::fold::{Fold, Period, Told};
use crate::gate::Inbound;
use crate::gate::accept::Conduct;
use crate::metrics::Decision;
use crate::tls::Identity;

/// How many kinds of refusals are told apart in one second. Two lines of each, the first and the count, and one for
/// all others are the most that refusals can add to the log in a second.
const MAX_KINDS: usize = 64;

/// What is told of answers, by all cores together.
pub(crate) struct Answers {
    wanted: ArcSwap<AccessLog>,
    refused: Mutex<Fold<Kind, Arc<Refused>>>,
    bus: Bus,
}

/// Refusals are alike if all of this is the same. The port is not part of it: a client that connects anew for every
/// request is still one client.
#[derive(PartialEq, Eq, Hash)]
struct Kind {
    route: Option<Arc<str>>,
    resource: Option<Resource>,
    token: Option<u64>,
    identity: Option<Identity>,
    client: IpAddr,
    status: u16,
    reason: &'static str,
}

/// The first of many refusals that are alike.
struct Refused {
    client: SocketAddr,
    /// By the certificate of its connection.
    identity: Option<Identity>,
    /// None: no line is wanted.
    head: Option<(Method, String)>,
    status: u16,
    route: Option<Arc<str>>,
    resource: Option<Resource>,
    token: Option<u64>,
    decision: Decision,
    reason: &'static str,
    level: Level,
    /// What a stale token was below.
    stale_below: Option<u64>,
}

/// What a line needs of a request that will be gone by the time it is answered.
pub(super) struct Line {
    wanted: AccessLog,
    head: Option<(Method, String)>,
    client: Rc<Conduct>,
}

impl Answers {
    pub(crate) fn new(wanted: AccessLog, bus: Bus) -> Self {
        Self { wanted: ArcSwap::from_pointee(wanted), refused: Mutex::new(Fold::new(MAX_KINDS)), bus }
    }

    /// Requests that are answered from now on get these lines.
    pub(crate) fn want(&self, wanted: AccessLog) {
        self.wanted.store(Arc::new(wanted));
    }

    /// Whether requests that passed get a line.
    pub(crate) fn tell_of_passed(&self) -> bool {
        **self.wanted.load() == AccessLog::All
    }

    pub(super) fn line(&self, request: &Inbound, client: &Rc<Conduct>) -> Line {
        let wanted = **self.wanted.load();
        // A request that could not be read has no path, only a stand-in's.
        let path = if client.unreadable().is_some() { "" } else { request.uri().path() };
        let head = (wanted != AccessLog::Off).then(|| (request.method().clone(), path.to_owned()));
        Line { wanted, head, client: client.clone() }
    }

    /// A request was refused, or its upstream failed.
    pub(super) fn refused(&self, line: Line, status: StatusCode, story: &Story, refusal: &Refusal) {
        let refused = Refused::new(line, status, story, refusal);
        let mut first = None;
        let told = self.refused.lock().note(refused.kind(), || first.insert(Arc::new(refused)).clone());
        if let (Told::Now, Some(refused)) = (told, first) {
            self.tell(&refused, 1);
        }
    }

    /// Tells what was refused again since the last time. To be called once a second.
    pub(crate) fn tell_repeated(&self) {
        let Period { repeated, beyond } = self.refused.lock().end_period();
        for (refused, count) in repeated {
            self.tell(&refused, count);
        }
        if beyond > 0 {
            tracing::warn!(
                target: "access",
                count = beyond,
                decision = Decision::Refused.label(),
                "more kinds of refusals in a second than are told apart"
            );
            self.bus.publish(Notice::MoreRefused { count: beyond });
        }
    }

    fn tell(&self, refused: &Refused, count: u64) {
        refused.write(count);
        if let (Some(mark), Some(route), Some(resource), Some(token)) =
            (refused.stale_below, &refused.route, &refused.resource, refused.token)
        {
            let (route, resource, client) = (route.clone(), resource.clone(), refused.client.ip());
            self.bus.publish(Notice::Stale { route, resource, token, mark, client, count });
        }
    }
}

impl Refused {
    fn new(line: Line, status: StatusCode, story: &Story, refusal: &Refusal) -> Self {
        Self {
            client: line.client.peer(),
            identity: story.identity.as_deref().or(line.client.identity()).cloned(),
            head: line.head,
            status: status.as_u16(),
            route: story.route.as_ref().map(|route| route.name.clone()),
            resource: story.resource.clone(),
            token: story.token.map(|token| token.get()),
            decision: table::decision(refusal),
            reason: table::reason(refusal),
            level: table::verdict(refusal).level,
            stale_below: match refusal {
                Refusal::Stale { mark } => Some(*mark),
                _ => None,
            },
        }
    }

    fn kind(&self) -> Kind {
        Kind {
            route: self.route.clone(),
            resource: self.resource.clone(),
            token: self.token,
            identity: self.identity.clone(),
            client: self.client.ip(),
            status: self.status,
            reason: self.reason,
        }
    }

    fn write(&self, count: u64) {
        let Some((method, path)) = &self.head else { return };
        // The level has to be known to the macro, so each has its own line.
        macro_rules! line {
            ($level:expr) => {
                tracing::event!(
                    target: "access",
                    $level,
                    client = %self.client,
                    identity = self.identity.as_ref().map(Identity::as_str),
                    %method,
                    path,
                    status = self.status,
                    route = self.route.as_deref(),
                    resource = self.resource.as_ref().map(|resource| resource.as_str()),
                    token = self.token,
                    decision = self.decision.label(),
                    reason = self.reason,
                    count,
                )
            };
        }
        match self.level {
            Level::WARN => line!(Level::WARN),
            _ => line!(Level::INFO),
        }
    }
}

impl Line {
    /// The line of a request that passed.
    pub(super) fn write_passed(&self, status: StatusCode, story: &Story) {
        let Some((method, path)) = &self.head else { return };
        if self.wanted == AccessLog::Refused {
            return;
        }
        tracing::info!(
            target: "access",
            client = %self.client.peer(),
            identity = story.identity.as_deref().or(self.client.identity()).map(Identity::as_str),
            %method,
            path,
            status = status.as_u16(),
            route = story.route.as_ref().map(|route| &*route.name),
            resource = story.resource.as_ref().map(|resource| resource.as_str()),
            token = story.token.map(|token| token.get()),
            decision = story.decision.label(),
            reason = story.reason(),
            upstream_ms = story.upstream.map(|micros| f64::from(micros) / 1e3),
        );
    }
}
