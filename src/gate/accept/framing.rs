//! A second, stricter pair of eyes on HTTP/1 framing, between the socket and hyper.
//!
//! hyper resolves `Content-Length` together with `Transfer-Encoding` silently, as the RFC allows. A request that
//! two parsers could cut in two ways has no place in front of a fence, so this reader follows the framing
//! on its own: an ambiguous head is flagged, for the gate to refuse, and a sloppy chunked body ends the
//! connection. It parses heads with the same parser as hyper, so that the two never disagree on a line.

use super::Conduct;

/// More than hyper takes of a head, so that hyper's own refusal comes first.
const MAX_HEAD: usize = 128 << 10;
pub(super) const MAX_HEADERS: usize = 100;

/// Where in the sequence of requests the next byte belongs.
#[derive(Debug, PartialEq, Eq)]
enum State {
    Head,
    Body {
        left: u64,
    },
    Chunked(Chunk),
    /// The framing is lost; hyper refuses or the gate does. Nothing after this is read as a request by us.
    Lost,
}

#[derive(Debug, PartialEq, Eq)]
enum Chunk {
    Size {
        value: u64,
        digits: u8,
    },
    Extension,
    SizeLf {
        value: u64,
    },
    Data {
        left: u64,
    },
    DataCr,
    DataLf,
    /// In the trailer section; whether the current line has any byte.
    Trailer {
        empty: bool,
    },
    TrailerLf {
        empty: bool,
    },
}

pub(super) struct Framing {
    state: State,
    /// The head so far, when it did not come in one piece.
    partial: Vec<u8>,
    /// The chunk size, kept while an extension is skipped.
    size: u64,
}

/// A body that hyper may or may not notice: the connection cannot go on.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("malformed chunked body")]
pub(super) struct BadChunk;

impl Framing {
    pub(super) fn new() -> Self {
        Self { state: State::Head, partial: Vec::new(), size: 0 }
    }

    /// Follows bytes that hyper is about to see.
    pub(super) fn follow(&mut self, mut bytes: &[u8], conduct: &Conduct) -> Result<(), BadChunk> {
        while !bytes.is_empty() {
            bytes = match &mut self.state {
                State::Lost => return Ok(()),
                State::Head => self.head(bytes, conduct),
                State::Body { left } => {
                    let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= taken as u64;
                    if *left == 0 {
                        self.state = State::Head;
                    }
                    &bytes[taken..]
                }
                State::Chunked(_) => self.chunk(bytes)?,
            };
        }
        conduct.set_reading_head(self.state == State::Head && !self.partial.is_empty());
        Ok(())
    }

    /// Takes the rest of a head, if it ends here.
    fn head<'a>(&mut self, bytes: &'a [u8], conduct: &Conduct) -> &'a [u8] {
        if self.partial.is_empty() {
            // Empty lines before a request line are skipped by everybody.
            let start = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(bytes.len());
            let bytes = &bytes[start..];
            return match end_of_head(bytes, 0) {
                Some(end) => {
                    self.state = judge(&bytes[..end], conduct);
                    &bytes[end..]
                }
                None => self.stash(bytes),
            };
        }
        // The end may straddle what is here and what comes.
        let (had, from) = (self.partial.len(), self.partial.len().saturating_sub(3));
        self.partial.extend_from_slice(bytes);
        match end_of_head(&self.partial, from) {
            Some(end) => {
                self.state = judge(&self.partial[..end], conduct);
                self.partial = Vec::new();
                &bytes[end - had..]
            }
            None => self.stash(&[]),
        }
    }

    fn stash<'a>(&mut self, bytes: &[u8]) -> &'a [u8] {
        self.partial.extend_from_slice(bytes);
        if self.partial.len() > MAX_HEAD {
            self.partial = Vec::new();
            self.state = State::Lost;
        }
        &[]
    }

    /// One step within a chunked body. Strict: CRLF only, no blanks, sizes of at most 16 digits.
    fn chunk<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], BadChunk> {
        let State::Chunked(chunk) = &mut self.state else { return Ok(bytes) };
        if let Chunk::Data { left } = chunk {
            let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= taken as u64;
            if *left == 0 {
                *chunk = Chunk::DataCr;
            }
            return Ok(&bytes[taken..]);
        }
        let byte = bytes[0];
        *chunk = match (&*chunk, byte) {
            (Chunk::Size { value, digits }, _) if byte.is_ascii_hexdigit() && *digits < 16 => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                Chunk::Size { value: value << 4 | u64::from(digit), digits: digits + 1 }
            }
            (Chunk::Size { value, digits: 1.. }, b';') => {
                self.size = *value;
                Chunk::Extension
            }
            (Chunk::Size { value, digits: 1.. }, b'\r') => Chunk::SizeLf { value: *value },
            (Chunk::Extension, b'\r') => Chunk::SizeLf { value: self.size },
            (Chunk::Extension, b'\t' | b' '..=b'~' | 0x80..) => Chunk::Extension,
            (Chunk::SizeLf { value: 0 }, b'\n') => Chunk::Trailer { empty: true },
            (Chunk::SizeLf { value }, b'\n') => Chunk::Data { left: *value },
            (Chunk::DataCr, b'\r') => Chunk::DataLf,
            (Chunk::DataLf, b'\n') => Chunk::Size { value: 0, digits: 0 },
            (Chunk::Trailer { empty }, b'\r') => Chunk::TrailerLf { empty: *empty },
            (Chunk::Trailer { .. }, 1..=9 | 11..) => Chunk::Trailer { empty: false },
            (Chunk::TrailerLf { empty: false }, b'\n') => Chunk::Trailer { empty: true },
            (Chunk::TrailerLf { empty: true }, b'\n') => {
                self.state = State::Head;
                return Ok(&bytes[1..]);
            }
            _ => {
                self.state = State::Lost;
                return Err(BadChunk);
            }
        };
        Ok(&bytes[1..])
    }
}

