//! A watch on a range of keys that stays up.
//!
//! It is reopened, elsewhere if need be, at the last revision seen + 1 whenever its stream ends, its endpoint is
//! ejected, or nothing is heard for a while although progress is asked for. The elections' mirror reads it,
//! and so can the gateway. What must stay true: every change is delivered once and in order, and what is known to be
//! applied only moves with changes, never with a progress notification (etcd has sent those too early). It cannot
//! know whether the etcd where it opens again is one that was restored from a backup, and says when it opens.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::answer::Event;
use crate::client::{CallError, Client};
use crate::edge::{AuthToken, Stream, Told};
use crate::endpoint::{Connection, Endpoint};

const OPEN_DEADLINE: Duration = Duration::from_secs(2);
/// After so much silence the server is asked for a sign of life.
const ASK_AFTER: Duration = Duration::from_millis(700);
/// After so much silence the stream counts as dead.
const DEAD_AFTER: Duration = Duration::from_millis(2800);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A supervised watch.
pub struct Watch {
    client: Client,
    key: Vec<u8>,
    range_end: Vec<u8>,
    /// The first revision that was not delivered yet.
    next: i64,
    open: Option<Open>,
    /// The last stream ended or did not open: a pause is due.
    failed: bool,
    pause: Duration,
}

struct Open {
    endpoint: Arc<Endpoint>,
    connection: Connection,
    stream: Stream,
    /// What the stream was opened with.
    token: AuthToken,
    heard: Instant,
}

/// A watch that cannot go on.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    #[error("what comes next is compacted away: list again")]
    Compacted,
    #[error("etcd refused to watch: {0}")]
    Refused(String),
}

/// What becomes of a watch.
#[derive(Debug)]
pub enum News {
    /// A stream is open. What it tells follows on what was told before only if etcd is still what it was: one that
    /// was restored from a backup is silent up to a revision that it has yet to reach, or goes on with another past.
    Opened,
    /// Whole revisions, in order.
    Changes(Vec<Event>),
    /// The stream has ended; it is opened again.
    Ended,
}

/// What an answer of the server means.
enum Heard {
    Changes(Vec<Event>),
    Nothing,
    Ended,
}

impl Watch {
    /// Watches from the revision `next` on. Nothing is sent before [`Watch::changes`].
    pub fn from_revision(client: &Client, key: &[u8], range_end: &[u8], next: i64) -> Self {
        Self {
            client: client.clone(),
            key: key.to_vec(),
            range_end: range_end.to_vec(),
            next,
            open: None,
            failed: false,
            pause: FIRST_PAUSE,
        }
    }

    /// The next changes: whole revisions, in order. Dropping the future loses none.
    pub async fn changes(&mut self) -> Result<Vec<Event>, WatchError> {
        loop {
            if let News::Changes(events) = self.news().await? {
                return Ok(events);
            }
        }
    }

    /// The next changes, or what becomes of the stream before that. Dropping the future loses none.
    pub async fn news(&mut self) -> Result<News, WatchError> {
        loop {
            let Some(open) = &mut self.open else {
                if self.reopen().await? {
                    return Ok(News::Opened);
                }
                continue;
            };
            let heard = match timeout(ASK_AFTER, open.stream.next()).await {
                Ok(Some(told)) => {
                    open.heard = Instant::now();
                    open.connection.worked();
                    self.hear(told)?
                }
                Ok(None) => Heard::Ended,
                Err(_) => open.ask_for_progress().await,
            };
            match heard {
                Heard::Changes(events) => return Ok(News::Changes(events)),
                Heard::Nothing => {}
                Heard::Ended => {
                    self.close();
                    return Ok(News::Ended);
                }
            }
        }
    }

    fn hear(&mut self, told: Told) -> Result<Heard, WatchError> {
        self.pause = FIRST_PAUSE;
        if told.compacted {
            self.open = None;
            return Err(WatchError::Compacted);
        }
        if let Some(reason) = told.cancelled {
            return self.cancelled(reason);
        }
        let mut events = told.events;
        events.retain(|event| event.kv.mod_revision >= self.next);
        match events.iter().map(|event| event.kv.mod_revision).max() {
            Some(last) => self.next = last + 1,
            None => return Ok(Heard::Nothing),
        }
        Ok(Heard::Changes(events))
    }

    fn cancelled(&mut self, reason: String) -> Result<Heard, WatchError> {
        if reason.contains("permission denied") {
            self.open = None;
            return Err(WatchError::Refused(reason));
        }
        if let Some(open) = &self.open {
            self.client.forget_token(&open.token);
        }
        Ok(Heard::Ended)
    }

    /// A stream that ended says little about its endpoint, but the next one is as good.
    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            open.endpoint.eject();
        }
        self.failed = true;
    }

    /// After a pause, if the last attempt failed. Whether it is open now.
    async fn reopen(&mut self) -> Result<bool, WatchError> {
        if self.failed {
            sleep(self.pause).await;
            self.pause = LONGEST_PAUSE.min(self.pause * 2);
            self.failed = false;
        }
        let endpoint = self.client.pick();
        let token = match timeout(OPEN_DEADLINE, self.client.token(&endpoint)).await {
            Ok(Ok(token)) => token,
            Ok(Err(CallError::Refused(reason))) => return Err(WatchError::Refused(reason)),
            Ok(Err(_)) | Err(_) => {
                self.failed = true;
                return Ok(false);
            }
        };
        let (connection, sent) = (endpoint.connection(), Instant::now());
        let way = (Arc::clone(&endpoint), connection.clone());
        let opened = timeout(OPEN_DEADLINE, self.open_at(way, token.clone())).await;
        let opened = opened.unwrap_or_else(|_| {
            endpoint.is_silent(&connection, sent.into_std());
            Err(CallError::Unavailable("silence".to_owned()))
        });
        match opened {
            Ok(open) => {
                self.open = Some(open);
                return Ok(true);
            }
            Err(CallError::Refused(reason)) => return Err(WatchError::Refused(reason)),
            Err(CallError::TokenRefused) => self.client.forget_token(&token),
            Err(_) => endpoint.eject(),
        }
        self.failed = true;
        Ok(false)
    }

    async fn open_at(
        &self,
        (endpoint, connection): (Arc<Endpoint>, Connection),
        token: AuthToken,
    ) -> Result<Open, CallError> {
        let edge = connection.edge(&token).await?;
        let stream = edge.watch(self.key.clone(), self.range_end.clone(), self.next).await?;
        Ok(Open { endpoint, connection, stream, token, heard: Instant::now() })
    }
}

impl Open {
    async fn ask_for_progress(&mut self) -> Heard {
        let silence = self.heard.elapsed();
        let doubtful = self.endpoint.is_ejected() && silence >= 2 * ASK_AFTER;
        // Others have found the connection silent, too, and left it.
        let left = silence >= ASK_AFTER && !self.endpoint.is_at(&self.connection);
        if silence >= DEAD_AFTER || doubtful || left {
            self.endpoint.is_silent(&self.connection, self.heard.into_std());
            return Heard::Ended;
        }
        // There is room for a hundred questions, and the stream is given up after a few.
        if self.stream.ask_for_progress().await { Heard::Nothing } else { Heard::Ended }
    }
}
