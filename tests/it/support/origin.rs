//! The upstream: a server over raw TCP that answers as it is told and records every byte it is sent.

use std::collections::HashSet;
use std::io::{self, ErrorKind, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use super::log::{Log, Request, What};
use super::reply::{Ending, Reply, reply};
use super::wire::Wire;

/// How much of a request's body is kept.
const KEPT: usize = 1024 * 1024;

type Answers = dyn Fn(&Request) -> Reply + Send + Sync;

/// An origin that is about to start: `origin().answering(|request| …).start()`.
pub(crate) struct Builder {
    answers: Arc<Answers>,
}

/// A running origin. Dereferences to its log.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    log: Log,
    answers: Arc<Answers>,
    released: Mutex<HashSet<&'static str>>,
    released_more: Condvar,
}

/// An origin that answers everything with 200 and `ok`, unless told otherwise.
pub(crate) fn origin() -> Builder {
    Builder { answers: Arc::new(|_| reply(200).body("ok")) }
}

impl Builder {
    pub(crate) fn answering(self, answers: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self { answers: Arc::new(answers) }
    }

    /// These answers one after the other, then 200 and `ok`.
    pub(crate) fn answering_in_turn(self, replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies = Mutex::new(replies.into_iter().collect::<std::collections::VecDeque<_>>());
        let next = move || replies.lock().expect("no answer panics").pop_front();
        self.answering(move |_| next().unwrap_or_else(|| reply(200).body("ok")))
    }

    pub(crate) fn start(self) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let shared = Arc::new(Shared {
            log: Log::default(),
            answers: self.answers,
            released: Mutex::default(),
            released_more: Condvar::new(),
        });
        let origin = Origin { address, shared: shared.clone() };
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared.clone();
                thread::spawn(move || Connection::new(stream, shared).serve());
            }
        });
        origin
    }
}

impl Origin {
    /// Lets go on what is held under this name, now and later.
    pub(crate) fn release(&self, name: &'static str) {
        self.shared.released.lock().expect("no holder panics").insert(name);
        self.shared.released_more.notify_all();
    }

    /// Waits until so many requests have come, at least their heads.
    pub(crate) fn receives(&self, count: usize) {
        self.wait(&format!("{count} requests"), |seen| seen.count(What::Head) >= count);
    }

    /// Waits until a request of this token has come.
    pub(crate) fn receives_token(&self, token: u64) {
        self.wait(&format!("token {token}"), |seen| !seen.with_token(token).is_empty());
    }

    /// The heads received so far.
    pub(crate) fn count(&self) -> usize {
        self.seen().count(What::Head)
    }

    pub(crate) fn has_token(&self, token: u64) -> bool {
        !self.seen().with_token(token).is_empty()
    }

    /// The only request that has come.
    pub(crate) fn only_request(&self) -> Request {
        let seen = self.seen();
        assert_eq!(seen.requests.len(), 1, "requests received");
        seen.requests[0].clone()
    }

    /// Nothing came, not even a byte.
    pub(crate) fn received_nothing(&self) -> bool {
        let seen = self.seen();
        seen.count(What::FirstByte) + seen.count(What::Garbage) == 0
    }
}

impl Deref for Origin {
    type Target = Log;

    fn deref(&self) -> &Log {
        &self.shared.log
    }
}

struct Connection {
    wire: Wire,
    shared: Arc<Shared>,
}

impl Connection {
    fn new(stream: TcpStream, shared: Arc<Shared>) -> Self {
        shared.log.write(|seen| seen.connections += 1);
        Self { wire: Wire::new(stream), shared }
    }

    fn serve(mut self) {
        let mut request = None;
        let end = loop {
            match self.serve_one(&mut request) {
                Ok(true) => request = None,
                Ok(false) => return,
                Err(error) => break error,
            }
        };
        let what = match end.kind() {
            ErrorKind::UnexpectedEof => What::Closed,
            ErrorKind::InvalidData => What::Garbage,
            _ => What::Reset,
        };
        self.shared.log.write(|seen| seen.note(request, what));
    }