/// The position after the empty line that ends a head; `from` is where it can begin at the earliest.
fn end_of_head(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(offset) = bytes[at..].iter().position(|byte| *byte == b'\n') {
        at += offset + 1;
        match &bytes[at..] {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
    None
}

/// What follows this head, and whether anybody could see it otherwise.
fn judge(head: &[u8], conduct: &Conduct) -> State {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    if !matches!(request.parse(head), Ok(httparse::Status::Complete(_))) {
        return lost(conduct, "the request head cannot be read");
    }
    let named = |name: &'static str| {
        request.headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name))
    };
    let encodings: Vec<_> = named("transfer-encoding").collect();
    match (&encodings[..], named("content-length").next()) {
        ([], None) => State::Head,
        ([], Some(length)) => match parse_length(length.value) {
            Some(0) => State::Head,
            Some(left) => State::Body { left },
            None => lost(conduct, "the Content-Length is not a number"),
        },
        ([one], None) if one.value.eq_ignore_ascii_case(b"chunked") => {
            State::Chunked(Chunk::Size { value: 0, digits: 0 })
        }
        (_, None) => lost(conduct, "the only Transfer-Encoding there is here is chunked, once"),
        (_, Some(_)) => lost(conduct, "Content-Length and Transfer-Encoding do not go together"),
    }
}

fn lost(conduct: &Conduct, why: &'static str) -> State {
    conduct.flag(why);
    State::Lost
}

fn parse_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The flag and the state after bytes that come in pieces of this size.
    fn follow(bytes: &[u8], piece: usize) -> Result<(Option<&'static str>, bool), BadChunk> {
        let conduct = Conduct::for_tests();
        let mut framing = Framing::new();
        for piece in bytes.chunks(piece) {
            framing.follow(piece, &conduct)?;
        }
        Ok((conduct.flagged(), framing.state == State::Head && framing.partial.is_empty()))
    }

    const TWO: &[u8] =
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcPOST / HTTP/1.1\r\nHost: a\r\n\
        Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nA: b\r\n\r\n";

    #[test]
    fn pipelined_requests_are_followed_in_pieces_of_any_size() {
        for piece in 1..TWO.len() {
            assert_eq!(follow(TWO, piece), Ok((None, true)), "pieces of {piece}");
        }
    }

    #[test]
    fn both_lengths_are_flagged_in_either_order_and_anywhere_in_a_pipeline() {
        for both in [
            "Content-Length: 3\r\nTransfer-Encoding: chunked",
            "transfer-encoding: chunked\r\ncontent-length: 3",
        ] {
            let request = format!("POST / HTTP/1.1\r\nHost: a\r\n{both}\r\n\r\n0\r\n\r\n");
            for (bytes, piece) in [(request.clone().into_bytes(), 5), ([TWO, request.as_bytes()].concat(), 7)]
            {
                assert!(follow(&bytes, piece).unwrap().0.is_some(), "{both}");
            }
        }
    }

    #[test]
    fn a_body_that_looks_like_a_bad_head_is_only_a_body() {
        let body = "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n";
        let request = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        assert_eq!(follow(request.as_bytes(), 9), Ok((None, true)));
    }

    #[test]
    fn sloppy_chunks_end_the_connection() {
        for chunks in [
            "3\nabc\r\n0\r\n\r\n",
            "3;a\nb\r\nabc\r\n0\r\n\r\n",
            " 3\r\nabc\r\n0\r\n\r\n",
            "3 \r\nabc\r\n0\r\n\r\n",
            "0x3\r\nabc\r\n0\r\n\r\n",
            "3\r\nabcd\r\n0\r\n\r\n",
            "10000000000000003\r\nabc\r\n0\r\n\r\n",
            "\r\nabc\r\n",
            "-1\r\nabc\r\n",
        ] {
            let request = format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
            assert_eq!(follow(request.as_bytes(), 4), Err(BadChunk), "{chunks:?}");
        }
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(bytes in prop::collection::vec(any::<u8>(), 0..200), piece in 1usize..20) {
            let spiced = [TWO, &bytes].concat();
            prop_assert_eq!(follow(&spiced, piece), follow(&spiced, spiced.len()));
        }
    }
}
