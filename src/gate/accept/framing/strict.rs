//! The socket of an HTTP/1 client as hyper reads it: only what the [`Framing`] lets through.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::head::{STAND_IN, STAND_IN_FOR_HEAD};
use super::{Framing, Rest};
use crate::config::HeadLimits;
use crate::gate::accept::Conduct;

/// How much is read at once of a head that came in pieces, or of what nobody reads.
const PIECE: usize = 4 << 10;
/// How much is held while nobody knows whether it is HTTP. What is more stays in the socket.
const MOST_HELD: usize = 16 << 10;

pub(in crate::gate::accept) struct Strict<S> {
    stream: S,
    framing: Framing,
    conduct: Rc<Conduct>,
    /// What was read and has not gone on to hyper.
    held: BytesMut,
    /// So much of it may.
    passed: usize,
    /// What comes after that is not read as requests.
    end: Option<End>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// A stand-in was the last request.
    StoodIn,
    BadChunk,
}

/// A body that hyper may or may not notice: the connection cannot go on.
#[derive(Debug, thiserror::Error)]
#[error("malformed chunked body")]
struct BadChunk;

impl<S: AsyncRead + AsyncWrite + Unpin> Strict<S> {
    pub(in crate::gate::accept) fn new(stream: S, conduct: Rc<Conduct>, limits: HeadLimits) -> Self {
        Self { stream, framing: Framing::new(limits), conduct, held: BytesMut::new(), passed: 0, end: None }
    }

    /// Judges bytes that have just come, none being held. How many of them go on at once.
    fn sift(&mut self, fresh: &[u8]) -> usize {
        let (passed, rest) = self.framing.follow(fresh);
        self.settle(&fresh[passed..], rest);
        passed
    }

    /// Judges everything that is held, after some more of it has come.
    fn sift_held(&mut self) {
        let mut held = std::mem::take(&mut self.held);
        let (passed, rest) = self.framing.follow(&held);
        let others = held.split_off(passed);
        self.held = held;
        self.passed = passed;
        self.settle(&others, rest);
    }

    /// What becomes of bytes that do not go on.
    fn settle(&mut self, others: &[u8], rest: Rest) {
        match rest {
            Rest::Nothing | Rest::Dropped => {}
            Rest::Held => self.held.extend_from_slice(others),
            Rest::BadChunk => self.end = Some(End::BadChunk),
            Rest::Unreadable(why) => {
                self.conduct.cannot_read(self.framing.heads + 1, why);
                let stand_in = if others.starts_with(b"HEAD ") { STAND_IN_FOR_HEAD } else { STAND_IN };
                self.held.extend_from_slice(stand_in);
                self.passed = self.held.len();
                self.end = Some(End::StoodIn);
            }
        }
        let begun = self.held[self.passed..].iter().any(|byte| !matches!(byte, b'\r' | b'\n'));
        self.conduct.set_reading_head(begun);
    }

    /// Reads some more of a head that is held. False at the end of the stream.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut piece = [0; PIECE];
        let mut buffer = ReadBuf::new(&mut piece);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
        self.held.extend_from_slice(buffer.filled());
        Poll::Ready(Ok(!buffer.filled().is_empty()))
    }

    /// Reads what may not be HTTP, and keeps it. Ready only at the end of the stream.
    fn poll_hold(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.held.len() < MOST_HELD {
            if !ready!(self.poll_more(cx))? {
                return Poll::Ready(Ok(()));
            }
        }
        // Woken by the answer.
        Poll::Pending
    }

    /// HTTP has ended, and left the stream for something else: with what was read of that already.
    pub(in crate::gate::accept) fn into_rest(self) -> (S, BytesMut) {
        (self.stream, self.held)
    }

    /// Whether a request on it has ever offered to go on with another protocol.
    pub(in crate::gate::accept) fn was_offered(&self) -> bool {
        self.framing.offers
    }

    /// Reads and forgets. Never more than pending: there is nothing more to say to hyper.
    fn poll_forget<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        while let Poll::Ready(Ok(true)) = self.poll_more(cx) {
            self.held.clear();
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Strict<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.passed > 0 {
                let count = this.passed.min(buffer.remaining());
                buffer.put_slice(&this.held[..count]);
                this.held.advance(count);
                this.passed -= count;
                return Poll::Ready(Ok(()));
            }
            match this.end {
                Some(End::StoodIn) => return this.poll_forget(cx),
                Some(End::BadChunk) => {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, BadChunk)));
                }
                None => {}
            }
            if this.framing.is_open() {
                if !this.conduct.has_gone_on(this.framing.heads) {
                    return this.poll_hold(cx);
                }
                this.framing.go_on();
                this.sift_held();
                continue;
            }
            if !this.held.is_empty() {
                if !ready!(this.poll_more(cx))? {
                    return Poll::Ready(Ok(()));
                }
                this.sift_held();
                continue;
            }
            let had = buffer.filled().len();
            ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
            let fresh = &buffer.filled()[had..];
            if fresh.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let passed = this.sift(fresh);
            buffer.set_filled(had + passed);
            if passed > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Strict<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    /// A socket that is closed with bytes in it that nobody read is reset, and the client may lose the answer that it was
    /// just sent. So what is still to come is heard out, until the client has closed as well or the sweeper ends it.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        let heard_out = this.end.is_none() && this.framing.is_between_requests() && this.held.is_empty();
        if heard_out {
            return Poll::Ready(Ok(()));
        }
        this.conduct.say_goodbye();
        loop {
            match this.poll_more(cx) {
                Poll::Ready(Ok(true)) => this.held.clear(),
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
