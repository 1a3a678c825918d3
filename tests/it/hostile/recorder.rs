//! An upstream over raw TCP that keeps every byte of every connection, and reads it strictly.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::support::{Head, Wire};

/// A request as this upstream read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

/// One connection of the gateway's: what it sent, and what that was.
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    pub(super) bytes: Vec<u8>,
    /// So many of them are whole requests.
    pub(super) whole: usize,
    pub(super) requests: Vec<Read>,
    /// The heads of all, whole or not.
    pub(super) heads: Vec<String>,
    /// Something came that is no request, or had fields that no request of the gateway has.
    pub(super) garbage: Option<String>,
}

/// How a request is answered.
type Answers = dyn Fn(&Read) -> Vec<u8> + Send + Sync;

pub(super) struct Recorder {
    pub(super) address: SocketAddr,
    streams: Arc<Mutex<Vec<Stream>>>,
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const OK_WITHOUT_BODY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";

impl Recorder {
    /// One that says `ok` to everything.
    pub(super) fn start() -> Self {
        Self::answering(
            |request| {
                if request.method == "HEAD" { OK_WITHOUT_BODY.to_vec() } else { OK.to_vec() }
            },
        )
    }

    /// One that says exactly this.
    pub(super) fn answering(answers: impl Fn(&Read) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let streams = Arc::new(Mutex::new(Vec::new()));
        let (record, answers): (_, Arc<Answers>) = (streams.clone(), Arc::new(answers));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let number = {
                    let mut streams = record.lock().expect("nobody panics");
                    streams.push(Stream::default());
                    streams.len() - 1
                };
                let (record, answers) = (record.clone(), answers.clone());
                thread::spawn(move || {
                    Connection { wire: Wire::recording(stream), record, number }.serve(&*answers);
                });
            }
        });
        Self { address, streams }
    }

    pub(super) fn streams(&self) -> Vec<Stream> {
        self.streams.lock().expect("nobody panics").clone()
    }

    /// The start lines of all heads, in no order over connections.
    pub(super) fn heads(&self) -> Vec<String> {
        self.streams().into_iter().flat_map(|stream| stream.heads).collect()
    }
}

struct Connection {
    wire: Wire,
    record: Arc<Mutex<Vec<Stream>>>,
    number: usize,
}

impl Connection {
    fn serve(mut self, answers: &Answers) {
        while let Some(again) = self.serve_one(answers).unwrap_or_else(|error| {
            if error.kind() == ErrorKind::InvalidData {
                self.note(|stream| stream.garbage = Some(error.to_string()));
            }
            None
        }) {
            if !again {
                return;
            }
        }
    }

    /// Nothing at the end of the stream; false if this side ends it.
    fn serve_one(&mut self, answers: &Answers) -> io::Result<Option<bool>> {
        let Some(head) = self.wire.head()? else { return Ok(None) };
        self.note(|stream| stream.heads.push(head.start.clone()));
        let mut body = Vec::new();
        let mut keep = |piece: &[u8]| body.extend(piece);
        let mut trailers = Vec::new();
        if head.is_chunked() {
            trailers = self.wire.chunked(&mut keep)?;
        } else if let Some(length) = head.length() {
            self.wire.exactly(length, &mut keep)?;
        }
        if !trailers.is_empty() {
            self.note(|stream| stream.garbage = Some(format!("trailers {trailers:?}")));
        }
        let read = Read::new(&head, body);
        let left = self.wire.buffer.len();
        self.note(|stream| {
            stream.whole = stream.bytes.len() - left;
            stream.requests.push(read.clone());
        });
        self.wire.send(&answers(&read))?;
        Ok(Some(!head.all("connection").contains(&"close")))
    }

    fn note(&mut self, change: impl FnOnce(&mut Stream)) {
        let stream = &mut self.record.lock().expect("nobody panics")[self.number];
        stream.bytes.clone_from(self.wire.all.as_ref().expect("it records"));
        change(stream);
    }
}

impl Read {
    fn new(head: &Head, body: Vec<u8>) -> Self {
        let mut words = head.start.split(' ').map(str::to_owned);
        let mut word = || words.next().unwrap_or_default();
        Self { method: word(), target: word(), headers: head.headers.clone(), body }
    }
}
