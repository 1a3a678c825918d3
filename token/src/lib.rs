//! The wire contract: tokens, resource names, the headers that carry them, and how times are written.
//!
//! Both parsers are strict and total: every byte string is either exactly one token (or one resource) or an
//! error that says why. Two spellings never mean the same token, and one resource never has two names:
//! that is what a mark is keyed by, so a second name would be a way around the fence.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod timestamp;

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::num::NonZeroU64;

use smol_str::SmolStr;
use unicode_normalization::UnicodeNormalization;

/// Header names, in the lower case that HTTP/2 demands and HTTP/1.1 does not mind.
pub mod headers {
    /// The leader's token, a positive decimal. The gateway can be told another name.
    pub const TOKEN: &str = "x-fencing-token";
    /// The resource: in a request only on routes that let the client name it, in a refusal the one that it is about.
    pub const RESOURCE: &str = "x-fencing-resource";
    /// The secret that says who sends a request to a gateway with grants. The gateway takes it off.
    pub const CREDENTIAL: &str = "x-fencing-credential";
    /// Why the gateway refused. Absent on answers that come from the upstream.
    pub const REASON: &str = "x-fencing-reason";
    /// After a failed forward: `not-sent` or `unknown`.
    pub const OUTCOME: &str = "x-fencing-outcome";
}

/// What a port that speaks TLS answers to a request in plain HTTP, as the detail of a 400.
pub const SPEAKS_TLS: &str = "this port speaks TLS: use https://";

/// A fencing token: a positive integer below 2^63, `era * 2^48 + value`.
///
/// The value is what the election authority issued (for etcd a revision); the era is bumped by an operator
/// after that authority was rebuilt, which makes every older token stale. Tokens of era 0 are plain values.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(NonZeroU64);

/// Why a byte string is not a [`Token`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("the token is empty")]
    Empty,
    #[error("a token is decimal digits only")]
    NotDecimal,
    #[error("a token starts with a digit from 1 to 9")]
    LeadingZero,
    #[error("a token is below 2^63")]
    TooLarge,
}

impl Token {
    /// The largest token, 2^63 - 1.
    pub const MAX: u64 = i64::MAX as u64;
    const ERA_SHIFT: u32 = 48;

    /// The token of this number, if it is one.
    pub fn new(number: u64) -> Option<Self> {
        if number > Self::MAX {
            return None;
        }
        NonZeroU64::new(number).map(Self)
    }

    /// Parses a header value or an argument: 1 to 19 digits, no sign, no space, no leading zero.
    pub fn parse(text: &[u8]) -> Result<Self, TokenError> {
        match text {
            [] => return Err(TokenError::Empty),
            _ if !text.iter().all(u8::is_ascii_digit) => return Err(TokenError::NotDecimal),
            [b'0', ..] => return Err(TokenError::LeadingZero),
            // 19 digits always fit into a u64; 20 never fit below 2^63.
            _ if text.len() > 19 => return Err(TokenError::TooLarge),
            _ => {}
        }
        let number = text.iter().fold(0u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
        Self::new(number).ok_or(TokenError::TooLarge)
    }

    pub fn get(self) -> u64 {
        self.0.get()
    }

    /// How often the election authority was rebuilt before it issued this token.
    pub fn era(self) -> u64 {
        self.get() >> Self::ERA_SHIFT
    }

    /// What the election authority issued, within its era.
    pub fn value(self) -> u64 {
        self.get() & ((1 << Self::ERA_SHIFT) - 1)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.0)
    }
}

impl std::str::FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        Self::parse(text.as_bytes())
    }
}

/// The canonical name of something protected, e.g. `ledger/acct-7`. Cheap to clone; names of up to 23 bytes
/// are stored in place, so that a lookup among millions does not have to follow a pointer to compare them.
///
/// A name is one or more segments joined by `/`. Letters are lower case and in Unicode's normal form NFC, characters outside a small plain
/// set are percent-encoded in upper-case hex, and there are no empty, `.` or `..` segments. [`Resource::parse`]
/// brings every spelling to that form or refuses it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource(SmolStr);

