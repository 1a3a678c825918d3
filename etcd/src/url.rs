//! `etcd://[user:password@]h1:2379,h2:2379[/prefix][?ca=…&cert=…&key=…&sealed=…]`, taken apart.
//!
//! Called once per backend. The files that it names are read here, so that a wrong path is an error at the
//! start and not at the first failover. What must stay true: the password is never printed.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

/// Where an etcd cluster is and how to speak to it.
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdUrl {
    /// `host:port` of every endpoint, at least one.
    pub endpoints: Vec<String>,
    /// Below which every key is; no slash at its end.
    pub prefix: String,
    pub login: Option<Login>,
    pub tls: Option<Tls>,
}

/// A name and password for etcd's own users.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    pub user: String,
    pub password: String,
}

/// PEM, as read from the files that the URL names.
#[derive(Clone, PartialEq, Eq)]
pub struct Tls {
    /// Who may have signed the servers' certificates.
    pub ca: Vec<u8>,
    /// This client's certificate and key, when etcd asks for one.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// Why a string is not the URL of an etcd cluster.
#[derive(Debug, thiserror::Error)]
pub enum EtcdUrlError {
    #[error("an etcd URL begins with etcd://")]
    Scheme,
    #[error("an etcd URL names its endpoints as host:port, with commas between them: {0:?} is none")]
    Endpoint(String),
    #[error("before the @ is user:password, with other characters than letters and digits as %XX")]
    Login,
    #[error("an etcd URL has no parameter {0:?}, only ca, cert, key and sealed")]
    Parameter(String),
    #[error("sealed is yes or no, not {0:?}")]
    Sealed(String),
    #[error("cert and key come together, and with ca")]
    HalfTls,
    #[error("cannot read {}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
}

/// The prefix of who names none.
pub const DEFAULT_PREFIX: &str = "/highgate/default";

impl EtcdUrl {
    /// Takes the URL apart and reads the files that it names.
    pub fn parse(url: &str) -> Result<Self, EtcdUrlError> {
        let rest = url.strip_prefix("etcd://").ok_or(EtcdUrlError::Scheme)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(Login::parse(login)?), hosts),
            None => (None, authority),
        };
        let endpoints = hosts.split(',').map(parse_endpoint).collect::<Result<_, _>>()?;
        let prefix = Some(path.trim_end_matches('/')).filter(|path| !path.is_empty());
        Ok(Self {
            endpoints,
            prefix: prefix.unwrap_or(DEFAULT_PREFIX).to_owned(),
            login,
            tls: Tls::parse(query)?,
        })
    }
}

/// The URL without `sealed=yes` or `sealed=no`, which is about elections and not about the cluster; and what it
/// said: yes, unless it said no.
pub fn take_sealed(url: &str) -> Result<(String, bool), EtcdUrlError> {
    let (cluster, query) = url.split_once('?').unwrap_or((url, ""));
    let (mut sealed, mut others) = (true, Vec::new());
    for parameter in query.split('&') {
        match parameter.split_once('=').unwrap_or((parameter, "")) {
            ("sealed", "yes") => sealed = true,
            ("sealed", "no") => sealed = false,
            ("sealed", other) => return Err(EtcdUrlError::Sealed(other.to_owned())),
            _ => others.push(parameter),
        }
    }
    Ok((format!("{cluster}?{}", others.join("&")), sealed))
}

impl fmt::Display for EtcdUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "etcd://{}{}", self.endpoints.join(","), self.prefix)
    }
}

impl fmt::Debug for EtcdUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EtcdUrl({self})")
    }
}

impl Login {
    fn parse(login: &str) -> Result<Self, EtcdUrlError> {
        let (user, password) = login.split_once(':').ok_or(EtcdUrlError::Login)?;
        let decode = |text| percent_decode(text).filter(|text| !text.is_empty()).ok_or(EtcdUrlError::Login);
        Ok(Self { user: decode(user)?, password: decode(password)? })
    }
}

impl Tls {
    fn parse(query: &str) -> Result<Option<Self>, EtcdUrlError> {
        let (mut ca, mut cert, mut key) = (None, None, None);
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let file = match name {
                "ca" => &mut ca,
                "cert" => &mut cert,
                "key" => &mut key,
                _ => return Err(EtcdUrlError::Parameter(name.to_owned())),
            };
            *file = Some(read(value)?);
        }
        match (ca, cert, key) {
            (None, None, None) => Ok(None),
            (Some(ca), None, None) => Ok(Some(Self { ca, identity: None })),
            (Some(ca), Some(cert), Some(key)) => Ok(Some(Self { ca, identity: Some((cert, key)) })),
            _ => Err(EtcdUrlError::HalfTls),
        }
    }
}

