//! Who leads, from the gateways' server-sent events: from one of them, and from the next when that one fails.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::time::timeout;

use super::gateways::Gateways;
use super::token;
use super::wire::{Link, Wire};
use crate::backend::{BackendError, Leader, Observation};
use crate::stream::unfold;
use crate::{Resource, Token};

/// The gateway sends a comment every 15 s: three missed ones are a dead connection.
const SILENCE_LIMIT: Duration = Duration::from_secs(45);
/// One event is some hundred bytes.
const LARGEST_EVENT: usize = 64 * 1024;

type Item = Result<Option<Leader>, BackendError>;

/// Follows one resource, at one gateway after the other.
struct Watch {
    gateways: Arc<Gateways>,
    path: String,
    open: Option<(usize, Box<Listening>)>,
    /// The highest token that was told: a gateway that lags behind the one before tells nothing older.
    newest: Option<Token>,
    /// How many streams have ended in a row before they told anything.
    failures: usize,
    is_over: bool,
}

struct Listening {
    body: Incoming,
    link: Link,
    buffer: BytesMut,
}

/// Opens the stream when it is first polled. A stream that breaks goes on at the next gateway; it ends with an error
/// when all have failed in a row.
pub(super) fn observe(gateways: Arc<Gateways>, resource: &Resource) -> Observation {
    let path = format!("/v1/elections/watch?resource={}", escaped(resource));
    let watch = Watch { gateways, path, open: None, newest: None, failures: 0, is_over: false };
    unfold(watch, |mut watch| {
        Box::pin(async move {
            if watch.is_over {
                return None;
            }
            let item = watch.next().await;
            watch.is_over = item.is_err();
            Some((item, watch))
        })
    })
}

/// A canonical name has percent signs and slashes of its own, which the query must not take for its own.
fn escaped(resource: &Resource) -> String {
    resource.as_str().replace('%', "%25").replace('+', "%2B").replace('=', "%3D").replace('/', "%2F")
}

impl Watch {
    async fn next(&mut self) -> Item {
        loop {
            let (at, mut listening) = match self.open.take() {
                Some(open) => open,
                None => {
                    let at = self.gateways.current();
                    match Listening::open(self.gateways.wire(at), &self.path).await {
                        Ok(listening) => (at, Box::new(listening)),
                        Err(error) => {
                            self.failed(at, error)?;
                            continue;
                        }
                    }
                }
            };
            match listening.next(self.gateways.wire(at)).await {
                Ok(Some(leader)) => {
                    self.open = Some((at, listening));
                    self.failures = 0;
                    if self.is_news(leader.as_ref()) {
                        return Ok(leader);
                    }
                }
                // A gateway that is fenced still says that it is there, but hears of nothing.
                Ok(None) if self.gateways.leaves(at).await => {}
                Ok(None) => self.open = Some((at, listening)),
                Err(error) => self.failed(at, error)?,
            }
        }
    }

    /// The error, once every gateway has failed.
    fn failed(&mut self, at: usize, error: BackendError) -> Result<(), BackendError> {
        self.gateways.leave(at);
        self.failures += 1;
        let is_final = matches!(error, BackendError::Refused { .. });
        if is_final || self.failures >= self.gateways.count() { Err(error) } else { Ok(()) }
    }

    fn is_news(&mut self, leader: Option<&Leader>) -> bool {
        let token = leader.map(|leader| leader.token);
        let is_old = token.is_some() && token < self.newest;
        self.newest = self.newest.max(token);
        !is_old
    }
}

impl Listening {
    async fn open(wire: &Wire, path: &str) -> Result<Self, BackendError> {
        let (response, mut link) = wire.open(path).await?;
        if response.status() != StatusCode::OK {
            let read = timeout(SILENCE_LIMIT, link.drive(wire.read(response))).await;
            let answer = read.unwrap_or_else(|_| Err(wire.unavailable("no answer in time")))?;
            return Err(wire.failure(&answer));
        }
        Ok(Self { body: response.into_body(), link, buffer: BytesMut::new() })
    }

    /// Who leads now; none when the gateway only said that it is there.
    async fn next(&mut self, wire: &Wire) -> Result<Option<Option<Leader>>, BackendError> {
        loop {
            if let Some(event) = take_event(&mut self.buffer) {
                let Some(data) = leader_data(&event) else { return Ok(None) };
                let leader = parse(data).ok_or_else(|| wire.refused("an event of its stream is not one"));
                return leader.map(Some);
            }
            self.fill(wire).await?;
        }
    }

    async fn fill(&mut self, wire: &Wire) -> Result<(), BackendError> {
        if self.buffer.len() > LARGEST_EVENT {
            return Err(wire.refused("an event of its stream is too long"));
        }
        let frame = timeout(SILENCE_LIMIT, self.link.drive(self.body.frame())).await;
        let frame = frame.map_err(|_| wire.unavailable("its stream is silent"))?;
        match frame {
            Some(Ok(frame)) => {
                self.buffer.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data.as_ref()));
                Ok(())
            }
            Some(Err(error)) => Err(wire.unavailable(&error.to_string())),
            None => Err(wire.unavailable("its stream has ended")),
        }
    }
}

/// The text of the next complete event.
fn take_event(buffer: &mut BytesMut) -> Option<String> {
    let end = buffer.windows(2).position(|pair| pair == b"\n\n")?;
    let event = String::from_utf8_lossy(&buffer[..end]).into_owned();
    buffer.advance(end + 2);
    Some(event)
}

/// The data of an event `leader`; none of comments and other events.
fn leader_data(event: &str) -> Option<&str> {
    let field = |name: &str| {
        let values = event.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        values.map(|value| value.strip_prefix(' ').unwrap_or(value)).next()
    };
    (field("event")? == "leader").then(|| field("data"))?
}

fn parse(data: &str) -> Option<Option<Leader>> {
    let data: Value = serde_json::from_str(data).ok()?;
    match data.get("leader")? {
        Value::Null => Some(None),
        leader => Some(Some(Leader {
            holder: leader.get("holder")?.as_str()?.to_owned(),
            token: token(leader.get("token")?)?,
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_as_they_come_in_pieces_with_comments_between() {
        let mut buffer = BytesMut::from(": listening\n\nevent: leader\nda");
        assert_eq!(take_event(&mut buffer).as_deref().map(leader_data), Some(None));
        assert_eq!(take_event(&mut buffer), None);
        buffer.extend_from_slice(b"ta: {\"resource\":\"r\",\"leader\":{\"holder\":\"a\",\"token\":7}}\n\n");
        let event = take_event(&mut buffer).unwrap();
        let leader = Leader { holder: "a".to_owned(), token: Token::new(7).unwrap() };
        assert_eq!(leader_data(&event).and_then(parse), Some(Some(leader)));
        assert_eq!(leader_data("event: other\ndata: 1"), None);
        assert_eq!(parse("{\"leader\":null}"), Some(None));
        assert_eq!(parse("{}"), None);
    }

    #[test]
    fn a_resource_survives_the_query() {
        let resource = Resource::parse("a/b%2fc+d").unwrap();
        assert_eq!(escaped(&resource), "a%2Fb%252Fc%2Bd");
    }
}
