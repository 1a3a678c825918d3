//! The access log: one line an answer, and for refusals that are alike one line a second.
//!
//! [`Answers`] is shared by all cores. What must stay true: a refusal costs no more than a look at a table when one
//! like it was told this second, the counts of all lines together are the number of refusals, and the log grows by no more
//! than 10 KiB a second with lines about requests that did not simply pass, whatever clients send.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use arc_swap::ArcSwap;
use highgate_elector::Resource;
use http::{Method, StatusCode};
use parking_lot::Mutex;
use tracing::Level;

use super::warnings::{Warning, Warnings};
use super::{Refusal, Story, table};
use crate::config::AccessLog;
use crate::events::{Bus, Notice};
use crate::fold::{Allowance, Fold, Period, Told};
use crate::gate::Inbound;
use crate::gate::accept::Conduct;
use crate::metrics::Decision;
use crate::shorten::shorten;
use crate::tls::Identity;

/// What refusals may add to the log in a second. With the warnings and the orders of operators that were refused it is
/// less than 10 KiB.
const ALLOWANCE: Allowance = Allowance { steady: 5 * 1024, burst: 8 * 1024 };
/// The part of a line that nobody can lengthen: names of fields, numbers, addresses, words of the gateway's own.
pub(super) const FIXED: usize = 320;
/// Clients choose paths, methods and, within what an authority signs, identities.
const MAX_PATH: usize = 256;
const MAX_METHOD: usize = 32;
const MAX_IDENTITY: usize = 256;

/// What is told of answers, by all cores together.
pub(crate) struct Answers {
    wanted: ArcSwap<AccessLog>,
    refused: Mutex<Fold<Kind, Arc<Refused>>>,
    warnings: Mutex<Warnings>,
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
    head: Option<Head>,
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

/// What a request asked for, at the length that a line has room for.
struct Head {
    method: Box<str>,
    path: Box<str>,
}

/// What a line needs of a request that will be gone by the time it is answered.
pub(super) struct Line {
    wanted: AccessLog,
    head: Option<Head>,
    client: Rc<Conduct>,
}

impl Answers {
    pub(crate) fn new(wanted: AccessLog, bus: Bus) -> Self {
        Self {
            wanted: ArcSwap::from_pointee(wanted),
            refused: Mutex::new(Fold::new(ALLOWANCE)),
            warnings: Mutex::new(Warnings::new()),
            bus,
        }
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
        let head = (wanted != AccessLog::Off).then(|| Head::new(request.method(), path));
        Line { wanted, head, client: client.clone() }
    }

    /// A request was refused, or its upstream failed.
    pub(super) fn refused(&self, line: Line, status: StatusCode, story: &Story, refusal: &Refusal) {
        let refused = Refused::new(line, status, story, refusal);
        let mut first = None;
        let (kind, size) = (refused.kind(), refused.size());
        let told = self.refused.lock().note(kind, size, || first.insert(Arc::new(refused)).clone());
        if let (Told::Now, Some(refused)) = (told, first) {
            self.tell(&refused, 1);
        }
    }

    /// A request was let through, and somebody should know.
    pub(crate) fn warn(&self, warning: Warning) {
        self.warnings.lock().note(warning);
    }

    /// Tells what was refused or warned of again since the last time. To be called once a second.
    pub(crate) fn tell_repeated(&self) {
        self.warnings.lock().tell_repeated();
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

impl Head {
    fn new(method: &Method, path: &str) -> Self {
        let (method, path) = (shorten(method.as_str(), MAX_METHOD), shorten(path, MAX_PATH));
        Self { method: method.into(), path: path.into() }
    }
}

/// A name as a line has it: its owner's authority decides how long it is.
fn named(identity: &Identity) -> Cow<'_, str> {
    shorten(identity.as_str(), MAX_IDENTITY)
}

/// How many bytes a line takes for a text.
pub(super) fn written(text: &str) -> usize {
    text.escape_debug().map(char::len_utf8).sum()
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

    /// How long a line of it is. Without a line it is as much to listeners.
    fn size(&self) -> usize {
        let asked = self.head.as_ref().map(|Head { method, path }| written(method) + written(path));
        let identity = self.identity.as_ref().map(named);
        let resource = self.resource.as_ref().map(Resource::as_str);
        let names = [self.route.as_deref(), resource, identity.as_deref()].into_iter().flatten();
        FIXED + asked.unwrap_or(0) + names.map(written).sum::<usize>()
    }

    fn write(&self, count: u64) {
        let Some(Head { method, path }) = &self.head else { return };
        // The level has to be known to the macro, so each has its own line.
        macro_rules! line {
            ($level:expr) => {
                tracing::event!(
                    target: "access",
                    $level,
                    client = %self.client,
                    identity = self.identity.as_ref().map(named).as_deref(),
                    %method,
                    path = &**path,
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
        let Some(Head { method, path }) = &self.head else { return };
        if self.wanted == AccessLog::Refused {
            return;
        }
        tracing::info!(
            target: "access",
            client = %self.client.peer(),
            identity = story.identity.as_deref().or(self.client.identity()).map(named).as_deref(),
            %method,
            path = &**path,
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::captured::Captured;

    /// Notes a refusal as the gate does, but for its request.
    fn refuse(answers: &Answers, method: &str, path: &str, token: u64) {
        let refused = Arc::new(Refused {
            client: (Ipv4Addr::LOCALHOST, 1).into(),
            identity: None,
            head: Some(Head::new(&Method::from_bytes(method.as_bytes()).unwrap(), path)),
            status: 412,
            route: Some(Arc::from("r")),
            resource: Some(Resource::parse("ledger").unwrap()),
            token: Some(token),
            decision: Decision::Refused,
            reason: "stale",
            level: Level::WARN,
            stale_below: Some(u64::MAX),
        });
        let told = answers.refused.lock().note(refused.kind(), refused.size(), || refused.clone());
        if told == Told::Now {
            answers.tell(&refused, 1);
        }
    }

    #[test]
    fn a_path_of_64_kib_takes_a_short_line_that_says_so() {
        let (log, answers) = (Captured::default(), Answers::new(AccessLog::Refused, Bus::new()));
        log.capture(|| {
            for _ in 0..20_000 {
                refuse(&answers, &"M".repeat(8000), &format!("/{}", "x".repeat(64 * 1024)), 7);
            }
            answers.tell_repeated();
        });
        let text = log.text();
        assert!(text.len() < 2 * 800, "{} bytes", text.len());
        assert!(text.contains("xxx…\"") && text.contains("MMM…") && text.contains("count=19999"), "{text}");
    }

    #[test]
    fn refusals_of_kinds_without_end_have_no_more_bytes_than_are_allowed() {
        let (log, answers) = (Captured::default(), Answers::new(AccessLog::Refused, Bus::new()));
        let seconds = 20;
        log.capture(|| {
            for second in 0..seconds {
                for token in 1..3000 {
                    refuse(&answers, "POST", &format!("/{}", "\"".repeat(3000)), second * 10_000 + token);
                }
                answers.tell_repeated();
            }
        });
        let (most, text) = (ALLOWANCE.burst + seconds as usize * (ALLOWANCE.steady + FIXED), log.text());
        assert!(text.len() <= most, "{} bytes in {seconds} s, not {most}", text.len());
        assert!(text.len() > most / 4, "{} bytes of {most}: the allowance is used", text.len());
    }
}
