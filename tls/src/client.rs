//! The client's side: whom a server's certificate has to be signed by, which name it has to have, and what is shown to it.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::sign::SingleCertAndKey;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_rustls::{Connect, TlsConnector};

use super::files::{Contents, KeyPair, TlsError, TlsProblem};
use super::live::{Live, Refresh};
use super::provider;

/// The files for a server, and the name that its certificate has to have.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientFiles {
    /// None: the authorities that this system trusts.
    pub ca: Option<PathBuf>,
    /// What is shown to a server that asks for it.
    pub identity: Option<KeyPair>,
    pub name: ServerName<'static>,
}

/// The way to a server that speaks TLS, with files that were good when they were read.
pub struct Client {
    files: ClientFiles,
    system: Option<Arc<RootCertStore>>,
    live: Live<State>,
}

struct State {
    config: Arc<ClientConfig>,
    /// The end of its own certificate.
    expires: Option<SystemTime>,
}

/// The authorities that this system trusts, read when they are first asked for.
#[derive(Default)]
pub struct SystemRoots(OnceLock<Option<Arc<RootCertStore>>>);

/// There are none to be found.
#[derive(Debug, thiserror::Error)]
#[error(
    "this system has no trusted authorities (neither the usual folders nor SSL_CERT_FILE and SSL_CERT_DIR name any)"
)]
pub struct NoSystemRoots;

impl SystemRoots {
    pub fn load(&self) -> Result<Arc<RootCertStore>, NoSystemRoots> {
        let read = || {
            let mut roots = RootCertStore::empty();
            // Some systems have files among them that are none; what can be read is what there is.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            (!roots.is_empty()).then(|| Arc::new(roots))
        };
        self.0.get_or_init(read).clone().ok_or(NoSystemRoots)
    }
}

impl Client {
    /// Reads the files. `system` is used where no `ca` is named.
    pub fn load(files: ClientFiles, system: Option<Arc<RootCertStore>>) -> Result<Self, TlsError> {
        let live = Live::new(files.all(), |contents| State::new(&files, system.as_ref(), contents, None))?;
        Ok(Self { files, system, live })
    }

    /// Shakes hands as the client, to speak this protocol after that and no other.
    pub fn connect<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S, protocol: &str) -> Connect<S> {
        let connector = TlsConnector::from(self.live.current().config.clone());
        let offering = connector.with_alpn(vec![protocol.as_bytes().to_vec()]);
        offering.connect(self.files.name.clone(), stream)
    }

    /// Reads the files again if they have changed. Connections that are open keep what they began with.
    pub fn refresh(&self) -> Refresh {
        self.live.refresh(self.files.all(), |contents, old| {
            State::new(&self.files, self.system.as_ref(), contents, Some(old))
        })
    }

    /// When its own certificate ends, if it has one.
    pub fn expires(&self) -> Option<SystemTime> {
        self.live.current().expires
    }

    /// Why the files, as they are now, are not in force.
    pub fn trouble(&self) -> Option<String> {
        self.live.trouble()
    }
}

impl State {
    fn new(
        files: &ClientFiles,
        system: Option<&Arc<RootCertStore>>,
        contents: &Contents,
        old: Option<&Self>,
    ) -> Result<Self, TlsError> {
        let roots = match (&files.ca, system) {
            (Some(ca), _) => Arc::new(contents.roots(ca)?),
            (None, Some(system)) => system.clone(),
            // Nobody is trusted, so every handshake fails.
            (None, None) => Arc::new(RootCertStore::empty()),
        };
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("ring has the cipher suites of TLS 1.2 and 1.3")
            .with_root_certificates(roots);
        let own = files.identity.as_ref().map(|pair| contents.certified(pair).map(|own| (own, pair)));
        let own = own.transpose()?;
        if let Some((certified, pair)) = &own
            && old.is_some()
            && certified.expires <= SystemTime::now()
        {
            return Err(TlsProblem::Expired(certified.expires).of(&pair.cert));
        }
        let expires = own.as_ref().map(|(certified, _)| certified.expires);
        let config = match own {
            Some((own, _)) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own.key))),
            None => builder.with_no_client_auth(),
        };
        Ok(Self { config: Arc::new(config), expires })
    }
}

impl ClientFiles {
    fn all(&self) -> impl Iterator<Item = &Path> {
        self.ca.iter().map(PathBuf::as_path).chain(self.identity.iter().flat_map(KeyPair::files))
    }
}

/// Two ways to a server with the same files are the same, whatever the files held when each was loaded: a connection
/// that one has made may be used by the other.
impl PartialEq for Client {
    fn eq(&self, other: &Self) -> bool {
        self.files == other.files
    }
}

impl Eq for Client {}

impl Hash for Client {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.files.hash(state);
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("files", &self.files).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Authority, replace};

    #[test]
    fn only_the_named_authority_is_trusted_and_files_that_change_are_taken() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::shared();
        let ca = authority.write(folder.path(), "ca.pem");
        let (cert, key) = authority.client("job-a").write(folder.path(), "own");
        let files = ClientFiles {
            ca: Some(ca.clone()),
            identity: Some(KeyPair { cert, key }),
            name: "ledger.test".try_into().unwrap(),
        };
        let client = Client::load(files.clone(), None).unwrap();
        assert!(client.expires().is_some());
        assert!(!client.live.current().config.enable_early_data, "early data can be replayed");
        authority.client("job-a").write(folder.path(), "own");
        assert_eq!(client.refresh(), Refresh::Renewed);
        replace(&ca, "nothing");
        client.refresh();
        assert!(matches!(client.refresh(), Refresh::Refused(_)));
        assert!(client.trouble().is_some_and(|trouble| trouble.contains("holds no certificate")));
        assert!(Client::load(files, None).is_err(), "a start would not take it");
    }

    #[test]
    fn connections_are_shared_by_who_names_the_same_files() {
        let folder = tempfile::tempdir().unwrap();
        let ca = Authority::shared().write(folder.path(), "ca.pem");
        let client = |name: &'static str| {
            let files = ClientFiles { ca: Some(ca.clone()), identity: None, name: name.try_into().unwrap() };
            Client::load(files, None).unwrap()
        };
        assert_eq!(client("a.test"), client("a.test"));
        assert_ne!(client("a.test"), client("b.test"));
    }
}
