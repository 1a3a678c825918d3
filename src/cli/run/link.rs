//! The socket between two processes of a run: a line is a message, and the end of it is the death of the other side.
//!
//! `run` listens at a gate, a name that only its own processes are told; guardian and keeper knock. What must stay
//! true: whoever is let in is the process that was expected, and telling never blocks.

use std::fmt::Display;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener as StdListener, UnixStream as StdStream};
use std::str::FromStr;

use rustix::io::write;
use rustix::process::{Pid, geteuid};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};

/// Where the processes of a run find it.
pub(super) struct Gate {
    listener: UnixListener,
    name: String,
}

impl Gate {
    pub(super) fn open() -> io::Result<Self> {
        let name = uuid::Uuid::new_v4().to_string();
        let listener = StdListener::bind_addr(&address(&name)?)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener: UnixListener::from_std(listener)?, name })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Waits for a process that is expected; others find the door shut.
    pub(super) async fn admit(&self, is_expected: impl Fn(Pid) -> bool) -> io::Result<(Link, Pid)> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            let peer = stream.peer_cred()?;
            let pid = peer.pid().and_then(Pid::from_raw).filter(|pid| is_expected(*pid));
            if let Some(pid) = pid
                && peer.uid() == geteuid().as_raw()
            {
                return Ok((Link::new(stream), pid));
            }
        }
    }
}

/// Not a file: there is nothing to remove, and no length to exceed.
fn address(gate: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("highgate-{gate}"))
}

pub(super) struct Link {
    lines: Lines<BufReader<OwnedReadHalf>>,
    writer: OwnedWriteHalf,
}

impl Link {
    fn new(stream: UnixStream) -> Self {
        let (reader, writer) = stream.into_split();
        Self { lines: BufReader::new(reader).lines(), writer }
    }

    /// Knocks at the gate of a run.
    pub(super) fn knock(gate: &str) -> io::Result<Self> {
        let stream = StdStream::connect_addr(&address(gate)?)?;
        stream.set_nonblocking(true)?;
        Ok(Self::new(UnixStream::from_std(stream)?))
    }

    /// What the other side says next; nothing when it is gone, or says what it never would. Dropped halfway, it
    /// loses nothing.
    pub(super) async fn hear<T: FromStr>(&mut self) -> Option<T> {
        self.lines.next_line().await.ok().flatten()?.parse().ok()
    }

    /// Whoever does not read is as good as gone.
    pub(super) fn tell(&self, said: &impl Display) -> io::Result<()> {
        let line = format!("{said}\n");
        // Shorter than what a socket takes at once, so it is written whole or not at all.
        match write(self.writer.as_ref(), line.as_bytes())? {
            written if written == line.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }
}
