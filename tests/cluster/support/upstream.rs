//! The upstream: takes writes, lets each take effect when its time has come, and records all of it.
//!
//! Headers say how long a write takes: `X-Delay-Ms` until its effect, `X-Held` until the test releases that name. A
//! delayed write goes on although its connection was cut, for not quite the lock-delay: that is the worst that
//! assumption A4 allows. A held one is given up at the cut, since nobody could say when its effect would come.
//! Others ask for what upstreams do now and then: `X-Head-First` has the head of the answer long before its end,
//! `X-Breaks-Off` a connection reset after the effect instead of an answer, `X-Given-Up` the 504 of a load balancer at
//! once, after which the write goes on as it does after a cut, `X-Slow-Read-Ms` a body that is read bit by
//! bit and takes effect with its last byte, which only comes if the gateway's kernel still sends it.
//! A gateway that is stopped cuts too late: a test that stops one says so here, and that counts as the cut.

use std::collections::{HashMap, HashSet};
use std::io::{self, ErrorKind, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::front::{Front, Speech};
use super::record::{Cut, Entry, Record};
use super::wire::{Head, Wire};

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n";
const BODY: &[u8] = b"ok";
const TIMED_OUT: &[u8] = b"HTTP/1.1 504 Gateway Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
/// What the kernel takes at once for an upstream that reads slowly, about.
const NARROW: usize = 8 << 10;
/// How much is read at once by it.
const BIT: usize = 4 << 10;

/// How much of the lock-delay is left unused: the cut is seen here later than it was made, and a busy machine
/// makes it later than it was due.
fn margin(lock_delay: Duration) -> Duration {
    Duration::from_millis(100).max(lock_delay / 4)
}

pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    record: Record,
    /// How long after a cut an effect may still come.
    grace: Duration,
    released: Mutex<HashSet<String>>,
    /// When each gateway was last stopped, and whether it still is.
    stops: Mutex<HashMap<String, (Instant, bool)>>,
}

impl Upstream {
    /// `narrow`: its kernel takes little that it has not read.
    pub(crate) fn start(lock_delay: Duration, narrow: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        if narrow {
            let socket = socket2::SockRef::from(&listener);
            socket.set_recv_buffer_size(NARROW).expect("a socket takes its size");
        }
        let address = listener.local_addr().expect("a bound listener has an address");
        let grace = lock_delay.saturating_sub(margin(lock_delay));
        let (released, stops) = (Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { record: Record::default(), grace, released, stops });
        let upstream = Self { address, shared: shared.clone() };
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared.clone();
                thread::spawn(move || Connection { wire: Wire::new(stream), shared }.serve());
            }
        });
        upstream
    }

    /// What gateways speak to instead, if they are to speak something else.
    pub(crate) fn speaking(&self, speech: Speech, narrow: bool, folder: &Path) -> Option<Front> {
        let other = speech != Speech::default();
        other.then(|| Front::start(self.address, speech, narrow.then_some(NARROW), folder))
    }

    pub(crate) fn record(&self) -> &Record {
        &self.shared.record
    }

    /// This gateway is about to be stopped (SIGSTOP).
    pub(crate) fn stops(&self, gateway: &str) {
        self.shared.stops().insert(gateway.to_owned(), (Instant::now(), true));
    }

    /// It goes on.
    pub(crate) fn resumes(&self, gateway: &str) {
        self.shared.stops().entry(gateway.to_owned()).and_modify(|(_, stopped)| *stopped = false);
    }

    /// Lets go on what is held under this name, now and later.
    pub(crate) fn release(&self, name: &str) {
        self.shared.released().insert(name.to_owned());
    }
}

impl Shared {
    fn released(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.released.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stops(&self) -> std::sync::MutexGuard<'_, HashMap<String, (Instant, bool)>> {
        self.stops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an effect now would be one that A4 rules out: the write is on its own since the cut, or since a stop
    /// of its gateway, after which the cut comes too late.
    fn is_too_late(&self, entry: &Entry) -> bool {
        let cut = entry.cut.map(|(time, _)| time);
        let alone_since = match (cut, self.stops().get(&entry.gateway)) {
            (Some(cut), Some((since, _))) if *since >= entry.received => Some(cut.min(*since)),
            (None, Some((since, true))) => Some(*since),
            (cut, _) => cut,
        };
        alone_since.is_some_and(|since| since.elapsed() >= self.grace)
    }
}

struct Connection {
    wire: Wire,
    shared: Arc<Shared>,
}

/// When a write takes effect.
enum Due {
    At(Instant),
    Released(String),
}

impl Connection {
    /// Until the gateway ends the connection, which it may at any time.
    fn serve(mut self) {
        while let Ok(true) = self.serve_one() {}
    }

