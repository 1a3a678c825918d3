//! The token header: exactly the decimals from 1 to 2^63 - 1, each in one spelling.

use highgate_elector::Token;
use highgate_etcd::keys;

use super::target::{Answer, Target, ensure, texts};

pub(crate) fn target() -> Target {
    let examples = texts(&[
        "7",
        "1",
        "281474976710656",
        "844424930131975",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551617",
        "0",
        "007",
        "+1",
        "-1",
        " 7",
        "7,8",
        "0x7",
        "1e3",
        "٧",
        "",
    ]);
    let words = &["0", "9", "+", ",", " ", "1", "٣"];
    Target { name: "tokens", accepted: "are a token", examples, words, check, exact: true }
}

fn check(input: &[u8]) -> Result<Answer, String> {
    let parsed = Token::parse(input).ok();
    ensure(parsed.map(Token::get) == expected(input), || format!("read as {parsed:?}"))?;
    let Some(token) = parsed else { return Ok(Answer::Refused) };
    ensure(token.to_string().as_bytes() == input, || format!("two spellings of {token}"))?;
    ensure(Token::new(token.get()) == Some(token), || format!("{token} is not the token of its number"))?;
    let revision = keys::revision(token);
    ensure(keys::token(token.era(), revision) == Some(token), || {
        format!("{token} is not revision {revision} of era {}", token.era())
    })?;
    Ok(Answer::Accepted)
}

/// The same rule in other words.
fn expected(input: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(input).ok()?;
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text && (1..=Token::MAX).contains(&number)).then_some(number)
}
