//! Paths, hosts and what routes say of them: one reading each, and `covers` never promises too much.

use highgate::config::{CanonicalPath, HostPattern, PathPattern, canonical_host};

use super::target::{Answer, Target, ensure, respelled, texts};

pub(crate) fn paths() -> Target {
    let examples = texts(&[
        "/",
        "/accounts/7",
        "/accounts/7/",
        "/acc%6Funts/%c3%a9/a%20b",
        "/.../a..b/.c",
        "/jobs/k/z/b1",
        "//a",
        "/a//b",
        "/a/../b",
        "/a/%2e%2E/b",
        "/a%2Fb",
        "/a%5Cb",
        "/a;v=1",
        "/a%3Bv",
        "/a%00",
        "/a%C2%85",
        "/a%c3/%a9",
        "/a%c0%af",
        "/a%",
        "*",
    ]);
    let words = &["%2e", "%2E", "%5c", "%3b", "%7F", "%c3", "%a9", "%252e", "%u002e", "/./", "/../"];
    Target { name: "paths", accepted: "are one path", examples, words, check: check_path, exact: true }
}

fn check_path(input: &[u8]) -> Result<Answer, String> {
    let Ok(text) = std::str::from_utf8(input) else { return Ok(Answer::Refused) };
    let parsed = CanonicalPath::parse(text).ok();
    let plain = plainly_read(text);
    ensure(parsed.is_some() == plain.is_some(), || format!("read as {parsed:?}, plainly as {plain:?}"))?;
    let Some(path) = parsed else { return Ok(Answer::Refused) };
    let everything = PathPattern::parse("/{*rest}").expect("a pattern");
    ensure(everything.matches(&path), || "not matched by /{*rest}".to_owned())?;
    let inner = text.strip_prefix('/').unwrap_or(text);
    let rest = everything.captures(&path);
    ensure(rest.get(0) == inner.strip_suffix('/').unwrap_or(inner), || {
        format!("captured {:?}", rest.get(0))
    })?;
    if let Ok(own) = PathPattern::parse(text) {
        let respelled = respelled(text);
        let other = CanonicalPath::parse(&respelled).map_err(|error| format!("{respelled}: {error}"))?;
        ensure(own.params().is_empty() || text.contains('{'), || format!("{own} has parameters"))?;
        ensure(own.matches(&path) && own.matches(&other), || format!("{own} does not match itself"))?;
    }
    Ok(Answer::Accepted)
}

/// The decoded segments of a path that nobody could read differently. The same rule in other words.
fn plainly_read(text: &str) -> Option<Vec<String>> {
    let inner = text.strip_prefix('/')?;
    if inner.is_empty() {
        return Some(Vec::new());
    }
    inner.strip_suffix('/').unwrap_or(inner).split('/').map(plain_segment).collect()
}

fn plain_segment(segment: &str) -> Option<String> {
    let mut parts = segment.split('%');
    let mut decoded = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = (part.get(..2)?, part.get(2..)?);
        let hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        decoded.push(u8::from_str_radix(digits, 16).ok().filter(|_| hexadecimal)?);
        decoded.extend_from_slice(rest.as_bytes());
    }
    let decoded = String::from_utf8(decoded).ok()?;
    let odd = |character: char| character.is_control() || "/\\;".contains(character);
    (!decoded.contains(odd) && !["", ".", ".."].contains(&decoded.as_str())).then_some(decoded)
}

pub(crate) fn hosts() -> Target {
    let examples = texts(&[
        "ledger.internal",
        "LEDGER.Internal:8080",
        "ledger.internal.",
        "127.0.0.1:80",
        "[0:0::1]:80",
        "[::ffff:1.2.3.4]",
        "a_b-c.d:",
        "a..b",
        "user@a",
        "a:+1",
        "a:65536",
        "l%65dger",
        "é",
        "[::1",
        "[::1%25eth0]",
        "",
    ]);
    let words = &[":80", ".", "[", "]", "::", ":", "*.", "A"];
    Target { name: "hosts", accepted: "are one host", examples, words, check: check_host, exact: true }
}

fn check_host(input: &[u8]) -> Result<Answer, String> {
    let Ok(text) = std::str::from_utf8(input) else { return Ok(Answer::Refused) };
    let Ok(host) = canonical_host(text) else { return Ok(Answer::Refused) };
    ensure(canonical_host(&host).as_ref() == Ok(&host), || format!("{host} is no fixed point"))?;
    ensure(!host.bytes().any(|byte| byte.is_ascii_uppercase()), || format!("{host} is not lower case"))?;
    let loud = text.to_ascii_uppercase();
    ensure(canonical_host(&loud).as_ref() == Ok(&host), || format!("{loud} is another host than {host}"))?;
    let with_port = format!("{host}:8080");
    ensure(canonical_host(&with_port).as_ref() == Ok(&host), || format!("{with_port} is another host"))?;
    let own = HostPattern::parse(&host).ok_or_else(|| format!("{host} is no pattern"))?;
    ensure(own.matches(&host), || format!("the pattern {own} does not match itself"))?;
    Ok(Answer::Accepted)
}

