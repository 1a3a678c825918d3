//! What happens, as it happens: the stream behind `/v1/events`, the live page and `highgate watch`.
//!
//! The gate, the reloader and whoever forwards the store's events publish [`Notice`]s on one [`Bus`]; the
//! admin port subscribes. A notice is for people to look at: nothing in the gateway waits for one or decides
//! by one. Publishing never blocks, a slow listener loses the oldest and is told how many, and without
//! listeners nothing is even allocated.

pub mod audit;
mod observer;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use highgate_elector::{Resource, timestamp};
use serde::Serialize;
use tokio::sync::broadcast;

use crate::elections::{self, Ended, Standing};
use crate::replica::Event;
use crate::shorten::shorten;
use crate::store::overview::incarnation_text;
pub use observer::Observer;

/// A holder is named by a job, or by whoever writes a key in etcd.
const MAX_HOLDER: usize = 256;
/// How many notices a listener may lag behind.
const BUFFER: usize = 1024;

/// Something an operator wants to see.
#[derive(Clone, Debug)]
pub enum Notice {
    /// A mark moved, opened, or was frozen or thawed.
    Fence(Event),
    /// Somebody leads, or does not any more.
    Election(elections::Event),
    /// A deposed leader's requests were refused: the first of them, or how many like it came after it within a
    /// second.
    Stale {
        route: Arc<str>,
        resource: Resource,
        token: u64,
        mark: u64,
        client: IpAddr,
        count: u64,
    },
    /// Refusals of more kinds than are told apart in a second, stale ones or others.
    MoreRefused {
        count: u64,
    },
    /// A forward ended and nobody knows whether it took effect.
    Unknown {
        route: Arc<str>,
        resource: Resource,
        token: u64,
        why: &'static str,
    },
    /// This replica passes nothing until it has joined anew.
    Fenced {
        why: String,
    },
    /// Changes were missed, and everything was read again.
    Resynced {
        why: &'static str,
    },
    Reloaded {
        routes: usize,
    },
    ReloadFailed {
        error: String,
    },
    Draining,
    /// Everybody who leads, after a start or a gap. Not for listeners: they hear of what has changed by it.
    Standing(Vec<Standing>),
    /// More or fewer wait for a resource. Not for listeners: it is for the metrics.
    Line {
        resource: Resource,
        waiting: usize,
    },
}

/// A notice and when it was published.
#[derive(Clone, Debug)]
pub struct Stamped {
    pub at: SystemTime,
    pub notice: Notice,
}

/// Everybody publishes here. Cheap to clone.
#[derive(Clone)]
pub struct Bus {
    listeners: broadcast::Sender<Arc<Stamped>>,
}

impl Bus {
    pub fn new() -> Self {
        Self { listeners: broadcast::Sender::new(BUFFER) }
    }

    /// Tells whoever listens; free when nobody does.
    pub fn publish(&self, notice: Notice) {
        if self.listeners.receiver_count() == 0 {
            return;
        }
        // The last listener may have left since: then nobody misses it.
        let _ = self.listeners.send(Arc::new(Stamped { at: SystemTime::now(), notice }));
    }

    /// Everything published from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Stamped>> {
        self.listeners.subscribe()
    }
}

impl Default for Bus {
    fn default() -> Self {
        Self::new()
    }
}

impl Notice {
    /// The resource it is about; none if it is about the whole gateway.
    pub fn resource(&self) -> Option<&Resource> {
        match self {
            Self::Fence(
                Event::Raised { resource, .. }
                | Event::Opened { resource, .. }
                | Event::Frozen { resource, .. }
                | Event::Thawed { resource, .. },
            )
            | Self::Election(
                elections::Event::Elected { resource, .. } | elections::Event::Ended { resource, .. },
            )
            | Self::Stale { resource, .. }
            | Self::Line { resource, .. }
            | Self::Unknown { resource, .. } => Some(resource),
            Self::Fence(Event::Joined { .. } | Event::Left { .. } | Event::Evicted { .. })
            | Self::MoreRefused { .. }
            | Self::Reloaded { .. }
            | Self::ReloadFailed { .. }
            | Self::Fenced { .. }
            | Self::Resynced { .. }
            | Self::Standing(_)
            | Self::Draining => None,
        }
    }

    /// The `type` of its JSON form.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Fence(Event::Raised { .. }) => "raised",
            Self::Fence(Event::Opened { .. }) => "opened",
            Self::Fence(Event::Frozen { .. }) => "frozen",
            Self::Fence(Event::Thawed { .. }) => "thawed",
            Self::Fence(Event::Joined { .. }) => "joined",
            Self::Fence(Event::Left { .. }) => "left",
            Self::Fence(Event::Evicted { .. }) => "evicted",
            Self::Fenced { .. } => "fenced",
            Self::Resynced { .. } => "resynced",
            Self::Election(elections::Event::Elected { .. }) => "elected",
            Self::Election(elections::Event::Ended { .. }) => "ended",
            Self::Stale { .. } => "stale",
            Self::MoreRefused { .. } => "more-refused",
            Self::Unknown { .. } => "unknown",
            Self::Reloaded { .. } => "reloaded",
            Self::ReloadFailed { .. } => "reload-failed",
            Self::Draining => "draining",
            Self::Standing(_) => "standing",
            Self::Line { .. } => "line",
        }
    }
}

impl Stamped {
    /// One line of JSON.
    pub fn to_json(&self) -> String {
        let wire = Wire { kind: self.notice.kind(), at: timestamp::format(self.at), ..self.notice.wire() };
        serde_json::to_string(&wire).expect("strings and numbers always serialise")
    }
}