    /// False once this side has ended the connection.
    fn serve_one(&mut self, slot: &mut Option<usize>) -> io::Result<bool> {
        if self.wire.buffer.is_empty() && !self.wire.fill()? {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let request = self.shared.log.write(|seen| {
            seen.requests.push(Request::default());
            let request = seen.requests.len() - 1;
            seen.note(Some(request), What::FirstByte);
            request
        });
        *slot = Some(request);
        let head = self.wire.head()?.ok_or(ErrorKind::UnexpectedEof)?;
        let received = self.shared.log.write(|seen| {
            seen.requests[request].head = head;
            seen.note(Some(request), What::Head);
            seen.requests[request].clone()
        });
        let reply = (self.shared.answers)(&received);
        self.answer(request, &received, reply)
    }

    fn answer(&mut self, request: usize, received: &Request, reply: Reply) -> io::Result<bool> {
        if reply.reads_body {
            self.read_body(request, received)?;
        }
        self.pause(reply.delay)?;
        if reply.ending == Ending::Silence {
            self.wait_until(|_| false)?;
        }
        self.hold(reply.held)?;
        self.respond(request, &reply)?;
        match reply.ending {
            Ending::KeepAlive => Ok(true),
            Ending::Close if !reply.reads_body => self.close_gently(),
            Ending::Close | Ending::CutShort | Ending::Silence => Ok(false),
            Ending::Reset => {
                socket2::SockRef::from(&self.wire.stream).set_linger(Some(Duration::ZERO))?;
                Ok(false)
            }
        }
    }

    /// Closes so that the answer arrives: with bytes unread, a plain close would be a reset, which may overtake it.
    fn close_gently(&mut self) -> io::Result<bool> {
        self.wire.stream.shutdown(Shutdown::Write)?;
        io::copy(&mut &self.wire.stream, &mut io::sink())?;
        Ok(false)
    }

    fn read_body(&mut self, request: usize, received: &Request) -> io::Result<()> {
        let log = &self.shared.log;
        let mut keep = |piece: &[u8]| {
            log.write(|seen| {
                let request = &mut seen.requests[request];
                request.received += piece.len() as u64;
                let room = KEPT.saturating_sub(request.body.len()).min(piece.len());
                request.body.extend_from_slice(&piece[..room]);
            });
        };
        let mut trailers = Vec::new();
        if received.head.is_chunked() {
            trailers = self.wire.chunked(&mut keep)?;
        } else if let Some(length) = received.head.length() {
            self.wire.exactly(length, &mut keep)?;
        }
        log.write(|seen| {
            seen.requests[request].trailers = trailers;
            seen.note(Some(request), What::Complete);
        });
        Ok(())
    }

    fn respond(&mut self, request: usize, reply: &Reply) -> io::Result<()> {
        let (first, rest) = reply.body.split_at(reply.body.len() / 2);
        let parts = [reply.head(), first.to_vec()].concat();
        self.note(request, What::Started);
        if reply.held_in_body.is_some() || reply.streamed > 0 {
            self.wire.send(&parts)?;
            self.hold(reply.held_in_body)?;
            self.stream(request, reply.streamed)?;
        }
        if reply.is_complete() {
            self.note(request, What::Ended);
        }
        let apart = reply.held_in_body.is_some() || reply.streamed > 0;
        let last = if apart { rest.to_vec() } else { [parts, rest.to_vec()].concat() };
        self.wire.send(&last)
    }

    fn stream(&mut self, request: usize, mut left: u64) -> io::Result<()> {
        let block = vec![b'.'; 64 * 1024];
        while left > 0 {
            let most = block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let count = self.wire.stream.write(&block[..most])?;
            left -= count as u64;
            self.shared.log.write(|seen| seen.requests[request].sent += count as u64);
        }
        Ok(())
    }

    fn note(&self, request: usize, what: What) {
        self.shared.log.write(|seen| seen.note(Some(request), what));
    }

    fn pause(&self, delay: Duration) -> io::Result<()> {
        let end = std::time::Instant::now() + delay;
        if delay.is_zero() { Ok(()) } else { self.wait_until(|_| std::time::Instant::now() >= end) }
    }

    fn hold(&self, name: Option<&'static str>) -> io::Result<()> {
        name.map_or(Ok(()), |name| self.wait_until(|released| released.contains(name)))
    }

    /// Waits, and notices meanwhile if the gateway ends the connection.
    fn wait_until(&self, done: impl Fn(&HashSet<&'static str>) -> bool) -> io::Result<()> {
        let poll = Duration::from_millis(5);
        let mut released = self.shared.released.lock().expect("no holder panics");
        while !done(&released) {
            self.check_open()?;
            (released, _) = self.shared.released_more.wait_timeout(released, poll).expect("no holder panics");
        }
        Ok(())
    }

    fn check_open(&self) -> io::Result<()> {
        self.wire.stream.set_nonblocking(true)?;
        let peeked = self.wire.stream.peek(&mut [0]);
        self.wire.stream.set_nonblocking(false)?;
        match peeked {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}
