//! A connection after its 101: bytes both ways, in flight for as long as any can come.
//!
//! `accept` polls a tunnel in the place of hyper, once the 101 has left. What must stay true: bytes for the upstream leave
//! through the wire of the flight, which asks before every write, and only while the flight has not ended; and the flight
//! ends in order only with an end that both sides have agreed on: the client's close frame has left whole, and after that
//! the upstream's stream ends, with a close frame of its own. Every other end is unknown: what the upstream does about the
//! bytes that it has got, and about those that are on their way to it, is not to be seen here.

mod pipe;
mod websocket;

use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy, sink};

use super::flight::{FENCED, Flight};
use crate::config::Protocol;
use crate::gate::accept::Busy;
use crate::gate::respond::Story;
use pipe::{Broken, Pipe};
use websocket::Closing;

/// How long a client may take to hear the end.
const GOODBYE: Duration = Duration::from_secs(2);

/// Why a client is told to go, if it is not its own stream.
const LEAVING: &str = "the gateway is leaving";

/// How a WebSocket ends other than in order.
const NO_LAST_WORD: &str = "the upstream ended the WebSocket without a close frame";
const NOT_AGREED_ON: &str = "the upstream ended the WebSocket before it had the client's close frame";

const DROPPED: &str = "the client's connection was dropped";

/// A tunnel before its client's connection has left HTTP.
pub(crate) struct Tunnel {
    flight: Rc<Flight>,
    down: Pipe,
    /// Where the protocol has frames that say when it ends.
    closing: Option<Closing>,
    about: About,
    _busy: Busy,
}

/// What its line in the log says.
struct About {
    protocol: Protocol,
    resource: Option<String>,
    token: Option<u64>,
}

/// A tunnel with both its ends.
pub(crate) struct OpenTunnel<S> {
    client: S,
    up: Pipe,
    tunnel: Box<Tunnel>,
}

impl Tunnel {
    /// `said`: what the upstream has sent with its 101.
    pub(super) fn new(flight: Rc<Flight>, protocol: &Protocol, said: &Bytes, story: &Story) -> Self {
        let mut down = Pipe::default();
        let mut closing = protocol.is_websocket().then(Closing::default);
        sift(&mut closing, said, down.held());
        let about = About {
            protocol: protocol.clone(),
            resource: story.resource.as_ref().map(ToString::to_string),
            token: story.token.map(|token| token.get()),
        };
        let busy = flight.client().keep_busy();
        Self { flight, down, closing, about, _busy: busy }
    }

    /// The 101 has left. `sent`: what the client has sent since its request.
    pub(crate) fn open<S>(mut self: Box<Self>, client: S, sent: &[u8]) -> OpenTunnel<S> {
        let mut up = Pipe::default();
        pass_on(&mut self.closing, sent, up.held());
        OpenTunnel { client, up, tunnel: self }
    }

    /// Tells the client to go, where the protocol has words for that. It may still end in order.
    fn leave(&mut self, why: &'static str) {
        if let Some(closing) = &mut self.closing {
            closing.close(why, self.down.held());
        }
    }
}

