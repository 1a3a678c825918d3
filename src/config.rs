//! The configuration: one TOML file, then `HIGHGATE_*` variables, then flags, in rising order of precedence.
//!
//! A [`Config`] is valid by construction: [`Config::load`] and [`Config::parse`] are the only ways to one, and
//! they report every problem with its file, line, column, key and what is allowed. The file's shape is in
//! `raw`, its meaning in `sections`, `store` and `routing`. Reloading parses again and replaces [`Routes`] as a
//! whole and what [`Log`] says; what else changed needs a restart, and [`Config::needs_restart`] says what.
//! This module depends on no other of the gateway.

mod elections;
mod endpoints;
mod error;
mod host;
mod keys;
mod locate;
mod path;
mod pattern;
mod raw;
mod resource;
mod route;
mod routing;
mod scope;
mod sections;
mod store;
mod upstream;
mod words;

#[cfg(test)]
mod tests;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use highgate_elector::backend::etcd::url::EtcdUrl;
use http::HeaderName;

pub use error::{ConfigError, Place, Problem};
pub use host::{HostError, canonical_host};
pub use path::{CanonicalPath, PathError};
pub use pattern::{Captures, HostPattern, PathPattern, PatternError};
pub use resource::{ResourceRule, Template, TemplateError};
pub use route::{FencedMethods, Matcher, Route, Routes};
pub(crate) use scope::LONGEST as LONGEST_DURATION;
pub(crate) use store::VALIDITIES;
pub use upstream::{Upstream, UpstreamError};
pub use words::{AccessLog, LogFormat, MissingToken, OnUnknown, Tokens, UnknownWord};

/// Everything the gateway was told.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub listen: Listen,
    pub admin: Admin,
    /// None: jobs have no port of their own.
    pub elections: Option<Elections>,
    pub store: Store,
    pub log: Log,
    pub shutdown: Shutdown,
    pub metrics: Metrics,
    pub once: Once,
    pub routes: Routes,
}

/// The data port.
#[derive(Debug, Clone, PartialEq)]
pub struct Listen {
    pub address: SocketAddr,
    /// At least one; the file's 0 is one per core.
    pub workers: usize,
    /// From a connection's first byte to the end of a request's head.
    pub header_timeout: Duration,
    /// Between the requests of a kept-alive connection.
    pub idle_timeout: Duration,
    /// Until a small body has arrived.
    pub request_timeout: Duration,
    pub max_connections: usize,
    pub token_header: HeaderName,
}

/// The admin port, for operators.
#[derive(Debug, Clone, PartialEq)]
pub struct Admin {
    pub address: SocketAddr,
    pub auth: Option<Secret>,
}

/// The elections port, for jobs.
#[derive(Debug, Clone, PartialEq)]
pub struct Elections {
    pub address: SocketAddr,
    pub auth: Option<Secret>,
}

/// What the requests to a port have to show. It never prints itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    bearer: String,
}

/// Where marks are durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Store {
    Embedded { path: PathBuf },
    Etcd(Etcd),
}

