//! Settings of an [`Elector`], checked when it is built.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::{Elector, OnWait, Settings, Waiting};
use crate::Resource;
use crate::backend::Candidacy;
use crate::heartbeat::Heart;
use crate::metrics::Metrics;

const DEFAULT_TTL: Duration = Duration::from_secs(15);
/// Two renewals may fail before the third is the last.
const BEATS_PER_TTL: u32 = 3;

/// Settings do not make an elector.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error(
        "a ttl of {ttl:?} is too short for a heartbeat of {heartbeat:?}: it has to be three times as long"
    )]
    TooShort { ttl: Duration, heartbeat: Duration },
    #[error("a heartbeat has to take some time")]
    NoHeartbeat,
    #[error("a holder has a name")]
    NoHolder,
    #[error("the thread for heartbeats could not be started")]
    Thread(#[source] io::Error),
}

/// Settings of an [`Elector`].
pub struct Builder {
    heart: Heart,
    resource: Resource,
    holder: Option<String>,
    ttl: Duration,
    heartbeat: Option<Duration>,
    watchdog: Option<Duration>,
    strict: bool,
    on_wait: Option<OnWait>,
}

impl Builder {
    pub(super) fn new(heart: Heart, resource: Resource) -> Self {
        let (ttl, holder, heartbeat) = (DEFAULT_TTL, None, None);
        Self { heart, resource, holder, ttl, heartbeat, watchdog: None, strict: false, on_wait: None }
    }

    /// Who campaigns, for people to read. It has to be different in every process: two that share a name look
    /// like one that came back. By default host name, process id and a random number.
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = Some(holder.into());
        self
    }

    /// How long a leadership outlives its last renewal: how soon others take over after a crash. 15 s by default.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How often a leadership is renewed; a third of the ttl by default, and not less often than that.
    pub fn heartbeat(mut self, heartbeat: Duration) -> Self {
        self.heartbeat = Some(heartbeat);
        self
    }

    /// Stops renewing when [`Leadership::progress`](crate::Leadership::progress) was not called for this long, so
    /// that work that hangs gives its leadership up. Without it, leadership does not depend on the work.
    pub fn watchdog(mut self, limit: Duration) -> Self {
        self.watchdog = Some(limit);
        self
    }

    /// For resources that are not behind a gateway, where nothing checks tokens: a campaign that has won returns only
    /// after the leader before, whatever the coordination system has seen of it, can no longer believe that it
    /// leads. That is 1.01 times the ttl and 50 ms, on every handover, so all candidates need the same ttl. It
    /// takes a leader's word for its own validity: a process that does not ask can still write late.
    pub fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Is told what a campaign waits for. Called on the heart's thread: it must not block. A campaign that tells
    /// also watches who leads, which is one more stream from the backend.
    pub fn on_wait(mut self, tell: impl Fn(&Waiting) + Send + Sync + 'static) -> Self {
        self.on_wait = Some(Arc::new(tell));
        self
    }

    /// Checks the settings, and starts the heart's thread if no other elector has.
    pub fn build(self) -> Result<Elector, BuildError> {
        let heartbeat = self.heartbeat.unwrap_or(self.ttl / BEATS_PER_TTL);
        if heartbeat.is_zero() {
            return Err(BuildError::NoHeartbeat);
        }
        if self.ttl < heartbeat * BEATS_PER_TTL {
            return Err(BuildError::TooShort { ttl: self.ttl, heartbeat });
        }
        let holder = self.holder.unwrap_or_else(unique_holder);
        if holder.is_empty() {
            return Err(BuildError::NoHolder);
        }
        self.heart.start().map_err(BuildError::Thread)?;
        let metrics = Metrics::new(&self.heart.labels().label(&self.resource));
        Ok(Elector(Arc::new(Settings {
            heart: self.heart,
            candidacy: Candidacy { resource: self.resource, holder, ttl: self.ttl },
            heartbeat,
            watchdog: self.watchdog,
            strict: self.strict,
            on_wait: self.on_wait,
            metrics: Arc::new(metrics),
        })))
    }
}

fn unique_holder() -> String {
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    format!("{host}-{}-{}", std::process::id(), uuid::Uuid::new_v4().simple())
}
