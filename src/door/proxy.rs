//! The PROXY header in front of a connection, by which a load balancer says whose it is.
//! <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>
//!
//! What must stay true: exactly the header is taken from the socket, so that whatever follows, TLS or HTTP, is read by who
//! reads it; a connection has one header, in full and in time, or is not served at all.

pub mod header;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::config::Proxies;
use header::{Header, Malformed, Named};

/// How much is looked at in one go: more than most headers have.
const GLANCE: usize = 256;

/// Why a connection is not served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotIntroduced {
    #[error("it does not come from an address that may send PROXY headers")]
    Stranger,
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("its PROXY header did not come in time")]
    Late,
    #[error("it ended within its PROXY header")]
    Broken(#[source] io::Error),
}

/// Whose connection it is: its client's address, or its own where the load balancer speaks for itself.
pub(crate) async fn introduce(
    proxies: &Proxies,
    stream: &mut TcpStream,
    peer: SocketAddr,
    limit: Duration,
) -> Result<SocketAddr, NotIntroduced> {
    if !proxies.include(peer.ip()) {
        return Err(NotIntroduced::Stranger);
    }
    let named = timeout(limit, read(stream)).await.map_err(|_| NotIntroduced::Late)??;
    Ok(match named {
        Named::Client(client) => SocketAddr::new(client.ip().to_canonical(), client.port()),
        Named::Nobody => peer,
    })
}

async fn read(stream: &mut TcpStream) -> Result<Named, NotIntroduced> {
    let mut header = Header::default();
    let mut glance = [0; GLANCE];
    loop {
        let seen = stream.peek(&mut glance).await.map_err(NotIntroduced::Broken)?;
        if seen == 0 {
            return Err(NotIntroduced::Broken(io::ErrorKind::UnexpectedEof.into()));
        }
        let (taken, named) = header.follow(&glance[..seen])?;
        // What was seen is there: this does not wait.
        stream.read_exact(&mut glance[..taken]).await.map_err(NotIntroduced::Broken)?;
        if let Some(named) = named {
            return Ok(named);
        }
    }
}
