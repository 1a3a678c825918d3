//! The config file as it is written: serde's side of `config`, with the place of every value.
//!
//! Nothing is judged here beyond shape: unknown keys and wrong types are errors, everything else is optional
//! text, numbers and tables that `sections`, `store` and `routing` turn into a [`Config`](super::Config).

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, Range};

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use toml::Spanned;

pub(super) type Text = Option<Spanned<String>>;
pub(super) type Number = Option<Spanned<i64>>;
pub(super) type Flag = Option<Spanned<bool>>;
pub(super) type Texts = Option<Spanned<Vec<Spanned<String>>>>;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    pub(super) listen: Option<Section<RawListen>>,
    pub(super) admin: Option<Section<RawPort>>,
    pub(super) elections: Option<Section<RawPort>>,
    pub(super) store: Option<Section<RawStore>>,
    pub(super) log: Option<Section<RawLog>>,
    pub(super) shutdown: Option<Section<RawShutdown>>,
    pub(super) metrics: Option<Section<RawMetrics>>,
    pub(super) once: Option<Section<RawOnce>>,
    pub(super) history: Option<Section<RawHistory>>,
    pub(super) secrets: Option<Section<RawSecrets>>,
    pub(super) signing: Option<Section<RawSigning>>,
    pub(super) grants: Option<Vec<Section<RawGrant>>>,
    pub(super) routes: Option<Vec<Section<RawRoute>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawListen {
    pub(super) address: Text,
    pub(super) workers: Number,
    pub(super) header_timeout: Text,
    pub(super) idle_timeout: Text,
    pub(super) request_timeout: Text,
    pub(super) send_timeout: Text,
    pub(super) max_connections: Number,
    pub(super) connections_per_client: Number,
    pub(super) requests_per_connection: Number,
    pub(super) streams_per_connection: Number,
    pub(super) max_head: Text,
    pub(super) max_headers: Number,
    pub(super) refusals_per_second: Number,
    pub(super) refusals_burst: Number,
    pub(super) token_header: Text,
    pub(super) proxy_protocol: Option<Section<RawProxyProtocol>>,
    pub(super) tls: Option<Section<RawServerTls>>,
    pub(super) insecure: Flag,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawProxyProtocol {
    pub(super) from: Texts,
}

/// The admin port or the elections port.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPort {
    pub(super) address: Text,
    pub(super) auth: Option<Section<RawAuth>>,
    pub(super) tls: Option<Section<RawServerTls>>,
    pub(super) insecure: Flag,
}

/// TLS of one of the ports.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawServerTls {
    pub(super) cert: Text,
    pub(super) key: Text,
    pub(super) certificates: Option<Spanned<Vec<Section<RawCertificate>>>>,
    pub(super) client_ca: Text,
    pub(super) client_auth: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCertificate {
    pub(super) cert: Text,
    pub(super) key: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAuth {
    pub(super) bearer_file: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawStore {
    pub(super) kind: Text,
    pub(super) path: Text,
    pub(super) endpoints: Texts,
    pub(super) prefix: Text,
    pub(super) tls: Option<Section<RawTls>>,
    pub(super) user: Option<Section<RawUser>>,
    pub(super) validity: Text,
    pub(super) compact: Text,
    pub(super) max_resources: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTls {
    pub(super) ca: Text,
    pub(super) cert: Text,
    pub(super) key: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawUser {
    pub(super) name: Text,
    pub(super) password_file: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLog {
    pub(super) format: Text,
    pub(super) access: Text,
    pub(super) level: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawShutdown {
    pub(super) unready_delay: Text,
    pub(super) drain_limit: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMetrics {
    pub(super) max_resources: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawOnce {
    pub(super) keep: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawHistory {
    pub(super) keep: Text,
    pub(super) max_size: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSecrets {
    pub(super) file: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSigning {
    pub(super) dir: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGrant {
    pub(super) who: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) may: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) resources: Option<Spanned<Vec<Spanned<String>>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRoute {
    pub(super) name: Text,
    pub(super) r#match: Option<Section<RawMatch>>,
    pub(super) upstream: Text,
    pub(super) upstream_tls: Option<Section<RawUpstreamTls>>,
    pub(super) upstream_keep_alive: Flag,
    pub(super) upstream_protocol: Text,
    pub(super) resource: Option<Spanned<RawResource>>,
    pub(super) fenced_methods: Texts,
    pub(super) read_bodies: Flag,
    pub(super) max_body: Text,
    pub(super) request_trailers: Texts,
    pub(super) tokens: Text,
    pub(super) bind_holder: Option<Spanned<bool>>,
    pub(super) missing_token: Text,
    pub(super) upgrades: Texts,
    pub(super) drain_timeout: Text,
    pub(super) hold_timeout: Text,
    pub(super) lock_delay: Text,
    pub(super) on_unknown: Text,
    pub(super) unknown_statuses: Option<Spanned<Vec<Spanned<i64>>>>,
    pub(super) connect_timeout: Text,
    pub(super) response_timeout: Text,
    pub(super) idle_timeout: Text,
    pub(super) total_timeout: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawUpstreamTls {
    pub(super) ca: Text,
    pub(super) cert: Text,
    pub(super) key: Text,
    pub(super) server_name: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMatch {
    pub(super) host: Text,
    pub(super) path: Text,
    pub(super) methods: Texts,
}

/// `"ledger/{account}"` or `{ client = true, default = "default" }`.
#[derive(Debug)]
pub(super) enum RawResource {
    Template(String),
    Client(RawClient),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawClient {
    pub(super) client: Flag,
    pub(super) default: Text,
}

impl<'de> Deserialize<'de> for RawResource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = RawResource;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a table")
            }

            fn visit_str<E>(self, template: &str) -> Result<RawResource, E> {
                Ok(RawResource::Template(template.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawResource, A::Error> {
                RawClient::deserialize(MapAccessDeserializer::new(map)).map(RawResource::Client)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// A table and its place. Unlike serde's own reading of a struct, an array will not do.
#[derive(Debug, Default)]
pub(super) struct Section<T> {
    pub(super) span: Range<usize>,
    table: T,
}

impl<T> Section<T> {
    pub(super) fn into_table(self) -> T {
        self.table
    }
}

impl<T> Deref for Section<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.table
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Section<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Table<T>>::deserialize(deserializer)?;
        Ok(Self { span: spanned.span(), table: spanned.into_inner().0 })
    }
}

struct Table<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Table<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OnlyMap<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for OnlyMap<T> {
            type Value = Table<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Table<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Table)
            }
        }

        deserializer.deserialize_any(OnlyMap(PhantomData))
    }
}
