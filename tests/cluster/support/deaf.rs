//! A relay to etcd that can lose what watches tell, and nothing else.
//!
//! It reads etcd's side of every connection frame by frame (HTTP/2). A data frame that holds a watch's answer with events
//! in it is dropped while the relay is deaf, or one in a few while it is hard of hearing; signs of life and all other
//! answers pass. That is the watch that lives and tells of nothing, or not of everything.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const FRAME_HEAD: usize = 9;
const DATA: u8 = 0;
/// Of a message in gRPC: a flag and its length.
const MESSAGE_HEAD: usize = 5;

pub(crate) struct Deaf {
    pub(crate) port: u16,
    ear: Arc<Ear>,
}

#[derive(Default)]
struct Ear {
    /// One in so many answers with events is lost; 0: none.
    one_in: AtomicUsize,
    heard: AtomicUsize,
}

impl Ear {
    /// Whether this answer with events is lost.
    fn misses(&self) -> bool {
        let one_in = self.one_in.load(Ordering::SeqCst);
        one_in > 0 && self.heard.fetch_add(1, Ordering::SeqCst) % one_in == one_in - 1
    }
}

impl Deaf {
    /// Ends with the process; its connections end with either side.
    pub(crate) fn before(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let ear = Arc::new(Ear::default());
        let its_ear = ear.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                let (to_server, from_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || copy(from_client, to_server));
                let ear = its_ear.clone();
                thread::spawn(move || copy_frames(server, client, &ear));
            }
        });
        Self { port, ear }
    }

    /// Loses one in so many of what watches tell; 0: none.
    pub(crate) fn loses(&self, one_in: usize) {
        self.ear.one_in.store(one_in, Ordering::SeqCst);
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    // Either way this connection is over.
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
}

fn copy_frames(mut from: TcpStream, mut to: TcpStream, ear: &Ear) {
    let mut head = [0; FRAME_HEAD];
    while from.read_exact(&mut head).is_ok() {
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        if from.read_exact(&mut payload).is_err() {
            break;
        }
        let lost = head[3] == DATA && tells_of_changes(&payload) && ear.misses();
        if !lost && to.write_all(&[&head[..], &payload].concat()).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// Whether this is a watch's answer with events: the eleventh field of the message, an event or several.
fn tells_of_changes(payload: &[u8]) -> bool {
    const EVENTS: u64 = 11 << 3 | 2;
    // A kind or a key and value: the version of a database, which a status has there, begins with a digit.
    let is_event = |field: &[u8]| field.first().is_some_and(|tag| [0x08, 0x12].contains(tag));
    let mut rest = payload.get(MESSAGE_HEAD..).unwrap_or_default();
    while let Some(tag) = varint(&mut rest) {
        let Some(value) = varint(&mut rest) else { return false };
        let length = usize::try_from(value).unwrap_or(usize::MAX);
        match tag & 7 {
            0 => {}
            2 if length > rest.len() => return false,
            2 if tag == EVENTS && is_event(&rest[..length]) => return true,
            2 => rest = &rest[length..],
            _ => return false,
        }
    }
    false
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let length = bytes.iter().take(10).position(|byte| byte & 0x80 == 0)? + 1;
    let (number, rest) = bytes.split_at(length);
    *bytes = rest;
    Some(number.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f)))
}
