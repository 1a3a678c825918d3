//! Clients of the gateway over raw TCP: exact bytes out, strict reading in.

use std::io::{self, ErrorKind, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::wire::{Head, Wire};
use super::{A_WHILE, PATIENCE};

/// A request: `post("/a").token(7).body("x")`.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    chunked: bool,
}

/// An answer, as far as it came.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
    /// False if the connection or stream broke before the end.
    pub(crate) complete: bool,
}

/// A request under way in a thread of its own.
pub(crate) struct Pending(JoinHandle<Response>);

/// A connection to the gateway.
pub(crate) struct Client {
    wire: Wire,
}

pub(crate) fn ask(method: &str, path: &str) -> Ask {
    let headers = vec![("Host".to_owned(), "ledger.test".to_owned())];
    Ask { method: method.to_owned(), path: path.to_owned(), headers, body: Vec::new(), chunked: false }
}

pub(crate) fn get(path: &str) -> Ask {
    ask("GET", path)
}

pub(crate) fn post(path: &str) -> Ask {
    ask("POST", path)
}

pub(crate) fn put(path: &str) -> Ask {
    ask("PUT", path)
}

pub(crate) fn delete(path: &str) -> Ask {
    ask("DELETE", path)
}

impl Ask {
    pub(crate) fn token(self, token: u64) -> Self {
        self.header("X-Fencing-Token", &token.to_string())
    }

    pub(crate) fn resource(self, name: &str) -> Self {
        self.header("X-Fencing-Resource", name)
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Another host than the usual one.
    pub(crate) fn host(mut self, host: &str) -> Self {
        self.headers[0].1 = host.to_owned();
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn chunked(mut self) -> Self {
        self.chunked = true;
        self
    }

    /// The start line and headers, framing included, with the empty line.
    pub(crate) fn head(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if self.chunked {
            head.push_str("Transfer-Encoding: chunked\r\n");
        } else if !self.body.is_empty() || matches!(self.method.as_str(), "POST" | "PUT") {
            head.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        (head + "\r\n").into_bytes()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head();
        if self.chunked {
            if !self.body.is_empty() {
                bytes.extend(chunk(&self.body));
            }
            bytes.extend(b"0\r\n\r\n");
        } else {
            bytes.extend(&self.body);
        }
        bytes
    }
}

/// One chunk of a chunked body.
fn chunk(data: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat()
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.get(name)
    }

    pub(crate) fn reason(&self) -> Option<&str> {
        self.header("x-fencing-reason")
    }

    pub(crate) fn outcome(&self) -> Option<&str> {
        self.header("x-fencing-outcome")
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("a body of text")
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {:?}", self.body))
    }

    /// The answer is this refusal, whole, as problem+json, with the reason given twice and alike.
    pub(crate) fn is_refused(&self, status: u16, reason: &str) {
        assert_eq!((self.status, self.reason()), (status, Some(reason)), "{self:?}");
        assert!(self.complete, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], status, "{problem}");
        assert_eq!(problem["reason"], reason, "{problem}");
        for text in ["type", "title", "detail"] {
            assert!(problem[text].is_string(), "{text} in {problem}");
        }
    }

    pub(crate) fn is_ok(&self) -> &Self {
        assert_eq!((self.status, self.reason(), self.complete), (200, None, true), "{self:?}");
        self
    }
}

impl Pending {
    pub(crate) fn new(work: impl FnOnce() -> Response + Send + 'static) -> Self {
        Self(thread::spawn(work))
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.0.is_finished()
    }

    pub(crate) fn answer(self) -> Response {
        self.0.join().expect("an answer")
    }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the gateway listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out above zero");
        stream.set_write_timeout(Some(PATIENCE)).expect("a time-out above zero");
        Self { wire: Wire::new(stream) }
    }

