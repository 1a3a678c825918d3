//! Signed tokens that are bound to whom they were issued to.

use highgate::signing::{Holder, Signing};

use super::*;
use crate::support::{GateBuilder, Origin};

fn by(ask: Ask, name: &str) -> Ask {
    ask.header("X-Fencing-Credential", &format!("{name}-s3cret"))
}

/// Jobs A and B may both write and campaign below `a/`, and their tokens are bound.
fn bound(origin: &Origin, keys: &Path) -> GateBuilder {
    gateway_to(origin)
        .grant("job-a", "write campaign", "a/*")
        .grant("job-b", "write campaign", "a/*")
        .grant("job-c", "write campaign", "c/*")
        .signed_by(keys)
        .route("bind_holder", true)
}

#[test]
fn a_copied_token_is_of_no_use_to_another_identity() {
    let (origin, (keys, _)) = (origin().start(), key());
    let gate = bound(&origin, keys.path()).start();
    let won = campaign(&gate, "a/1", Some("job-a-s3cret"));
    assert_eq!(parsed(&won.signed).holder(), &Holder::Identity("bearer:job-a".into()));
    gate.ask(&by(write("a/1", &won.signed), "job-a")).is_ok();
    let copied = gate.ask(&by(write("a/1", &won.signed), "job-b"));
    copied.is_refused(403, "forbidden");
    assert!(copied.text().contains("issued to another identity"), "{}", copied.text());
    assert!(!copied.text().contains("job-a"), "whose it is does not concern the thief");
    gate.ask(&by(write("a/1", &won.signed), "job-c")).is_refused(403, "forbidden");
    gate.ask(&write("a/1", &won.signed)).is_refused(403, "forbidden");
    gate.ask(&by(write("a/1", &won.token.to_string()), "job-a")).is_refused(400, "malformed");
    gate.ask(&by(write("a/2", &won.signed), "job-a")).is_refused(403, "not-issued");
    assert_eq!(origin.count(), 1);
}

#[test]
fn a_copied_token_raises_no_mark() {
    let (origin, (keys, _)) = (origin().start(), key());
    let gate = bound(&origin, keys.path()).start();
    let holder = |name: &str| Holder::Identity(name.into());
    let shown = sign(keys.path(), "a/1", 50, &holder("bearer:job-a"), SystemTime::now());
    gate.ask(&by(write("a/1", &shown), "job-b")).is_refused(403, "forbidden");
    assert_eq!(gate.mark("a/1"), 0);
    gate.ask(&by(write("a/1", &shown), "job-a")).is_ok();
    assert_eq!(gate.mark("a/1"), 50);
    let stale = sign(keys.path(), "a/1", 49, &holder("bearer:job-a"), SystemTime::now());
    for name in ["job-a", "job-b"] {
        gate.ask(&by(write("a/1", &stale), name)).is_refused(412, "stale");
    }
    gate.ask(&by(write("a/1", &stale), "job-c")).is_refused(403, "forbidden");
}

#[test]
fn a_name_that_a_candidate_gave_itself_binds_nobody() {
    let (origin, (keys, _)) = (origin().start(), key());
    let gate = bound(&origin, keys.path()).start();
    let named = Holder::Named("bearer:job-a".into());
    let shown = sign(keys.path(), "a/1", 50, &named, SystemTime::now());
    let refused = gate.ask(&by(write("a/1", &shown), "job-a"));
    refused.is_refused(403, "forbidden");
    assert!(refused.text().contains("nobody knows to which identity"), "{}", refused.text());

    let open = gateway_to(&origin).signed_by(keys.path()).route("bind_holder", true).start();
    let won = campaign(&open, "default", None);
    open.ask(&write("default", &won.signed)).is_refused(403, "forbidden");
    assert!(origin.received_nothing());
}

#[test]
fn a_grant_that_is_taken_away_ends_what_its_token_is_good_for() {
    let (origin, (keys, _)) = (origin().start(), key());
    let gate = bound(&origin, keys.path()).start();
    let won = campaign(&gate, "a/1", Some("job-a-s3cret"));
    gate.ask(&by(write("a/1", &won.signed), "job-a")).is_ok();
    gate.grant(&gateway_to(&origin).grant("job-a", "observe", "*").signed_by(keys.path()));
    gate.ask(&by(write("a/1", &won.signed), "job-a")).is_refused(403, "forbidden");
    let (signing, _) = Signing::open(keys.path().to_owned());
    assert!(signing.keys().can_verify());
    assert_eq!(origin.count(), 1);
}
