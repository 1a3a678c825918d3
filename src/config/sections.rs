//! From the raw file and the overrides to a [`Config`]: every table but the store and the routes, and all defaults.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use highgate_elector::headers;
use http::HeaderName;

use super::error::{ConfigError, Report};
use super::raw::{Raw, RawHistory, RawListen, RawLog, RawShutdown, Section};
use super::scope::{DISK_SIZES, Scope, age, size};
use super::tls::RawProtection;
use super::words::{AccessLog, LogFormat};
use super::{
    Admin, Config, History, Listen, Log, Metrics, Once, Overrides, Shutdown, address, dev_tls, elections,
    grants, keys, limits, proxies, routing, secrets, signing, store, tls,
};
use crate::tls::{Protocols, Server};

/// How long the run-once ledger keeps its entries: longer than any period that jobs are usually named after.
const KEEP_ONCE: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// How long the history is kept, and how large it gets: some 600,000 events.
const KEEP_HISTORY: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const HISTORY_SIZE: u64 = 64 << 20;

/// Headers that mean something to the gateway already.
const TAKEN_HEADERS: &[&str] = &[
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    headers::RESOURCE,
    headers::CREDENTIAL,
    headers::REASON,
    headers::OUTCOME,
];

/// Judges the whole file at once; `report` knows where its spans point to.
pub(super) fn build(raw: Raw, overrides: &Overrides, mut report: Report<'_>) -> Result<Config, ConfigError> {
    let mut raw_listen = table(raw.listen);
    let data = address::DATA.read(raw_listen.address.take(), overrides.listen, &mut report);
    let protection = RawProtection { tls: raw_listen.tls.take(), insecure: raw_listen.insecure.take() };
    let encrypted = tls::build(protection, &data, Protocols::Http1AndHttp2, overrides, &mut report);
    let listen = listen(raw_listen, data.value, encrypted, &mut Scope::new(&mut report, "listen"));
    let mut raw_admin = table(raw.admin);
    let operators = address::ADMIN.read(raw_admin.address.take(), overrides.admin, &mut report);
    operators.check_apart(&data, &mut report);
    let protection = RawProtection { tls: raw_admin.tls.take(), insecure: raw_admin.insecure.take() };
    let admin = Admin {
        address: operators.value,
        auth: secrets::auth("admin", raw_admin.auth, &mut report),
        tls: tls::build(protection, &operators, Protocols::Http1, overrides, &mut report),
    };
    let elections = elections::build(raw.elections, overrides, &mut report);
    elections.check([&data, &operators], &admin, &mut report);
    let (store, max_resources) = store::build(raw.store, overrides, &mut report);
    let log = log(table(raw.log), overrides, &mut report);
    let shutdown = shutdown(table(raw.shutdown), &mut Scope::new(&mut report, "shutdown"));
    let with_series = table(raw.metrics).max_resources;
    let with_series =
        Scope::new(&mut report, "metrics").number("max_resources", with_series, 1000, 0..=1_000_000);
    let keep = table(raw.once).keep;
    let keep = Scope::new(&mut report, "once").read("keep", keep, |text| age(&text));
    let once = Once { keep: keep.unwrap_or(KEEP_ONCE) };
    let history = history(table(raw.history), &mut Scope::new(&mut report, "history"));
    let (elections, metrics) = (elections.port, Metrics { max_resources: with_series });
    let ports = [admin.auth.as_ref(), elections.as_ref().and_then(|port| port.auth.as_ref())];
    let secrets = secrets::build(raw.secrets, ports, &mut report);
    let grants = grants::build(raw.grants.unwrap_or_default(), &mut report);
    let signing = signing::build(raw.signing, &store, &mut report);
    signing::check_flag(overrides, &signing, &mut report);
    let routes = routing::build(raw.routes.unwrap_or_default(), overrides, &signing, &mut report);
    let mut config = report.finish(Config {
        listen,
        admin,
        elections,
        store,
        max_resources,
        log,
        shutdown,
        metrics,
        once,
        history,
        secrets,
        signing,
        grants,
        routes,
        dev_tls: None,
    })?;
    if overrides.dev_tls {
        dev_tls::put_on(&mut config)?;
    }
    Ok(config)
}

fn table<T: Default>(section: Option<Section<T>>) -> T {
    section.map(Section::into_table).unwrap_or_default()
}

fn listen(
    mut raw: RawListen,
    address: SocketAddr,
    tls: Option<Arc<Server>>,
    scope: &mut Scope<'_, '_>,
) -> Listen {
    let limits = limits::build(&mut raw, scope);
    let proxies = proxies::build(raw.proxy_protocol.take(), scope);
    let workers = match scope.number("workers", raw.workers, 0, 0..=1024) {
        0 => available_parallelism().map_or(1, usize::from),
        workers => workers,
    };
    Listen {
        address,
        workers,
        header_timeout: scope.duration("header_timeout", raw.header_timeout, Duration::from_secs(10)),
        idle_timeout: scope.duration("idle_timeout", raw.idle_timeout, Duration::from_secs(75)),
        request_timeout: scope.duration("request_timeout", raw.request_timeout, Duration::from_secs(30)),
        max_connections: scope.number("max_connections", raw.max_connections, 10_000, 1..=1_000_000),
        limits,
        token_header: scope
            .read("token_header", raw.token_header, |name| token_header(&name))
            .unwrap_or(HeaderName::from_static(headers::TOKEN)),
        proxies,
        tls,
    }
}

fn token_header(name: &str) -> Result<HeaderName, String> {
    let header =
        HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} is not a header name"))?;
    // With `_` for `-` it is the same header to many servers.
    if TAKEN_HEADERS.contains(&header.as_str().replace('_', "-").as_str()) {
        return Err(format!("{name:?} has another meaning"));
    }
    Ok(header)
}

fn log(raw: RawLog, overrides: &Overrides, report: &mut Report<'_>) -> Log {
    let mut scope = Scope::new(report, "log");
    let format = scope.word("format", raw.format, LogFormat::Text);
    let access = scope.word("access", raw.access, AccessLog::All);
    let level = scope.read("level", raw.level, level);
    let flag = overrides.log_level.clone().and_then(|text| {
        level_of_flag(text).map_err(|what| report.add_flag("--log-level", what, keys::LEVELS)).ok()
    });
    Log {
        format: overrides.log_format.unwrap_or(format),
        access,
        level: flag.or(level).unwrap_or_else(|| "info".to_owned()),
    }
}

fn level_of_flag(text: String) -> Result<String, String> {
    level(text).map_err(|what| format!("{what} (or in HIGHGATE_LOG_LEVEL)"))
}

fn level(text: String) -> Result<String, String> {
    if keys::LEVELS.split(", ").any(|level| level == text) {
        Ok(text)
    } else {
        Err(format!("unknown value {text:?}"))
    }
}

fn shutdown(raw: RawShutdown, scope: &mut Scope<'_, '_>) -> Shutdown {
    Shutdown {
        unready_delay: scope.duration_or_zero("unready_delay", raw.unready_delay, Duration::from_secs(1)),
        drain_limit: scope.duration("drain_limit", raw.drain_limit, Duration::from_secs(30)),
    }
}

fn history(raw: RawHistory, scope: &mut Scope<'_, '_>) -> History {
    History {
        keep: scope.read("keep", raw.keep, |text| age(&text)).unwrap_or(KEEP_HISTORY),
        max_size: scope
            .read("max_size", raw.max_size, |text| size(&text, DISK_SIZES))
            .unwrap_or(HISTORY_SIZE),
    }
}
