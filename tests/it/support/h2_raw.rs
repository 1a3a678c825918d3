//! An HTTP/2 client that sends frames as they are told, right or wrong, and need not read.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::PATIENCE;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// The fields of `GET /` and of `POST /` with token 7, as HPACK.
pub(crate) const GET: &[u8] = b"\x82\x86\x84\x41\x01a";
pub(crate) const POST_7: &[u8] = b"\x83\x86\x84\x41\x01a\0\x0fx-fencing-token\x017";

/// How sending without end has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flooded {
    /// The gateway has closed the connection.
    Closed,
    /// The gateway reads no more.
    Stalled,
    /// Everything went through.
    Through,
}

pub(crate) struct RawH2 {
    stream: TcpStream,
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame of a sensible size").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

impl RawH2 {
    /// Greets, and acknowledges nothing.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the gateway listens");
        stream.set_write_timeout(Some(Duration::from_millis(500))).expect("a time-out above zero");
        let mut raw = Self { stream };
        assert!(raw.send(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()), "the greeting is taken");
        raw
    }

    /// False: the connection is closed, or nobody reads.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Sends what `batch` makes of numbers from 0 on, so many times or for so long, without reading.
    pub(crate) fn flood(&mut self, times: u32, time: Duration, batch: impl Fn(u32) -> Vec<u8>) -> Flooded {
        let begun = Instant::now();
        for number in 0..times {
            match self.stream.write_all(&batch(number)) {
                Ok(()) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Flooded::Stalled;
                }
                Err(_) => return Flooded::Closed,
            }
            if begun.elapsed() >= time {
                break;
            }
        }
        Flooded::Through
    }

    /// Reads what has come and comes, until the connection ends or a frame of this kind is there. None: it ended.
    pub(crate) fn wait_for(&mut self, kind: u8) -> Option<Vec<u8>> {
        self.kinds_until(kind).map(|(_, payload)| payload)
    }

    /// The same, with the kinds of all frames that came until then.
    pub(crate) fn kinds_until(&mut self, kind: u8) -> Option<(Vec<u8>, Vec<u8>)> {
        let mut kinds = Vec::new();
        self.stream.set_read_timeout(Some(PATIENCE)).expect("a time-out above zero");
        loop {
            let mut head = [0; 9];
            let mut read = |bytes: &mut [u8]| match self.stream.read_exact(bytes) {
                Ok(()) => true,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    panic!("no frame of kind {kind} for {PATIENCE:?}")
                }
                Err(_) => false,
            };
            if !read(&mut head) {
                return None;
            }
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; usize::try_from(length).expect("32 bits")];
            if !read(&mut payload) {
                return None;
            }
            kinds.push(head[3]);
            if head[3] == kind {
                return Some((kinds, payload));
            }
        }
    }

    /// Why the gateway says that it ends the connection. None: it just does.
    pub(crate) fn last_words(&mut self) -> Option<u32> {
        let code = *self.wait_for(GOAWAY)?.get(4..)?.first_chunk()?;
        Some(u32::from_be_bytes(code))
    }
}
