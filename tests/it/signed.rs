//! Signed tokens: what passes, what is refused and in which words, and keys that change under way.

mod bound;
mod keys;

use std::path::Path;
use std::time::{Duration, SystemTime};

use highgate::signing::{Holder, Issue, KeyId, Signed, Signing, create, read, retire};
use highgate_elector::{Resource, Token};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    Ask, Client, H2, Running, eventually, gateway, gateway_to, get, json_post, origin, post, stays,
};

const MINUTE: Duration = Duration::from_secs(60);

/// A lease, with its signed token.
struct Won {
    token: u64,
    signed: String,
    held: Value,
}

/// A folder with a key that signs.
fn key() -> (TempDir, KeyId) {
    let folder = tempfile::tempdir().unwrap();
    let id = create(folder.path(), SystemTime::now(), Duration::ZERO).unwrap();
    (folder, id)
}

fn campaign(gate: &Running, resource: &str, secret: Option<&str>) -> Won {
    let wish = json!({ "resource": resource, "holder": "job", "ttl_seconds": 60, "wait_seconds": 10 });
    let mut ask = json_post("/v1/elections/campaign", &wish);
    if let Some(secret) = secret {
        ask = ask.header("Authorization", &format!("Bearer {secret}"));
    }
    let answer = Client::connect(gate.admin_address()).ask(&ask);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let told = answer.json();
    Won {
        token: told["token"].as_u64().unwrap(),
        signed: told["signed_token"].as_str().expect("a key that signs").to_owned(),
        held: json!({ "resource": told["resource"], "lease": told["lease"] }),
    }
}

/// A fresh signed token of a lease.
fn renew(gate: &Running, won: &Won) -> String {
    let renewed = gate.post_admin("/v1/elections/renew", &won.held);
    assert_eq!(renewed.status, 200, "{}", renewed.text());
    renewed.json()["signed_token"].as_str().expect("a key that signs").to_owned()
}

fn resign(gate: &Running, won: &Won) {
    assert_eq!(gate.post_admin("/v1/elections/resign", &won.held).status, 204);
}

fn write(resource: &str, shown: &str) -> Ask {
    post("/").header("X-Fencing-Token", shown).resource(resource)
}

/// What a key of this folder signs, good for a minute from then on.
fn sign(keys: &Path, resource: &str, number: u64, holder: &Holder, at: SystemTime) -> String {
    let resource = Resource::parse(resource).unwrap();
    let issue = Issue { resource: &resource, token: Token::new(number).unwrap(), holder, ttl: MINUTE };
    Signing::open(keys.to_owned()).0.keys().sign(issue, at).unwrap()
}

fn job() -> Holder {
    Holder::Named("job".into())
}

fn parsed(shown: &str) -> Signed {
    *read(shown.as_bytes()).unwrap().1.unwrap()
}

/// The same with another character at this place after the dot.
fn changed(shown: &str, at: usize) -> String {
    let at = shown.find('.').unwrap() + 1 + at;
    let other = if &shown[at..=at] == "A" { "B" } else { "A" };
    let mut changed = shown.to_owned();
    changed.replace_range(at..=at, other);
    changed
}

#[test]
fn a_signed_token_passes_and_its_number_alone_does_not() {
    let (origin, (keys, _)) = (origin().start(), key());
    let gate = gateway_to(&origin).signed_by(keys.path()).start();
    let won = campaign(&gate, "a", None);
    let h2 = H2::connect(gate.address);
    gate.ask(&write("a", &won.signed)).is_ok();
    h2.ask(&write("a", &won.signed)).is_ok();
    for answer in [gate.ask(&write("a", &won.token.to_string())), h2.ask(&write("a", &won.token.to_string()))]
    {
        answer.is_refused(400, "malformed");
        assert!(answer.text().contains("this route wants a signed token"), "{}", answer.text());
    }
    gate.ask(&post("/").resource("a")).is_refused(428, "missing");
    gate.ask(&write("a", &won.signed).header("X-Fencing-Token", &won.signed)).is_refused(400, "malformed");
    gate.ask(&get("/").header("X-Fencing-Token", &won.signed)).is_ok();
    let number = won.token.to_string();
    for request in &origin.seen().requests {
        let shown = request.head.get("x-fencing-token");
        assert_eq!(shown, Some(number.as_str()), "the signature is nobody's business behind the gate");
    }
    assert_eq!(origin.count(), 3);
    resign(&gate, &won);
    gate.ask(&write("a", &won.signed)).is_refused(403, "not-issued");
}

