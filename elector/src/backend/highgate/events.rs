//! Who leads, from the gateway's server-sent events.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::time::timeout;

use super::token;
use super::wire::{Link, Wire};
use crate::Resource;
use crate::backend::{BackendError, Leader, Observation};
use crate::stream::unfold;

/// The gateway sends a comment every 15 s: three missed ones are a dead connection.
const SILENCE_LIMIT: Duration = Duration::from_secs(45);
/// One event is some hundred bytes.
const LARGEST_EVENT: usize = 64 * 1024;

type Item = Result<Option<Leader>, BackendError>;

enum State {
    Closed { wire: Arc<Wire>, path: String },
    Open(Box<Listening>),
    Ended,
}

struct Listening {
    wire: Arc<Wire>,
    body: Incoming,
    link: Link,
    buffer: BytesMut,
}

/// Opens the stream when it is first polled; ends after the first error.
pub(super) fn observe(wire: Arc<Wire>, resource: &Resource) -> Observation {
    let path = format!("/v1/elections/watch?resource={}", escaped(resource));
    unfold(State::Closed { wire, path }, |state| {
        Box::pin(async move {
            let mut listening = match state {
                State::Closed { wire, path } => match open(wire, &path).await {
                    Ok(listening) => Box::new(listening),
                    Err(error) => return Some((Err(error), State::Ended)),
                },
                State::Open(listening) => listening,
                State::Ended => return None,
            };
            match listening.next().await {
                Ok(leader) => Some((Ok(leader), State::Open(listening))),
                Err(error) => Some((Err(error), State::Ended)),
            }
        })
    })
}

/// A canonical name has percent signs and slashes of its own, which the query must not take for its own.
fn escaped(resource: &Resource) -> String {
    resource.as_str().replace('%', "%25").replace('+', "%2B").replace('=', "%3D").replace('/', "%2F")
}

async fn open(wire: Arc<Wire>, path: &str) -> Result<Listening, BackendError> {
    let (response, mut link) = wire.open(path).await?;
    if response.status() != StatusCode::OK {
        let read = timeout(SILENCE_LIMIT, link.drive(wire.read(response))).await;
        let answer = read.unwrap_or_else(|_| Err(wire.unavailable("no answer in time")))?;
        return Err(wire.failure(&answer));
    }
    Ok(Listening { wire, body: response.into_body(), link, buffer: BytesMut::new() })
}

impl Listening {
    async fn next(&mut self) -> Item {
        loop {
            while let Some(event) = take_event(&mut self.buffer) {
                if let Some(data) = leader_data(&event) {
                    return parse(data).ok_or_else(|| self.wire.refused("an event of its stream is not one"));
                }
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<(), BackendError> {
        if self.buffer.len() > LARGEST_EVENT {
            return Err(self.wire.refused("an event of its stream is too long"));
        }
        let frame = timeout(SILENCE_LIMIT, self.link.drive(self.body.frame())).await;
        let frame = frame.map_err(|_| self.wire.unavailable("its stream is silent"))?;
        match frame {
            Some(Ok(frame)) => {
                self.buffer.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data.as_ref()));
                Ok(())
            }
            Some(Err(error)) => Err(self.wire.unavailable(&error.to_string())),
            None => Err(self.wire.unavailable("its stream has ended")),
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
    use crate::Token;

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