    /// What is sent after the gateway has hung up is lost, and that is nobody's fault.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        match self.wire.send(bytes.as_ref()) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("the gateway takes no more bytes"),
            _ => self,
        }
    }

    pub(crate) fn send_chunk(&mut self, data: impl AsRef<[u8]>) -> &mut Self {
        self.send(chunk(data.as_ref()))
    }

    pub(crate) fn ask(&mut self, ask: &Ask) -> Response {
        self.send(ask.bytes());
        if ask.method == "HEAD" { self.response_without_body() } else { self.response() }
    }

    /// An operator's order for a resource, on a connection to the admin port.
    pub(crate) fn order(&mut self, order: &str, resource: &str) -> Response {
        let body = serde_json::json!({ "resource": resource }).to_string();
        let order = post(&format!("/v1/operator/{order}")).header("Content-Type", "application/json");
        self.ask(&order.header("Connection", "close").body(body))
    }

    /// The next answer. Fails if there is none in time.
    pub(crate) fn response(&mut self) -> Response {
        self.read(true).expect("an answer before the connection ends")
    }

    pub(crate) fn response_without_body(&mut self) -> Response {
        self.read(false).expect("an answer before the connection ends")
    }

    /// The next answer, or nothing if the connection ends instead.
    pub(crate) fn response_if_any(&mut self) -> Option<Response> {
        self.read(true)
    }

    /// The head of the next answer; `body_bytes` reads on from there.
    pub(crate) fn response_head(&mut self) -> Head {
        let head = in_time(self.wire.head()).expect("a readable head");
        head.expect("an answer before the connection ends")
    }

    /// So many bytes of what follows.
    pub(crate) fn body_bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        in_time(self.wire.exactly(count, &mut |piece| bytes.extend(piece))).expect("a body of that length");
        bytes
    }

    /// What is written from now on is nothing.
    pub(crate) fn half_close(&mut self) {
        self.wire.stream.shutdown(Shutdown::Write).expect("a connected socket");
    }

    /// How much of this the gateway takes without anybody reading it.
    pub(crate) fn send_what_is_taken(&mut self, most: usize) -> usize {
        let (block, mut taken) = (vec![b'.'; 64 << 10], 0);
        self.wire.stream.set_write_timeout(Some(A_WHILE)).expect("a time-out above zero");
        while taken < most {
            match self.wire.stream.write(&block) {
                Ok(count) => taken += count,
                Err(_) => break,
            }
        }
        self.wire.stream.set_write_timeout(Some(PATIENCE)).expect("a time-out above zero");
        taken
    }

    /// Reads so many bytes and forgets them.
    pub(crate) fn discard(&mut self, count: usize) {
        in_time(self.wire.exactly(count, &mut |_| ())).expect("a body of that length");
    }

    fn read(&mut self, has_body: bool) -> Option<Response> {
        let head = match in_time(self.wire.head()) {
            Ok(head) => head?,
            Err(error) if error.kind() == ErrorKind::InvalidData => panic!("unreadable answer: {error}"),
            Err(_) => return None,
        };
        let status = head.start.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        if status == 100 {
            return self.read(has_body);
        }
        let mut body = Vec::new();
        let end = if !has_body || matches!(status, 204 | 304) {
            Ok(Vec::new())
        } else {
            in_time(self.read_body(&head, &mut body))
        };
        let complete = end.is_ok();
        Some(Response { status, head, body, trailers: end.unwrap_or_default(), complete })
    }

    fn read_body(&mut self, head: &Head, body: &mut Vec<u8>) -> io::Result<Vec<(String, String)>> {
        let mut keep = |piece: &[u8]| body.extend(piece);
        if head.is_chunked() {
            return self.wire.chunked(&mut keep);
        }
        match head.length() {
            Some(length) => self.wire.exactly(length, &mut keep)?,
            None => {
                while self.wire.fill()? {}
                keep(&std::mem::take(&mut self.wire.buffer));
            }
        }
        Ok(Vec::new())
    }

    /// Whether the gateway ends the connection in this time, without another byte.
    pub(crate) fn is_closed_within(&mut self, time: Duration) -> bool {
        let ended = self.ends_within(time);
        assert!(self.wire.buffer.is_empty(), "unexpected: {}", String::from_utf8_lossy(&self.wire.buffer));
        ended
    }

    /// Whether the gateway ends the connection in this time, whatever it says before.
    pub(crate) fn ends_within(&mut self, time: Duration) -> bool {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            self.wire.stream.set_read_timeout(Some(left)).expect("a time-out above zero");
            let filled = self.wire.fill();
            self.wire.stream.set_read_timeout(Some(PATIENCE)).expect("a time-out above zero");
            match filled {
                Ok(true) => {}
                Ok(false) => return true,
                Err(error) => return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            }
        }
    }
}

/// A time-out is a hang, which no test expects.
fn in_time<T>(result: io::Result<T>) -> io::Result<T> {
    match result {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            panic!("nothing more from the gateway for {PATIENCE:?}")
        }
        result => result,
    }
}
