//! One spelling per request path: [`CanonicalPath`].
//!
//! `gate::claim` puts every request's path through it before a route is looked for, fenced or not: a second
//! spelling of a fenced path that matched an unfenced route would be a way around the fence. So whatever
//! servers are known to read differently (dots, empty segments, encoded slashes, backslashes, path
//! parameters, broken escapes, accents apart from their letters) is refused, never repaired. An accepted path has as many segments decoded as
//! raw. Patterns and upstream base paths in the config file obey the same rule.

use std::str::Split;

use unicode_normalization::is_nfc;

/// A path that every server reads the same way. Borrows the request's; allocates only to decode a `%`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanonicalPath<'p> {
    /// Without the leading slash and without one trailing slash; empty for `/`.
    raw: &'p str,
    /// `raw` with its escapes decoded, if it has any.
    decoded: Option<String>,
}

/// Why a path could be read in more than one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("the path does not start with `/`")]
    NotAbsolute,
    #[error("the path has an empty segment (`//`)")]
    EmptySegment,
    #[error("the path has a `.` or `..` segment")]
    DotSegment,
    #[error("the path has an encoded slash (`%2F`)")]
    EncodedSlash,
    #[error("the path has a backslash")]
    Backslash,
    #[error("the path has a `;`")]
    Semicolon,
    #[error("the path has a control character")]
    Control,
    #[error("the path has a `%` without two hexadecimal digits")]
    BadEscape,
    #[error("the path is not UTF-8 once decoded")]
    NotUtf8,
    #[error("the path has a character in another spelling than that of Unicode's normal form NFC")]
    NotNormal,
}

impl<'p> CanonicalPath<'p> {
    /// Accepts a path (without its query) that has only one reading.
    pub fn parse(path: &'p str) -> Result<Self, PathError> {
        let raw = path.strip_prefix('/').ok_or(PathError::NotAbsolute)?;
        if raw.is_empty() {
            return Ok(Self { raw, decoded: None });
        }
        let raw = raw.strip_suffix('/').unwrap_or(raw);
        let decoded = if raw.contains('%') { Some(decode(raw)?) } else { None };
        check(decoded.as_deref().unwrap_or(raw))?;
        Ok(Self { raw, decoded })
    }

    /// The decoded segments: what literal pattern segments are compared with.
    pub(super) fn segments(&self) -> Segments<'_> {
        Segments::of(self.decoded.as_deref().unwrap_or(self.raw))
    }

    /// The segments as they were sent: what parameters capture.
    pub(super) fn raw_segments(&self) -> Segments<'p> {
        Segments::of(self.raw)
    }

    /// What follows the first `count` segments, as it was sent.
    pub(super) fn raw_after(&self, count: usize) -> &'p str {
        self.raw.splitn(count + 1, '/').nth(count).unwrap_or_default()
    }

    /// The decoded path without its slashes at both ends.
    pub(super) fn into_decoded(self) -> String {
        self.decoded.unwrap_or_else(|| self.raw.to_owned())
    }
}

/// Splits at slashes, with the difference that nothing has no segments rather than an empty one.
pub(super) struct Segments<'a>(Option<Split<'a, char>>);

impl<'a> Segments<'a> {
    fn of(text: &'a str) -> Self {
        Self((!text.is_empty()).then(|| text.split('/')))
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        self.0.as_mut()?.next()
    }
}

fn decode(raw: &str) -> Result<String, PathError> {
    let mut decoded = Vec::with_capacity(raw.len());
    let mut bytes = raw.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let high = bytes.next().and_then(hex_digit).ok_or(PathError::BadEscape)?;
        let low = bytes.next().and_then(hex_digit).ok_or(PathError::BadEscape)?;
        match high << 4 | low {
            b'/' => return Err(PathError::EncodedSlash),
            byte => decoded.push(byte),
        }
    }
    String::from_utf8(decoded).map_err(|_| PathError::NotUtf8)
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

