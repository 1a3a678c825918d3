//! A certificate authority for tests, and what it signs. Also used by the unit tests of `src/tls`.
#![allow(dead_code, reason = "unit tests and integration tests each need a part of it")]

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, SanType,
};

const A_YEAR: Duration = Duration::from_secs(365 * 86_400);

pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
pub(crate) struct Issued {
    pub(crate) cert: Certificate,
    pub(crate) key: KeyPair,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names are good names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Two authorities of one test must not have one name.
        let name = format!("authority {}", uuid::Uuid::new_v4());
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("an authority"))
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// Signs what `change` makes of a certificate that is good for a year.
    pub(crate) fn issue(&self, change: impl FnOnce(&mut CertificateParams)) -> Issued {
        let mut params = CertificateParams::new(Vec::new()).expect("no names are good names");
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + since_1970(SystemTime::now() + A_YEAR);
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &self.0).expect("a certificate");
        Issued { cert, key }
    }

    /// For a server of these names and addresses.
    pub(crate) fn server(&self, names: &[&str]) -> Issued {
        self.server_until(names, SystemTime::now() + A_YEAR)
    }

    pub(crate) fn server_until(&self, names: &[&str], end: SystemTime) -> Issued {
        self.issue(|params| {
            let named = CertificateParams::new(names.iter().map(|name| name.to_string()).collect::<Vec<_>>());
            params.subject_alt_names = named.expect("good names").subject_alt_names;
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            params.not_before = rcgen::date_time_ymd(1970, 1, 2);
            params.not_after = rcgen::date_time_ymd(1970, 1, 1) + since_1970(end);
        })
    }

    /// For a client with this SPIFFE ID or DNS name.
    pub(crate) fn client(&self, name: &str) -> Issued {
        self.issue(|params| {
            params.subject_alt_names = vec![match name.starts_with("spiffe://") {
                true => SanType::URI(name.try_into().expect("a URI")),
                false => SanType::DnsName(name.try_into().expect("a DNS name")),
            }];
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        })
    }

    /// Writes its certificate, and where to.
    pub(crate) fn write(&self, folder: &Path, name: &str) -> PathBuf {
        replace(&folder.join(name), &self.pem())
    }
}

impl Issued {
    /// Writes `name.pem` and `name-key.pem`, each in one step.
    pub(crate) fn write(&self, folder: &Path, name: &str) -> (PathBuf, PathBuf) {
        let cert = replace(&folder.join(format!("{name}.pem")), &self.cert.pem());
        let key = replace(&folder.join(format!("{name}-key.pem")), &self.key.serialize_pem());
        (cert, key)
    }
}

/// Replaces a file in one step, as deployments do.
pub(crate) fn replace(file: &Path, text: &str) -> PathBuf {
    let fresh = file.with_extension("new");
    std::fs::write(&fresh, text).expect("a folder of ours");
    std::fs::rename(fresh, file).expect("a folder of ours");
    file.to_owned()
}

fn since_1970(at: SystemTime) -> Duration {
    // Certificates know whole seconds.
    Duration::from_secs(at.duration_since(UNIX_EPOCH).expect("a time of today").as_secs())
}
