//! The socket under a line: the one place that writes to upstreams.
//!
//! A gateway may be stopped between any two instructions, and wakes up with a request half written whose successor
//! has long passed elsewhere. So a socket that is lent to a fenced request asks before *every* write whether the
//! incarnation that admitted the request is still valid, not only once at admission. The warden resets the same socket
//! from its own thread, but a worker that wakes up first would win that race.
//!
//! What must stay true: between the question and the kernel's write lies nothing that waits.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::net::connect_unspec;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::body::Passage;
use crate::controls::{Rule, breaks};
use crate::ledger::validity::{Counted, Validity};

/// An upstream socket as hyper writes to it.
pub(super) struct Wire {
    stream: TcpStream,
    loan: Rc<Loan>,
}

/// For which request a socket is written to. Shared by the line, which lends, and the wire, which asks.
pub(super) struct Loan {
    validity: Arc<Validity>,
    /// The incarnation of a fenced request; none for a request without a fence.
    counted: Cell<Option<Counted>>,
    /// How far the request has come.
    passage: RefCell<Option<Rc<Passage>>>,
}

impl Loan {
    pub(super) fn new(validity: Arc<Validity>) -> Rc<Self> {
        Rc::new(Self { validity, counted: Cell::new(None), passage: RefCell::default() })
    }

    /// To a fenced request that was admitted for this incarnation.
    pub(super) fn fence(&self, counted: Counted) {
        self.counted.set(Some(counted));
    }

    /// The wire says in `passage` when the request was written whole.
    pub(super) fn carry(&self, passage: Rc<Passage>) {
        self.passage.replace(Some(passage));
    }

    /// The request has ended.
    pub(super) fn end(&self) {
        self.counted.set(None);
        self.passage.replace(None);
    }

    fn allows_writing(&self) -> bool {
        self.counted.get().is_none_or(|counted| self.validity.covers(counted))
            || breaks(Rule::CheckEveryWrite)
    }
}

impl Wire {
    pub(super) fn new(stream: TcpStream, loan: Rc<Loan>) -> Self {
        Self { stream, loan }
    }

    pub(super) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Right before a write. Refused, the connection is reset at once, so that what the kernel still holds of the
    /// request dies with it.
    fn check(&self) -> io::Result<()> {
        if self.loan.allows_writing() {
            return Ok(());
        }
        // One that the warden has reset already cannot be reset again.
        let _ = connect_unspec(&self.stream);
        Err(io::Error::new(ErrorKind::ConnectionAborted, "the gateway was fenced while it wrote the request"))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper flushes when it has nothing left to write.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        if let Some(passage) = &*self.loan.passage.borrow() {
            passage.flushed();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use highgate_elector::Moment;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn lent() -> (Wire, TcpStream, Arc<Validity>, Rc<Loan>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let validity = Arc::new(Validity::fenced(Duration::from_millis(50)));
        let loan = Loan::new(validity.clone());
        (Wire::new(here, loan.clone()), listener.accept().await.unwrap().0, validity, loan)
    }

    fn later(millis: u64) -> Moment {
        Moment::now() + Duration::from_millis(millis)
    }

    async fn is_reset(upstream: &mut TcpStream) {
        let error = upstream.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "the upstream is told that this was no end");
    }

    #[tokio::test]
    async fn a_fence_between_two_writes_of_a_body_stops_the_second_and_resets_the_connection() {
        let (mut wire, mut upstream, validity, loan) = lent().await;
        loan.fence(validity.begin(later(60_000)));
        wire.write_all(b"first").await.unwrap();
        let mut first = [0; 5];
        upstream.read_exact(&mut first).await.unwrap();
        validity.fence();
        let error = wire.write_all(b"last").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
        is_reset(&mut upstream).await;
    }

    #[tokio::test]
    async fn an_end_that_has_passed_counts_although_nobody_fenced_yet() {
        let (mut wire, mut upstream, validity, loan) = lent().await;
        loan.fence(validity.begin(later(20)));
        let slices = [IoSlice::new(b"la"), IoSlice::new(b"st")];
        assert!(wire.write_vectored(&slices).await.is_err(), "the margin before the end belongs to it");
        is_reset(&mut upstream).await;
    }

    #[tokio::test]
    async fn a_later_incarnation_does_not_write_for_an_earlier_one() {
        let (mut wire, mut upstream, validity, loan) = lent().await;
        loan.fence(validity.begin(later(60_000)));
        validity.fence();
        validity.begin(later(60_000));
        assert!(wire.write_all(b"last").await.is_err());
        is_reset(&mut upstream).await;
    }

    #[tokio::test]
    async fn a_request_without_a_fence_and_the_next_one_on_a_line_are_written_whatever_the_validity() {
        let (mut wire, mut upstream, validity, loan) = lent().await;
        wire.write_all(b"a").await.unwrap();
        loan.fence(validity.begin(later(60_000)));
        wire.write_all(b"b").await.unwrap();
        loan.end();
        validity.fence();
        wire.write_all(b"c").await.unwrap();
        let mut all = [0; 3];
        upstream.read_exact(&mut all).await.unwrap();
        assert_eq!(&all, b"abc");
    }
}
