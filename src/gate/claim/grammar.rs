//! Whether the parts of a head have one reading each: method, target, host, length and the names of fields.
//!
//! hyper and h2 have parsed the head by the time it comes here. These are the things that they let through, and that an
//! upstream could take for something else.

use std::borrow::Cow;

use highgate_elector::headers;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, Version};

use super::Malformed;
use crate::config::fields::{FRAMING, OVERRIDES, reads_as};
use crate::config::{HostError, Routes, canonical_host};

/// Larger lengths are negative numbers to some software.
const MAX_LENGTH: u64 = i64::MAX as u64;

/// What a head says of the body that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    None,
    /// So many bytes, more than none.
    Length(u64),
    /// Chunks.
    Chunks,
    /// HTTP/2 may leave it open. That body is looked for when it is read.
    Unsaid,
}

impl Content {
    /// Whether a body follows for certain.
    pub(super) fn is_announced(self) -> bool {
        matches!(self, Self::Length(_) | Self::Chunks)
    }

    pub(super) fn is_larger_than(self, limit: u64) -> bool {
        matches!(self, Self::Length(length) if length > limit)
    }
}

pub(super) fn check(head: &Parts, token_header: &HeaderName) -> Result<(), Malformed> {
    check_method(&head.method)?;
    check_target(head)?;
    if head.version == Version::HTTP_2 {
        check_names(&head.headers)?;
    }
    check_fencing_headers(&head.headers, token_header)
}

/// Methods have case, and which of them are fenced goes by their name. Upstreams that do not tell `post` from `POST` would
/// take a write that needed no token here.
fn check_method(method: &Method) -> Result<(), Malformed> {
    let lower = method.as_str().bytes().any(|byte| byte.is_ascii_lowercase());
    if lower { Err(Malformed::LowerCase(method.clone())) } else { Ok(()) }
}

/// Characters outside ASCII have no place in a target; what servers make of them differs.
fn check_target(head: &Parts) -> Result<(), Malformed> {
    if head.uri.scheme_str().is_some_and(|scheme| !matches!(scheme, "http" | "https")) {
        return Err(Malformed::Scheme);
    }
    let plain = head.uri.path_and_query().is_none_or(|target| target.as_str().is_ascii());
    if plain { Ok(()) } else { Err(Malformed::NotAscii) }
}

/// HTTP/2 lets through one character that no field's name may have.
fn check_names(headers: &HeaderMap) -> Result<(), Malformed> {
    match headers.keys().find(|name| name.as_str().contains('"')) {
        Some(name) => Err(Malformed::Name(name.clone())),
        None => Ok(()),
    }
}

/// Refuses what other software might take for a fencing header, or take one away for; and what would make
/// another request of this one behind the fence's back.
fn check_fencing_headers(headers: &HeaderMap, token_header: &HeaderName) -> Result<(), Malformed> {
    let ours = [token_header.as_str(), headers::RESOURCE, headers::CREDENTIAL];
    for name in headers.keys() {
        let bytes = name.as_str().as_bytes();
        if ours.iter().any(|our| name.as_str() != *our && reads_as(bytes, our)) {
            return Err(Malformed::Alias(name.clone()));
        }
        // Servers that know no `_` would read it as the one that it is not here, and end the body elsewhere.
        if bytes.contains(&b'_') && FRAMING.iter().any(|other| reads_as(bytes, other)) {
            return Err(Malformed::FramingAlias(name.clone()));
        }
        if bytes[0] == b'x' && OVERRIDES.iter().any(|other| reads_as(bytes, other)) {
            return Err(Malformed::Override(name.clone()));
        }
    }
    let names_ours = |option: &[u8]| ours.iter().any(|our| reads_as(option.trim_ascii(), our));
    let mut options =
        headers.get_all(CONNECTION).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    if options.any(names_ours) {
        return Err(Malformed::HopByHop);
    }
    let two = headers.get_all(headers::CREDENTIAL).iter().nth(1).is_some();
    if two { Err(Malformed::DuplicateCredential) } else { Ok(()) }
}

/// What the head says of the body. One length, or none: HTTP/2 lets several pass that agree, and an upstream that gets
/// them all may not.
pub(super) fn content(head: &Parts) -> Result<Content, Malformed> {
    let mut lengths = head.headers.get_all(CONTENT_LENGTH).iter();
    match (lengths.next(), lengths.next()) {
        (Some(_), Some(_)) => Err(Malformed::Length),
        (Some(length), None) => match parse_length(length.as_bytes()) {
            None => Err(Malformed::Length),
            Some(0) => Ok(Content::None),
            Some(length) => Ok(Content::Length(length)),
        },
        (None, _) if head.version == Version::HTTP_2 => Ok(Content::Unsaid),
        (None, _) if head.headers.contains_key(TRANSFER_ENCODING) => Ok(Content::Chunks),
        (None, _) => Ok(Content::None),
    }
}

fn parse_length(digits: &[u8]) -> Option<u64> {
    let digits =
        std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok().filter(|length| *length <= MAX_LENGTH)
}

/// The request's host in canonical form. Empty only for HTTP/1.0, which need not have one, and only where no route goes
/// by the host: else leaving it out would be a way past such a route.
pub(super) fn host<'h>(head: &'h Parts, routes: &Routes) -> Result<Cow<'h, str>, HostError> {
    let mut values = head.headers.get_all(HOST).iter();
    let declared = values.next();
    if values.next().is_some() {
        return Err(HostError::Duplicate);
    }
    let declared = declared
        .map(|value| value.to_str().map_err(|_| HostError::Invalid).and_then(canonical_host))
        .transpose()?;
    match (head.uri.authority(), declared) {
        (Some(authority), declared) => {
            let host = canonical_host(authority.as_str())?;
            // Of HTTP/1.1 the target counts, as the RFC has it. HTTP/2 has no reason to say two things.
            match declared.filter(|declared| head.version == Version::HTTP_2 && *declared != host) {
                Some(_) => Err(HostError::Differs),
                None => Ok(host),
            }
        }
        (None, Some(host)) => Ok(host),
        (None, None) if head.version < Version::HTTP_11 && !routes.go_by_host() => Ok(Cow::Borrowed("")),
        (None, None) => Err(HostError::Missing),
    }
}
