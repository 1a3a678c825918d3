//! Server-sent events, until the listener leaves or the gateway stops: all notices for `GET /v1/events`, changes
//! of one leadership for `GET /v1/elections/watch`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use highgate_elector::Resource;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, broadcast, watch};
use tokio::time::{Interval, interval};

use super::answer::{Answer, Problem};
use super::caller::Caller;
use super::{Server, query, stopped};
use crate::elections::Event;
use crate::events::{Notice, Stamped};

/// Often enough that proxies in between do not take the stream for dead.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// One listener's stream.
struct Listener {
    caller: Caller,
    notices: broadcast::Receiver<Arc<Stamped>>,
    feed: Feed,
    /// What is told before anything else.
    first: Option<String>,
    heartbeat: Interval,
    shutdown: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
}

/// What a listener wants to hear.
pub(super) enum Feed {
    /// Notices of this resource, or of all, and those of the whole gateway.
    Notices { only: Option<Resource> },
    /// Who leads; `shown` is the token of whoever was told last, and whether it leads still.
    Leader { resource: Resource, shown: (u64, bool) },
}

/// `GET /v1/events`
pub(super) fn open(server: &Server, caller: Caller, query: Option<&str>) -> Result<Answer, Problem> {
    let only = query::resource(query, "resource")?;
    if let Some(resource) = &only {
        caller.check(resource)?;
    }
    listen(server, caller, server.admin.bus.subscribe(), Feed::Notices { only }, None)
}

/// Streams what the feed makes of the notices.
pub(super) fn listen(
    server: &Server,
    caller: Caller,
    notices: broadcast::Receiver<Arc<Stamped>>,
    feed: Feed,
    first: Option<String>,
) -> Result<Answer, Problem> {
    let listener = Listener {
        caller,
        notices,
        feed,
        first,
        // Its first tick is at once: the listener sees that it is connected.
        heartbeat: interval(HEARTBEAT),
        shutdown: server.shutdown.clone(),
        _place: place(server)?,
    };
    let frames = stream::unfold(listener, |mut listener| async {
        let text = listener.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(text))), listener))
    });
    let mut answer = Response::new(StreamBody::new(frames).boxed_unsync());
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    Ok(answer)
}

/// A place among those that keep a connection for long.
pub(super) fn place(server: &Server) -> Result<OwnedSemaphorePermit, Problem> {
    let full =
        |_| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too many listen or wait at once; try again");
    server.streams.clone().try_acquire_owned().map_err(full)
}

impl Listener {
    /// The next piece of the stream; none at the end, which also comes when it may be heard no longer.
    async fn next(&mut self) -> Option<String> {
        let text = self.hear().await?;
        self.feed.is_open_to(&self.caller).then_some(text)
    }

    async fn hear(&mut self) -> Option<String> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            tokio::select! {
                // Notices first: the last ones before a stop are the ones people want to see.
                biased;
                received = self.notices.recv() => match received {
                    Ok(_) if !self.feed.is_open_to(&self.caller) => return None,
                    Ok(stamped) => if let Some(text) = self.feed.tell(&stamped, &self.caller) {
                        return Some(text);
                    },
                    // Who follows a leader starts again from how it stands now.
                    Err(RecvError::Lagged(_)) if matches!(self.feed, Feed::Leader { .. }) => return None,
                    Err(RecvError::Lagged(missed)) => return Some(lagged(missed)),
                    Err(RecvError::Closed) => return None,
                },
                () = stopped(&mut self.shutdown) => return None,
                _ = self.heartbeat.tick() => return Some(": listening\n\n".to_owned()),
            }
        }
    }
}

impl Feed {
    /// Whether somebody may still listen to it.
    fn is_open_to(&self, caller: &Caller) -> bool {
        match self {
            Self::Notices { only: None } => caller.may_use_anything(),
            Self::Notices { only: Some(resource) } | Self::Leader { resource, .. } => {
                caller.may_use(resource)
            }
        }
    }

    /// What this feed makes of a notice, for whom it is.
    fn tell(&mut self, stamped: &Stamped, caller: &Caller) -> Option<String> {
        let about = stamped.notice.resource();
        match self {
            Self::Notices { only } => {
                let wanted = only.is_none() || about.is_none() || about == only.as_ref();
                let seen = about.map_or_else(|| caller.may_use_everything(), |about| caller.may_use(about));
                (wanted && seen).then(|| told(stamped))
            }
            Self::Leader { resource, shown } => match &stamped.notice {
                Notice::Election(Event::Elected { holder, token, .. })
                    if about == Some(resource) && token.get() > shown.0 =>
                {
                    *shown = (token.get(), true);
                    Some(leader(resource, Some((holder, token.get()))))
                }
                Notice::Election(Event::Ended { token, .. })
                    if about == Some(resource) && *shown == (token.get(), true) =>
                {
                    shown.1 = false;
                    Some(leader(resource, None))
                }
                _ => None,
            },
        }
    }
}

fn told(stamped: &Stamped) -> String {
    // The JSON has no line break, so it is one data line.
    format!("event: {}\ndata: {}\n\n", stamped.notice.kind(), stamped.to_json())
}

/// Who leads, as an event.
pub(super) fn leader(resource: &Resource, leader: Option<(&str, u64)>) -> String {
    let leader = leader.map(|(holder, token)| json!({ "holder": holder, "token": token }));
    let data = json!({ "resource": resource.as_str(), "leader": leader });
    format!("event: leader\ndata: {data}\n\n")
}

fn lagged(missed: u64) -> String {
    format!("event: lagged\ndata: {{\"type\":\"lagged\",\"missed\":{missed}}}\n\n")
}
