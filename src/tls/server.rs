//! The server's side: which files a port has, and what a new connection gets of them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::SystemTime;

use highgate_tls::{Contents, KeyPair, Live, Refresh, TlsError, TlsProblem, provider};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::Ticketer;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;

use super::sni::ByName;

/// The files of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFiles {
    /// At least one; the first is for clients that name none of the others.
    pub certificates: Vec<KeyPair>,
    /// None: clients are not asked for a certificate.
    pub clients: Option<(PathBuf, ClientAuth)>,
}

/// Whether a client has to show a certificate. One that is shown has to be good, in either case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuth {
    Required,
    Optional,
}

/// What is spoken on the port once it is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocols {
    Http1,
    Http1AndHttp2,
}

/// A port that speaks TLS, with files that were good when they were read.
pub struct Server {
    files: ServerFiles,
    protocols: Protocols,
    live: Live<State>,
}

struct State {
    config: Arc<ServerConfig>,
    /// The first end of all certificates.
    expires: SystemTime,
    /// Of the file with the clients' authorities.
    clients: Vec<u8>,
}

impl Server {
    /// Reads the files. A certificate that has ended is taken: whoever starts is told, and it can be renewed in place.
    pub fn load(files: ServerFiles, protocols: Protocols) -> Result<Self, TlsError> {
        let live = Live::new(files.all(), |contents| State::new(&files, protocols, contents, None))?;
        Ok(Self { files, protocols, live })
    }

    /// For a connection that begins now.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        self.live.current().config.clone()
    }

    /// Reads the files again if they have changed. Connections that are open keep what they began with.
    pub fn refresh(&self) -> Refresh {
        self.live.refresh(self.files.all(), |contents, old| {
            State::new(&self.files, self.protocols, contents, Some(old))
        })
    }

    /// When the first of its certificates ends.
    pub fn expires(&self) -> SystemTime {
        self.live.current().expires
    }

    /// Why the files, as they are now, are not in force.
    pub fn trouble(&self) -> Option<String> {
        self.live.trouble()
    }

    /// Whether clients can show a certificate.
    pub fn asks_clients(&self) -> bool {
        self.files.clients.is_some()
    }

    /// Whether every client has shown a certificate that somebody signed for this.
    pub fn knows_its_clients(&self) -> bool {
        matches!(self.files.clients, Some((_, ClientAuth::Required)))
    }
}

impl State {
    fn new(
        files: &ServerFiles,
        protocols: Protocols,
        contents: &Contents,
        old: Option<&Self>,
    ) -> Result<Self, TlsError> {
        let mut expires = None;
        let mut keys = Vec::new();
        for pair in &files.certificates {
            let certified = contents.certified(pair)?;
            if old.is_some() && certified.expires <= SystemTime::now() {
                return Err(TlsProblem::Expired(certified.expires).of(&pair.cert));
            }
            expires = expires.into_iter().chain([certified.expires]).min();
            keys.push(certified.key);
        }
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("ring has the cipher suites of TLS 1.2 and 1.3");
        let builder = match verifier(files, contents)? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(ByName::new(keys)));
        config.alpn_protocols = protocols.names();
        let clients = files.clients.as_ref().map_or(&[][..], |(ca, _)| contents.of(ca)).to_vec();
        match old.filter(|old| old.clients == clients) {
            // Clients resume their sessions after a renewal as before it.
            Some(old) => {
                config.ticketer = old.config.ticketer.clone();
                config.session_storage = old.config.session_storage.clone();
            }
            // A session of a client whose authority is trusted no longer must not be resumed: new keys for its tickets.
            None => config.ticketer = ticketer(files)?,
        }
        Ok(Self { config: Arc::new(config), expires: expires.unwrap_or(SystemTime::UNIX_EPOCH), clients })
    }
}

fn verifier(
    files: &ServerFiles,
    contents: &Contents,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    let Some((ca, auth)) = &files.clients else { return Ok(None) };
    let roots = Arc::new(contents.roots(ca)?);
    let builder = WebPkiClientVerifier::builder_with_provider(roots, provider());
    let builder = match auth {
        ClientAuth::Required => builder,
        ClientAuth::Optional => builder.allow_unauthenticated(),
    };
    let verifier = builder.build().map_err(|error| TlsProblem::BadCertificate(error.to_string()).of(ca))?;
    Ok(Some(verifier))
}

fn ticketer(files: &ServerFiles) -> Result<Arc<dyn tokio_rustls::rustls::server::ProducesTickets>, TlsError> {
    Ticketer::new().map_err(|error| TlsProblem::BadKey(error).of(&files.certificates[0].key))
}

impl ServerFiles {
    fn all(&self) -> impl Iterator<Item = &Path> {
        let clients = self.clients.iter().map(|(ca, _)| ca.as_path());
        self.certificates.iter().flat_map(KeyPair::files).chain(clients)
    }
}

impl Protocols {
    /// As ALPN has them, the best first.
    fn names(self) -> Vec<Vec<u8>> {
        let names: &[&[u8]] = match self {
            Self::Http1 => &[b"http/1.1"],
            Self::Http1AndHttp2 => &[b"h2", b"http/1.1"],
        };
        names.iter().map(|name| name.to_vec()).collect()
    }
}

impl FromStr for ClientAuth {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "required" => Ok(Self::Required),
            "optional" => Ok(Self::Optional),
            _ => Err(format!("unknown value {word:?}")),
        }
    }
}

/// Two ports with the same files are the same, whatever the files held when each was loaded.
impl PartialEq for Server {
    fn eq(&self, other: &Self) -> bool {
        (&self.files, self.protocols) == (&other.files, other.protocols)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("files", &self.files).finish_non_exhaustive()
    }
}
