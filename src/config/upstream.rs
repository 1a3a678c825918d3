//! Where a route forwards to, parsed once at load.

use std::fmt;
use std::sync::Arc;

use http::uri::{Authority, Uri};
use tokio_rustls::rustls::pki_types::ServerName;

use super::path::{CanonicalPath, PathError};
use crate::tls::Client;

/// Where a route forwards to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    pub to: Destination,
    /// Prepended to the request's path. Empty, or starts with a slash; never ends with one.
    pub base_path: String,
}

/// All that makes two connections interchangeable: what one route has connected to, another with the same destination
/// may use.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Destination {
    /// Always with a port.
    pub authority: Authority,
    /// None: plain HTTP.
    pub tls: Option<Arc<Client>>,
}

/// `http[s]://host[:port][/base]`, as it is written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(super) https: bool,
    authority: Authority,
    base_path: String,
}

/// Why a URL is no upstream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    #[error("{0:?} is not a URL with a scheme and a host")]
    NotUrl(String),
    #[error("the scheme {0:?} is unknown")]
    Scheme(String),
    #[error("an upstream URL holds no user name or password")]
    UserInfo,
    #[error("an upstream URL has no query and no fragment")]
    Query,
    #[error("the port is not between 1 and 65535")]
    Port,
    #[error(transparent)]
    Path(#[from] PathError),
}

impl Url {
    pub(crate) fn parse(url: &str) -> Result<Self, UpstreamError> {
        let not_url = || UpstreamError::NotUrl(url.to_owned());
        // The URI parser drops fragments without a word.
        if url.contains(['?', '#']) {
            return Err(UpstreamError::Query);
        }
        let uri: Uri = url.parse().map_err(|_| not_url())?;
        let https = match uri.scheme_str().ok_or_else(not_url)? {
            "http" => false,
            "https" => true,
            scheme => return Err(UpstreamError::Scheme(scheme.to_owned())),
        };
        let authority = uri.authority().ok_or_else(not_url)?;
        if authority.as_str().contains('@') {
            return Err(UpstreamError::UserInfo);
        }
        let port = port(authority, if https { 443 } else { 80 })?;
        let authority: Authority = format!("{}:{port}", authority.host()).parse().map_err(|_| not_url())?;
        if https && server_name(&authority).is_none() {
            return Err(not_url());
        }
        CanonicalPath::parse(uri.path())?;
        let base_path = uri.path().strip_suffix('/').unwrap_or(uri.path()).to_owned();
        Ok(Self { https, authority, base_path })
    }

    /// The name that the upstream's certificate is for, if nothing else is said.
    pub(super) fn server_name(&self) -> ServerName<'static> {
        server_name(&self.authority).expect("the host was looked at when the URL was read")
    }

    pub(crate) fn with(self, tls: Option<Arc<Client>>) -> Upstream {
        Upstream { to: Destination { authority: self.authority, tls }, base_path: self.base_path }
    }
}

fn server_name(authority: &Authority) -> Option<ServerName<'static>> {
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(host.to_owned()).ok()
}

fn port(authority: &Authority, usual: u16) -> Result<u16, UpstreamError> {
    match authority.as_str().strip_prefix(authority.host()) {
        None | Some("" | ":") => Ok(usual),
        Some(_) => authority.port_u16().filter(|port| *port > 0).ok_or(UpstreamError::Port),
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.to.tls.is_some() { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.to.authority, self.base_path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_an_authority_with_a_port_and_a_base_path() {
        for (url, printed) in [
            ("http://127.0.0.1:9000", "http://127.0.0.1:9000"),
            ("http://ledger.internal/", "http://ledger.internal:80"),
            ("http://ledger.internal:/api/v1/", "http://ledger.internal:80/api/v1"),
            ("http://[::1]:9000/a%20b", "http://[::1]:9000/a%20b"),
            ("http://[::1]", "http://[::1]:80"),
        ] {
            assert_eq!(Url::parse(url).unwrap().with(None).to_string(), printed, "{url}");
        }
    }

    #[test]
    fn the_port_of_https_is_another() {
        let url = Url::parse("https://ledger.internal/api").unwrap();
        assert_eq!((url.https, url.authority.as_str()), (true, "ledger.internal:443"));
        assert_eq!(url.server_name(), "ledger.internal".try_into().unwrap());
        assert_eq!(Url::parse("https://[::1]").unwrap().server_name(), "::1".try_into().unwrap());
    }

    #[test]
    fn what_cannot_be_forwarded_to_is_refused() {
        for (url, error) in [
            ("127.0.0.1:9000", UpstreamError::NotUrl("127.0.0.1:9000".into())),
            ("/a", UpstreamError::NotUrl("/a".into())),
            ("", UpstreamError::NotUrl("".into())),
            ("http://", UpstreamError::NotUrl("http://".into())),
            ("https://a_b-", UpstreamError::NotUrl("https://a_b-".into())),
            ("unix://a", UpstreamError::Scheme("unix".into())),
            ("http://user:pw@a", UpstreamError::UserInfo),
            ("http://a/?b", UpstreamError::Query),
            ("http://a/#b", UpstreamError::Query),
            ("http://a:0", UpstreamError::Port),
            ("http://a:65536", UpstreamError::Port),
            ("http://a/b//c", UpstreamError::Path(PathError::EmptySegment)),
            ("http://a/b/../c", UpstreamError::Path(PathError::DotSegment)),
        ] {
            assert_eq!(Url::parse(url), Err(error), "{url:?}");
        }
    }
}
