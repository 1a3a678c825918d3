//! A second, stricter pair of eyes on HTTP/1 framing, between the socket and hyper.
//!
//! hyper resolves `Content-Length` together with `Transfer-Encoding` silently, as the RFC allows. A request that
//! two parsers could cut in two ways has no place in front of a fence, so this reader follows the framing
//! on its own. What must stay true: hyper sees a head only whole, and only after it was found to have one reading. In the
//! place of any other head it sees a [stand-in](head::STAND_IN), which the gate refuses with the reason; nothing after that
//! is read as a request. What follows a request that offers another protocol is read by nobody before that is answered. A sloppy chunked body ends the connection. How the bytes are cut into reads makes no difference.

mod chunk;
mod head;
mod strict;
#[cfg(test)]
mod tests;

use crate::config::HeadLimits;
use chunk::Chunks;
use head::judge;
pub(crate) use head::{Unreadable, too_large};
pub(super) use strict::Strict;

/// Where in the sequence of requests the next byte belongs.
#[derive(Debug)]
enum State {
    Head,
    Body {
        left: u64,
    },
    Chunked(Chunks),
    /// After a request that offers another protocol: what follows may not be HTTP.
    Offered,
    /// The framing is lost: nothing after this is read as a request.
    Lost,
}

/// What becomes of the bytes that do not go on to hyper.
#[derive(Debug, PartialEq, Eq)]
enum Rest {
    /// There are none.
    Nothing,
    /// They are the beginning of a head, or nobody knows yet what they are, and are to be shown again later.
    Held,
    /// They begin with a head that has no reading.
    Unreadable(Unreadable),
    /// They are no part of the chunked body that was begun.
    BadChunk,
    /// Nobody looks at them.
    Dropped,
}

#[derive(Debug)]
struct Framing {
    limits: HeadLimits,
    state: State,
    /// Heads that went on to hyper.
    heads: u64,
    /// How much of a held head was searched for its end.
    searched: usize,
    /// Some head has offered another protocol.
    offers: bool,
}

impl Framing {
    fn new(limits: HeadLimits) -> Self {
        Self { limits, state: State::Head, heads: 0, searched: 0, offers: false }
    }

    /// Follows bytes that hyper has not seen. How many of them may go on, and what the others are.
    fn follow(&mut self, bytes: &[u8]) -> (usize, Rest) {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            match &mut self.state {
                State::Lost => return (at, Rest::Dropped),
                State::Offered => return (at, Rest::Held),
                State::Head => match self.head(rest) {
                    Ok(Some(end)) => at += end,
                    Ok(None) => return (at, Rest::Held),
                    Err(why) => {
                        self.state = State::Lost;
                        return (at, Rest::Unreadable(why));
                    }
                },
                State::Body { left } => {
                    let taken = rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= taken as u64;
                    at += taken;
                    if *left == 0 {
                        self.state = State::Head;
                    }
                }
                State::Chunked(chunks) => {
                    at += chunks.follow(rest);
                    if chunks.have_ended() {
                        self.state = State::Head;
                    } else if at < bytes.len() {
                        self.state = State::Lost;
                        return (at, Rest::BadChunk);
                    }
                }
            }
        }
        (at, Rest::Nothing)
    }

    /// The end of the head that begins here, if it is whole.
    fn head(&mut self, bytes: &[u8]) -> Result<Option<usize>, Unreadable> {
        // Empty lines before a request line are skipped by everybody.
        let skipped = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(bytes.len());
        // The end may straddle what was searched and what has come since.
        let from = skipped.max(self.searched.saturating_sub(3));
        match end_of_head(bytes, from) {
            Some(end) if end <= self.limits.bytes => {
                self.searched = 0;
                let head = judge(&bytes[..end], self.limits)?;
                self.offers |= head.offers;
                self.state = head.followed_by;
                self.heads += 1;
                Ok(Some(end))
            }
            None if bytes.len() <= self.limits.bytes => {
                self.searched = bytes.len();
                Ok(None)
            }
            _ => Err(Unreadable::too_long(bytes, self.limits.bytes)),
        }
    }

    /// Whether the last request has come to its end.
    fn is_between_requests(&self) -> bool {
        matches!(self.state, State::Head | State::Offered)
    }

    /// Whether what follows the last request may not be HTTP.
    fn is_open(&self) -> bool {
        matches!(self.state, State::Offered)
    }

    /// It is.
    fn go_on(&mut self) {
        self.state = State::Head;
    }
}

/// The position after the empty line that ends a head; `from` is where it can begin at the earliest.
fn end_of_head(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(offset) = bytes[at..].iter().position(|byte| *byte == b'\n') {
        at += offset + 1;
        match &bytes[at..] {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
    None
}
