//! Settings of an [`Elector`], checked when it is built.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::{Elector, OnLost, OnWait, Settings, Waiting};
use crate::backend::Candidacy;
use crate::connect::{ConnectError, connect_with, is_gateway, unreadable};
use crate::heartbeat::Renewer;
use crate::leadership::{Lost, validity};
use crate::metrics::Metrics;
use crate::{ClientTls, Resource, ResourceError, secrets};

const DEFAULT_TTL: Duration = Duration::from_secs(15);
/// Two renewals may fail before the third is the last.
const BEATS_PER_TTL: u32 = 3;
/// The longest grace that nobody asked for.
const DEFAULT_GRACE: Duration = Duration::from_secs(5);
/// Of the time before the work is told to stop: a renewal that is never answered is given up after a third of the ttl,
/// and then there is time for another.
const DEFAULT_HEARTBEAT: f64 = 0.3;
/// Where a gateway without a config file holds its elections.
const DEFAULT_BACKEND: &str = "highgate://127.0.0.1:9901";

/// Settings do not make an elector.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error(
        "a ttl of {ttl:?} is too short for a heartbeat of {heartbeat:?}: it has to be three times as long"
    )]
    TooShort { ttl: Duration, heartbeat: Duration },
    #[error("a heartbeat has to take some time")]
    NoHeartbeat,
    #[error(
        "a grace of {grace:?} leaves no time for a renewal: with a ttl of {ttl:?} and a heartbeat of {heartbeat:?} it \
         has to be under {most:?}"
    )]
    GraceTooLong { grace: Duration, ttl: Duration, heartbeat: Duration, most: Duration },
    #[error("`{name}` cannot be the name of a resource")]
    Resource { name: String, source: ResourceError },
    #[error("there is no backend to connect to")]
    Backend(#[source] ConnectError),
    #[error("a holder has a name")]
    NoHolder,
    #[error("the thread for heartbeats could not be started")]
    Thread(#[source] io::Error),
}

/// Settings of an [`Elector`].
pub struct Builder {
    place: Place,
    token_file: Option<PathBuf>,
    tls: Option<ClientTls>,
    /// As it was written, until it is built.
    resource: Result<Resource, (String, ResourceError)>,
    holder: Option<String>,
    ttl: Duration,
    heartbeat: Option<Duration>,
    grace: Option<Duration>,
    watchdog: Option<Duration>,
    strict: bool,
    on_wait: Option<OnWait>,
    on_lost: Option<OnLost>,
}

/// Where elections are held.
enum Place {
    Connected(Renewer),
    Url(String),
    /// As the environment says.
    Environment,
}

impl Builder {
    pub(super) fn new(renewer: Renewer, resource: Resource) -> Self {
        Self::with_defaults(Place::Connected(renewer), Ok(resource))
    }

    pub(super) fn named(resource: &str) -> Self {
        let resource = Resource::parse(resource).map_err(|error| (resource.to_owned(), error));
        Self::with_defaults(Place::Environment, resource)
    }

    fn with_defaults(place: Place, resource: Result<Resource, (String, ResourceError)>) -> Self {
        Self {
            place,
            token_file: None,
            tls: None,
            resource,
            holder: None,
            ttl: DEFAULT_TTL,
            heartbeat: None,
            grace: None,
            watchdog: None,
            strict: false,
            on_wait: None,
            on_lost: None,
        }
    }

    /// Where elections are held, by URL; see [`connect`](crate::connect()).
    pub fn backend(mut self, url: impl Into<String>) -> Self {
        self.place = Place::Url(url.into());
        self
    }

    /// The file with the secret for a gateway's elections, in place of what the environment has. It is for a backend that
    /// is named by its URL or by the environment; one that was connected before has its secret.
    pub fn token_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.token_file = Some(file.into());
        self
    }

    /// The files for TLS with gateways, in place of what the environment has: whose signature counts, and the certificate that
    /// is shown, which is an identity there. Naming any of them makes a `highgate://` URL speak TLS. As with
    /// [`token_file`](Self::token_file), it is for a backend that is named by its URL or by the environment.
    pub fn tls(mut self, tls: ClientTls) -> Self {
        self.tls = Some(tls);
        self
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

    /// How often a leadership is renewed; at least every third of the ttl. By default so often that one renewal may go
    /// unanswered before the work would be told to stop: every 3 s of a ttl of 15 s with a grace of 5 s.
    pub fn heartbeat(mut self, heartbeat: Duration) -> Self {
        self.heartbeat = Some(heartbeat);
        self
    }

    /// What the work of [`Elector::lead`] and [`Elector::run`] gets to end in after it was told to stop. It is part of the
    /// lease: without a renewal the work is told this long before the leadership is over. By default 5 s, or a third of
    /// a shorter ttl.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// Is told why, when the work of [`Elector::lead`] or [`Elector::run`] has to stop: to cancel what the work does not
    /// hear of, or to write it down. It runs beside the work and is dropped with it when the grace is over.
    pub fn on_lost<F, W>(mut self, tell: F) -> Self
    where
        F: Fn(Lost) -> W + Send + Sync + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        self.on_lost = Some(Arc::new(move |lost| Box::pin(tell(lost))));
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

    /// Is told what a campaign waits for. Called on the renewer's thread: it must not block. A campaign that tells
    /// also watches who leads, which is one more stream from the backend.
    pub fn on_wait(mut self, tell: impl Fn(&Waiting) + Send + Sync + 'static) -> Self {
        self.on_wait = Some(Arc::new(tell));
        self
    }

    /// Checks the settings, and starts the renewer's thread if no other elector has.
    pub fn build(self) -> Result<Elector, BuildError> {
        let (heartbeat, grace) = self.rhythm()?;
        let holder = self.holder.unwrap_or_else(unique_holder);
        if holder.is_empty() {
            return Err(BuildError::NoHolder);
        }
        let resource = self.resource.map_err(|(name, source)| BuildError::Resource { name, source })?;
        let renewer =
            self.place.renewer(self.token_file.as_deref(), self.tls).map_err(BuildError::Backend)?;
        renewer.start().map_err(BuildError::Thread)?;
        let metrics = Metrics::new(&renewer.labels().label(&resource));
        Ok(Elector(Arc::new(Settings {
            renewer,
            candidacy: Candidacy { resource, holder, ttl: self.ttl },
            heartbeat,
            grace,
            watchdog: self.watchdog,
            strict: self.strict,
            on_wait: self.on_wait,
            on_lost: self.on_lost,
            metrics: Arc::new(metrics),
        })))
    }

    /// Heartbeat and grace, if they fit into the ttl.
    fn rhythm(&self) -> Result<(Duration, Duration), BuildError> {
        let ttl = self.ttl;
        let grace = self.grace.unwrap_or(DEFAULT_GRACE.min(ttl / 3));
        let undisturbed = validity(ttl).saturating_sub(grace);
        let heartbeat =
            self.heartbeat.unwrap_or((ttl / BEATS_PER_TTL).min(undisturbed.mul_f64(DEFAULT_HEARTBEAT)));
        if undisturbed.is_zero() || undisturbed <= heartbeat {
            let most = validity(ttl).saturating_sub(heartbeat);
            return Err(BuildError::GraceTooLong { grace, ttl, heartbeat, most });
        }
        if heartbeat.is_zero() {
            return Err(BuildError::NoHeartbeat);
        }
        if ttl < heartbeat * BEATS_PER_TTL {
            return Err(BuildError::TooShort { ttl, heartbeat });
        }
        Ok((heartbeat, grace))
    }
}

impl Place {
    fn renewer(self, token_file: Option<&Path>, tls: Option<ClientTls>) -> Result<Renewer, ConnectError> {
        let url = match self {
            Self::Connected(renewer) => return Ok(renewer),
            Self::Url(url) => url,
            Self::Environment => {
                std::env::var(secrets::BACKEND).unwrap_or_else(|_| DEFAULT_BACKEND.to_owned())
            }
        };
        let secret = match token_file {
            Some(file) => secrets::from_file(file).map(Some),
            None if is_gateway(&url) => secrets::find(secrets::ELECTIONS_TOKEN),
            None => Ok(None),
        };
        let secret = secret.map_err(|error| unreadable(&error))?;
        let tls = tls.unwrap_or_else(ClientTls::from_environment);
        Ok(Renewer::new(connect_with(&url, secret.as_deref(), &tls)?))
    }
}

fn unique_holder() -> String {
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    format!("{host}-{}-{}", std::process::id(), uuid::Uuid::new_v4().simple())
}
