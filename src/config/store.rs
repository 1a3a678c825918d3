//! `[store]` and `--etcd`: where the marks are durable, in a file of this process or in etcd.
//!
//! `sections` calls [`build`] once a load. Certificates and the password are read here, so that a wrong path is
//! an error at the start and not at the first request. What must stay true: a key of one kind of store is
//! never silently ignored by the other, and nothing here prints a password.

#[cfg(test)]
mod tests;

use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;

use highgate_etcd::url::{DEFAULT_PREFIX, EtcdUrl, Login, Tls};

use super::endpoints::{self, Endpoints, Scheme};
use super::error::Report;
use super::raw::{RawStore, RawTls, RawUser, Section, Text};
use super::scope::{Scope, any_duration};
use super::{Etcd, Overrides, Store};

const DEFAULT_VALIDITY: Duration = Duration::from_secs(4);
/// Below, a short stall of etcd would take every replica out; above, a dead one would hold up raises for minutes.
pub(crate) const VALIDITIES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(60);

const DEFAULT_HISTORY: Duration = Duration::from_secs(60 * 60);
/// Below, a gateway that reads everything at one revision might not be done with it.
const SHORTEST_HISTORY: Duration = Duration::from_secs(10);

/// Each takes some hundred bytes of memory, and as much again on disk or in etcd.
const DEFAULT_RESOURCES: usize = 1_000_000;

/// Judges the table; a flag for etcd stands over its kind and endpoints. The number is that of the resources which requests
/// may make, whatever the kind.
pub(super) fn build(
    raw: Option<Section<RawStore>>,
    overrides: &Overrides,
    report: &mut Report<'_>,
) -> (Store, usize) {
    let raw = raw.unwrap_or_default();
    let most = raw.max_resources.clone();
    let most =
        Scope::new(report, "store").number("max_resources", most, DEFAULT_RESOURCES, 1..=1_000_000_000);
    (durable(raw, overrides, report), most)
}

fn durable(raw: Section<RawStore>, overrides: &Overrides, report: &mut Report<'_>) -> Store {
    let (span, mut raw) = (raw.span.clone(), raw.into_table());
    let mut scope = Scope::new(report, "store");
    let named = raw.kind.is_some();
    let kind = scope.read("kind", raw.kind.take(), |kind| kind_of(&kind));
    let path = scope.read("path", raw.path.take(), folder);
    let path = overrides.data_dir.clone().or(path).unwrap_or_else(|| "./highgate-data".into());
    match kind {
        _ if overrides.etcd.is_some() => etcd(raw, &span, path, overrides, report),
        Some(Kind::Etcd) => etcd(raw, &span, path, overrides, report),
        Some(Kind::Embedded) => embedded(&raw, path, &mut scope),
        None if !named => embedded(&raw, path, &mut scope),
        // A kind that is none is reported; what the other keys should be is anybody's guess.
        None => Store::Embedded { path },
    }
}

enum Kind {
    Embedded,
    Etcd,
}

impl Store {
    /// The data folder of this process.
    pub fn folder(&self) -> &Path {
        match self {
            Self::Embedded { path } => path,
            Self::Etcd(etcd) => &etcd.path,
        }
    }
}

fn kind_of(word: &str) -> Result<Kind, String> {
    match word {
        "embedded" => Ok(Kind::Embedded),
        "etcd" => Ok(Kind::Etcd),
        _ => Err(format!("unknown value {word:?}")),
    }
}

fn folder(path: String) -> Result<PathBuf, &'static str> {
    if path.is_empty() { Err("is empty") } else { Ok(PathBuf::from(path)) }
}

fn embedded(raw: &RawStore, path: PathBuf, scope: &mut Scope<'_, '_>) -> Store {
    let etcd_only = [
        ("endpoints", raw.endpoints.as_ref().map(|endpoints| endpoints.span())),
        ("prefix", raw.prefix.as_ref().map(|prefix| prefix.span())),
        ("tls", raw.tls.as_ref().map(|tls| tls.span.clone())),
        ("user", raw.user.as_ref().map(|user| user.span.clone())),
        ("validity", raw.validity.as_ref().map(|validity| validity.span())),
        ("compact", raw.compact.as_ref().map(|compact| compact.span())),
    ];
    for (name, span) in etcd_only {
        if let Some(span) = span {
            scope.problem(span, name, "belongs to the etcd store, and this store is embedded");
        }
    }
    Store::Embedded { path }
}

fn etcd(
    raw: RawStore,
    span: &Range<usize>,
    path: PathBuf,
    overrides: &Overrides,
    report: &mut Report<'_>,
) -> Store {
    let mut scope = Scope::new(report, "store");
    let prefix = scope.read("prefix", raw.prefix, prefix);
    let validity = scope.read("validity", raw.validity, |text| validity(&text));
    let compact = scope.read("compact", raw.compact, |text| history(&text));
    if raw.endpoints.is_none() && overrides.etcd.is_none() {
        scope.problem(span.clone(), "endpoints", "is missing: the etcd store needs its etcd");
    }
    // The file's are judged even where the flag stands over them.
    let file = raw.endpoints.map(|endpoints| endpoints::of_file(endpoints, report));
    let flag = overrides.etcd.as_deref().map(|urls| endpoints::of_flag(urls, report));
    let endpoints = flag.or(file).unwrap_or_default();
    check_security(&endpoints, raw.tls.as_ref(), report);
    let tls = raw.tls.and_then(|tls| read_tls(tls, report));
    let login = raw.user.and_then(|user| read_user(user, report));
    let prefix = prefix.unwrap_or_else(|| DEFAULT_PREFIX.to_owned());
    let url = EtcdUrl { endpoints: endpoints.names, prefix, login, tls };
    let validity = validity.unwrap_or(DEFAULT_VALIDITY);
    Store::Etcd(Etcd { url, path, validity, compact: compact.unwrap_or(Some(DEFAULT_HISTORY)) })
}

