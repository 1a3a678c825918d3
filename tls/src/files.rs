//! PEM files: read together, compared with what was read before, and turned into certificates and keys.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use std::{fs, io};

use highgate_token::timestamp;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, InconsistentKeys, RootCertStore};

use super::{der, provider};

/// A certificate with those that signed it, and its private key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyPair {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{} {problem}", file.display())]
pub struct TlsError {
    pub file: PathBuf,
    pub problem: TlsProblem,
}

/// What is wrong with it.
#[derive(Debug, thiserror::Error)]
pub enum TlsProblem {
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    #[error("is not PEM: {0}")]
    NotPem(pem::Error),
    #[error("holds no certificate in PEM")]
    NoCertificate,
    #[error("holds no private key in PEM that is not encrypted")]
    NoKey,
    #[error("holds a certificate that cannot be used: {0}")]
    BadCertificate(String),
    #[error("holds a private key that cannot be used: {0}")]
    BadKey(rustls::Error),
    #[error("holds a private key that is not the one of {}", .0.display())]
    OtherKey(PathBuf),
    #[error("holds a certificate that ended at {}", timestamp::format(*.0))]
    Expired(SystemTime),
}

/// What the files held when they were read, each once.
pub struct Contents(Vec<(PathBuf, Vec<u8>)>);

/// A certificate that a handshake can be made with.
pub struct Certified {
    pub key: Arc<CertifiedKey>,
    pub expires: SystemTime,
}

impl Contents {
    pub fn read<'p>(files: impl IntoIterator<Item = &'p Path>) -> Result<Self, TlsError> {
        let mut contents: Vec<(PathBuf, Vec<u8>)> = Vec::new();
        for file in files {
            if contents.iter().all(|(known, _)| known != file) {
                let bytes = fs::read(file).map_err(|error| TlsProblem::Unreadable(error).of(file))?;
                contents.push((file.to_owned(), bytes));
            }
        }
        Ok(Self(contents))
    }

    /// Differs, for all that matters, if any of the files does.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }

    /// What one of the files held.
    pub fn of(&self, file: &Path) -> &[u8] {
        self.0.iter().find(|(known, _)| known == file).map_or(&[], |(_, bytes)| bytes)
    }

    pub fn certified(&self, pair: &KeyPair) -> Result<Certified, TlsError> {
        let chain = self.certificates(&pair.cert)?;
        let key = PrivateKeyDer::from_pem_slice(self.of(&pair.key)).map_err(|error| match error {
            pem::Error::NoItemsFound => TlsProblem::NoKey.of(&pair.key),
            error => TlsProblem::NotPem(error).of(&pair.key),
        })?;
        let expires = der::not_after(&chain[0]).ok_or_else(|| {
            TlsProblem::BadCertificate("it does not say until when it is valid".to_owned()).of(&pair.cert)
        })?;
        let key = CertifiedKey::from_der(chain, key, &provider()).map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                TlsProblem::OtherKey(pair.cert.clone()).of(&pair.key)
            }
            rustls::Error::InvalidCertificate(error) => {
                TlsProblem::BadCertificate(error.to_string()).of(&pair.cert)
            }
            error => TlsProblem::BadKey(error).of(&pair.key),
        })?;
        Ok(Certified { key: Arc::new(key), expires })
    }

    /// The authorities of a file.
    pub fn roots(&self, file: &Path) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates(file)? {
            let added = roots.add(certificate);
            added.map_err(|error| TlsProblem::BadCertificate(error.to_string()).of(file))?;
        }
        Ok(roots)
    }

    /// Those of a file, at least one.
    pub fn certificates(&self, file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(self.of(file)).collect();
        let certificates = certificates.map_err(|error| TlsProblem::NotPem(error).of(file))?;
        if certificates.is_empty() { Err(TlsProblem::NoCertificate.of(file)) } else { Ok(certificates) }
    }
}

impl KeyPair {
    pub fn files(&self) -> [&Path; 2] {
        [&self.cert, &self.key]
    }
}

impl TlsProblem {
    pub fn of(self, file: &Path) -> TlsError {
        TlsError { file: file.to_owned(), problem: self }
    }
}
