//! Where a message ends, by its head, in one spelling.
//!
//! hyper reads `Content-Length: 05` or `5, 5` as the RFC says and would pass the spelling on, for the next reader to make
//! something else of it.

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

/// Larger lengths are negative numbers to some software.
const MAX_LENGTH: u64 = i64::MAX as u64;

/// What tells where a response ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gate::forward) enum End {
    /// Its length or its last chunk.
    Itself,
    /// Nothing but the connection's close: one that broke off looks whole.
    Connection,
}

/// Reads where a response ends and leaves one spelling of it, or none where the next hop says it anew. An error says what
/// about it has no reading.
pub(in crate::gate::forward) fn settle<B>(response: &mut Response<B>) -> Result<End, &'static str> {
    let bodiless = response.status() == StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    if let Some(coding) = headers.get(TRANSFER_ENCODING) {
        let only = headers.get_all(TRANSFER_ENCODING).iter().count() == 1;
        let is = |name: &[u8]| only && coding.as_bytes().trim_ascii().eq_ignore_ascii_case(name);
        return match (is(b"chunked"), is(b"identity") && !headers.contains_key(CONTENT_LENGTH)) {
            (true, _) => {
                // Chunks count for more than a length beside them, which the next hop must not see.
                headers.remove(CONTENT_LENGTH);
                Ok(End::Itself)
            }
            (false, true) => Ok(End::Connection),
            // No other was asked for, and the client could not decode it.
            (false, false) => Err("its transfer coding is not chunked, once"),
        };
    }
    if !headers.contains_key(CONTENT_LENGTH) {
        return Ok(End::Connection);
    }
    let length = read_length(headers).ok_or("its Content-Length is not one number below 2^63")?;
    if bodiless {
        headers.remove(CONTENT_LENGTH);
    } else {
        respell(headers, length);
    }
    Ok(End::Itself)
}

/// Writes a request's length, which was judged, in its plain spelling.
pub(in crate::gate::forward) fn respell_length(headers: &mut HeaderMap) {
    if let Some(length) = read_length(headers) {
        respell(headers, length);
    }
}

fn respell(headers: &mut HeaderMap, length: u64) {
    let mut values = headers.get_all(CONTENT_LENGTH).iter().map(HeaderValue::as_bytes);
    let is_plain = match (values.next(), values.next()) {
        (Some([b'0', _, ..]), _) | (_, Some(_)) => false,
        (Some(value), None) => value.iter().all(u8::is_ascii_digit),
        (None, None) => true,
    };
    if !is_plain {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
}

/// The one length that all values and all items of a list agree on.
fn read_length(headers: &HeaderMap) -> Option<u64> {
    let values = headers.get_all(CONTENT_LENGTH).iter();
    let mut items = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let first = read_digits(items.next()?)?;
    items.all(|item| read_digits(item) == Some(first)).then_some(first)
}

fn read_digits(item: &[u8]) -> Option<u64> {
    let item = std::str::from_utf8(item.trim_ascii()).ok()?;
    let digits = Some(item).filter(|item| item.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok().filter(|length| *length <= MAX_LENGTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How a response with these fields ends, and the length that goes on.
    fn settled(fields: &[(&str, &str)]) -> Result<(End, Option<String>), &'static str> {
        let mut response = fields
            .iter()
            .fold(Response::builder(), |builder, (name, value)| builder.header(*name, *value))
            .body(())
            .unwrap();
        let end = settle(&mut response)?;
        let lengths: Vec<_> = response.headers().get_all(CONTENT_LENGTH).iter().collect();
        assert!(lengths.len() <= 1, "{lengths:?}");
        Ok((end, lengths.first().map(|length| length.to_str().unwrap().to_owned())))
    }

    const LENGTH: &str = "content-length";
    const CODING: &str = "transfer-encoding";

    #[test]
    fn a_length_has_one_spelling() {
        let five = Ok((End::Itself, Some("5".to_owned())));
        assert_eq!(settled(&[(LENGTH, "5")]), five);
        assert_eq!(settled(&[(LENGTH, "0005")]), five);
        assert_eq!(settled(&[(LENGTH, "5, 05,5")]), five);
        assert_eq!(settled(&[(LENGTH, "5"), (LENGTH, "5")]), five);
        assert_eq!(settled(&[(LENGTH, "0")]), Ok((End::Itself, Some("0".to_owned()))));
        for odd in ["", "5,6", "+5", "-1", "5 5", "0x5", "five", "9223372036854775808", "5,", "١"] {
            assert!(settled(&[(LENGTH, odd)]).is_err(), "{odd:?}");
        }
        assert!(settled(&[(LENGTH, "5"), (LENGTH, "6")]).is_err());
    }

    #[test]
    fn only_a_length_or_chunks_say_where_a_response_ends() {
        assert_eq!(settled(&[(CODING, "Chunked")]), Ok((End::Itself, None)));
        assert_eq!(settled(&[(CODING, "chunked"), (LENGTH, "5")]), Ok((End::Itself, None)));
        assert_eq!(settled(&[]), Ok((End::Connection, None)));
        assert_eq!(settled(&[(CODING, "identity")]), Ok((End::Connection, None)));
    }

    #[test]
    fn codings_that_no_client_asked_for_have_no_reading() {
        for codings in
            ["gzip", "gzip, chunked", "chunked, gzip", "chunked, chunked", "xchunked", "", "chunked;a=b"]
        {
            assert!(settled(&[(CODING, codings)]).is_err(), "{codings:?}");
        }
        assert!(settled(&[(CODING, "chunked"), (CODING, "identity")]).is_err());
        assert!(settled(&[(CODING, "identity"), (LENGTH, "5")]).is_err());
    }

    #[test]
    fn the_length_of_a_request_is_written_as_it_was_read() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0000000000000000000010"));
        respell_length(&mut headers);
        assert_eq!(headers[CONTENT_LENGTH], "10");
    }
}