/// Why a string names no [`Resource`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResourceError {
    #[error("a resource name has no empty segments")]
    EmptySegment,
    #[error("a resource name has no `.` or `..` segments")]
    DotSegment,
    #[error("a `%` in a resource name is followed by two hexadecimal digits")]
    BadEscape,
    #[error("a resource name is UTF-8 without control characters")]
    BadCharacter,
    #[error("a resource name has at most {} bytes in its canonical form", Resource::MAX_LEN)]
    TooLong,
}

impl Resource {
    /// The longest canonical name, in bytes.
    pub const MAX_LEN: usize = 512;

    /// Brings a name to its canonical form.
    pub fn parse(name: &str) -> Result<Self, ResourceError> {
        Self::canonical(name).map(|name| Self(SmolStr::from(name)))
    }

    /// The canonical form of `name`, borrowed when it is canonical already: what a lookup needs.
    pub fn canonical(name: &str) -> Result<Cow<'_, str>, ResourceError> {
        let plain = name.bytes().all(|byte| is_plain(byte) || byte == b'/');
        let canonical = if plain {
            name.split('/').try_for_each(check_dots)?;
            Cow::Borrowed(name)
        } else {
            let segments: Result<Vec<_>, _> = name.split('/').map(canonical_segment).collect();
            Cow::Owned(segments?.join("/"))
        };
        if canonical.len() > Self::MAX_LEN { Err(ResourceError::TooLong) } else { Ok(canonical) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Bytes that stand for themselves in a canonical name.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' | b'@' | b'=' | b'+' | b',')
}

fn check_dots(segment: &str) -> Result<(), ResourceError> {
    match segment {
        "" => Err(ResourceError::EmptySegment),
        "." | ".." => Err(ResourceError::DotSegment),
        _ => Ok(()),
    }
}

fn canonical_segment(segment: &str) -> Result<String, ResourceError> {
    let decoded = String::from_utf8(percent_decode(segment)?).map_err(|_| ResourceError::BadCharacter)?;
    check_dots(&decoded)?;
    if decoded.chars().any(char::is_control) {
        return Err(ResourceError::BadCharacter);
    }
    let mut canonical = String::with_capacity(decoded.len());
    for byte in one_spelling(decoded).bytes() {
        if is_plain(byte) {
            canonical.push(char::from(byte));
        } else {
            canonical.push_str(&format!("%{byte:02X}"));
        }
    }
    Ok(canonical)
}

/// In lower case, and with one way to write an accented character: `é` is one character or two.
fn one_spelling(decoded: String) -> String {
    if decoded.is_ascii() {
        return decoded.to_ascii_lowercase();
    }
    decoded.nfc().flat_map(char::to_lowercase).nfc().collect()
}

fn percent_decode(segment: &str) -> Result<Vec<u8>, ResourceError> {
    let mut decoded = Vec::with_capacity(segment.len());
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let high = bytes.next().and_then(hex_digit).ok_or(ResourceError::BadEscape)?;
        let low = bytes.next().and_then(hex_digit).ok_or(ResourceError::BadEscape)?;
        decoded.push(high << 4 | low);
    }
    Ok(decoded)
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Resource({})", self.0)
    }
}

impl Borrow<str> for Resource {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for Resource {
    type Err = ResourceError;

