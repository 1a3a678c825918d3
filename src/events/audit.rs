//! The audit trail in the log: what happened to leaders, marks, replicas and the configuration, once each, as a line
//! with a stable `event=` name.
//!
//! Lines have the target `audit`, so that they can be told from the rest. What must stay true: a name in [`EVENTS`] is
//! never changed and never used for two things, and docs/operations.md has all of them.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use highgate_elector::timestamp;

use super::{Notice, short_holder};
use crate::elections::{self, Ended};
use crate::metrics::CertificateOf;
use crate::replica::Event;
use crate::signing::{Key, Keys};
use crate::store::overview::incarnation_text;

/// Every name, and what it says.
pub const EVENTS: &[&str] = &[
    "elected",
    "resigned",
    "expired",
    "evicted",
    "superseded",
    "leader-gone",
    "leaders-found",
    "raised",
    "sealed",
    "frozen",
    "thawed",
    "order",
    "order-refused",
    "replica-joined",
    "replica-left",
    "replica-evicted",
    "fenced",
    "resynced",
    "started",
    "unclean-start",
    "reloaded",
    "reload-failed",
    "certificate-renewed",
    "certificate-refused",
    "certificate-ends",
    "signing-keys",
    "signing-keys-refused",
    "insecure",
    "draining",
    "stopped",
    "history-failed",
];

/// Writes the line of a notice. What has a line of another kind (refusals, unknown outcomes) has none here.
pub(super) fn log(notice: &Notice) {
    match notice {
        Notice::Election(event) => log_election(event),
        Notice::Fence(event) => log_fence(event),
        Notice::Fenced { why } => tracing::warn!(
            target: "audit", event = "fenced", why,
            "this replica is fenced: nothing passes until it has joined anew"
        ),
        Notice::Resynced { why } => {
            tracing::warn!(target: "audit", event = "resynced", why, "changes were missed: everything is read again");
        }
        Notice::Reloaded { routes } => {
            tracing::info!(target: "audit", event = "reloaded", routes, "routes reloaded");
        }
        Notice::ReloadFailed { error } => tracing::error!(
            target: "audit", event = "reload-failed", error,
            "the config file was not taken; the routes stay as they were"
        ),
        Notice::Draining => tracing::info!(
            target: "audit", event = "draining",
            "ending: not ready, then drained, then stopped; a second signal ends at once"
        ),
        Notice::Stale { .. }
        | Notice::MoreRefused { .. }
        | Notice::Unknown { .. }
        | Notice::Standing(_)
        | Notice::Line { .. } => {}
    }
}

fn log_election(event: &elections::Event) {
    match event {
        elections::Event::Elected { resource, holder, token } => {
            let holder = &*short_holder(holder);
            tracing::info!(target: "audit", event = "elected", %resource, holder, token = token.get(), "elected");
        }
        elections::Event::Ended { resource, holder, token, why } => {
            let (holder, token) = (&*short_holder(holder), token.get());
            match why {
                Ended::Resigned => tracing::info!(
                    target: "audit", event = "resigned", %resource, holder, token, "the leader resigned"
                ),
                Ended::Expired => tracing::warn!(
                    target: "audit", event = "expired", %resource, holder, token,
                    "the leader did not renew its lease in time"
                ),
                Ended::Evicted => tracing::warn!(
                    target: "audit", event = "evicted", %resource, holder, token, "an operator deposed the leader"
                ),
                Ended::Overtaken => tracing::warn!(
                    target: "audit", event = "superseded", %resource, holder, token,
                    "the mark was raised above the leader's token"
                ),
                Ended::Gone => tracing::warn!(
                    target: "audit", event = "leader-gone", %resource, holder, token,
                    "the leader is gone; why, this gateway did not see"
                ),
            }
        }
    }
}

fn log_fence(event: &Event) {
    match event {
        Event::Raised { resource, from, to } => {
            tracing::info!(target: "audit", event = "raised", %resource, from, to, "the mark was raised");
        }
        Event::Opened { resource, mark, after } => tracing::info!(
            target: "audit", event = "sealed", %resource, mark, after_seconds = after.as_secs_f64(),
            "the mark is open: nothing of a lower token is under way"
        ),
        Event::Frozen { resource, mark } => {
            tracing::info!(target: "audit", event = "frozen", %resource, mark, "frozen: nothing passes");
        }
        Event::Thawed { resource, mark } => {
            tracing::info!(target: "audit", event = "thawed", %resource, mark, "thawed");
        }
        Event::Joined { member } => {
            let replica = incarnation_text(*member);
            tracing::info!(target: "audit", event = "replica-joined", replica, "a replica joined");
        }
        Event::Left { member } => {
            let replica = incarnation_text(*member);
            tracing::info!(target: "audit", event = "replica-left", replica, "a replica left");
        }
        Event::Evicted { member } => {
            let replica = incarnation_text(*member);
            tracing::warn!(target: "audit", event = "replica-evicted", replica, "a replica was evicted");
        }
    }
}

