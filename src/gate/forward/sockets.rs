//! The upstream sockets of all cores, so that a fence can reset them from its own thread.
//!
//! A worker that is busy or stuck cannot be asked to cut its connections in time. So every socket is known here by
//! a second descriptor, and one that carries a fenced request is marked before that request is admitted. The
//! fence first ends the validity and then looks for marks; a request first marks and then asks for the
//! validity. One of the two sees the other.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::net::connect_unspec;
use slab::Slab;
use tokio::net::TcpStream;

/// All upstream sockets of a gateway.
#[derive(Default)]
pub(crate) struct Sockets {
    open: Mutex<Slab<Arc<Socket>>>,
}

struct Socket {
    descriptor: OwnedFd,
    /// It carries a request that a fence has to stop.
    fenced: AtomicBool,
}

/// A socket that is known for as long as this lives.
pub(crate) struct Registered {
    sockets: Arc<Sockets>,
    socket: Arc<Socket>,
    slot: usize,
}

impl Sockets {
    pub(crate) fn register(self: &Arc<Self>, stream: &TcpStream) -> io::Result<Registered> {
        let descriptor = stream.as_fd().try_clone_to_owned()?;
        let socket = Arc::new(Socket { descriptor, fenced: AtomicBool::new(false) });
        let slot = self.open.lock().insert(socket.clone());
        Ok(Registered { sockets: self.clone(), socket, slot })
    }

    /// Resets every connection with a fenced request on it: what is buffered is dropped, and the upstream is told.
    pub(crate) fn reset_fenced(&self) -> usize {
        let open: Vec<_> = self.open.lock().iter().map(|(_, socket)| socket.clone()).collect();
        let fenced = open.iter().filter(|socket| socket.fenced.load(Ordering::SeqCst));
        // One that has ended by itself cannot be reset, and need not be.
        fenced.filter(|socket| connect_unspec(&socket.descriptor).is_ok()).count()
    }
}

impl Registered {
    /// Before a fenced request asks to be admitted.
    pub(crate) fn arm(&self) {
        self.socket.fenced.store(true, Ordering::SeqCst);
    }

    /// The request has ended.
    pub(crate) fn disarm(&self) {
        self.socket.fenced.store(false, Ordering::Release);
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.sockets.open.lock().remove(self.slot);
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (here, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn a_fence_resets_what_carries_a_fenced_request_and_nothing_else() {
        let sockets = Arc::new(Sockets::default());
        let (mut armed, mut upstream) = pair().await;
        let (mut idle, mut other) = pair().await;
        let registered = sockets.register(&armed).unwrap();
        let _idle = sockets.register(&idle).unwrap();
        registered.arm();
        // More than the kernel can send: some of it is still buffered here.
        let _ = armed.try_write(&vec![7; 8 << 20]);
        assert_eq!(sockets.reset_fenced(), 1);
        let mut received = Vec::new();
        let error = upstream.read_to_end(&mut received).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "it is told that this was no end");
        assert!(armed.write_all(b"more").await.is_err(), "nothing more can be written");
        idle.write_all(b"on").await.unwrap();
        let mut two = [0; 2];
        other.read_exact(&mut two).await.unwrap();
        assert_eq!(&two, b"on");
    }

    #[tokio::test]
    async fn a_socket_is_forgotten_with_its_line_and_spared_after_its_request() {
        let sockets = Arc::new(Sockets::default());
        let (here, _there) = pair().await;
        let registered = sockets.register(&here).unwrap();
        registered.arm();
        registered.disarm();
        assert_eq!(sockets.reset_fenced(), 0);
        registered.arm();
        drop(registered);
        assert_eq!((sockets.reset_fenced(), sockets.open.lock().len()), (0, 0));
    }
}
