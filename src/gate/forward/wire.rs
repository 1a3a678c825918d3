//! What hyper writes a request to: an upstream's socket, with TLS above it or without.
//!
//! Every byte for an upstream goes through [`Checked`], which asks before each write whether it may still be sent. TLS
//! lies above it: what rustls has encrypted and not yet written is asked about as well when its turn comes. What must stay true:
//! a request counts as sent whole only when nothing of it is left here, in rustls or in hyper.

mod checked;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::body::Passage;
use crate::controls::{Rule, breaks};
use crate::ledger::validity::{Counted, Validity};
use crate::tls::Client;
use checked::Checked;

/// An upstream connection as hyper writes to it.
pub(super) struct Wire {
    channel: Channel,
    loan: Rc<Loan>,
}

enum Channel {
    Plain(Checked),
    /// Large, and a line moves with every request.
    Tls(Box<TlsStream<Checked>>),
}

/// For which request a socket is written to. Shared by the line, which lends, and the wire, which asks.
pub(super) struct Loan {
    validity: Arc<Validity>,
    /// The incarnation of a fenced request; none for a request without a fence.
    counted: Cell<Option<Counted>>,
    /// How far the request has come.
    passage: RefCell<Option<Rc<Passage>>>,
    /// The socket is closed by a reset.
    resets: Cell<bool>,
}

impl Loan {
    pub(super) fn new(validity: Arc<Validity>) -> Rc<Self> {
        let (counted, passage, resets) = (Cell::new(None), RefCell::default(), Cell::new(false));
        Rc::new(Self { validity, counted, passage, resets })
    }

    /// To a fenced request that was admitted for this incarnation.
    pub(super) fn fence(&self, counted: Counted) {
        self.counted.set(Some(counted));
    }

    /// The wire says in `passage` when the request was written whole.
    pub(super) fn carry(&self, passage: Rc<Passage>) {
        self.passage.replace(Some(passage));
    }

    /// All of the request has been passed on to what the wire flushes.
    pub(super) fn handed_over(&self) {
        if let Some(passage) = &*self.passage.borrow() {
            passage.left();
        }
    }

    /// Whatever still drops the socket: what the kernel holds of the request dies with it.
    pub(super) fn reset_at_the_end(&self) {
        self.resets.set(true);
    }

    /// The request has ended.
    pub(super) fn end(&self) {
        self.counted.set(None);
        self.passage.replace(None);
    }

    /// Everything that hyper got of the request has left.
    fn flushed(&self) {
        if let Some(passage) = &*self.passage.borrow() {
            passage.flushed();
        }
    }

    fn allows_writing(&self) -> bool {
        self.counted.get().is_none_or(|counted| self.validity.covers(counted))
            || breaks(Rule::CheckEveryWrite)
    }
}

impl Wire {
    /// Without TLS.
    pub(super) fn plain(stream: TcpStream, loan: Rc<Loan>) -> Self {
        Self { channel: Channel::Plain(Checked::new(stream, loan.clone())), loan }
    }

    /// With TLS; the handshake is made here, and only `protocol` is offered.
    pub(super) async fn encrypted(
        stream: TcpStream,
        loan: Rc<Loan>,
        client: &Client,
        protocol: &str,
    ) -> io::Result<Self> {
        let stream = client.connect(Checked::new(stream, loan.clone()), protocol).await?;
        Ok(Self { channel: Channel::Tls(Box::new(stream)), loan })
    }
}

macro_rules! either {
    ($self:ident, $channel:ident => $call:expr) => {
        match &mut $self.get_mut().channel {
            Channel::Plain($channel) => {
                let $channel = Pin::new($channel);
                $call
            }
            Channel::Tls($channel) => {
                let $channel = Pin::new(&mut **$channel);
                $call
            }
        }
    };
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, channel => channel.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, channel => channel.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.channel {
            Channel::Plain(socket) => socket.is_write_vectored(),
            Channel::Tls(stream) => stream.is_write_vectored(),
        }
    }

    /// hyper flushes when it has nothing left to write, and rustls is done when it has nothing left either.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.as_mut();
        ready!(either!(this, channel => channel.poll_flush(cx)))?;
        self.loan.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, channel => channel.poll_shutdown(cx))
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self, channel => channel.poll_read(cx, buffer))
    }
}
