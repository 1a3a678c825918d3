//! One direction of a tunnel.
//!
//! What must stay true: nothing more is read while what was read is not written, so that a reader that is slow slows the
//! writer down; and whoever has nothing to say costs no buffer.

use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much is read at once.
const PIECE: usize = 16 << 10;

/// What is on its way from a source to a sink.
#[derive(Default)]
pub(super) struct Pipe {
    held: BytesMut,
    /// The source has nothing more to say.
    ended: bool,
    /// The sink was told so.
    closed: bool,
    /// Something was written that the sink may still keep to itself.
    unflushed: bool,
    passed: u64,
}

/// Which side of a pipe has failed.
#[derive(Debug)]
pub(super) enum Broken {
    Source,
    Sink,
}

impl Pipe {
    /// What goes out before anything that is read.
    pub(super) fn held(&mut self) -> &mut BytesMut {
        &mut self.held
    }

    /// How many bytes the sink has taken.
    pub(super) fn passed(&self) -> u64 {
        self.passed
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether nothing of what was read is left on this side of the sink.
    pub(super) fn is_through(&self) -> bool {
        self.held.is_empty() && !self.unflushed
    }

    /// Moves what there is; `sift` puts what goes on of what was read behind what is held. Ready once the source has ended
    /// and the sink has got everything, that end included.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut (impl AsyncRead + Unpin),
        sink: &mut (impl AsyncWrite + Unpin),
        mut sift: impl FnMut(&[u8], &mut BytesMut),
    ) -> Poll<Result<(), Broken>> {
        loop {
            ready!(self.poll_write(cx, sink)).map_err(|_| Broken::Sink)?;
            if self.ended {
                return self.poll_close(cx, sink).map_err(|_| Broken::Sink);
            }
            let mut piece = [MaybeUninit::uninit(); PIECE];
            let mut buffer = ReadBuf::uninit(&mut piece);
            match Pin::new(&mut *source).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => self.ended = true,
                Poll::Ready(Ok(())) => sift(buffer.filled(), &mut self.held),
                Poll::Ready(Err(_)) => return Poll::Ready(Err(Broken::Source)),
                Poll::Pending => {
                    self.held = BytesMut::new();
                    ready!(self.poll_flush(cx, sink)).map_err(|_| Broken::Sink)?;
                    return Poll::Pending;
                }
            }
        }
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        while !self.held.is_empty() {
            let count = ready!(Pin::new(&mut *sink).poll_write(cx, &self.held))?;
            if count == 0 {
                return Poll::Ready(Err(ErrorKind::WriteZero.into()));
            }
            self.held.advance(count);
            self.passed += count as u64;
            self.unflushed = true;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        if self.unflushed {
            ready!(Pin::new(sink).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_close(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        if !self.closed {
            ready!(self.poll_flush(cx, sink))?;
            ready!(Pin::new(sink).poll_shutdown(cx))?;
            self.closed = true;
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::poll_fn;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// Polls a pipe once between two streams.
    async fn once(
        pipe: &mut Pipe,
        source: &mut (impl AsyncRead + Unpin),
        sink: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<Result<(), Broken>> {
        poll_fn(|cx| Poll::Ready(pipe.poll(cx, source, sink, |piece, held| held.extend_from_slice(piece))))
            .await
    }

    #[tokio::test]
    async fn a_slow_reader_slows_the_writer_down() {
        let (mut client, mut source) = duplex(1 << 20);
        let (mut sink, mut reader) = duplex(100);
        let mut pipe = Pipe::default();
        client.write_all(&[7; 100_000]).await.unwrap();
        for _ in 0..10 {
            assert!(once(&mut pipe, &mut source, &mut sink).await.is_pending());
        }
        assert_eq!(pipe.passed(), 100, "what the reader has room for");
        assert!(pipe.held.len() <= PIECE, "and what was read at once");
        assert!(!pipe.is_through());
        drop(client);
        let mut received = Vec::new();
        let moved =
            poll_fn(|cx| pipe.poll(cx, &mut source, &mut sink, |piece, held| held.extend_from_slice(piece)));
        let (moved, read) = tokio::join!(moved, reader.read_to_end(&mut received));
        assert!(moved.is_ok() && read.is_ok(), "the end goes on as well");
        assert_eq!((received, pipe.passed()), (vec![7; 100_000], 100_000));
        assert!(pipe.is_through());
    }

    #[tokio::test]
    async fn a_pipe_says_which_side_has_failed() {
        let (mut client, mut source) = duplex(100);
        let (mut sink, reader) = duplex(100);
        drop(reader);
        client.write_all(b"lost").await.unwrap();
        let mut pipe = Pipe::default();
        let broken = once(&mut pipe, &mut source, &mut sink).await;
        assert!(matches!(broken, Poll::Ready(Err(Broken::Sink))), "{broken:?}");
    }
}
