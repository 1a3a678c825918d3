//! The configuration: one TOML file, then `HIGHGATE_*` variables, then flags, in rising order of precedence.
//!
//! A [`Config`] is valid by construction: [`Config::load`] and [`Config::parse`] are the only ways to one, and
//! they report every problem with its file, line, column, key and what is allowed. The file's shape is in
//! `raw`, its meaning in `sections`, `store` and `routing`. Reloading parses again and replaces [`Routes`], [`Grants`] and
//! [`Secrets`] as a whole and what [`Log`] says; what else changed needs a restart, and [`Config::needs_restart`] says what.
//! This module depends on no others of the gateway but `tls`, which reads the certificates and knows identities, and
//! `signing`, which reads the keys of signed tokens.

mod address;
mod bodies;
mod dev_tls;
mod elections;
mod endpoints;
mod error;
pub mod fields;
mod floors;
mod gap;
mod glob;
mod grants;
mod host;
mod keys;
mod limits;
mod locate;
mod naming;
mod path;
mod pattern;
mod proxies;
mod raw;
mod renames;
mod resource;
mod route;
mod routing;
mod scope;
mod secrets;
mod sections;
mod signing;
mod statuses;
mod store;
mod text;
mod tls;
mod upgrades;
mod upstream;
mod upstream_tls;
mod warnings;
mod words;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use highgate_etcd::url::EtcdUrl;
use http::HeaderName;

use crate::signing::Signing;
use crate::tls::{Server as TlsServer, dev};

pub(crate) use address::is_loopback;
pub use address::parse as parse_address;
pub use bodies::Bodies;
pub use error::{ConfigError, Place, Problem};
pub use floors::{Floors, NamePattern};
pub use glob::Glob;
pub use grants::{Grant, Grants, Who};
pub use host::{HostError, canonical_host};
pub(crate) use limits::MOST_FIELDS;
pub use limits::{HeadLimits, Limits, RefusalLimits};
pub use naming::{Entry, Naming};
pub use path::{CanonicalPath, PathError};
pub use pattern::{Captures, HostPattern, PathPattern, PatternError};
pub use proxies::Proxies;
pub use renames::{Rename, Unknowable, renames, unfenced};
pub use resource::{ResourceRule, Template, TemplateError};
pub use route::{FencedMethods, Matcher, Route, Routes, is_safe};
pub(crate) use scope::LONGEST as LONGEST_DURATION;
pub use secrets::{Fingerprint, Secret, Secrets};
pub use statuses::UnknownStatuses;
pub(crate) use store::VALIDITIES;
pub use upgrades::{Protocol, Upgrades};
#[cfg(test)]
pub(crate) use upstream::Url;
pub use upstream::{Destination, Upstream, UpstreamError};
pub use words::{
    AccessLog, LogFormat, MissingToken, OnUnknown, Right, Tokens, UnknownWord, UpstreamProtocol, spelled,
};

/// Everything the gateway was told.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub listen: Listen,
    pub admin: Admin,
    /// None: jobs have no port of their own.
    pub elections: Option<Elections>,
    pub store: Store,
    /// How many resources requests may make there.
    pub max_resources: usize,
    pub log: Log,
    pub shutdown: Shutdown,
    pub metrics: Metrics,
    pub once: Once,
    pub history: History,
    pub secrets: Secrets,
    /// The keys of signed tokens, which change with their folder.
    pub signing: Arc<Signing>,
    pub grants: Grants,
    pub routes: Routes,
    /// The certificate that all ports have with `--dev-tls`.
    pub dev_tls: Option<dev::DevFiles>,
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
    pub limits: Limits,
    pub token_header: HeaderName,
    /// None: a connection belongs to the address that it comes from.
    pub proxies: Option<Proxies>,
    /// None: plain HTTP, on loopback or because the file or a flag says that this is meant.
    pub tls: Option<Arc<TlsServer>>,
}

/// The admin port, for operators.
#[derive(Debug, Clone, PartialEq)]
pub struct Admin {
    pub address: SocketAddr,
    pub auth: Option<Secret>,
    /// None: as for the data port.
    pub tls: Option<Arc<TlsServer>>,
}