pub(crate) fn patterns() -> Target {
    let examples = texts(&[
        "/accounts/{account}/{*rest}\n/accounts/7/{*rest}\n/accounts/7/a/b",
        "/\n/{*all}\n/",
        "/{a}/{b}\n/a/{b}\n/a/b",
        "/acc%6Funts/{a}\n/accounts/{b}\n/accounts/1",
        "/{a}/b/{*c}\n/{a}/{b}\n/x/b/",
        "*.internal\n*.ledger.internal\nLEDGER.internal:80",
        "ledger.internal\n*.internal\nledger.internal.",
        "*.a\na\na",
        "/{*a}/b\n/{a}{b}\n/a",
        "/{host}\n/{1}\n/a",
        "/a*\n/?\n/*",
    ]);
    let words = &["{a}", "{*a}", "{*rest}", "{b}", "/a", "*.", "{", "}", "*", "a"];
    let accepted = "are two patterns and what the narrower one matches";
    Target { name: "patterns", accepted, examples, words, check: check_patterns, exact: true }
}

/// Two patterns and something to match.
fn check_patterns(input: &[u8]) -> Result<Answer, String> {
    let Ok(text) = std::str::from_utf8(input) else { return Ok(Answer::Refused) };
    let mut lines = text.split('\n');
    let [Some(wide), Some(narrow), Some(sample)] = [(); 3].map(|()| lines.next()) else {
        return Ok(Answer::Refused);
    };
    Ok(Answer::of(path_patterns(wide, narrow, sample)? || host_patterns(wide, narrow, sample)?))
}

fn path_patterns(wide: &str, narrow: &str, sample: &str) -> Result<bool, String> {
    let (Ok(wide), Ok(narrow)) = (PathPattern::parse(wide), PathPattern::parse(narrow)) else {
        return Ok(false);
    };
    for pattern in [&wide, &narrow] {
        let again = PathPattern::parse(&pattern.to_string());
        ensure(again.as_ref() == Ok(pattern), || format!("{pattern} is not what it says"))?;
        ensure(pattern.covers(pattern), || format!("{pattern} does not cover itself"))?;
    }
    let Ok(path) = CanonicalPath::parse(sample) else { return Ok(false) };
    for pattern in [&wide, &narrow].into_iter().filter(|pattern| pattern.matches(&path)) {
        let captures = pattern.captures(&path);
        for (position, name) in pattern.params().iter().enumerate() {
            ensure(pattern.position(name) == Some(position), || format!("{name} is elsewhere in {pattern}"))?;
            ensure(sample.contains(captures.get(position)), || format!("{name} is not of the path"))?;
        }
    }
    let narrow_matches = narrow.matches(&path);
    let broken = wide.covers(&narrow) && narrow_matches && !wide.matches_in_any_case(&path);
    ensure(!broken, || format!("{wide} covers {narrow}, but not on this path"))?;
    let broken = narrow.matches(&path) && !narrow.matches_in_any_case(&path);
    ensure(!broken, || format!("{narrow} matches this path, but not in any case"))?;
    let apart = wide.matches_in_any_case(&path) && !wide.matches(&path);
    let broken = apart && narrow_matches && !wide.meets_in_another_case(&narrow);
    ensure(!broken, || {
        format!("this path is {narrow} and another case of {wide}, which are said not to meet")
    })?;
    Ok(narrow_matches)
}

fn host_patterns(wide: &str, narrow: &str, sample: &str) -> Result<bool, String> {
    let (Some(wide), Some(narrow)) = (HostPattern::parse(wide), HostPattern::parse(narrow)) else {
        return Ok(false);
    };
    let again = HostPattern::parse(&wide.to_string());
    ensure(again.as_ref() == Some(&wide), || format!("{wide} is not what it says"))?;
    let Ok(host) = canonical_host(sample) else { return Ok(false) };
    let narrow_matches = narrow.matches(&host);
    let broken = wide.covers(&narrow) && narrow_matches && !wide.matches(&host);
    ensure(!broken, || format!("{wide} covers {narrow}, but not on this host"))?;
    Ok(narrow_matches)
}
