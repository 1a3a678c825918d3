//! Certificates for tests of TLS, made anew for each.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// PEM files of an authority, and of a certificate for 127.0.0.1 that it signed.
pub(crate) struct Certificates(tempfile::TempDir);

impl Certificates {
    pub(crate) fn make() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate().unwrap();
        let ca = authority.self_signed(&authority_key).unwrap().pem();
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let cert = leaf.signed_by(&key, &Issuer::new(authority, authority_key)).unwrap().pem();
        for (name, pem) in [("ca", ca), ("cert", cert), ("key", key.serialize_pem())] {
            std::fs::write(folder.path().join(name), pem).unwrap();
        }
        Self(folder)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }
}
