//! What the tests of this module share: an authority, which the tests of the whole gateway use as well.

#[path = "../../tests/it/support/authority.rs"]
mod authority;

use std::fs;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use highgate_tls::{Contents, provider};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};

pub(crate) use authority::{Authority, replace};

use super::*;

impl Authority {
    /// One for tests that do not mind each other.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Authority> = OnceLock::new();
        SHARED.get_or_init(Self::new)
    }

    pub(crate) fn certified(&self, names: &[&str]) -> Arc<CertifiedKey> {
        let folder = tempfile::tempdir().unwrap();
        let (cert, key) = self.server(names).write(folder.path(), "a");
        let pair = KeyPair { cert, key };
        Contents::read(pair.files()).unwrap().certified(&pair).unwrap().key
    }
}

fn files(folder: &Path) -> ServerFiles {
    let pair = KeyPair { cert: folder.join("a.pem"), key: folder.join("a-key.pem") };
    ServerFiles { certificates: vec![pair], clients: None }
}

/// What a server says to files like these.
fn refusal(folder: &Path) -> String {
    Server::load(files(folder), Protocols::Http1).unwrap_err().to_string()
}

#[test]
fn a_server_is_made_of_files_that_fit_together() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::shared();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (cert, key) = (at("a.pem"), at("a-key.pem"));
    assert!(refusal(folder.path()).starts_with(&format!("{cert} cannot be read: No such file")));
    authority.server(&["a.test"]).write(folder.path(), "a");
    assert!(Server::load(files(folder.path()), Protocols::Http1).is_ok());

    let (_, other) = authority.server(&["a.test"]).write(folder.path(), "b");
    fs::copy(other, &key).unwrap();
    assert_eq!(refusal(folder.path()), format!("{key} holds a private key that is not the one of {cert}"));
    fs::copy(&cert, &key).unwrap();
    assert_eq!(refusal(folder.path()), format!("{key} holds no private key in PEM that is not encrypted"));
    authority.server(&["a.test"]).write(folder.path(), "a");
    fs::write(&cert, "nothing").unwrap();
    assert_eq!(refusal(folder.path()), format!("{cert} holds no certificate in PEM"));
    fs::write(&cert, "-----BEGIN CERTIFICATE-----\nAAAA\n").unwrap();
    assert!(refusal(folder.path()).starts_with(&format!("{cert} is not PEM: ")));
    fs::write(&cert, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    assert!(refusal(folder.path()).contains("does not say until when"), "{}", refusal(folder.path()));
}

#[test]
fn the_end_of_a_server_is_the_first_of_its_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let in_days = |days: u64| SystemTime::now() + Duration::from_secs(days * 86_400);
    let mut files = files(folder.path());
    Authority::shared().server_until(&["a.test"], in_days(90)).write(folder.path(), "a");
    let (cert, key) = Authority::shared().server_until(&["b.test"], in_days(30)).write(folder.path(), "b");
    files.certificates.push(KeyPair { cert, key });
    let server = Server::load(files, Protocols::Http1).unwrap();
    assert!(server.expires() < in_days(31) && server.expires() > in_days(29));
}

#[test]
fn an_ended_certificate_is_taken_at_the_start_and_never_in_the_place_of_a_good_one() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::shared();
    let yesterday = SystemTime::now() - Duration::from_secs(86_400);
    authority.server_until(&["a.test"], yesterday).write(folder.path(), "a");
    let server = Server::load(files(folder.path()), Protocols::Http1).unwrap();
    assert!(server.expires() < SystemTime::now());
    authority.server(&["a.test"]).write(folder.path(), "a");
    assert_eq!(server.refresh(), Refresh::Renewed);
    let good = server.expires();
    authority.server_until(&["a.test"], yesterday).write(folder.path(), "a");
    server.refresh();
    let Refresh::Refused(why) = server.refresh() else { panic!("it is told that the old one stays") };
    assert!(why.contains("holds a certificate that ended at "), "{why}");
    assert_eq!((server.expires(), server.trouble()), (good, Some(why)));
}

#[test]
fn sessions_are_resumed_after_a_renewal_but_not_when_other_clients_are_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::shared();
    authority.server(&["a.test"]).write(folder.path(), "a");
    let ca = authority.write(folder.path(), "ca.pem");
    let files = ServerFiles { clients: Some((ca.clone(), ClientAuth::Required)), ..files(folder.path()) };
    let server = Server::load(files, Protocols::Http1).unwrap();
    let first = server.config();
    authority.server(&["a.test"]).write(folder.path(), "a");
    assert_eq!(server.refresh(), Refresh::Renewed);
    let renewed = server.config();
    assert!(Arc::ptr_eq(&first.ticketer, &renewed.ticketer));
    assert!(Arc::ptr_eq(&first.session_storage, &renewed.session_storage));
    replace(&ca, &Authority::new().pem());
    assert_eq!(server.refresh(), Refresh::Renewed);
    assert!(!Arc::ptr_eq(&renewed.ticketer, &server.config().ticketer));
    assert!(!Arc::ptr_eq(&renewed.session_storage, &server.config().session_storage));
}

#[test]
fn nothing_is_taken_before_the_handshake_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    Authority::shared().server(&["a.test"]).write(folder.path(), "a");
    let server = Server::load(files(folder.path()), Protocols::Http1AndHttp2).unwrap();
    assert_eq!(server.config().max_early_data_size, 0, "early data can be replayed");
    assert_eq!(server.config().alpn_protocols, [&b"h2"[..], b"http/1.1"]);
}

/// Both ends of TLS connections for `a.test`, for tests of what lies around them.
pub(crate) fn ends() -> (TlsAcceptor, Client) {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::shared();
    let key = authority.certified(&["a.test"]);
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
    let ca = Some(authority.write(folder.path(), "ca.pem"));
    let files = ClientFiles { ca, identity: None, name: "a.test".try_into().unwrap() };
    (TlsAcceptor::from(Arc::new(config)), Client::load(files, None).unwrap())
}