    /// False once the connection has ended.
    fn serve_one(&mut self) -> io::Result<bool> {
        if self.wire.buffer.is_empty() && !self.wire.fill()? {
            return Ok(false);
        }
        let received = Instant::now();
        let head = self.wire.head()?.ok_or(ErrorKind::UnexpectedEof)?;
        let mut entry = entry(&head, received);
        let number = self.shared.record.write(|entries| {
            entries.push(entry.clone());
            entries.len() - 1
        });
        if let Err(error) = self.reads(number, &head) {
            let how = if error.kind() == ErrorKind::UnexpectedEof { Cut::Closed } else { Cut::Reset };
            self.note(number, |entry| entry.cut = Some((Instant::now(), how)));
            return Err(error);
        }
        let head_first = head.get("x-head-first").is_some();
        if head_first {
            self.wire.send(HEAD)?;
        }
        if head.get("x-given-up").is_some() {
            // Noted before it is said, so that the time which is left for the effect is never too long.
            entry.cut = Some((Instant::now(), Cut::GivenUp));
            self.note(number, |noted| noted.cut = entry.cut);
            self.wire.send(TIMED_OUT)?;
        }
        if !self.waits(number, entry, &due(&head, received)) || !self.takes_effect(number) {
            return Ok(false);
        }
        if head.get("x-breaks-off").is_some() {
            // The other side hears of a reset, not of an end.
            socket2::SockRef::from(&self.wire.stream).set_linger(Some(Duration::ZERO))?;
            return Ok(false);
        }
        let rest = if head_first { BODY.to_vec() } else { [HEAD, BODY].concat() };
        self.wire.send(&rest)?;
        Ok(true)
    }

    /// The body, as fast as is asked for.
    fn reads(&mut self, number: usize, head: &Head) -> io::Result<()> {
        let length = head.length().unwrap_or(0);
        let Some(millis) = head.get("x-slow-read-ms") else {
            let record = &self.shared.record;
            let mut count = |piece: &[u8]| record.write(|entries| entries[number].body += piece.len());
            return self.wire.exactly(length, &mut count);
        };
        let time = Duration::from_millis(millis.parse().expect("a number of milliseconds"));
        let pause = time / u32::try_from(length / BIT + 1).expect("a body of some kilobytes");
        let mut left = length.saturating_sub(self.wire.buffer.len());
        self.wire.buffer.clear();
        while left > 0 {
            thread::sleep(pause);
            let mut bit = [0; BIT];
            match self.wire.stream.read(&mut bit[..left.min(BIT)])? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                read => {
                    left -= read;
                    self.note(number, |entry| entry.body = length - left);
                }
            }
        }
        Ok(())
    }

    /// Until the write is due; false if it never will be, because it was on its own for too long.
    fn waits(&self, number: usize, mut entry: Entry, due: &Due) -> bool {
        loop {
            match due {
                Due::At(_) if self.shared.is_too_late(&entry) => return false,
                Due::At(time) if Instant::now() >= *time => return true,
                Due::Released(name) if self.shared.released().contains(name) => return true,
                Due::Released(_) if entry.cut.is_some() => return false,
                Due::At(_) | Due::Released(_) => {}
            }
            if let (None, Some(how)) = (entry.cut, ended(&self.wire.stream)) {
                entry.cut = Some((Instant::now(), how));
                self.note(number, |noted| noted.cut = entry.cut);
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Does what was asked for, unless it has become too late meanwhile; whether there is anybody to answer.
    fn takes_effect(&self, number: usize) -> bool {
        self.note(number, |entry| {
            if self.shared.is_too_late(entry) {
                return false;
            }
            entry.effect = Some(Instant::now());
            entry.responded = entry.cut.is_none().then(Instant::now);
            entry.cut.is_none()
        })
    }

    fn note<R>(&self, number: usize, change: impl FnOnce(&mut Entry) -> R) -> R {
        self.shared.record.write(|entries| change(&mut entries[number]))
    }
}

fn entry(head: &Head, received: Instant) -> Entry {
    let text = |name| head.get(name).unwrap_or_default().to_owned();
    let path = head.start.split(' ').nth(1).unwrap_or_default();
    Entry {
        id: text("x-request"),
        resource: text("x-fencing-resource"),
        token: text("x-fencing-token").parse().expect("what is forwarded has a token"),
        gateway: path.split('/').nth(1).unwrap_or_default().to_owned(),
        received,
        body: 0,
        effect: None,
        responded: None,
        cut: None,
    }
}

fn due(head: &Head, received: Instant) -> Due {
    if let Some(name) = head.get("x-held") {
        return Due::Released(name.to_owned());
    }
    let delay = head.get("x-delay-ms").map_or(0, |delay| delay.parse().expect("a number of milliseconds"));
    Due::At(received + Duration::from_millis(delay))
}

/// How the other side has ended the connection, if it has.
fn ended(stream: &TcpStream) -> Option<Cut> {
    stream.set_nonblocking(true).ok()?;
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false).ok()?;
    match peeked {
        Ok(0) => Some(Cut::Closed),
        Ok(_) => None,
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(_) => Some(Cut::Reset),
    }
}
