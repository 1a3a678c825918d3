//! Signed tokens and the files of their keys: one encoding, nothing good that was not signed, and no secret told.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use highgate::signing::{Holder, Issue, Key, KeyId, Keys, MAX_LENGTH, Signing, read};
use highgate_elector::{Resource, Token};

use super::target::{Answer, Target, ensure, texts};

const ID: &str = "34ed24fe44ac8eaf";
const SECRET: &str = "Yc4LiFHOoXfIazN3l7F7KRus6864rnb1bgZQd78Za5U";
/// A key that is used for nothing else.
const KEY: &str = "# Whoever can read this file can issue tokens.
id = \"34ed24fe44ac8eaf\"
created = \"2026-11-18T20:26:10.514Z\"
signs_from = \"2026-11-18T20:26:10.514Z\"
public = \"RRxJQxCZRshcCz9eDRJKQPYgJZd3pUb2ngOjJpvlgug\"
private = \"Yc4LiFHOoXfIazN3l7F7KRus6864rnb1bgZQd78Za5U\"
";
const RESOURCES: [&str; 2] = ["ledger/7", "a"];

/// What was signed for one resource.
type Issued = Vec<(Token, String)>;

/// The key, and what it has signed: for each resource a few numbers to two kinds of holders.
static SIGNED: LazyLock<(Keys, Vec<Issued>)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(format!("{ID}.key")), KEY).unwrap();
    let keys = Keys::clone(&Signing::open(folder.path().to_owned()).0.keys());
    let holders = [Holder::Named("job \u{e9}".into()), Holder::Identity("spiffe://corp/job-a".into())];
    let sign = |name: &str, number, holder: &Holder| {
        let (resource, token) = (Resource::parse(name).unwrap(), Token::new(number).unwrap());
        let issue = Issue { resource: &resource, token, holder, ttl: Duration::from_secs(60) };
        (token, keys.sign(issue, now()).unwrap())
    };
    let of = |name| {
        let numbers = [7, 70, 281_474_976_710_656, Token::MAX];
        numbers
            .into_iter()
            .flat_map(|number| holders.each_ref().map(|holder| sign(name, number, holder)))
            .collect()
    };
    let signed = RESOURCES.map(of).to_vec();
    (keys, signed)
});

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(2_000_000_000)
}

pub(crate) fn tokens() -> Target {
    let mut examples = texts(&["7", "7.", "7.AAAA", "7.AQ==", ".", "07.AAAA", "7.AAAA.AAAA"]);
    examples.extend(SIGNED.1.iter().flatten().map(|(_, shown)| shown.clone().into_bytes()));
    let words = &["A", "-", "_", "=", "+", "/", ".", "AQ", "AAAAAAAAAAA", "70.", " "];
    Target {
        name: "signed",
        accepted: "have the form of a signed token",
        examples,
        words,
        check,
        exact: true,
    }
}

fn check(input: &[u8]) -> Result<Answer, String> {
    let number = input.split(|byte| *byte == b'.').next().unwrap_or_default();
    let told = read(input).ok();
    ensure(told.as_ref().map(|(token, _)| *token) == Token::parse(number).ok(), || {
        "another number".to_owned()
    })?;
    let Some((token, Ok(signed))) = told else { return Ok(Answer::Refused) };
    ensure(signed.encode(token).as_bytes() == input, || "two encodings of one token".to_owned())?;
    ensure(input.len() <= MAX_LENGTH, || "longer than a token can be".to_owned())?;
    let (keys, all) = &*SIGNED;
    for (name, of_this) in RESOURCES.iter().zip(all) {
        let resource = Resource::parse(name).unwrap();
        let good = keys.verify(&signed, token, &resource, now()).is_ok();
        let was_signed = of_this.contains(&(token, String::from_utf8_lossy(input).into_owned()));
        ensure(good == was_signed, || format!("good for {name}: {good}, signed for it: {was_signed}"))?;
    }
    Ok(Answer::Accepted)
}

pub(crate) fn keys() -> Target {
    let public: String =
        KEY.lines().filter(|line| !line.starts_with("private")).map(|line| line.to_owned() + "\n").collect();
    let retired = format!("{public}retired = \"2026-11-18T20:26:10Z\"\n");
    let examples = texts(&[KEY, &public, &retired, "", "id = \"\"\n"]);
    let words = &["private", "public", "retired", "id", " = ", "\"", "\n", "#", "2026-11-18T20:26:10Z", ID];
    Target { name: "keyfiles", accepted: "are a key", examples, words, check: check_key, exact: true }
}

fn check_key(input: &[u8]) -> Result<Answer, String> {
    let Ok(text) = std::str::from_utf8(input) else { return Ok(Answer::Refused) };
    let told = Key::parse(text, KeyId::parse(ID).unwrap());
    let shown = format!("{told:?}") + &told.as_ref().err().map(ToString::to_string).unwrap_or_default();
    ensure(!shown.contains(&SECRET[..12]), || format!("the secret is told: {shown}"))?;
    let Ok(key) = told else { return Ok(Answer::Refused) };
    ensure(key.id().to_string() == ID, || format!("another key: {}", key.id()))?;
    ensure(!(key.can_sign() && key.retired().is_some()), || "a retired key signs".to_owned())?;
    Ok(Answer::Accepted)
}