#[test]
fn a_signed_token_counts_by_its_number_where_numbers_are_wanted() {
    let (origin, (keys, _)) = (origin().start(), key());
    let gate = gateway_to(&origin).start();
    gate.ask(&write("a", &sign(keys.path(), "a", 7, &job(), SystemTime::now()))).is_ok();
    assert_eq!((gate.mark("a"), origin.only_request().head.get("x-fencing-token")), (7, Some("7")));
    for shown in ["8.5", "8.", "8.AAAA"] {
        gate.ask(&write("a", shown)).is_refused(400, "malformed");
    }
    let issued = gateway_to(&origin).route("tokens", "issued").start();
    issued
        .ask(&write("a", &sign(keys.path(), "a", 7, &job(), SystemTime::now())))
        .is_refused(403, "not-issued");
    assert_eq!(origin.count(), 1);
}

#[test]
fn what_was_not_signed_for_this_is_refused_in_words_that_say_so() {
    let (origin, (keys, id), (strange, _)) = (origin().start(), key(), key());
    let retired = create(keys.path(), SystemTime::now() + MINUTE, Duration::ZERO).unwrap();
    let by_retired = sign(keys.path(), "a", 9, &job(), SystemTime::now() + 2 * MINUTE);
    retire(keys.path(), retired, SystemTime::now()).unwrap();
    let gate = gateway_to(&origin).signed_by(keys.path()).start();
    let now = SystemTime::now();
    let good = sign(keys.path(), "a", 9, &job(), now);
    let (_, signature) = good.split_once('.').unwrap();
    let end = good.len() - good.find('.').unwrap() - 2;
    for (shown, why) in [
        (sign(keys.path(), "b", 9, &job(), now), "it was issued for another resource"),
        (format!("10.{signature}"), "something was changed"),
        // The holder begins behind 28 bytes, so behind 38 characters.
        (changed(&good, 40), "something was changed"),
        (changed(&good, end - 20), "something was changed"),
        (sign(keys.path(), "a", 9, &job(), now - 2 * MINUTE), "it was good until"),
        (sign(strange.path(), "a", 9, &job(), now), "is not among those of this gateway"),
        (by_retired, "which was retired"),
    ] {
        let answer = gate.ask(&write("a", &shown));
        answer.is_refused(403, "not-issued");
        assert!(answer.text().contains(why), "{why}: {}", answer.text());
        assert!(!answer.text().contains(signature), "{}", answer.text());
    }
    for shown in
        [format!("{good}="), format!("{good}A"), format!("{good}.x"), "9.".to_owned(), "9.é".to_owned()]
    {
        gate.ask(&write("a", &shown)).is_refused(400, "malformed");
    }
    gate.ask(&write("a", &format!("09.{signature}"))).is_refused(400, "malformed");
    assert_eq!((origin.count(), gate.mark("a")), (0, 0), "{id}: none of them raises a mark");
    gate.ask(&write("a", &good)).is_ok();
}

#[test]
fn a_stale_number_is_stale_whatever_is_said_of_it() {
    let (origin, (keys, _), (strange, _)) = (origin().start(), key(), key());
    let gate = gateway_to(&origin).signed_by(keys.path()).start();
    let now = SystemTime::now();
    gate.ask(&write("a", &sign(keys.path(), "a", 9, &job(), now))).is_ok();
    let good = sign(keys.path(), "a", 7, &job(), now);
    let old = sign(keys.path(), "a", 7, &job(), now - 2 * MINUTE);
    let other = sign(keys.path(), "b", 7, &job(), now);
    let unknown = sign(strange.path(), "a", 7, &job(), now);
    for shown in [changed(&good, 40), good, old, other, unknown, "7".to_owned(), "7.nonsense!".to_owned()] {
        let answer = gate.ask(&write("a", &shown));
        answer.is_refused(412, "stale");
        assert_eq!((answer.json()["token"].as_u64(), answer.json()["mark"].as_u64()), (Some(7), Some(9)));
    }
    assert_eq!(origin.count(), 1);
}

