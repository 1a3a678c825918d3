//! The reader as hyper uses it: bytes that come in pieces, and what goes on of them.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::head::STAND_IN;
use super::*;
use crate::gate::accept::Conduct;

const LIMITS: HeadLimits = HeadLimits { bytes: 64 << 10, fields: 100 };

/// A client that has sent these pieces and waits.
struct Pieces(VecDeque<Vec<u8>>);

impl AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(mut piece) = self.0.pop_front() else { return Poll::Pending };
        let rest = piece.split_off(piece.len().min(buffer.remaining()));
        buffer.put_slice(&piece);
        if !rest.is_empty() {
            self.0.push_front(rest);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pieces {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// What hyper gets to see of bytes that come in pieces of this size.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    bytes: Vec<u8>,
    /// Why the last head is a stand-in, by the number of requests before it.
    unreadable: Option<(u64, Unreadable)>,
    broken: bool,
}

fn strict(bytes: &[u8], piece: usize) -> (Strict<Pieces>, Rc<Conduct>) {
    let conduct = Conduct::for_tests();
    let pieces = Pieces(bytes.chunks(piece).map(<[u8]>::to_vec).collect());
    (Strict::new(pieces, conduct.clone(), LIMITS), conduct)
}

fn read(bytes: &[u8], piece: usize) -> Seen {
    let (mut strict, conduct) = strict(bytes, piece);
    read_on(&mut strict, &conduct)
}

/// As far as it goes now.
fn read_on(strict: &mut Strict<Pieces>, conduct: &Rc<Conduct>) -> Seen {
    let mut seen = Seen { bytes: Vec::new(), unreadable: None, broken: false };
    loop {
        let mut room = [0; 512];
        let mut buffer = ReadBuf::new(&mut room);
        match Pin::new(&mut *strict).poll_read(&mut Context::from_waker(Waker::noop()), &mut buffer) {
            Poll::Ready(Ok(())) => seen.bytes.extend_from_slice(buffer.filled()),
            Poll::Ready(Err(_)) => {
                seen.broken = true;
                break;
            }
            Poll::Pending => break,
        }
    }
    seen.unreadable = (0..50).find_map(|before| {
        let why = conduct.unreadable();
        drop(conduct.begin_request());
        why.map(|why| (before, why))
    });
    seen
}

const OFFER: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";

#[test]
fn what_follows_an_offer_is_read_by_nobody_before_the_answer() {
    for piece in [1, 7, OFFER.len(), 1000] {
        for after in [&b"\x81\x85any bytes\r\n\r\n"[..], b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n"] {
            let (mut switched, conduct) = strict(&[OFFER, after].concat(), piece);
            let seen = read_on(&mut switched, &conduct);
            assert_eq!((&seen.bytes[..], seen.unreadable), (OFFER, None), "{piece}");
            assert_eq!(switched.into_rest().1, after);
        }
        let (mut declined, conduct) = strict(&[OFFER, TWO, OFFER, b"\x81\x85"].concat(), piece);
        assert_eq!(read_on(&mut declined, &conduct).bytes, OFFER);
        conduct.goes_on_with_http();
        assert_eq!(read_on(&mut declined, &conduct).bytes, [TWO, OFFER].concat());
        // Two more answers, and not yet the one that is waited for.
        conduct.goes_on_with_http();
        conduct.goes_on_with_http();
        assert_eq!(read_on(&mut declined, &conduct).bytes, b"");
        conduct.goes_on_with_http();
        assert_eq!(read_on(&mut declined, &conduct).bytes, b"", "it begins a head");
    }
}

const TWO: &[u8] =
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcPOST / HTTP/1.1\r\nHost: a\r\n\
    Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nA: b\r\n\r\n";

#[test]
fn pipelined_requests_go_on_as_they_are_in_pieces_of_any_size() {
    for piece in 1..TWO.len() {
        assert_eq!(
            read(TWO, piece),
            Seen { bytes: TWO.to_vec(), unreadable: None, broken: false },
            "pieces of {piece}"
        );
    }
}

#[test]
fn a_head_goes_on_only_whole() {
    let head = b"POST / HTTP/1.1\r\nHost: a\r\n\r\n";
    for length in 1..head.len() {
        assert_eq!(read(&head[..length], 7).bytes, b"", "{length}");
        let after_others = [TWO, &head[..length]].concat();
        assert_eq!(read(&after_others, 7).bytes, TWO, "{length}");
    }
}

#[test]
fn a_head_without_a_reading_is_replaced_and_nothing_follows_it() {
    for bad in [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775808\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /a#b HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\n folded: a\r\n\r\n",
        "\r\rPOST / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\0\r\n\r\n",
    ] {
        for before in [&b""[..], TWO] {
            let bytes = [before, bad.as_bytes(), TWO].concat();
            let whole = read(&bytes, bytes.len());
            assert_eq!(whole.bytes, [before, STAND_IN].concat(), "{bad:?}");
            let number = if before.is_empty() { 1 } else { 3 };
            assert!(
                matches!(whole.unreadable, Some((at, Unreadable::Ambiguous(_))) if at == number),
                "{bad:?}: {:?}",
                whole.unreadable
            );
            assert_eq!(read(&bytes, 5), whole, "{bad:?}");
        }
    }
}

#[test]
fn a_head_that_is_too_large_is_replaced_with_the_reason() {
    let fields = "A: b\r\n".repeat(101);
    let long = "x".repeat(LIMITS.bytes);
    let too_long = Unreadable::TooLong(LIMITS.bytes);
    for (head, why) in [
        (format!("GET / HTTP/1.1\r\n{fields}\r\n"), Unreadable::TooManyFields(100)),
        (format!("GET / HTTP/1.1\r\nA: {long}\r\n\r\n"), too_long),
        (format!("GET / HTTP/1.1\r\nA: {long}"), too_long),
        ("\r\n".repeat(LIMITS.bytes), too_long),
    ] {
        for piece in [1000, 100_000] {
            let seen = read(head.as_bytes(), piece);
            assert_eq!(seen.bytes, STAND_IN);
            assert_eq!(seen.unreadable, Some((1, why)));
        }
    }
    let target = format!("GET /{long} HTTP/1.1\r\n\r\n");
    assert_eq!(read(target.as_bytes(), 999).unreadable, Some((1, Unreadable::TargetTooLong(LIMITS.bytes))));
    let most = format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", &long[..LIMITS.bytes - 23]);
    assert_eq!(most.len(), LIMITS.bytes);
    assert_eq!(read(most.as_bytes(), 1000).bytes, most.as_bytes());
}

#[test]
fn a_body_that_looks_like_a_bad_head_is_only_a_body() {
    let body = "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n";
    let request = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    assert_eq!(read(request.as_bytes(), 9).bytes, request.as_bytes());
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
        let whole = read(request.as_bytes(), request.len());
        assert!(whole.broken, "{chunks:?}");
        assert_eq!(read(request.as_bytes(), 4), whole, "{chunks:?}");
    }
}

proptest! {
    #[test]
    fn pieces_make_no_difference(bytes in prop::collection::vec(any::<u8>(), 0..200), piece in 1usize..20) {
        let spiced = [TWO, &bytes].concat();
        prop_assert_eq!(read(&spiced, piece), read(&spiced, spiced.len()));
    }

    #[test]
    fn what_goes_on_is_what_hyper_reads(
        target in "/[!-~]{0,12}|[!-~]{1,12}|http://[a-z.:@\\[\\]]{1,9}/?[!-~]{0,5}|/\\PC{0,6}",
        field in "[!-~]{1,8}[ ]{0,1}: ?\\PC{0,8}",
    ) {
        let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n");
        if judge(head.as_bytes(), LIMITS).is_ok() {
            let uri = http::Uri::from_maybe_shared(bytes::Bytes::from(target.clone().into_bytes()));
            prop_assert!(uri.is_ok(), "hyper would answer {target:?} itself");
            if target.starts_with('/') {
                prop_assert_eq!(uri.unwrap().to_string(), target, "to its last character");
            }
        }
    }
}