/// The JSON form: flat, and a field that does not apply is absent.
#[derive(Default, Serialize)]
struct Wire<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replica: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    routes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

impl Notice {
    fn wire(&self) -> Wire<'_> {
        let about = Wire { resource: self.resource().map(Resource::as_str), ..Wire::default() };
        match self {
            // A raise is the token that caused it becoming the mark.
            Self::Fence(Event::Raised { from, to, .. }) => {
                Wire { token: Some(*to), mark: Some(*to), from: Some(*from), ..about }
            }
            Self::Fence(Event::Opened { mark, after, .. }) => {
                Wire { mark: Some(*mark), after_seconds: Some(after.as_secs_f64()), ..about }
            }
            Self::Fence(Event::Frozen { mark, .. } | Event::Thawed { mark, .. }) => {
                Wire { mark: Some(*mark), ..about }
            }
            Self::Fence(Event::Joined { member } | Event::Left { member } | Event::Evicted { member }) => {
                Wire { replica: Some(incarnation_text(*member)), ..about }
            }
            Self::Fenced { why } => Wire { why: Some(why), ..about },
            Self::Resynced { why } => Wire { why: Some(why), ..about },
            Self::Election(elections::Event::Elected { holder, token, .. }) => {
                Wire { token: Some(token.get()), holder: Some(short_holder(holder)), ..about }
            }
            Self::Election(elections::Event::Ended { holder, token, why, .. }) => Wire {
                token: Some(token.get()),
                holder: Some(short_holder(holder)),
                why: Some(ended(*why)),
                ..about
            },
            Self::Stale { route, token, mark, client, count, .. } => Wire {
                route: Some(route),
                token: Some(*token),
                mark: Some(*mark),
                client: Some(*client),
                count: Some(*count),
                ..about
            },
            Self::MoreRefused { count } => Wire { count: Some(*count), ..about },
            Self::Unknown { route, token, why, .. } => {
                Wire { route: Some(route), token: Some(*token), why: Some(why), ..about }
            }
            Self::Reloaded { routes } => Wire { routes: Some(*routes), ..about },
            Self::ReloadFailed { error } => Wire { error: Some(error), ..about },
            Self::Line { waiting, .. } => Wire { count: Some(*waiting as u64), ..about },
            Self::Draining | Self::Standing(_) => about,
        }
    }
}

/// As much of a holder's name as people are shown.
pub(crate) fn short_holder(holder: &str) -> Cow<'_, str> {
    shorten(holder, MAX_HOLDER)
}

fn ended(why: Ended) -> &'static str {
    match why {
        Ended::Resigned => "resigned",
        Ended::Expired => "expired",
        Ended::Evicted => "evicted",
        Ended::Overtaken => "overtaken by a higher token",
        Ended::Gone => "resigned, expired or evicted",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::captured::Captured;

    fn json(notice: Notice) -> String {
        Stamped { at: SystemTime::UNIX_EPOCH, notice }.to_json()
    }

    fn ledger() -> Resource {
        Resource::parse("ledger").unwrap()
    }

    #[test]
    fn the_json_form_names_the_type_and_leaves_out_what_does_not_apply() {
        const AT: &str = r#""at":"1970-01-01T00:00:00.000Z""#;
        let client = [127, 0, 0, 1].into();
        let stale =
            Notice::Stale { route: "r".into(), resource: ledger(), token: 7, mark: 8, client, count: 3 };
        assert_eq!(
            json(stale),
            format!(
                r#"{{"type":"stale",{AT},"route":"r","resource":"ledger","token":7,"mark":8,"client":"127.0.0.1","count":3}}"#
            )
        );
        let raised = Notice::Fence(Event::Raised { resource: ledger(), from: 7, to: 8 });
        assert_eq!(
            json(raised),
            format!(r#"{{"type":"raised",{AT},"resource":"ledger","token":8,"mark":8,"from":7}}"#)
        );
        assert_eq!(json(Notice::Draining), format!(r#"{{"type":"draining",{AT}}}"#));
        let failed = Notice::ReloadFailed { error: "line 1\n\"x\"".to_owned() };
        assert_eq!(
            json(failed),
            format!(r#"{{"type":"reload-failed",{AT},"error":"line 1\n\"x\""}}"#),
            "a line break in a message does not break the line"
        );
    }

    #[test]
    fn a_holder_that_somebody_wrote_into_etcd_is_shown_cut() {
        let holder = "h".repeat(100_000);
        let token = highgate_elector::Token::new(7).unwrap();
        let elected = elections::Event::Elected { resource: ledger(), holder: holder.clone(), token };
        let ended = elections::Event::Ended { resource: ledger(), holder, token, why: Ended::Expired };
        for event in [elected, ended] {
            let log = Captured::default();
            log.capture(|| audit::log(&Notice::Election(event.clone())));
            for text in [log.text(), json(Notice::Election(event))] {
                assert!(text.len() < 500 && text.contains("hhh…"), "{} bytes: {text:.300}", text.len());
            }
        }
    }

    #[test]
    fn a_notice_reaches_whoever_listens_and_nobody_else() {
        let bus = Bus::new();
        bus.publish(Notice::Draining);
        let mut listener = bus.subscribe();
        assert!(listener.try_recv().is_err(), "what was published before is gone");
        bus.publish(Notice::Reloaded { routes: 3 });
        assert_eq!(listener.try_recv().unwrap().notice.kind(), "reloaded");
    }
}
