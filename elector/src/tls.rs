//! What a user says of TLS with gateways: whose signature counts, and what is shown of oneself.
//!
//! The elector and the commands of `highgate` read the same three variables. What must stay true: whoever names one of
//! these files has said that TLS is meant, so that nothing is sent in the clear to a gateway that they were named for.

use std::env;
use std::path::PathBuf;
#[cfg(feature = "tls")]
use std::sync::Arc;

#[cfg(feature = "tls")]
use highgate_tls::{Client, ClientFiles, KeyPair, NoSystemRoots, SystemRoots, TlsError};

use crate::secrets::{CA, CERT, KEY};

/// The files for TLS with gateways, in PEM. They are looked at again with every new connection, so that certificates can be
/// renewed in place.
///
/// Naming any of them says that TLS is meant. Without the feature `tls` of this crate that is an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientTls {
    /// The authorities that may have signed a gateway's certificate; without it, those that the system trusts.
    pub ca: Option<PathBuf>,
    /// The certificate that is shown to a gateway, which is an identity there. It comes with its key.
    pub cert: Option<PathBuf>,
    /// The private key of the certificate.
    pub key: Option<PathBuf>,
}

/// Settings that no TLS can be spoken with.
#[cfg(feature = "tls")]
#[derive(Debug, thiserror::Error)]
pub enum TlsSettingsError {
    #[error(
        "a certificate and its key come together: name both, with --cert and --key or in {CERT} and {KEY}"
    )]
    HalfIdentity,
    #[error(transparent)]
    File(#[from] TlsError),
    #[error("{0}: name the one of the gateway's certificate with --ca or in {CA}")]
    NoAuthority(#[from] NoSystemRoots),
    #[error("{host:?} is not a name that a certificate can be for")]
    BadHost { host: String },
}

impl ClientTls {
    /// What the variables `HIGHGATE_CA`, `HIGHGATE_CERT` and `HIGHGATE_KEY` name.
    pub fn from_environment() -> Self {
        let file = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self { ca: file(CA), cert: file(CERT), key: file(KEY) }
    }

    /// What this does not name is as the other says. A certificate and its key are one thing.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let (cert, key) = match (self.cert, self.key) {
            (None, None) => (other.cert, other.key),
            own => own,
        };
        Self { ca: self.ca.or(other.ca), cert, key }
    }

    /// Whether any file is named, which says that TLS is meant.
    pub fn is_named(&self) -> bool {
        self.ca.is_some() || self.cert.is_some() || self.key.is_some()
    }

    /// Reads the files, for a gateway of this name or address (an IPv6 address may be in brackets).
    #[cfg(feature = "tls")]
    pub fn client(&self, host: &str, system: &SystemRoots) -> Result<Arc<Client>, TlsSettingsError> {
        let identity = match (&self.cert, &self.key) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some(KeyPair { cert: cert.clone(), key: key.clone() }),
            _ => return Err(TlsSettingsError::HalfIdentity),
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name = bare.to_owned().try_into();
        let name = name.map_err(|_| TlsSettingsError::BadHost { host: host.to_owned() })?;
        let system = if self.ca.is_none() { Some(system.load()?) } else { None };
        let files = ClientFiles { ca: self.ca.clone(), identity, name };
        Ok(Arc::new(Client::load(files, system)?))
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;

    fn named(ca: Option<&str>, cert: Option<&str>, key: Option<&str>) -> ClientTls {
        let [ca, cert, key] = [ca, cert, key].map(|name| name.map(PathBuf::from));
        ClientTls { ca, cert, key }
    }

    #[test]
    fn what_is_named_first_counts_and_a_certificate_keeps_its_key() {
        let environment = || named(Some("ca"), Some("cert"), Some("key"));
        assert_eq!(ClientTls::default().or(environment()), environment());
        let own = named(None, Some("own"), Some("own-key")).or(environment());
        assert_eq!(own, named(Some("ca"), Some("own"), Some("own-key")));
        let half = named(Some("other"), Some("own"), None).or(environment());
        assert_eq!(half, named(Some("other"), Some("own"), None), "no foreign key");
        let error = half.client("a.test", &SystemRoots::default()).unwrap_err();
        assert!(matches!(error, TlsSettingsError::HalfIdentity), "{error}");
    }

    #[test]
    fn any_file_says_that_tls_is_meant() {
        assert!(!ClientTls::default().is_named());
        for one in [(Some("f"), None, None), (None, Some("f"), None), (None, None, Some("f"))] {
            assert!(named(one.0, one.1, one.2).is_named());
        }
    }

    #[test]
    fn a_gateway_is_a_name_or_an_address() {
        let folder = tempfile::tempdir().unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let authority = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap();
        let ca = folder.path().join("ca.pem");
        std::fs::write(&ca, authority.pem()).unwrap();
        let tls = ClientTls { ca: Some(ca), ..ClientTls::default() };
        for host in ["gate.internal", "127.0.0.1", "[::1]", "::1"] {
            assert!(tls.client(host, &SystemRoots::default()).is_ok(), "{host}");
        }
        let error = tls.client("a_b c", &SystemRoots::default()).unwrap_err();
        assert!(error.to_string().contains("not a name that a certificate can be for"), "{error}");
    }
}
