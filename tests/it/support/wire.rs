//! One side of an HTTP/1.1 connection, byte by byte: what `client` and `origin` read with.
//!
//! Deliberately simple and strict: it reads what a well-behaved peer sends and reports everything else as an
//! error, so that nothing odd that the gateway lets through is repaired here.

use std::io::{self, Read, Write};
use std::net::TcpStream;

/// A start line and its headers, with the bytes that they were.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    pub(crate) start: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) raw: Vec<u8>,
}

/// A connection and what has been read from it too early.
pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    pub(crate) buffer: Vec<u8>,
    /// Every byte that was ever read, if somebody wants to know.
    pub(crate) all: Option<Vec<u8>>,
}

impl Head {
    pub(crate) fn parse(raw: Vec<u8>) -> io::Result<Self> {
        let text = String::from_utf8_lossy(&raw).into_owned();
        let mut lines =
            text.strip_suffix("\r\n\r\n").ok_or_else(|| bad("a head without its end"))?.split("\r\n");
        let start = lines.next().unwrap_or_default().to_owned();
        let headers = lines.map(header).collect::<io::Result<_>>()?;
        Ok(Self { start, headers, raw })
    }

    /// The only header of this name, if there is one.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let all = self.all(name);
        assert!(all.len() <= 1, "{name} more than once: {all:?}");
        all.first().copied()
    }

    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let same = self.headers.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
        same.map(|(_, value)| value.as_str()).collect()
    }

    pub(crate) fn is_chunked(&self) -> bool {
        self.all("transfer-encoding") == ["chunked"]
    }

    pub(crate) fn length(&self) -> Option<usize> {
        self.get("content-length").map(|length| length.parse().expect("a decimal Content-Length"))
    }
}

fn header(line: &str) -> io::Result<(String, String)> {
    let (name, value) = line.split_once(':').ok_or_else(|| bad(line))?;
    if name.is_empty() || name.contains([' ', '\t']) || line.contains(['\r', '\n', '\0']) {
        return Err(bad(line));
    }
    Ok((name.to_owned(), value.trim().to_owned()))
}

pub(crate) fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("a connected socket takes TCP_NODELAY");
        Self { stream, buffer: Vec::new(), all: None }
    }

    /// One that keeps every byte.
    pub(crate) fn recording(stream: TcpStream) -> Self {
        Self { all: Some(Vec::new()), ..Self::new(stream) }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Reads some more; false at the end of the stream.
    pub(crate) fn fill(&mut self) -> io::Result<bool> {
        let mut chunk = [0; 64 * 1024];
        let count = loop {
            match self.stream.read(&mut chunk) {
                // The process was stopped meanwhile, and goes on.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.buffer.extend_from_slice(&chunk[..count]);
        if let Some(all) = &mut self.all {
            all.extend_from_slice(&chunk[..count]);
        }
        Ok(count > 0)
    }

    /// The next head, or nothing if the stream ends before its first byte.
    pub(crate) fn head(&mut self) -> io::Result<Option<Head>> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let raw = self.buffer.drain(..end + 4).collect();
                return Head::parse(raw).map(Some);
            }
            if !self.fill()? {
                return if self.buffer.is_empty() {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
        }
    }

    /// Reads `length` bytes and hands them over piece by piece.
    pub(crate) fn exactly(&mut self, mut length: usize, piece: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        while length > 0 {
            if self.buffer.is_empty() && !self.fill()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let count = length.min(self.buffer.len());
            piece(&self.buffer[..count]);
            self.buffer.drain(..count);
            length -= count;
        }
        Ok(())
    }

    /// Reads a chunked body and returns its trailers.
    pub(crate) fn chunked(&mut self, piece: &mut dyn FnMut(&[u8])) -> io::Result<Vec<(String, String)>> {
        loop {
            let line = self.line()?;
            let size = usize::from_str_radix(&line, 16).map_err(|_| bad(&line))?;
            if size == 0 {
                break;
            }
            self.exactly(size, piece)?;
            if !self.line()?.is_empty() {
                return Err(bad("a chunk without its end"));
            }
        }
        let mut trailers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(trailers);
            }
            trailers.push(header(&line)?);
        }
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..end + 2).collect();
                return String::from_utf8(line[..end].to_vec()).map_err(|_| bad("a line that is not text"));
            }
            if !self.fill()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
