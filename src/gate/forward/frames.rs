//! HTTP/2 frames on an upstream connection, followed as they pass.
//!
//! The fence has to know two things that no HTTP/2 library tells: whether a request was sent whole, and whether the
//! upstream has certainly not processed it. hyper takes a body long before its last frame leaves, because the upstream
//! grants the room for it; and its errors do not say which stream they spare. Both are read off the frames here.
//!
//! What must stay true: a line carries one exchange at a time, so the stream that was opened last is the one.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::wire::Loan;

/// What a client sends before its first frame.
const PREFACE: usize = 24;
const FRAME_HEAD: usize = 9;

/// Types of frames, by their numbers in RFC 9113.
const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const RST_STREAM: u8 = 0x3;
const SETTINGS: u8 = 0x4;
const GOAWAY: u8 = 0x7;
const CONTINUATION: u8 = 0x9;

const ACK: u8 = 0x1;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const REFUSED_STREAM: u32 = 0x7;

/// What the frames have shown of the connection and of the exchange on it.
#[derive(Default)]
pub(super) struct Seen {
    /// The upstream has said that it speaks HTTP/2.
    greeted: Cell<bool>,
    /// The stream of the request; 0 until its head has left.
    stream: Cell<u32>,
    /// A write has failed. TLS takes bytes and sends some of them before it fails, so no frame tells how far they came.
    failed: Cell<bool>,
    /// The head that is leaving in several frames is the end of the request.
    ends_with_head: Cell<bool>,
    /// The upstream has begun to answer.
    answered: Cell<bool>,
    /// The upstream has said that it did not and will not process the request.
    refused: Cell<bool>,
}

impl Seen {
    /// The next request is about to be written.
    pub(super) fn begin(&self) {
        self.stream.set(0);
        self.answered.set(false);
        self.refused.set(false);
    }

    pub(super) fn is_greeted(&self) -> bool {
        self.greeted.get()
    }

    /// Whether the request has had no effect for certain: its head never left, or the upstream says so.
    pub(super) fn is_unprocessed(&self) -> bool {
        (self.stream.get() == 0 && !self.failed.get()) || self.refused.get()
    }

    /// A frame has left. True if the request has with it.
    fn left(&self, frame: &Frame) -> bool {
        let ends_stream = frame.flags & END_STREAM != 0;
        match frame.kind {
            DATA => ends_stream,
            HEADERS => {
                self.stream.set(frame.stream);
                self.ends_with_head.set(ends_stream);
                ends_stream && frame.flags & END_HEADERS != 0
            }
            CONTINUATION => self.ends_with_head.get() && frame.flags & END_HEADERS != 0,
            _ => false,
        }
    }

    fn came(&self, frame: &Frame) {
        let stream = self.stream.get();
        match frame.kind {
            SETTINGS if frame.flags & ACK == 0 => self.greeted.set(true),
            HEADERS if frame.stream == stream => self.answered.set(true),
            RST_STREAM if frame.stream == stream && frame.error() == REFUSED_STREAM => self.refuse(),
            GOAWAY if stream > frame.last_stream() => self.refuse(),
            _ => {}
        }
    }

    /// Whoever has begun to answer cannot say any more that nothing was done.
    fn refuse(&self) {
        self.refused.set(!self.answered.get());
    }
}

/// A frame that has passed whole.
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    /// The first bytes of what it carries.
    start: [u8; 4],
}

impl Frame {
    /// The error of a RST_STREAM.
    fn error(&self) -> u32 {
        u32::from_be_bytes(self.start)
    }

    /// The last stream that a GOAWAY says may have been processed.
    fn last_stream(&self) -> u32 {
        stream_id(self.start)
    }
}

/// The first bit means nothing.
fn stream_id(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes) & !(1 << 31)
}

/// One direction of a connection, byte by byte.
#[derive(Default)]
struct Direction {
    /// Bytes before the first frame.
    greeting: usize,
    head: [u8; FRAME_HEAD],
    /// How much of the frame's head is there.
    read: usize,
    /// How much of what the frame carries has passed.
    passed: usize,
    start: [u8; 4],
}

impl Direction {
    fn out() -> Self {
        Self { greeting: PREFACE, ..Self::default() }
    }