impl Drop for Tunnel {
    /// No end at all was seen, if this does anything.
    fn drop(&mut self) {
        self.flight.lose(DROPPED);
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> OpenTunnel<S> {
    /// The gateway is leaving.
    pub(crate) fn leave(&mut self) {
        self.tunnel.leave(LEAVING);
    }

    /// Moves bytes both ways. Ready once the flight has ended, in order or not.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let flight = self.tunnel.flight.clone();
        if let Err(why) = flight.drive(cx) {
            self.end(why);
            self.tunnel.leave(why);
            return Poll::Ready(());
        }
        if let Some(why) = flight.farewell() {
            self.tunnel.leave(why);
        }
        match ready!(self.relay(cx)) {
            Ok(()) => {
                self.end("in order");
                flight.complete();
            }
            Err(_) if flight.is_over() => {
                self.end(FENCED);
                flight.lose(FENCED);
                self.tunnel.leave(FENCED);
            }
            Err(why) => {
                self.end(why);
                flight.lose(why);
            }
        }
        Poll::Ready(())
    }

    /// The client's connection is not polled any more.
    pub(crate) fn drop_client(&self) {
        self.end(DROPPED);
        self.tunnel.flight.lose(DROPPED);
    }

    /// An error says what has ended and does not say whether it was the end.
    fn relay(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        let before = self.up.passed() + self.tunnel.down.passed();
        let Self { client, up, tunnel } = self;
        let Tunnel { flight, down, closing, .. } = &mut **tunnel;
        let moved = flight.on_wire(|wire| {
            // First, so that an end that was there before the client's last word left is not taken for the answer to it.
            let downwards = down.poll(cx, wire, client, |said, held| sift(closing, said, held));
            if let Some(closing) = closing.as_ref().filter(|_| down.has_ended()) {
                return Err(judge(closing, up));
            }
            Ok((up.poll(cx, client, wire, |sent, held| pass_on(closing, sent, held)), downwards))
        });
        if up.passed() + down.passed() > before {
            flight.moved();
        }
        let (upwards, downwards) = match moved {
            None => return Poll::Ready(Err("it has ended already")),
            Some(Err(end)) => return Poll::Ready(end),
            Some(Ok(both)) => both,
        };
        Poll::Ready(match (upwards, downwards) {
            (_, Poll::Ready(Err(Broken::Source))) => Err("the upstream's connection broke"),
            (_, Poll::Ready(Err(Broken::Sink))) => Err("the client hung up"),
            (Poll::Ready(Err(Broken::Source)), _) => Err("the client's connection broke"),
            (Poll::Ready(Err(Broken::Sink)), _) => Err("the upstream did not take what the client sent"),
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => Ok(()),
            (Poll::Pending, _) | (_, Poll::Pending) => return Poll::Pending,
        })
    }

    /// Says so in the log.
    fn end(&self, end: &'static str) {
        let Self { up, tunnel, .. } = self;
        let Tunnel { flight, down, about, .. } = &**tunnel;
        if !flight.is_told() {
            return;
        }
        tracing::info!(
            target: "access",
            client = %flight.client().peer(),
            route = %flight.route().name,
            resource = about.resource,
            token = about.token,
            protocol = %about.protocol,
            to_upstream = up.passed(),
            to_client = down.passed(),
            seconds = flight.age().as_secs_f64(),
            end,
            "the stream of an upgrade ended"
        );
    }

    /// What is still held for the client, and that it was all. Nothing goes to the upstream any more.
    pub(crate) async fn say_goodbye(mut self) {
        let rest = std::mem::take(self.tunnel.down.held());
        drop(self.tunnel);
        let heard = async {
            self.client.write_all(&rest).await?;
            self.client.shutdown().await?;
            // A socket that is closed with bytes in it that nobody read is reset, and the client may lose the rest.
            copy(&mut self.client, &mut sink()).await
        };
        let _ = tokio::time::timeout(GOODBYE, heard).await;
    }
}

/// Whether a WebSocket whose upstream has just ended its stream has ended in order. Whether the client has taken all that
/// was said does not matter.
fn judge(closing: &Closing, up: &Pipe) -> Result<(), &'static str> {
    match (closing.is_said(), closing.is_answered() && up.is_through()) {
        (true, true) => Ok(()),
        (false, _) => Err(NO_LAST_WORD),
        (true, false) => Err(NOT_AGREED_ON),
    }
}

/// Puts what the client sent behind what is held for the upstream.
fn pass_on(closing: &mut Option<Closing>, sent: &[u8], held: &mut BytesMut) {
    if let Some(closing) = closing {
        closing.hear(sent);
    }
    held.extend_from_slice(sent);
}

/// Puts what goes on to the client behind what is held for it.
fn sift(closing: &mut Option<Closing>, said: &[u8], held: &mut BytesMut) {
    match closing {
        Some(closing) => closing.sift(said, held),
        None => held.extend_from_slice(said),
    }
}
