//! From the raw file and the overrides to a [`Config`]: every table but the store and the routes, and all defaults.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::Path;
use std::thread::available_parallelism;
use std::time::Duration;

use highgate_elector::headers;
use http::HeaderName;

use super::error::{ConfigError, Report};
use super::raw::{Raw, RawAuth, RawListen, RawLog, RawPort, RawShutdown, Section, Text};
use super::scope::{Scope, age};
use super::words::{AccessLog, LogFormat};
use super::{
    Admin, Config, Listen, Log, Metrics, Once, Overrides, Secret, Shutdown, elections, keys, routing, store,
};

/// How long the run-once ledger keeps its entries: longer than any period that jobs are usually named after.
const KEEP_ONCE: Duration = Duration::from_secs(90 * 24 * 60 * 60);

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
    headers::REASON,
    headers::OUTCOME,
];

/// Judges the whole file at once; `report` knows where its spans point to.
pub(super) fn build(raw: Raw, overrides: &Overrides, mut report: Report<'_>) -> Result<Config, ConfigError> {
    let admin_span =
        raw.admin.as_ref().and_then(|admin| admin.address.as_ref()).map(|address| address.span());
    let listen = listen(table(raw.listen), overrides, &mut Scope::new(&mut report, "listen"));
    let admin = admin(table(raw.admin), overrides, &mut report);
    check_addresses(&listen, &admin, admin_span, &mut report);
    let elections = elections::build(raw.elections, overrides, &mut report);
    elections.check(listen.address, &admin, &mut report);
    let store = store::build(raw.store, overrides, &mut report);
    let log = log(table(raw.log), overrides, &mut report);
    let shutdown = shutdown(table(raw.shutdown), &mut Scope::new(&mut report, "shutdown"));
    let max_resources = table(raw.metrics).max_resources;
    let max_resources =
        Scope::new(&mut report, "metrics").number("max_resources", max_resources, 1000, 0..=1_000_000);
    let keep = table(raw.once).keep;
    let keep = Scope::new(&mut report, "once").read("keep", keep, |text| age(&text));
    let once = Once { keep: keep.unwrap_or(KEEP_ONCE) };
    let routes = routing::build(raw.routes.unwrap_or_default(), overrides, &mut report);
    let (elections, metrics) = (elections.port, Metrics { max_resources });
    report.finish(Config { listen, admin, elections, store, log, shutdown, metrics, once, routes })
}

fn table<T: Default>(section: Option<Section<T>>) -> T {
    section.map(Section::into_table).unwrap_or_default()
}

fn listen(raw: RawListen, overrides: &Overrides, scope: &mut Scope<'_, '_>) -> Listen {
    scope.refuse("tls", &raw.tls, "this version serves plain HTTP only");
    let workers = match scope.number("workers", raw.workers, 0, 0..=1024) {
        0 => available_parallelism().map_or(1, usize::from),
        workers => workers,
    };
    Listen {
        address: address(scope, raw.address, overrides.listen, 8080),
        workers,
        header_timeout: scope.duration("header_timeout", raw.header_timeout, Duration::from_secs(10)),
        idle_timeout: scope.duration("idle_timeout", raw.idle_timeout, Duration::from_secs(75)),
        request_timeout: scope.duration("request_timeout", raw.request_timeout, Duration::from_secs(30)),
        max_connections: scope.number("max_connections", raw.max_connections, 10_000, 1..=1_000_000),
        token_header: scope
            .read("token_header", raw.token_header, |name| token_header(&name))
            .unwrap_or(HeaderName::from_static(headers::TOKEN)),
    }
}

/// The address of a port: the file's is judged even where a flag stands over it.
pub(super) fn address(
    scope: &mut Scope<'_, '_>,
    raw: Text,
    flag: Option<SocketAddr>,
    default_port: u16,
) -> SocketAddr {
    let parse = |text: String| text.parse().map_err(|_| format!("{text:?} is not an address"));
    let file: Option<SocketAddr> = scope.read("address", raw, parse);
    flag.or(file).unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, default_port)))
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

fn admin(raw: RawPort, overrides: &Overrides, report: &mut Report<'_>) -> Admin {
    let address = address(&mut Scope::new(report, "admin"), raw.address, overrides.admin, 9901);
    Admin { address, auth: auth("admin.auth", raw.auth, report) }
}

/// The secret of a port, from the file that its `auth` table names.
pub(super) fn auth(key: &str, raw: Option<Section<RawAuth>>, report: &mut Report<'_>) -> Option<Secret> {
    let raw = raw?;
    let span = raw.span.clone();
    let read = |file: String| read_bearer(Path::new(&file));
    Scope::new(report, key).require("bearer_file", &span, raw.into_table().bearer_file, read)
}

fn read_bearer(file: &Path) -> Result<Secret, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    let bearer = text.strip_suffix('\n').unwrap_or(&text);
    let bearer = bearer.strip_suffix('\r').unwrap_or(bearer);
    if bearer.is_empty() || !bearer.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!("{} does not hold a bearer token", file.display()));
    }
    Ok(Secret { bearer: bearer.to_owned() })
}

/// Port 0 is a different port every time.
fn check_addresses(listen: &Listen, admin: &Admin, span: Option<Range<usize>>, report: &mut Report<'_>) {
    let (data, admin) = (listen.address, admin.address);
    if !are_one(data, admin) {
        return;
    }
    let what = format!("the admin port {admin} and the data port {data} are one");
    match span {
        Some(span) => report.add(span, "admin.address".to_owned(), what),
        None => report.add_flag("--admin", what, keys::allowed("admin.address").unwrap_or_default()),
    }
}

/// Whether two listeners would want the same port.
pub(super) fn are_one(one: SocketAddr, other: SocketAddr) -> bool {
    let same_ip = one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && same_ip
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