fn read(value: &str) -> Result<Vec<u8>, EtcdUrlError> {
    let path = percent_decode(value).unwrap_or_else(|| value.to_owned());
    std::fs::read(&path)
        .map_err(|source| EtcdUrlError::Unreadable { path: Path::new(&path).to_owned(), source })
}

/// A host with a port; an IPv6 address is in brackets.
pub fn parse_endpoint(endpoint: &str) -> Result<String, EtcdUrlError> {
    let refuse = || EtcdUrlError::Endpoint(endpoint.to_owned());
    let (host, port) = endpoint.rsplit_once(':').ok_or_else(refuse)?;
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(is_host_byte),
    };
    let is_port =
        port.bytes().all(|digit| digit.is_ascii_digit()) && port.parse().is_ok_and(|port: u16| port > 0);
    if is_host && is_port { Ok(endpoint.to_owned()) } else { Err(refuse()) }
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_')
}

fn percent_decode(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first != b'%' {
            decoded.push(*first);
            rest = after;
            continue;
        }
        let digits = std::str::from_utf8(after.get(..2)?).ok()?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        decoded.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &after[2..];
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_url_has_a_default_prefix() {
        let url = EtcdUrl::parse("etcd://h1:2379,[::1]:2380").unwrap();
        assert_eq!(url.endpoints, ["h1:2379", "[::1]:2380"]);
        assert_eq!(url.prefix, "/highgate/default");
        assert!(url.login.is_none() && url.tls.is_none());
        assert_eq!(EtcdUrl::parse("etcd://h:1/a/b/").unwrap().prefix, "/a/b");
    }

    #[test]
    fn the_password_is_decoded_and_never_printed() {
        let url = EtcdUrl::parse("etcd://me:s%40c%3Aret@h:1/p").unwrap();
        let login = url.login.as_ref().unwrap();
        assert_eq!((login.user.as_str(), login.password.as_str()), ("me", "s@c:ret"));
        assert_eq!(format!("{url} {url:?}"), "etcd://h:1/p EtcdUrl(etcd://h:1/p)");
    }

    #[test]
    fn the_files_of_tls_are_read_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, name).unwrap();
            path.display().to_string()
        };
        let (ca, cert, key) = (file("ca"), file("cert"), file("key"));
        let tls = EtcdUrl::parse(&format!("etcd://h:1?ca={ca}&cert={cert}&key={key}")).unwrap().tls.unwrap();
        assert_eq!((tls.ca, tls.identity), (b"ca".to_vec(), Some((b"cert".to_vec(), b"key".to_vec()))));
        for (query, error) in [
            (format!("ca={ca}&cert={cert}"), "cert and key come together, and with ca"),
            ("cacert=x".to_owned(), "an etcd URL has no parameter \"cacert\", only ca, cert, key and sealed"),
            ("ca=/no/such".to_owned(), "cannot read /no/such"),
        ] {
            assert_eq!(EtcdUrl::parse(&format!("etcd://h:1?{query}")).unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn elections_are_sealed_unless_the_url_says_no() {
        for (url, rest, sealed) in [
            ("etcd://h:1/p", "etcd://h:1/p?", true),
            ("etcd://h:1?sealed=yes", "etcd://h:1?", true),
            ("etcd://h:1?ca=x&sealed=no&cert=y", "etcd://h:1?ca=x&cert=y", false),
        ] {
            assert_eq!(take_sealed(url).unwrap(), (rest.to_owned(), sealed), "{url}");
        }
        let error = take_sealed("etcd://h:1?sealed=maybe").unwrap_err();
        assert_eq!(error.to_string(), "sealed is yes or no, not \"maybe\"");
    }

    #[test]
    fn what_is_no_endpoint_is_refused() {
        for url in [
            "http://h:1",
            "etcd://",
            "etcd://h",
            "etcd://h:1,",
            "etcd://::1:1",
            "etcd://h:99999",
            "etcd://h:0",
            "etcd://h:+1",
            "etcd://h 1:1",
            "etcd://[h]:1",
            "etcd://u@h:1",
        ] {
            assert!(EtcdUrl::parse(url).is_err(), "{url}");
        }
    }
}
