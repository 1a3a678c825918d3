//! The two things of a certificate that webpki reads but does not show: when it ends, and its common name.
//!
//! webpki has checked the certificate by the time this is asked, so this only has to find its way: a strict reader of DER
//! that knows definite lengths and nothing else. What it does not understand it does not have.

use std::time::SystemTime;

use highgate_token::timestamp;

const INTEGER: u8 = 0x02;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;

/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// Until when a certificate is valid. None if it does not say so in a way that is understood.
pub fn not_after(certificate: &[u8]) -> Option<SystemTime> {
    let mut rest = certificate;
    let mut whole = expect(&mut rest, SEQUENCE)?;
    let mut body = expect(&mut whole, SEQUENCE)?;
    if body.first() == Some(&VERSION) {
        expect(&mut body, VERSION)?;
    }
    expect(&mut body, INTEGER)?;
    // The algorithm and the issuer.
    expect(&mut body, SEQUENCE)?;
    expect(&mut body, SEQUENCE)?;
    let mut validity = expect(&mut body, SEQUENCE)?;
    element(&mut validity)?;
    let (tag, text) = element(&mut validity)?;
    time(tag, std::str::from_utf8(text).ok()?)
}

/// The common name of a subject, without its outer tag. None if it has none, several, or one that is not plain text.
pub fn common_name(subject: &[u8]) -> Option<&str> {
    let mut rest = subject;
    let mut found = None;
    while !rest.is_empty() {
        let mut attributes = expect(&mut rest, SET)?;
        while !attributes.is_empty() {
            let mut attribute = expect(&mut attributes, SEQUENCE)?;
            let kind = expect(&mut attribute, OBJECT_IDENTIFIER)?;
            let (tag, value) = element(&mut attribute)?;
            if kind != COMMON_NAME {
                continue;
            }
            let name = matches!(tag, UTF8_STRING | PRINTABLE_STRING | IA5_STRING).then_some(value)?;
            if found.replace(std::str::from_utf8(name).ok()?).is_some() {
                return None;
            }
        }
    }
    found
}

/// The contents of the next element, which has to be of this kind.
fn expect<'d>(input: &mut &'d [u8], tag: u8) -> Option<&'d [u8]> {
    element(input).filter(|(found, _)| *found == tag).map(|(_, contents)| contents)
}

/// Takes the next element: its tag and its contents.
fn element<'d>(input: &mut &'d [u8]) -> Option<(u8, &'d [u8])> {
    let (&tag, rest) = input.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // No certificate needs more than four bytes for a length.
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    *input = rest;
    Some((tag, contents))
}

/// `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`, as RFC 5280 has them.
fn time(tag: u8, text: &str) -> Option<SystemTime> {
    let digits =
        text.strip_suffix('Z').filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))?;
    let (century, digits) = match (tag, digits.len()) {
        (UTC_TIME, 12) if digits >= "50" => ("19", digits),
        (UTC_TIME, 12) => ("20", digits),
        (GENERALIZED_TIME, 14) => digits.split_at(2),
        _ => return None,
    };
    let part = |at: usize| &digits[at..at + 2];
    let (year, month, day) = (part(0), part(2), part(4));
    let (hour, minute, second) = (part(6), part(8), part(10));
    timestamp::parse(&format!("{century}{year}-{month}-{day}T{hour}:{minute}:{second}Z"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tests::Authority;

    #[test]
    fn the_end_of_a_certificate_is_read_in_both_spellings() {
        let authority = Authority::shared();
        for text in ["2026-11-20T09:30:07.000Z", "2049-12-31T23:59:59.000Z", "2050-01-01T00:00:00.000Z"] {
            let end = timestamp::parse(text).unwrap();
            let since = end.duration_since(SystemTime::UNIX_EPOCH).unwrap();
            let issued =
                authority.issue(|params| params.not_after = rcgen::date_time_ymd(1970, 1, 1) + since);
            assert_eq!(not_after(issued.cert.der()), Some(end), "{text}");
        }
    }

    #[test]
    fn times_that_are_none_are_none() {
        assert_eq!(time(UTC_TIME, "491231235959Z"), timestamp::parse("2049-12-31T23:59:59Z"));
        assert_eq!(time(UTC_TIME, "991231235959Z"), timestamp::parse("1999-12-31T23:59:59Z"));
        for text in
            ["", "Z", "4912312359Z", "491231235959", "491331235959Z", "4912312359é9Z", "+91231235959Z"]
        {
            assert_eq!(time(UTC_TIME, text), None, "{text}");
        }
        assert_eq!(time(GENERALIZED_TIME, "491231235959Z"), None);
    }

    /// An attribute of a subject.
    fn attribute(kind: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        let wrap =
            |tag: u8, contents: &[u8]| [&[tag, u8::try_from(contents.len()).unwrap()], contents].concat();
        let pair = [wrap(OBJECT_IDENTIFIER, kind), wrap(tag, value)].concat();
        wrap(SET, &wrap(SEQUENCE, &pair))
    }

    #[test]
    fn a_common_name_is_one_name_in_plain_text() {
        let organization = attribute(&[0x55, 0x04, 0x0a], UTF8_STRING, b"corp");
        let named = |tag, name: &[u8]| attribute(COMMON_NAME, tag, name);
        let one = [organization.clone(), named(UTF8_STRING, b"job-a")].concat();
        assert_eq!(common_name(&one), Some("job-a"));
        assert_eq!(common_name(&named(PRINTABLE_STRING, b"job-a")), Some("job-a"));
        assert_eq!(common_name(&organization), None);
        assert_eq!(common_name(&[one.clone(), named(UTF8_STRING, b"job-b")].concat()), None, "two are none");
        assert_eq!(common_name(&named(0x1e, b"\0j")), None, "a kind of text that is not understood");
        assert_eq!(common_name(&named(UTF8_STRING, b"\xff")), None);
        assert_eq!(common_name(&one[..one.len() - 1]), None, "cut short");
    }

    proptest! {
        #[test]
        fn nothing_that_is_read_here_can_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..900, byte: u8) {
            let _ = (not_after(&bytes), common_name(&bytes));
            let mut bent = Authority::shared_leaf().to_vec();
            let at = at % bent.len();
            bent[at] = byte;
            let _ = (not_after(&bent), not_after(&bent[..at]));
        }
    }
}