#[test]
fn a_gateway_that_only_verifies_raises_the_mark_to_what_was_signed() {
    let (origin, (keys, id)) = (origin().start(), key());
    let public = tempfile::tempdir().unwrap();
    let name = format!("{id}.pub");
    std::fs::copy(keys.path().join(&name), public.path().join(&name)).unwrap();
    let gate = gateway_to(&origin).signed_by(public.path()).start();
    let shown = |number| sign(keys.path(), "a", number, &job(), SystemTime::now());
    gate.ask(&write("a", &shown(50))).is_ok();
    assert_eq!(gate.mark("a"), 50);
    gate.ask(&write("a", &shown(49))).is_refused(412, "stale");
    gate.ask(&write("a", &shown(51))).is_ok();
    gate.ask(&write("a", &shown(50))).is_refused(412, "stale");
    let wish = json!({ "resource": "a", "holder": "x", "ttl_seconds": 60, "wait_seconds": 10 });
    let won = gate.post_admin("/v1/elections/campaign", &wish).json();
    assert!(won["token"].as_u64().unwrap() > 51 && won.get("signed_token").is_none(), "{won}");
}

#[test]
fn a_renewal_answers_a_token_that_is_good_for_longer() {
    let (origin, (keys, _)) = (origin().start(), key());
    let gate = gateway_to(&origin).signed_by(keys.path()).start();
    let won = campaign(&gate, "a", None);
    let first = parsed(&won.signed).not_after();
    let in_a_minute = SystemTime::now() + MINUTE + Duration::from_secs(1);
    assert!(first <= in_a_minute && first > in_a_minute - MINUTE / 2, "{first:?}");
    let mut fresh = String::new();
    eventually("a later end", || {
        fresh = renew(&gate, &won);
        parsed(&fresh).not_after() > first
    });
    assert!(fresh.starts_with(&format!("{}.", won.token)), "{fresh}");
    gate.ask(&write("a", &fresh)).is_ok();
    gate.ask(&write("a", &won.signed)).is_ok();
}

#[test]
fn without_a_key_that_signs_elections_answer_numbers_alone() {
    let gate = gateway("127.0.0.1:1".parse().unwrap()).route("tokens", "issued").start();
    let wish = json!({ "resource": "a", "holder": "x", "ttl_seconds": 60, "wait_seconds": 10 });
    let won = gate.post_admin("/v1/elections/campaign", &wish).json();
    assert!(won.get("signed_token").is_none(), "{won}");
    let renewed = json!({ "resource": "a", "lease": won["lease"] });
    assert!(gate.post_admin("/v1/elections/renew", &renewed).json().get("signed_token").is_none());
}

#[test]
fn a_token_that_ends_while_its_request_waits_does_not_pass() {
    let (origin, (keys, _)) = (origin().start(), key());
    let gate = gateway_to(&origin).signed_by(keys.path()).start();
    // A second or two are left.
    let nearly_over = SystemTime::now() - MINUTE + Duration::from_secs(1);
    let shown = sign(keys.path(), "a", 7, &job(), nearly_over);
    let mut client = gate.connect();
    client.send(write("a", &shown).body("two halves").head()).send("two ");
    eventually("the end of it has come", || parsed(&shown).check_end(SystemTime::now()).is_err());
    client.send("halves");
    let answer = client.response();
    answer.is_refused(403, "not-issued");
    assert!(answer.text().contains("it was good until"), "{}", answer.text());
    assert!(origin.received_nothing());
}

#[test]
fn a_key_that_is_retired_while_a_request_waits_is_good_for_nothing() {
    let (origin, (keys, id)) = (origin().start(), key());
    let gate = gateway_to(&origin).signed_by(keys.path()).start();
    let shown = sign(keys.path(), "a", 7, &job(), SystemTime::now());
    gate.ask(&write("a", &shown)).is_ok();
    let mut client = gate.connect();
    client.send(write("a", &shown).body("two halves").head()).send("two ");
    stays("it waits for the rest", || origin.count() == 1);
    retire(keys.path(), id, SystemTime::now()).unwrap();
    eventually("that is known", || gate.ask(&write("b", &shown)).text().contains("retired"));
    client.send("halves");
    let answer = client.response();
    answer.is_refused(403, "not-issued");
    assert!(answer.text().contains("which was retired"), "{}", answer.text());
    assert_eq!(origin.count(), 1);
}
