//! An upstream that the test plays itself, byte by byte: for what comes after HTTP.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::time::Instant;

use super::wire::Wire;
use super::{Head, PATIENCE, eventually};

pub(crate) struct Upstream {
    listener: TcpListener,
    pub(crate) address: SocketAddr,
}

/// What became of the gateway's side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Closed,
    Reset,
}

impl Upstream {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a listener can be nonblocking");
        let address = listener.local_addr().expect("a bound listener has an address");
        Self { listener, address }
    }

    /// The next connection of the gateway.
    pub(crate) fn accept(&self) -> Wire {
        let mut accepted = None;
        eventually("a connection of the gateway", || {
            accepted = self.listener.accept().ok();
            accepted.is_some()
        });
        let (stream, _) = accepted.expect("it was waited for");
        stream.set_nonblocking(false).expect("a socket can block");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out above zero");
        stream.set_write_timeout(Some(PATIENCE)).expect("a time-out above zero");
        Wire::new(stream)
    }

    /// Whether the gateway has connected since.
    pub(crate) fn is_left_alone(&self) -> bool {
        self.listener.accept().is_err()
    }
}

impl Wire {
    pub(crate) fn next_head(&mut self) -> Head {
        self.head().expect("a readable head").expect("a request before the connection ends")
    }

    /// The next bytes, so many.
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.exactly(count, &mut |piece| bytes.extend(piece)).expect("more bytes in time");
        bytes
    }

    /// Whether there is nothing to read at this moment.
    pub(crate) fn is_silent(&self) -> bool {
        self.stream.set_nonblocking(true).expect("a socket can be nonblocking");
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).expect("a socket can block");
        self.buffer.is_empty() && peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// Waits for the end of what the other side has to say; when it was seen.
    pub(crate) fn end(&mut self) -> (End, Instant) {
        loop {
            match self.fill() {
                Ok(true) => {}
                Ok(false) => return (End::Closed, Instant::now()),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    panic!("the connection did not end within {PATIENCE:?}")
                }
                Err(_) => return (End::Reset, Instant::now()),
            }
        }
    }
}
