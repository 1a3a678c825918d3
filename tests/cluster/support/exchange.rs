//! One request on a connection of its own, for when the other side may be stopped, cut off or gone.
//!
//! `client` takes a hang for a failed test; here it is an answer like any other. What matters is whether the request
//! can have been forwarded: where no connection came about, it cannot.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use super::client::{Ask, Response};
use super::wire::{Head, Wire};

/// Why there is no whole answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Nobody took the connection, so nothing was sent.
    #[error("no connection: {0}")]
    NotSent(io::Error),
    /// It was sent, perhaps not whole, and no whole answer came in time.
    #[error("no whole answer: {0}")]
    Broken(io::Error),
}

pub(crate) fn exchange(address: SocketAddr, ask: &Ask, patience: Duration) -> Result<Response, Failure> {
    exchange_slowly(address, ask, patience, Duration::ZERO)
}

/// The last byte is sent only after so long.
pub(crate) fn exchange_slowly(
    address: SocketAddr,
    ask: &Ask,
    patience: Duration,
    upload: Duration,
) -> Result<Response, Failure> {
    let stream = TcpStream::connect_timeout(&address, patience).map_err(Failure::NotSent)?;
    talk(stream, &ask.bytes(), patience, upload).map_err(Failure::Broken)
}

fn talk(stream: TcpStream, bytes: &[u8], patience: Duration, upload: Duration) -> io::Result<Response> {
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let mut wire = Wire::new(stream);
    let held_back = if upload.is_zero() { 0 } else { 1 };
    let (first, last) = bytes.split_at(bytes.len() - held_back);
    wire.send(first)?;
    thread::sleep(upload);
    wire.send(last)?;
    let head = wire.head()?.ok_or(ErrorKind::UnexpectedEof)?;
    let status = head.start.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or(ErrorKind::InvalidData)?;
    let body = if status == 204 { Vec::new() } else { body(&mut wire, &head)? };
    Ok(Response { status, head, body, trailers: Vec::new(), complete: true })
}

fn body(wire: &mut Wire, head: &Head) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    match (head.is_chunked(), head.length()) {
        (true, _) => drop(wire.chunked(&mut |piece| body.extend(piece))?),
        (false, Some(length)) => wire.exactly(length, &mut |piece| body.extend(piece))?,
        (false, None) => {
            while wire.fill()? {}
            body = std::mem::take(&mut wire.buffer);
        }
    }
    Ok(body)
}
