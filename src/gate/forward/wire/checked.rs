//! The socket under a line: the one place that writes to upstreams.
//!
//! A gateway may be stopped between any two instructions, and wakes up with a request half written whose successor
//! has long passed elsewhere. So a socket that is lent to a fenced request asks before *every* write, the end of the stream included, whether the
//! incarnation that admitted the request is still valid, not only once at admission. The warden resets the same socket
//! from its own thread, but a worker that wakes up first would win that race.
//!
//! What must stay true: between the question and the kernel's write lies nothing that waits. Nothing is kept here, so TLS
//! lies above this and never below it.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use rustix::net::connect_unspec;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::Loan;
use crate::controls::{Rule, breaks};

/// An upstream's socket.
pub(super) struct Checked {
    stream: TcpStream,
    loan: Rc<Loan>,
}

impl Checked {
    pub(super) fn new(stream: TcpStream, loan: Rc<Loan>) -> Self {
        Self { stream, loan }
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

impl Drop for Checked {
    fn drop(&mut self) {
        if self.loan.resets.get() && !breaks(Rule::NoLinger) {
            // If the option cannot be set the socket is closed all the same, and the lock-delay covers the rest.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncWrite for Checked {
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

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// An end is a write as well: some protocols take what came before it for whole only then.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl AsyncRead for Checked {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}