/// After a start or a gap so many terms were found to have begun or ended that a line each would drown the rest.
pub(super) fn leaders_found(count: usize) {
    tracing::info!(
        target: "audit", event = "leaders-found", count,
        "leaders came and went unseen; highgate history names them"
    );
}

/// The gateway serves.
pub(crate) fn started(store: &str, inherited_delay: Option<Duration>) {
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!(target: "audit", event = "started", version, store, "started");
    if let Some(delay) = inherited_delay {
        tracing::warn!(
            target: "audit", event = "unclean-start", delay_seconds = delay.as_secs_f64(),
            "the last process did not end cleanly: for this long no mark opens that was not open"
        );
    }
}

/// Certificate files have changed, and are in force for new connections.
pub(crate) fn certificate_renewed(of: &CertificateOf, end: Option<SystemTime>) {
    let (listener, route) = place(of);
    let expires = end.map(timestamp::format);
    tracing::info!(
        target: "audit", event = "certificate-renewed", listener, route, expires, "certificate files renewed"
    );
}

/// Certificate files cannot be used.
pub(crate) fn certificate_refused(of: &CertificateOf, why: &str) {
    let (listener, route) = place(of);
    tracing::error!(
        target: "audit", event = "certificate-refused", listener, route, why,
        "new certificate files were not taken; the old ones stay in force"
    );
}

/// Other keys of signed tokens are in force.
pub(crate) fn signing_keys_changed(keys: &Keys) {
    let list = |is: fn(&Key) -> bool| {
        let ids = keys.iter().filter(|key| is(key)).map(|key| key.id().to_string());
        ids.collect::<Vec<_>>().join(" ")
    };
    let (sign, retired) = (list(Key::can_sign), list(|key| key.retired().is_some()));
    let verify = list(|key| key.retired().is_none());
    tracing::info!(
        target: "audit", event = "signing-keys", verify, sign, retired, "other keys of signed tokens are in force"
    );
}

/// Files of keys cannot be used.
pub(crate) fn signing_keys_refused(why: &[String]) {
    let why = why.join("; ");
    tracing::error!(
        target: "audit", event = "signing-keys-refused", why,
        "files in the folder of signing keys cannot be used; what verified goes on to do so, and a key signs only while its private half can be read"
    );
}

/// A certificate ends soon, or has ended.
pub(crate) fn certificate_ends(of: &CertificateOf, end: SystemTime) {
    let (listener, route) = place(of);
    let expires = timestamp::format(end);
    tracing::warn!(
        target: "audit", event = "certificate-ends", listener, route, expires,
        "a certificate ends within two weeks or has ended; renew its files, they are taken in place"
    );
}

/// The port or the route that a certificate belongs to.
fn place(of: &CertificateOf) -> (Option<&str>, Option<&str>) {
    match of {
        CertificateOf::Listener(name) => (Some(name), None),
        CertificateOf::Route(name) => (None, Some(name)),
    }
}

/// A port that strangers can listen to.
pub(crate) fn insecure(listener: &str, address: SocketAddr) {
    tracing::warn!(
        target: "audit", event = "insecure", listener, %address,
        "this port is on another address than loopback and has no TLS: everything on it goes over the network in the clear"
    );
}

/// The gateway has ended.
pub(crate) fn stopped(clean: bool) {
    if clean {
        tracing::info!(target: "audit", event = "stopped", clean, "stopped clean");
    } else {
        tracing::warn!(
            target: "audit", event = "stopped", clean,
            "stopped with requests whose end is unknown; the next start waits for the lock-delay"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_documented_and_nothing_else_is() {
        let documentation = include_str!("../../docs/operations.md");
        let (_, section) = documentation.split_once("### The audit trail").expect("the section");
        let section = section.split("\n## ").next().unwrap_or(section);
        let documented: Vec<_> = section
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name))
            .collect();
        assert_eq!(documented, EVENTS);
    }

    #[test]
    fn every_name_is_written_in_one_place() {
        let sources = [
            include_str!("audit.rs").split("#[cfg(test)]").next().unwrap_or_default(),
            include_str!("../admin/operator.rs"),
            include_str!("../admin/refusals.rs"),
            include_str!("../journal/shared.rs"),
        ];
        for name in EVENTS {
            let written = format!("event = \"{name}\"");
            let times: usize = sources.iter().map(|source| source.matches(&written).count()).sum();
            let expected = if *name == "stopped" { 2 } else { 1 };
            assert_eq!(times, expected, "{name}");
        }
    }
}