fn check(decoded: &str) -> Result<(), PathError> {
    if !decoded.is_ascii() && !is_nfc(decoded) {
        return Err(PathError::NotNormal);
    }
    for character in decoded.chars() {
        match character {
            '\\' => return Err(PathError::Backslash),
            ';' => return Err(PathError::Semicolon),
            character if character.is_control() => return Err(PathError::Control),
            _ => {}
        }
    }
    decoded.split('/').try_for_each(|segment| match segment {
        "" => Err(PathError::EmptySegment),
        "." | ".." => Err(PathError::DotSegment),
        _ => Ok(()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn segments(path: &str) -> Vec<String> {
        CanonicalPath::parse(path).unwrap().segments().map(str::to_owned).collect()
    }

    #[test]
    fn plain_paths_are_their_segments() {
        assert_eq!(segments("/"), Vec::<String>::new());
        assert_eq!(segments("/accounts/7"), ["accounts", "7"]);
        assert_eq!(segments("/accounts/7/"), ["accounts", "7"], "one trailing slash makes no difference");
        assert_eq!(segments("/acc%6Funts/%c3%a9/a%20b"), ["accounts", "é", "a b"]);
        assert_eq!(
            segments("/.../a..b/.c"),
            ["...", "a..b", ".c"],
            "only whole segments of dots mean something"
        );
    }

    #[test]
    fn whatever_has_two_readings_is_refused() {
        for (path, error) in [
            ("", PathError::NotAbsolute),
            ("*", PathError::NotAbsolute),
            ("accounts", PathError::NotAbsolute),
            ("//", PathError::EmptySegment),
            ("///", PathError::EmptySegment),
            ("//a", PathError::EmptySegment),
            ("/a//b", PathError::EmptySegment),
            ("/a//", PathError::EmptySegment),
            ("/.", PathError::DotSegment),
            ("/a/../b", PathError::DotSegment),
            ("/a/./b", PathError::DotSegment),
            ("/a/..", PathError::DotSegment),
            ("/a/%2e%2E/b", PathError::DotSegment),
            ("/a/.%2e/", PathError::DotSegment),
            ("/a%2Fb", PathError::EncodedSlash),
            ("/a%2fb", PathError::EncodedSlash),
            ("/a\\b", PathError::Backslash),
            ("/a%5Cb", PathError::Backslash),
            ("/a;v=1", PathError::Semicolon),
            ("/a%3Bv", PathError::Semicolon),
            ("/a%3bv", PathError::Semicolon),
            ("/a%00", PathError::Control),
            ("/a%0d%0a", PathError::Control),
            ("/a%7F", PathError::Control),
            ("/a%C2%85", PathError::Control),
            ("/a\u{85}", PathError::Control),
            ("/a%", PathError::BadEscape),
            ("/a%2", PathError::BadEscape),
            ("/a%2/b", PathError::BadEscape),
            ("/a%+2", PathError::BadEscape),
            ("/a%zz", PathError::BadEscape),
            ("/a%ff", PathError::NotUtf8),
            ("/a%c3/%a9", PathError::NotUtf8),
            ("/a%c0%af", PathError::NotUtf8),
            ("/cafe%CC%81", PathError::NotNormal),
            ("/%E2%84%AA", PathError::NotNormal),
        ] {
            assert_eq!(CanonicalPath::parse(path), Err(error), "{path:?}");
        }
    }

    proptest! {
        #[test]
        fn raw_and_decoded_segments_are_one_to_one(path in "/[a-z%2-6/.eE\u{e9};\\\\]{0,24}") {
            if let Ok(path) = CanonicalPath::parse(&path) {
                prop_assert_eq!(path.segments().count(), path.raw_segments().count());
                prop_assert!(path.segments().all(|segment| !matches!(segment, "" | "." | "..")));
            }
        }
    }
}