fn prefix(text: String) -> Result<String, String> {
    let Some(segments) = text.strip_prefix('/') else {
        return Err(format!("{text:?} does not begin with a slash"));
    };
    if segments.split('/').any(str::is_empty) {
        return Err(format!("{text:?} has a slash at its end, or two in a row"));
    }
    if text.contains(|character: char| character.is_whitespace() || character.is_control()) {
        return Err(format!("{text:?} has a space or a control character"));
    }
    Ok(text)
}

fn validity(text: &str) -> Result<Duration, String> {
    let validity = any_duration(text)?;
    if VALIDITIES.contains(&validity) { Ok(validity) } else { Err(format!("{text:?} is out of range")) }
}

/// How much history stays; none: nothing is compacted.
fn history(text: &str) -> Result<Option<Duration>, String> {
    match text {
        "off" => Ok(None),
        _ => match any_duration(text)? {
            history if history >= SHORTEST_HISTORY => Ok(Some(history)),
            _ => Err(format!("{text:?} is out of range")),
        },
    }
}

/// TLS is used if and only if the authority to trust is named, and the endpoints have to agree with that.
fn check_security(endpoints: &Endpoints, tls: Option<&Section<RawTls>>, report: &mut Report<'_>) {
    match (endpoints.scheme, tls) {
        (Some(Scheme::Https), None) => {
            let what = "https:// needs store.tls with its ca: only the authority named there is trusted";
            endpoints.complain(what, report);
        }
        (Some(Scheme::Http), Some(tls)) => {
            let what = "the endpoints are http:// ones, so nothing would be encrypted: make them https://";
            report.add(tls.span.clone(), "store.tls".to_owned(), what);
        }
        _ => {}
    }
}

fn read_tls(section: Section<RawTls>, report: &mut Report<'_>) -> Option<Tls> {
    let (span, raw) = (section.span.clone(), section.into_table());
    let mut scope = Scope::new(report, "store.tls");
    if raw.ca.is_none() {
        scope.problem(span, "ca", "is missing: only the authority named here is trusted");
    }
    scope.check_pair(&raw.cert, &raw.key);
    let mut read = |name, file: Text, what| scope.read(name, file, |file| read_pem(Path::new(&file), what));
    let ca = read("ca", raw.ca, "CERTIFICATE");
    let cert = read("cert", raw.cert, "CERTIFICATE");
    let key = read("key", raw.key, "PRIVATE KEY");
    Some(Tls { ca: ca?, identity: cert.zip(key) })
}

/// `what` is the end of a PEM label: a private key has several.
fn read_pem(file: &Path, what: &str) -> Result<Vec<u8>, String> {
    let bytes = std::fs::read(file).map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    let is_label =
        |line: &str| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(&format!("{what}-----"));
    if String::from_utf8_lossy(&bytes).lines().any(is_label) {
        return Ok(bytes);
    }
    Err(format!("{} holds no {} in PEM", file.display(), what.to_lowercase()))
}

fn read_user(section: Section<RawUser>, report: &mut Report<'_>) -> Option<Login> {
    let (span, raw) = (section.span.clone(), section.into_table());
    let mut scope = Scope::new(report, "store.user");
    let name = |name: String| if name.is_empty() { Err("is empty") } else { Ok(name) };
    let user = scope.require("name", &span, raw.name, name);
    let password =
        scope.require("password_file", &span, raw.password_file, |file| read_password(Path::new(&file)));
    Some(Login { user: user?, password: password? })
}

fn read_password(file: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    let password = text.strip_suffix('\n').unwrap_or(&text);
    let password = password.strip_suffix('\r').unwrap_or(password);
    if password.is_empty() || password.contains(char::is_control) {
        return Err(format!("{} does not hold one line with a password", file.display()));
    }
    Ok(password.to_owned())
}

impl Store {
    /// The keys that differ in `other`.
    pub(super) fn changes(&self, other: &Self) -> Vec<&'static str> {
        let changes = match (self, other) {
            (Self::Embedded { path }, Self::Embedded { path: new }) => vec![("store.path", path != new)],
            (Self::Etcd(etcd), Self::Etcd(new)) => vec![
                ("store.path", etcd.path != new.path),
                ("store.endpoints", etcd.url.endpoints != new.url.endpoints),
                ("store.prefix", etcd.url.prefix != new.url.prefix),
                ("store.tls", etcd.url.tls != new.url.tls),
                ("store.user", etcd.url.login != new.url.login),
                ("store.validity", etcd.validity != new.validity),
                ("store.compact", etcd.compact != new.compact),
            ],
            _ => vec![("store.kind", true)],
        };
        changes.into_iter().filter(|(_, changed)| *changed).map(|(key, _)| key).collect()
    }
}