    fn from_str(name: &str) -> Result<Self, ResourceError> {
        Self::parse(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canonical(name: &str) -> String {
        Resource::parse(name).expect("a valid name").to_string()
    }

    #[test]
    fn only_a_plain_positive_decimal_is_a_token() {
        assert_eq!(Token::parse(b"7").map(Token::get), Ok(7));
        assert_eq!(Token::parse(b"9223372036854775807").map(Token::get), Ok(Token::MAX));
        for (text, error) in [
            ("", TokenError::Empty),
            ("0", TokenError::LeadingZero),
            ("007", TokenError::LeadingZero),
            ("-1", TokenError::NotDecimal),
            ("+1", TokenError::NotDecimal),
            ("7 8", TokenError::NotDecimal),
            (" 7", TokenError::NotDecimal),
            ("7,8", TokenError::NotDecimal),
            ("0x7", TokenError::NotDecimal),
            ("1e3", TokenError::NotDecimal),
            ("٧", TokenError::NotDecimal),
            ("9223372036854775808", TokenError::TooLarge),
            ("9999999999999999999", TokenError::TooLarge),
            ("18446744073709551617", TokenError::TooLarge),
        ] {
            assert_eq!(Token::parse(text.as_bytes()), Err(error), "{text:?}");
        }
    }

    #[test]
    fn a_token_is_an_era_and_a_value() {
        let token = Token::new((3 << 48) + 7).expect("below 2^63");
        assert_eq!((token.era(), token.value()), (3, 7));
        assert!(
            token > Token::new((2 << 48) + 1_000_000).expect("below 2^63"),
            "a later era beats any value"
        );
    }

    #[test]
    fn one_resource_has_one_name() {
        for spelling in ["ledger/acct-7", "Ledger/ACCT-7", "ledger/%61cct%2D7", "ledger/acct%2d7"] {
            assert_eq!(canonical(spelling), "ledger/acct-7");
        }
        assert_eq!(canonical("a/b%2fc"), "a/b%2Fc", "an escaped slash stays data");
        assert_eq!(canonical("Caf%C3%89"), canonical("caf%c3%a9"));
        assert_eq!(canonical("cafe%CC%81"), canonical("CAF%C3%89"), "an accent of its own, or not");
        assert_eq!(canonical("%E2%84%AA"), "k", "the Kelvin sign is a K");
        assert_eq!(canonical("a b;c"), "a%20b%3Bc");
    }

    #[test]
    fn names_that_could_mean_something_else_are_refused() {
        for (name, error) in [
            ("", ResourceError::EmptySegment),
            ("/a", ResourceError::EmptySegment),
            ("a/", ResourceError::EmptySegment),
            ("a//b", ResourceError::EmptySegment),
            ("a/../b", ResourceError::DotSegment),
            ("a/%2e%2E/b", ResourceError::DotSegment),
            ("a/%2e", ResourceError::DotSegment),
            ("a%2", ResourceError::BadEscape),
            ("a%zz", ResourceError::BadEscape),
            ("a%+1", ResourceError::BadEscape),
            ("a%00", ResourceError::BadCharacter),
            ("a%ff", ResourceError::BadCharacter),
            ("a\nb", ResourceError::BadCharacter),
        ] {
            assert_eq!(Resource::parse(name), Err(error), "{name:?}");
        }
        assert_eq!(Resource::parse(&"a".repeat(513)), Err(ResourceError::TooLong));
    }

    proptest! {
        #[test]
        fn every_number_in_range_round_trips(number in 1..=Token::MAX) {
            prop_assert_eq!(Token::parse(number.to_string().as_bytes()).map(Token::get), Ok(number));
        }

        #[test]
        fn a_parsed_token_prints_as_it_was_written(text in "[0-9+ ,xe.-]{0,22}") {
            if let Ok(token) = Token::parse(text.as_bytes()) {
                prop_assert_eq!(token.to_string(), text);
            }
        }

        #[test]
        fn the_canonical_form_is_a_fixed_point(name in "\\PC{0,40}") {
            if let Ok(once) = Resource::parse(&name) {
                prop_assert_eq!(Resource::parse(once.as_str()), Ok(once));
            }
        }

        #[test]
        fn no_form_of_unicode_makes_a_new_name(name in "[a-zé-ü\u{300}-\u{308}ΣσςİıÅ\u{212b}가-깋]{1,12}") {
            let composed: String = name.nfc().collect();
            let decomposed: String = name.nfd().collect();
            prop_assert_eq!(Resource::parse(&composed), Resource::parse(&decomposed));
            prop_assert_eq!(Resource::parse(&name), Resource::parse(&decomposed));
        }

        #[test]
        fn escaping_and_case_do_not_make_a_new_name(name in "[a-z0-9._~/-]{1,30}", seed in any::<u64>()) {
            let respelled: String = name.bytes().enumerate().map(|(at, byte)| match seed >> (at % 62) & 3 {
                0 if byte != b'/' => format!("%{byte:02x}"),
                1 if byte != b'/' => format!("%{byte:02X}"),
                2 => char::from(byte).to_ascii_uppercase().to_string(),
                _ => char::from(byte).to_string(),
            }).collect();
            prop_assert_eq!(Resource::parse(&respelled), Resource::parse(&name));
        }
    }
}
