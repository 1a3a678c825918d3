//! Whether a request's head has one reading, and what follows it.
//!
//! Heads are parsed with the same parser as hyper's, so that the two never disagree on a line, and every head that hyper
//! would turn down is turned down here first: an answer of the gateway says that it is one, and hyper's own do not.

use std::mem::MaybeUninit;

use http::request::Parts;

use super::State;
use super::chunk::Chunks;
use crate::config::{HeadLimits, MOST_FIELDS};

/// Larger lengths are negative numbers to some software.
const MAX_LENGTH: u64 = i64::MAX as u64;

/// What hyper reads in the place of a head that has no reading. The gate knows it by its place in the sequence of
/// requests, and only answers it.
pub(super) const STAND_IN: &[u8] = b"GET / HTTP/1.1\r\nHost: unreadable\r\nConnection: close\r\n\r\n";
/// The same where the answer must not have a body.
pub(super) const STAND_IN_FOR_HEAD: &[u8] =
    b"HEAD / HTTP/1.1\r\nHost: unreadable\r\nConnection: close\r\n\r\n";

/// Why a head goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It has no reading, or more than one.
    Ambiguous(&'static str),
    /// It is longer than a whole head may be, so many bytes.
    TargetTooLong(usize),
    /// It has more than so many bytes.
    TooLong(usize),
    /// It has more than so many fields.
    TooManyFields(usize),
}

impl Unreadable {
    /// Of a head that is too long, whether or not it is there to its end: is it one long line?
    pub(super) fn too_long(head: &[u8], most: usize) -> Self {
        let beginning = &head[..head.len().min(most)];
        if beginning.contains(&b'\n') { Self::TooLong(most) } else { Self::TargetTooLong(most) }
    }
}

/// Why a head that did not come through this reader is too large, if it is: one of HTTP/2.
pub(crate) fn too_large(head: &Parts, limits: HeadLimits) -> Option<Unreadable> {
    if head.headers.len() > limits.fields {
        return Some(Unreadable::TooManyFields(limits.fields));
    }
    let fields: usize = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    let target = head.uri.path_and_query().map_or(0, |target| target.as_str().len());
    (fields + target > limits.bytes).then_some(Unreadable::TooLong(limits.bytes))
}

/// A head that has one reading.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) followed_by: State,
    /// It offers to go on with another protocol.
    pub(super) offers: bool,
}

/// What follows this head, if nobody could see it otherwise.
pub(super) fn judge(head: &[u8], limits: HeadLimits) -> Result<Head, Unreadable> {
    let ambiguous = |why| Err(Unreadable::Ambiguous(why));
    let mut headers = [const { MaybeUninit::uninit() }; MOST_FIELDS];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(head, &mut headers[..limits.fields]) {
        Ok(httparse::Status::Complete(end)) if end == head.len() => {}
        Err(httparse::Error::TooManyHeaders) => return Err(Unreadable::TooManyFields(limits.fields)),
        _ => return Err(Unreadable::Ambiguous("the request head cannot be read")),
    }
    if !is_target(request.path.unwrap_or_default()) {
        return Err(Unreadable::Ambiguous(
            "the request's target has characters that have no place there, or cannot be read",
        ));
    }
    let named = |name: &'static str| {
        request.headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name))
    };
    // An older version cannot.
    let offers = request.version == Some(1) && named("upgrade").next().is_some();
    let (mut encodings, mut lengths) = (named("transfer-encoding"), named("content-length"));
    let followed_by = match (encodings.next(), lengths.next()) {
        (None, None) if offers => Ok(State::Offered),
        (None, None) => Ok(State::Head),
        (None, Some(_)) if lengths.next().is_some() => ambiguous("there is more than one Content-Length"),
        (None, Some(length)) => match parse_length(length.value) {
            Some(0) => Ok(State::Head),
            Some(left) => Ok(State::Body { left }),
            None => ambiguous("the Content-Length is not a number below 2^63"),
        },
        (Some(_), None) if request.version == Some(0) => ambiguous("HTTP/1.0 has no Transfer-Encoding"),
        (Some(one), None) if one.value.eq_ignore_ascii_case(b"chunked") && encodings.next().is_none() => {
            Ok(State::Chunked(Chunks::default()))
        }
        (Some(_), None) => ambiguous("the only Transfer-Encoding there is here is chunked, once"),
        (Some(_), Some(_)) => ambiguous("Content-Length and Transfer-Encoding do not go together"),
    }?;
    Ok(Head { followed_by, offers })
}

/// Whether a target can be read, to its last character: hyper drops a fragment silently. Most are paths of plain
/// characters; others are tried.
fn is_target(target: &str) -> bool {
    let plain =
        |byte: u8| matches!(byte, b'!' | b'$'..=b';' | b'=' | b'?'..=b'[' | b']' | b'_' | b'a'..=b'z' | b'~');
    if target.starts_with('/') && target.bytes().all(plain) {
        return true;
    }
    target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') && target.parse::<http::Uri>().is_ok()
}

fn parse_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok().filter(|length| *length <= MAX_LENGTH)
}