    /// Follows bytes that pass, and tells of each frame that is whole.
    fn follow(&mut self, mut bytes: &[u8], mut whole: impl FnMut(&Frame)) {
        let skipped = self.greeting.min(bytes.len());
        self.greeting -= skipped;
        bytes = &bytes[skipped..];
        while !bytes.is_empty() {
            let wanted = (FRAME_HEAD - self.read).min(bytes.len());
            self.head[self.read..self.read + wanted].copy_from_slice(&bytes[..wanted]);
            self.read += wanted;
            bytes = self.pass(&bytes[wanted..]);
            if self.read == FRAME_HEAD && self.passed == self.length() {
                whole(&self.frame());
                (self.read, self.passed, self.start) = (0, 0, [0; 4]);
            }
        }
    }

    /// Takes what belongs to this frame's load, and gives back the rest.
    fn pass<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        if self.read < FRAME_HEAD {
            return bytes;
        }
        let (load, rest) = bytes.split_at((self.length() - self.passed).min(bytes.len()));
        let kept = self.start.iter_mut().skip(self.passed).zip(load);
        kept.for_each(|(kept, byte)| *kept = *byte);
        self.passed += load.len();
        rest
    }

    fn length(&self) -> usize {
        u32::from_be_bytes([0, self.head[0], self.head[1], self.head[2]]) as usize
    }

    fn frame(&self) -> Frame {
        let [_, _, _, kind, flags, stream @ ..] = self.head;
        Frame { kind, flags, stream: stream_id(stream), start: self.start }
    }
}

/// A connection whose frames are followed.
pub(super) struct Followed<S> {
    io: S,
    out: Direction,
    back: Direction,
    seen: Rc<Seen>,
    /// Who is told when the request has left.
    loan: Rc<Loan>,
}

impl<S> Followed<S> {
    pub(super) fn new(io: S, seen: Rc<Seen>, loan: Rc<Loan>) -> Self {
        Self { io, out: Direction::out(), back: Direction::default(), seen, loan }
    }

    /// Remembers that a write failed: what it was given may have left in part.
    fn note_failure<T>(&self, written: io::Result<T>) -> io::Result<T> {
        self.seen.failed.set(self.seen.failed.get() || written.is_err());
        written
    }