/// Marks in etcd, shared by any number of replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Etcd {
    pub url: EtcdUrl,
    /// What this replica has to remember of etcd: that it was never restored from a backup.
    pub path: PathBuf,
    /// How long a replica may serve after it was last heard of; the same on all replicas.
    pub validity: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    pub format: LogFormat,
    pub access: AccessLog,
    /// One of error, warn, info, debug, trace.
    pub level: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shutdown {
    /// Between turning unready and refusing connections: load balancers are slow to notice.
    pub unready_delay: Duration,
    pub drain_limit: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metrics {
    /// How many resources get series of their own; the rest is `other`.
    pub max_resources: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Once {
    /// How long the run-once ledger keeps its entries.
    pub keep: Duration,
}

/// What to load: the same input serves the start and every reload.
#[derive(Debug, Clone, Default)]
pub struct LoadInput {
    pub file: Option<PathBuf>,
    pub overrides: Overrides,
}

/// What flags and the environment say over the file.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Overrides {
    /// Address of the data port [default: 127.0.0.1:8080]
    #[arg(long, env = "HIGHGATE_LISTEN", value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Address of the admin port [default: 127.0.0.1:9901]
    #[arg(long, env = "HIGHGATE_ADMIN", value_name = "ADDRESS")]
    pub admin: Option<SocketAddr>,
    /// Address of the elections port, for jobs [default: none, or 127.0.0.1:9902 with an [elections] table]
    #[arg(long, env = "HIGHGATE_ELECTIONS", value_name = "ADDRESS")]
    pub elections: Option<SocketAddr>,
    /// Where the only route goes, if the config file has none
    #[arg(long, env = "HIGHGATE_UPSTREAM", value_name = "URL")]
    pub upstream: Option<String>,
    /// Folder of the marks or, with --etcd, of what this replica has seen of etcd [default: ./highgate-data]
    #[arg(long, env = "HIGHGATE_DATA_DIR", value_name = "FOLDER")]
    pub data_dir: Option<PathBuf>,
    /// Marks in etcd, shared by any number of replicas: its endpoints, with commas between
    #[arg(long, env = "HIGHGATE_ETCD", value_name = "URL,URL", value_delimiter = ',')]
    pub etcd: Option<Vec<String>>,
    /// Which tokens raise a mark, on every route: issued or trusted
    #[arg(long, env = "HIGHGATE_TOKENS", value_name = "TOKENS")]
    pub tokens: Option<Tokens>,
    /// Log format: text or json
    #[arg(long, env = "HIGHGATE_LOG_FORMAT", value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Log level: error, warn, info, debug or trace
    #[arg(long, env = "HIGHGATE_LOG_LEVEL", value_name = "LEVEL")]
    pub log_level: Option<String>,
}

impl Config {
    /// Reads the file, if there is one, and applies the overrides.
    pub fn load(input: &LoadInput) -> Result<Self, ConfigError> {
        let Some(file) = &input.file else {
            return sections::build(raw::Raw::default(), &input.overrides, error::Report::new("", None));
        };
        let text = std::fs::read_to_string(file)
            .map_err(|source| ConfigError::Unreadable { file: file.clone(), source })?;
        Self::parse(&text, file, &input.overrides)
    }

    /// The config that `text`, read from `file`, and the overrides say.
    pub fn parse(text: &str, file: &Path, overrides: &Overrides) -> Result<Self, ConfigError> {
        let raw = toml::from_str(text).map_err(|error| ConfigError::of_toml(text, file, &error))?;
        sections::build(raw, overrides, error::Report::new(text, Some(file)))
    }

    /// The keys that differ in `other` and that a reload cannot bring into force: all outside the routes and the
    /// logs.
    pub fn needs_restart(&self, other: &Self) -> Vec<&'static str> {
        let (listen, new) = (&self.listen, &other.listen);
        let ports = [
            ("listen.address", listen.address != new.address),
            ("listen.workers", listen.workers != new.workers),
            ("listen.header_timeout", listen.header_timeout != new.header_timeout),
            ("listen.idle_timeout", listen.idle_timeout != new.idle_timeout),
            ("listen.request_timeout", listen.request_timeout != new.request_timeout),
            ("listen.max_connections", listen.max_connections != new.max_connections),
            ("listen.token_header", listen.token_header != new.token_header),
            ("admin.address", self.admin.address != other.admin.address),
            ("admin.auth", self.admin.auth != other.admin.auth),
            ("elections", self.elections.is_some() != other.elections.is_some()),
        ];
        let elections = self.elections.iter().zip(&other.elections).flat_map(|(old, new)| {
            [("elections.address", old.address != new.address), ("elections.auth", old.auth != new.auth)]
        });
        let rest = [
            ("shutdown.unready_delay", self.shutdown.unready_delay != other.shutdown.unready_delay),
            ("shutdown.drain_limit", self.shutdown.drain_limit != other.shutdown.drain_limit),
            ("metrics.max_resources", self.metrics.max_resources != other.metrics.max_resources),
        ];
        let changed = |(key, changed): (&'static str, bool)| changed.then_some(key);
        let before = ports.into_iter().chain(elections).filter_map(changed);
        before.chain(self.store.changes(&other.store)).chain(rest.into_iter().filter_map(changed)).collect()
    }
}

impl Secret {
    /// Whether a presented bearer token is the secret, in a time that does not tell how much of it is right.
    pub fn accepts(&self, presented: &[u8]) -> bool {
        let secret = self.bearer.as_bytes();
        let difference = secret.iter().zip(presented).fold(0, |sum, (own, their)| sum | (own ^ their));
        secret.len() == presented.len() && std::hint::black_box(difference) == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
