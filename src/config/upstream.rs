//! Where a route forwards to, parsed once at load.

use std::fmt;

use http::uri::{Authority, Uri};

use super::path::{CanonicalPath, PathError};

/// `http://host[:port][/base]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// Always with a port.
    pub authority: Authority,
    /// Prepended to the request's path. Empty, or starts with a slash; never ends with one.
    pub base_path: String,
}

/// Why a URL is no upstream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    #[error("{0:?} is not a URL with a scheme and a host")]
    NotUrl(String),
    #[error("https upstreams are not in this version")]
    Https,
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

impl Upstream {
    pub fn parse(url: &str) -> Result<Self, UpstreamError> {
        let not_url = || UpstreamError::NotUrl(url.to_owned());
        // The URI parser drops fragments without a word.
        if url.contains(['?', '#']) {
            return Err(UpstreamError::Query);
        }
        let uri: Uri = url.parse().map_err(|_| not_url())?;
        match uri.scheme_str().ok_or_else(not_url)? {
            "http" => {}
            "https" => return Err(UpstreamError::Https),
            scheme => return Err(UpstreamError::Scheme(scheme.to_owned())),
        }
        let authority = uri.authority().ok_or_else(not_url)?;
        if authority.as_str().contains('@') {
            return Err(UpstreamError::UserInfo);
        }
        let port = port(authority)?;
        let authority = format!("{}:{port}", authority.host()).parse().map_err(|_| not_url())?;
        CanonicalPath::parse(uri.path())?;
        let base_path = uri.path().strip_suffix('/').unwrap_or(uri.path()).to_owned();
        Ok(Self { authority, base_path })
    }
}

fn port(authority: &Authority) -> Result<u16, UpstreamError> {
    match authority.as_str().strip_prefix(authority.host()) {
        None | Some("" | ":") => Ok(80),
        Some(_) => authority.port_u16().filter(|port| *port > 0).ok_or(UpstreamError::Port),
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.base_path)
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
            assert_eq!(Upstream::parse(url).unwrap().to_string(), printed, "{url}");
        }
    }

    #[test]
    fn what_cannot_be_forwarded_to_is_refused() {
        for (url, error) in [
            ("127.0.0.1:9000", UpstreamError::NotUrl("127.0.0.1:9000".into())),
            ("/a", UpstreamError::NotUrl("/a".into())),
            ("", UpstreamError::NotUrl("".into())),
            ("http://", UpstreamError::NotUrl("http://".into())),
            ("https://a", UpstreamError::Https),
            ("unix://a", UpstreamError::Scheme("unix".into())),
            ("http://user:pw@a", UpstreamError::UserInfo),
            ("http://a/?b", UpstreamError::Query),
            ("http://a/#b", UpstreamError::Query),
            ("http://a:0", UpstreamError::Port),
            ("http://a:65536", UpstreamError::Port),
            ("http://a/b//c", UpstreamError::Path(PathError::EmptySegment)),
            ("http://a/b/../c", UpstreamError::Path(PathError::DotSegment)),
        ] {
            assert_eq!(Upstream::parse(url), Err(error), "{url:?}");
        }
    }
}
