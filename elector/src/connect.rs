//! A backend from its URL: the only place that knows which there are.

use std::error::Error;
use std::sync::Arc;

use crate::ClientTls;
use crate::backend::Backend;
use crate::secrets::{self, SecretError};

/// What the URLs of this build's backends look like, for messages.
const KNOWN: &[&str] = &[
    #[cfg(feature = "highgate")]
    "highgate://127.0.0.1:9901",
    #[cfg(feature = "etcd")]
    "etcd://127.0.0.1:2379",
];

/// A URL names no backend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    #[error("`{url}` is not the URL of a backend, which looks like {}", KNOWN.join(" or "))]
    NoUrl { url: String },
    #[error("there is no backend for `{scheme}://` in this build; there is {}", KNOWN.join(", "))]
    UnknownScheme { scheme: String },
    #[error("the URL `{url}` is not usable: {detail}")]
    BadUrl { url: String, detail: String },
    #[error("there is no secret for the gateway's elections: {detail}")]
    Secret { detail: String },
}

/// The backend that a URL names. Nothing is sent yet, so a backend that is down is found out by the first campaign.
/// A gateway that wants a secret gets the one that the environment has or names ([`secrets::find`]).
/// So it is with the files for TLS with gateways ([`ClientTls::from_environment`]).
pub fn connect(url: &str) -> Result<Arc<dyn Backend>, ConnectError> {
    let secret = match is_gateway(url) {
        true => secrets::find(secrets::ELECTIONS_TOKEN).map_err(|error| unreadable(&error))?,
        false => None,
    };
    connect_with_secret(url, secret.as_deref())
}

/// Says it with its cause.
pub(crate) fn unreadable(error: &SecretError) -> ConnectError {
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    ConnectError::Secret { detail: format!("{error}{cause}") }
}

/// Like [`connect`], with the secret for a gateway's elections from elsewhere than the environment, or without one. Other
/// backends have theirs in the URL.
pub fn connect_with_secret(url: &str, secret: Option<&str>) -> Result<Arc<dyn Backend>, ConnectError> {
    connect_with(url, secret, &ClientTls::from_environment())
}

/// Whether a URL names gateways, which a secret and [`ClientTls`] are for.
pub fn is_gateway(url: &str) -> bool {
    url.starts_with("highgate://") || url.starts_with("highgates://")
}

/// Like [`connect_with_secret`], and with the files for TLS with gateways from elsewhere than the environment as well. What the
/// URL itself names goes before them.
#[cfg_attr(not(feature = "highgate"), allow(unused_variables, reason = "they are for gateways"))]
pub fn connect_with(
    url: &str,
    secret: Option<&str>,
    tls: &ClientTls,
) -> Result<Arc<dyn Backend>, ConnectError> {
    let (scheme, _) = url.split_once("://").ok_or_else(|| ConnectError::NoUrl { url: shown(url) })?;
    match scheme {
        #[cfg(feature = "highgate")]
        "highgate" | "highgates" => {
            Ok(Arc::new(crate::backend::highgate::Highgate::connect(url, secret, tls)?))
        }
        #[cfg(feature = "etcd")]
        "etcd" => {
            Ok(Arc::new(crate::backend::etcd::EtcdBackend::connect(url).map_err(|error| bad(url, error))?))
        }
        _ => Err(ConnectError::UnknownScheme { scheme: scheme.to_owned() }),
    }
}

#[cfg(feature = "etcd")]
fn bad(url: &str, error: crate::backend::BackendError) -> ConnectError {
    use crate::backend::BackendError::{Refused, Unavailable};
    let (Refused { detail, .. } | Unavailable { detail, .. }) = error;
    ConnectError::BadUrl { url: shown(url), detail }
}

/// A URL as messages and logs may show it: without a user's password.
pub(crate) fn shown(url: &str) -> String {
    let (before, rest) =
        url.split_once("://").map_or(("", url), |(scheme, rest)| (&url[..scheme.len() + 3], rest));
    match rest.rsplit_once('@') {
        Some((_, place)) => format!("{before}***@{place}"),
        None => url.to_owned(),
    }
}

#[cfg(all(test, feature = "highgate"))]
mod tests {
    use super::*;

    fn error(url: &str) -> String {
        connect(url).err().expect("an error").to_string()
    }

    #[test]
    fn a_password_is_never_shown() {
        assert_eq!(shown("etcd://u:p@ss@h:1/x"), "etcd://***@h:1/x");
        assert_eq!(shown("u:pass@h"), "***@h");
        assert_eq!(shown("etcd://h:1"), "etcd://h:1");
        assert!(!error("u:secret@h").contains("secret"));
    }

    #[test]
    fn a_url_that_names_no_backend_says_what_there_is() {
        assert!(connect("highgate://127.0.0.1:9901").is_ok());
        assert!(connect("highgate://gateway.internal:9901/").is_ok());
        let unknown = error("raft://a:1");
        let expected = "there is no backend for `raft://` in this build; there is highgate://127.0.0.1:9901";
        assert!(unknown.starts_with(expected), "{unknown}");
        assert!(error("127.0.0.1:9901").contains("highgate://127.0.0.1:9901"));
        assert!(error("highgate://127.0.0.1").contains("port"));
        assert!(error("highgate://me@127.0.0.1:1").contains("not usable"));
        assert!(error("highgate://127.0.0.1:1/elections").contains("not usable"));
        assert!(error("highgate://127.0.0.1:1?tls=yes").contains("only ca, cert and key"));
    }

    #[test]
    fn files_for_tls_are_read_when_it_connects() {
        let half = ClientTls { cert: Some("c.pem".into()), ..ClientTls::default() };
        let error = |tls| connect_with("highgate://a:1", None, tls).err().expect("an error").to_string();
        let missing = ClientTls { ca: Some("/no/such/file".into()), ..ClientTls::default() };
        if cfg!(feature = "tls") {
            assert!(error(&half).contains("a certificate and its key come together"), "{}", error(&half));
            assert!(error(&missing).contains("/no/such/file cannot be read"), "{}", error(&missing));
        } else {
            assert!(error(&missing).contains("no TLS"), "{}", error(&missing));
        }
    }
}