    fn left(&mut self, bytes: &[u8]) {
        self.out.follow(bytes, |frame| {
            if self.seen.left(frame) {
                self.loan.handed_over();
            }
        });
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Followed<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.io).poll_write(cx, bytes));
        let count = this.note_failure(written)?;
        this.left(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.io).poll_write_vectored(cx, slices));
        let count = this.note_failure(written)?;
        let mut rest = count;
        for slice in slices {
            let taken = rest.min(slice.len());
            this.left(&slice[..taken]);
            rest -= taken;
        }
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = ready!(Pin::new(&mut this.io).poll_flush(cx));
        Poll::Ready(this.note_failure(flushed))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Followed<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let had = buffer.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(cx, buffer))?;
        this.back.follow(&buffer.filled()[had..], |frame| this.seen.came(frame));
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, load: &[u8]) -> Vec<u8> {
        let length = u32::try_from(load.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), load].concat()
    }

    /// A request on stream 1 has left; then these frames come.
    fn after(frames: &[Vec<u8>]) -> Seen {
        let seen = Seen::default();
        seen.begin();
        Direction::default().follow(&frame(HEADERS, END_STREAM | END_HEADERS, 1, b"head"), |frame| {
            assert!(seen.left(frame));
        });
        Direction::default().follow(&frames.concat(), |frame| seen.came(frame));
        seen
    }

    /// How many of these frames, which leave in pieces of this size, end a request.
    fn ends(frames: &[Vec<u8>], piece: usize) -> usize {
        let (seen, mut out, mut ends) = (Seen::default(), Direction::out(), 0);
        let bytes = [vec![b'P'; PREFACE], frames.concat()].concat();
        for piece in bytes.chunks(piece) {
            out.follow(piece, |frame| ends += usize::from(seen.left(frame)));
        }
        ends
    }

    #[test]
    fn a_request_has_left_with_the_last_byte_of_its_last_frame() {
        let whole: [&[Vec<u8>]; 5] = [
            &[frame(SETTINGS, 0, 0, b"settings"), frame(HEADERS, END_STREAM | END_HEADERS, 1, b"head")],
            &[
                frame(HEADERS, END_HEADERS, 1, b"head"),
                frame(DATA, 0, 1, b"a"),
                frame(DATA, END_STREAM, 1, b""),
            ],
            &[frame(HEADERS, END_STREAM, 1, b"he"), frame(CONTINUATION, END_HEADERS, 1, b"ad")],
            &[
                frame(HEADERS, END_HEADERS, 1, b"head"),
                frame(HEADERS, END_STREAM | END_HEADERS, 1, b"trailers"),
            ],
            &[
                frame(HEADERS, 0, 1, b"he"),
                frame(CONTINUATION, END_HEADERS, 1, b"ad"),
                frame(DATA, END_STREAM, 1, b"x"),
            ],
        ];
        for frames in whole {
            for piece in [1, 2, 7, 4096] {
                assert_eq!(ends(frames, piece), 1, "{frames:?} in pieces of {piece}");
            }
            let mut short = frames.concat();
            short.pop();
            assert_eq!(ends(&[short], 5), 0, "{frames:?} without its last byte");
        }
        assert_eq!(ends(&[frame(HEADERS, 0, 1, b"he"), frame(CONTINUATION, END_HEADERS, 1, b"ad")], 3), 0);
    }

    #[test]
    fn only_a_refused_stream_and_one_above_a_goaway_are_certainly_unprocessed() {
        let code = |code: u32| code.to_be_bytes().to_vec();
        let goaway = |last: u32| frame(GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat());
        for unprocessed in [
            vec![frame(RST_STREAM, 0, 1, &code(REFUSED_STREAM))],
            vec![goaway(0)],
            vec![goaway(1 << 31)],
            vec![goaway(i32::MAX as u32), goaway(0)],
        ] {
            assert!(after(&unprocessed).is_unprocessed(), "{unprocessed:?}");
        }
        for unknown in [
            vec![],
            vec![frame(RST_STREAM, 0, 1, &code(0))],
            vec![frame(RST_STREAM, 0, 1, &code(8))],
            vec![frame(RST_STREAM, 0, 1, &code(1 << 31 | REFUSED_STREAM))],
            vec![frame(RST_STREAM, 0, 3, &code(REFUSED_STREAM))],
            vec![goaway(1)],
            vec![goaway(3)],
            vec![frame(HEADERS, END_HEADERS, 1, b"x"), frame(RST_STREAM, 0, 1, &code(REFUSED_STREAM))],
            vec![frame(HEADERS, END_HEADERS, 1, b"x"), goaway(0)],
        ] {
            assert!(!after(&unknown).is_unprocessed(), "{unknown:?}");
        }
    }

    #[test]
    fn a_request_whose_head_did_not_leave_is_unprocessed_and_the_next_one_starts_anew() {
        let seen = after(&[frame(RST_STREAM, 0, 1, &REFUSED_STREAM.to_be_bytes())]);
        seen.begin();
        assert!(seen.is_unprocessed(), "nothing has left yet");
        Direction::default().follow(&frame(HEADERS, END_HEADERS, 3, b"head"), |frame| {
            seen.left(frame);
        });
        assert!(!seen.is_unprocessed());
    }

    /// TLS that took a head, sent one record of it and failed at the next: how much has left nobody knows.
    #[tokio::test]
    async fn a_head_whose_write_failed_may_have_left() {
        use tokio::io::AsyncWriteExt;
        let seen = Rc::new(Seen::default());
        let (io, peer) = tokio::io::duplex(64);
        let loan = Loan::new(std::sync::Arc::new(crate::ledger::validity::Validity::always()));
        let mut followed = Followed::new(io, seen.clone(), loan);
        seen.begin();
        assert!(seen.is_unprocessed(), "nothing was written yet");
        drop(peer);
        followed.write_all(&[0; 100]).await.unwrap_err();
        assert!(!seen.is_unprocessed());
    }

    #[test]
    fn an_upstream_greets_with_settings_of_its_own() {
        assert!(!after(&[frame(SETTINGS, ACK, 0, b"")]).is_greeted());
        assert!(after(&[frame(SETTINGS, 0, 0, b"")]).is_greeted());
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(bytes in prop::collection::vec(any::<u8>(), 0..300), piece in 1usize..40) {
            let frames = |piece: usize| {
                let (mut direction, mut all) = (Direction::out(), Vec::new());
                for piece in bytes.chunks(piece) {
                    direction.follow(piece, |frame| all.push((frame.kind, frame.flags, frame.stream, frame.start)));
                }
                all
            };
            prop_assert_eq!(frames(piece), frames(bytes.len().max(1)));
        }
    }
}
