//! `GET /v1/events`: notices as server-sent events, until the listener leaves or the gateway stops.

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
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, broadcast, watch};
use tokio::time::{Interval, interval};

use super::answer::{Answer, Problem};
use super::{Server, query, stopped};
use crate::events::Stamped;

/// Often enough that proxies in between do not take the stream for dead.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// One listener's stream.
struct Listener {
    notices: broadcast::Receiver<Arc<Stamped>>,
    /// Only notices of this resource, and those of the whole gateway.
    only: Option<Resource>,
    heartbeat: Interval,
    shutdown: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
}

pub(super) fn open(server: &Server, query: Option<&str>) -> Result<Answer, Problem> {
    let only = query::resource(query, "resource")?;
    let full = |_| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too many listeners at once");
    let listener = Listener {
        notices: server.admin.bus.subscribe(),
        only,
        // Its first tick is at once: the listener sees that it is connected.
        heartbeat: interval(HEARTBEAT),
        shutdown: server.shutdown.clone(),
        _place: server.streams.clone().try_acquire_owned().map_err(full)?,
    };
    let frames = stream::unfold(listener, |mut listener| async {
        let text = listener.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(text))), listener))
    });
    let mut answer = Response::new(StreamBody::new(frames).boxed_unsync());
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    Ok(answer)
}

impl Listener {
    /// The next piece of the stream; none at the end.
    async fn next(&mut self) -> Option<String> {
        loop {
            tokio::select! {
                // Notices first: the last ones before a stop are the ones people want to see.
                biased;
                received = self.notices.recv() => match received {
                    Ok(stamped) if self.wants(&stamped) => return Some(told(&stamped)),
                    Ok(_) => {}
                    Err(RecvError::Lagged(missed)) => return Some(lagged(missed)),
                    Err(RecvError::Closed) => return None,
                },
                () = stopped(&mut self.shutdown) => return None,
                _ = self.heartbeat.tick() => return Some(": listening\n\n".to_owned()),
            }
        }
    }

    fn wants(&self, stamped: &Stamped) -> bool {
        match (&self.only, stamped.notice.resource()) {
            (Some(only), Some(resource)) => only == resource,
            _ => true,
        }
    }
}

fn told(stamped: &Stamped) -> String {
    // The JSON has no line break, so it is one data line.
    format!("event: {}\ndata: {}\n\n", stamped.notice.kind(), stamped.to_json())
}

fn lagged(missed: u64) -> String {
    format!("event: lagged\ndata: {{\"type\":\"lagged\",\"missed\":{missed}}}\n\n")
}
