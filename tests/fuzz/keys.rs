//! Resource names, and the keys of etcd that they are part of: one name each, and one key for each name.

use highgate_elector::Resource;
use highgate_etcd::keys::{Key, Keys};

use super::target::{Answer, Target, ensure, respelled, texts};

const PREFIX: &str = "/highgate/default";

pub(crate) fn names() -> Target {
    let examples = texts(&[
        "ledger/acct-7",
        "Ledger/ACCT-7",
        "a/b%2fc",
        "Caf%C3%89",
        "a b;c",
        "x",
        "tenant:1/eu@west,a=b+c~d_e.f",
        "ΑΣ/İstanbul",
        "/a",
        "a//b",
        "a/%2e%2E/b",
        "a%2",
        "a%00",
        "a%ff",
        "a\nb",
    ]);
    let words = &["%C3%89", "%2e", "%2E%2e", "A", "Z", "Σ", "ß", "ǅ", "K", "%E2%84%AA"];
    Target { name: "names", accepted: "name a resource", examples, words, check: check_name, exact: true }
}

fn check_name(input: &[u8]) -> Result<Answer, String> {
    let Ok(name) = std::str::from_utf8(input) else { return Ok(Answer::Refused) };
    check_once_key(name)?;
    let Ok(resource) = Resource::parse(name) else { return Ok(Answer::Refused) };
    let canonical = resource.as_str();
    ensure(Resource::parse(canonical).as_ref() == Ok(&resource), || {
        format!("{canonical} is no fixed point")
    })?;
    ensure(canonical.len() <= Resource::MAX_LEN, || format!("{canonical} is too long"))?;
    let other = respelled(name);
    ensure(Resource::parse(&other).as_ref() == Ok(&resource), || format!("{other} is another resource"))?;
    let keys = Keys::new(PREFIX);
    let key = keys.fence(&resource);
    ensure(keys.parse(key.as_bytes()) == Some(Key::Fence(resource.clone())), || format!("{key} is misread"))?;
    let key = keys.candidate(&resource, 0x7f);
    let candidate = Key::Candidate { resource, name: b"7f" };
    ensure(keys.parse(key.as_bytes()) == Some(candidate), || format!("{key} is misread"))?;
    Ok(Answer::Accepted)
}

/// Two keys of the run-once ledger are never one: from what is stored the key can be had back.
fn check_once_key(name: &str) -> Result<(), String> {
    let (keys, resource) = (Keys::new(PREFIX), Resource::parse("ledger/acct-7").map_err(|e| e.to_string())?);
    let stored = keys.once(&resource, name);
    // An empty key is no entry; the API refuses it before it gets here.
    let expected = (!name.is_empty()).then(|| (resource, name.to_owned()));
    ensure(keys.parse_once(stored.as_bytes()) == expected, || format!("{stored} is misread"))
}

pub(crate) fn keys() -> Target {
    let examples = texts(&[
        "/highgate/default/era",
        "/highgate/default/seq",
        "/highgate/default/e/ledger%2Facct-7/7f",
        "/highgate/default/e/a/7587693ca8e4b2a1",
        "/highgate/default/e/a/by/hand",
        "/highgate/default/f/ledger%2Facct-7",
        "/highgate/default/f/a%25C3%25A9",
        "/highgate/default/m/00ff",
        "/highgate/default/t/era-0",
        "/highgate/default/o/ledger/daily%2F2024",
        "/highgate/default/f/a%2fb",
        "/highgate/default/f/A",
        "/highgate/default/f/a/b",
        "/highgate/default/",
        "/highgate/defaults/era",
    ]);
    let words = &["/e/", "/f/", "/m/", "/t/", "%25", "%2F", "%2525", "%252F", "era", "seq"];
    Target { name: "keys", accepted: "are a key", examples, words, check: check_key, exact: true }
}

/// A key that is read is the one that would be written.
fn check_key(input: &[u8]) -> Result<Answer, String> {
    let keys = Keys::new(PREFIX);
    let Some(key) = keys.parse(input) else { return Ok(Answer::Refused) };
    let written = match &key {
        Key::Era => keys.era().into_bytes(),
        Key::Seq => keys.seq().into_bytes(),
        Key::Names => keys.names().into_bytes(),
        Key::Candidate { resource, name } => [keys.election(resource).as_bytes(), name].concat(),
        Key::Fence(resource) => keys.fence(resource).into_bytes(),
        Key::Member(id) => keys.member(id).into_bytes(),
        Key::Tombstone(id) => keys.tombstone(id).into_bytes(),
    };
    ensure(written == input, || format!("{key:?} is also {}", String::from_utf8_lossy(&written)))?;
    Ok(Answer::Accepted)
}