/// The elections port, for jobs.
#[derive(Debug, Clone, PartialEq)]
pub struct Elections {
    pub address: SocketAddr,
    pub auth: Option<Secret>,
    /// None: as for the data port.
    pub tls: Option<Arc<TlsServer>>,
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
    /// How much of etcd's history the replicas keep when they compact it; none: etcd does that by itself.
    pub compact: Option<Duration>,
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

/// The journal of who led when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// How long it keeps its lines.
    pub keep: Duration,
    /// How many bytes it may take on disk.
    pub max_size: u64,
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
    #[arg(long, env = "HIGHGATE_LISTEN", value_name = "ADDRESS", value_parser = address::parse)]
    pub listen: Option<SocketAddr>,
    /// Address of the admin port [default: 127.0.0.1:9901]
    #[arg(long, env = "HIGHGATE_ADMIN", value_name = "ADDRESS", value_parser = address::parse)]
    pub admin: Option<SocketAddr>,
    /// Address of the elections port, for jobs [default: none, or 127.0.0.1:9902 with an [elections] table]
    #[arg(long, env = "HIGHGATE_ELECTIONS", value_name = "ADDRESS", value_parser = address::parse)]
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
    /// Plain HTTP on other addresses than loopback is meant
    #[arg(long, env = "HIGHGATE_INSECURE", value_parser = BoolishValueParser::new())]
    pub insecure: bool,
    /// TLS on every port with a throw-away certificate for localhost, which is made in the data folder
    #[arg(long, env = "HIGHGATE_DEV_TLS", value_parser = BoolishValueParser::new())]
    pub dev_tls: bool,
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
        let bytes =
            std::fs::read(file).map_err(|source| ConfigError::Unreadable { file: file.clone(), source })?;
        Self::parse(&text::decode(bytes, file)?, file, &input.overrides)
    }

    /// The config that `text`, read from `file`, and the overrides say.
    pub fn parse(text: &str, file: &Path, overrides: &Overrides) -> Result<Self, ConfigError> {
        let raw = toml::from_str(text).map_err(|error| ConfigError::of_toml(text, file, &error))?;
        sections::build(raw, overrides, error::Report::new(text, Some(file)))
    }

    /// The keys that differ in `other` and that a reload cannot bring into force: all outside the routes, the grants,
    /// their secrets and the logs.
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
            ("listen.proxy_protocol", listen.proxies != new.proxies),
            ("listen.tls", listen.tls != new.tls),
            ("admin.address", self.admin.address != other.admin.address),
            ("admin.auth", self.admin.auth != other.admin.auth),
            ("admin.tls", self.admin.tls != other.admin.tls),
            ("elections", self.elections.is_some() != other.elections.is_some()),
        ];
        let elections = self.elections.iter().zip(&other.elections).flat_map(|(old, new)| {
            [
                ("elections.address", old.address != new.address),
                ("elections.auth", old.auth != new.auth),
                ("elections.tls", old.tls != new.tls),
            ]
        });
        let rest = [
            ("shutdown.unready_delay", self.shutdown.unready_delay != other.shutdown.unready_delay),
            ("shutdown.drain_limit", self.shutdown.drain_limit != other.shutdown.drain_limit),
            ("metrics.max_resources", self.metrics.max_resources != other.metrics.max_resources),
            ("history.keep", self.history.keep != other.history.keep),
            ("history.max_size", self.history.max_size != other.history.max_size),
            // Where it is the default, the store says so already.
            ("signing.dir", self.signing != other.signing && self.store.folder() == other.store.folder()),
        ];
        let changed = |(key, changed): (&'static str, bool)| changed.then_some(key);
        let limits = listen.limits.changes(&new.limits);
        let before = ports.into_iter().chain(elections).filter_map(changed);
        before
            .chain(limits)
            .chain(self.store.changes(&other.store))
            .chain(rest.into_iter().filter_map(changed))
            .collect()
    }
}
