//! `tls` and `insecure` of a port: the files of a certificate, or the word that plain HTTP is meant.
//!
//! The files are read here, so that a wrong path is an error at the start and in `highgate check`, with the key that named
//! it. What must stay true: a port on another address than loopback has TLS, or somebody has said that it has none.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::Overrides;
use super::address::Address;
use super::error::Report;
use super::raw::{Flag, RawServerTls, Section, Text};
use super::scope::Scope;
use crate::tls::{ClientAuth, KeyPair, Protocols, Server, ServerFiles, TlsError};

const BESIDE_DEV_TLS: &str = "stands beside --dev-tls (or HIGHGATE_DEV_TLS), which brings its own certificate: leave one of \
     the two out";

/// What a port says of its encryption.
pub(super) struct RawProtection {
    pub(super) tls: Option<Section<RawServerTls>>,
    pub(super) insecure: Flag,
}

/// The TLS of a port. Flags may say that none of them needs it, or that all have it from elsewhere.
pub(super) fn build(
    raw: RawProtection,
    address: &Address,
    protocols: Protocols,
    overrides: &Overrides,
    report: &mut Report<'_>,
) -> Option<Arc<Server>> {
    let meant = overrides.insecure || raw.insecure.is_some_and(toml::Spanned::into_inner);
    address.check_private(raw.tls.is_some() || overrides.dev_tls, meant, report);
    let section = raw.tls?;
    if overrides.dev_tls {
        report.add(section.span, format!("{}.tls", address.table()), BESIDE_DEV_TLS);
        return None;
    }
    let mut named = Named::new(&format!("{}.tls", address.table()));
    let span = section.span.clone();
    let files = named.read(section.into_table(), &span, report)?;
    let loaded = Server::load(files, protocols);
    loaded.map_err(|error| named.blame(&error, span, report)).ok().map(Arc::new)
}

/// The keys that name a file, so that a bad file is reported where somebody named it.
pub(super) struct Named {
    key: String,
    files: Vec<(PathBuf, String, Range<usize>)>,
}

impl Named {
    /// Below the key of a table.
    pub(super) fn new(key: &str) -> Self {
        Self { key: key.to_owned(), files: Vec::new() }
    }

    fn read(
        &mut self,
        raw: RawServerTls,
        span: &Range<usize>,
        report: &mut Report<'_>,
    ) -> Option<ServerFiles> {
        let mut scope = Scope::new(report, &self.key);
        let single = raw.cert.is_some() || raw.key.is_some();
        scope.check_pair(&raw.cert, &raw.key);
        let mut certificates = Vec::new();
        match raw.certificates {
            Some(list) if single => scope.problem(list.span(), "certificates", "stands beside cert or key"),
            None if !single => scope.problem(span.clone(), "cert", "is missing"),
            None => certificates.extend(self.pair("", raw.cert, raw.key)),
            Some(list) => {
                if list.get_ref().is_empty() {
                    scope.problem(list.span(), "certificates", "is empty");
                }
                for (at, pair) in list.into_inner().into_iter().enumerate() {
                    let (span, pair) = (pair.span.clone(), pair.into_table());
                    let name = format!("certificates[{at}]");
                    if pair.cert.is_none() && pair.key.is_none() {
                        scope.problem(span, &format!("{name}.cert"), "is missing");
                    }
                    scope.below(&name).check_pair(&pair.cert, &pair.key);
                    certificates.extend(self.pair(&format!("{name}."), pair.cert, pair.key));
                }
            }
        }
        let clients = self.clients(raw.client_ca, raw.client_auth, &mut scope);
        (!certificates.is_empty()).then_some(ServerFiles { certificates, clients })
    }

    pub(super) fn pair(&mut self, within: &str, cert: Text, key: Text) -> Option<KeyPair> {
        let (cert, key) = (cert?, key?);
        Some(KeyPair {
            cert: self.file(&format!("{within}cert"), cert.span(), cert.into_inner()),
            key: self.file(&format!("{within}key"), key.span(), key.into_inner()),
        })
    }

    fn clients(&mut self, ca: Text, auth: Text, scope: &mut Scope<'_, '_>) -> Option<(PathBuf, ClientAuth)> {
        if let (None, Some(auth)) = (&ca, &auth) {
            scope.problem(
                auth.span(),
                "client_ca",
                "is missing: nobody could have signed a client's certificate",
            );
        }
        let auth = scope.word("client_auth", auth, ClientAuth::Required);
        ca.map(|ca| (self.file("client_ca", ca.span(), ca.into_inner()), auth))
    }

    pub(super) fn file(&mut self, key: &str, span: Range<usize>, file: String) -> PathBuf {
        let file = PathBuf::from(file);
        self.files.push((file.clone(), key.to_owned(), span));
        file
    }

    pub(super) fn blame(&self, error: &TlsError, section: Range<usize>, report: &mut Report<'_>) {
        let named = self.files.iter().find(|(file, ..)| *file == error.file);
        let (key, span) = named.map_or((self.key.clone(), section), |(_, key, span)| {
            (format!("{}.{key}", self.key), span.clone())
        });
        report.add(span, key, error.to_string());
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::tests::{ROUTE, parse, refusal};
    use crate::config::{Config, Overrides};
    use crate::tls::tests::Authority;

    /// A folder with an authority and two certificates.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        Authority::shared().server(&["a.test"]).write(folder.path(), "a");
        Authority::shared().server(&["b.test"]).write(folder.path(), "b");
        Authority::shared().write(folder.path(), "ca.pem");
        folder
    }

    fn tls(folder: &Path, table: &str, lines: &str) -> String {
        let lines = lines.replace("DIR", &folder.display().to_string());
        format!("[{table}.tls]\n{lines}\n{ROUTE}")
    }

    #[test]
    fn every_port_takes_one_certificate_or_several() {
        let folder = folder();
        let one = "cert = 'DIR/a.pem'\nkey = 'DIR/a-key.pem'";
        let config = parse(&tls(folder.path(), "listen", one)).unwrap();
        assert!(config.listen.tls.is_some() && config.admin.tls.is_none());
        assert!(parse(&tls(folder.path(), "admin", one)).unwrap().admin.tls.is_some());
        let jobs = parse(&tls(folder.path(), "elections", one)).unwrap();
        assert!(jobs.elections.unwrap().tls.is_some());
        let several = "certificates = [{ cert = 'DIR/a.pem', key = 'DIR/a-key.pem' }, \
                       { cert = 'DIR/b.pem', key = 'DIR/b-key.pem' }]\nclient_ca = 'DIR/ca.pem'";
        let other = parse(&tls(folder.path(), "listen", several)).unwrap();
        assert!(other.listen.tls.as_ref().unwrap().knows_its_clients(), "required, unless told otherwise");
        assert_eq!(config.needs_restart(&other), ["listen.tls"]);
        let optional = several.to_owned() + "\nclient_auth = 'optional'";
        let optional = parse(&tls(folder.path(), "listen", &optional)).unwrap();
        assert!(!optional.listen.tls.unwrap().knows_its_clients());
    }

    #[test]
    fn a_bad_file_is_reported_where_it_is_named() {
        let folder = folder();
        let dir = folder.path().display().to_string();
        for (lines, expected) in [
            ("", "f.toml:1:1: listen.tls.cert: is missing; allowed: a PEM file".to_owned()),
            (
                "cert = 'DIR/a.pem'",
                "f.toml:2:8: listen.tls.key: is missing: cert and key come together".to_owned(),
            ),
            ("key = 'DIR/a.pem'", "f.toml:2:7: listen.tls.cert: is missing".to_owned()),
            (
                "cert = 'DIR/x.pem'\nkey = 'DIR/a-key.pem'",
                format!("f.toml:2:8: listen.tls.cert: {dir}/x.pem cannot be read: No such file"),
            ),
            (
                "cert = 'DIR/a.pem'\nkey = 'DIR/b-key.pem'",
                format!(
                    "f.toml:3:7: listen.tls.key: {dir}/b-key.pem holds a private key that is not the one of {dir}/a.pem"
                ),
            ),
            (
                "cert = 'DIR/a.pem'\nkey = 'DIR/a-key.pem'\nclient_ca = 'DIR/b-key.pem'",
                format!("f.toml:4:13: listen.tls.client_ca: {dir}/b-key.pem holds no certificate in PEM"),
            ),
            (
                "cert = 'DIR/a.pem'\nkey = 'DIR/a-key.pem'\nclient_auth = 'optional'",
                "f.toml:4:15: listen.tls.client_ca: is missing".to_owned(),
            ),
            (
                "cert = 'DIR/a.pem'\nkey = 'DIR/a-key.pem'\nclient_ca = 'DIR/ca.pem'\nclient_auth = 'maybe'",
                "f.toml:5:15: listen.tls.client_auth: unknown value \"maybe\"; allowed: required, optional"
                    .to_owned(),
            ),
            ("certificates = []", "f.toml:2:16: listen.tls.certificates: is empty".to_owned()),
            ("certificates = [{}]", "f.toml:2:17: listen.tls.certificates[0].cert: is missing".to_owned()),
            (
                "certificates = [{ cert = 'DIR/a.pem' }]",
                "f.toml:2:26: listen.tls.certificates[0].key: is missing".to_owned(),
            ),
            (
                "cert = 'DIR/a.pem'\nkey = 'DIR/a-key.pem'\ncertificates = []",
                "f.toml:4:16: listen.tls.certificates: stands beside cert or key".to_owned(),
            ),
        ] {
            let message = refusal(&tls(folder.path(), "listen", lines));
            assert!(message.starts_with(&expected), "{lines}\n{message}");
        }
    }

    #[test]
    fn another_address_than_loopback_needs_tls_or_the_word_that_it_is_meant() {
        let folder = folder();
        let certificate = tls(folder.path(), "PORT", "cert = 'DIR/a.pem'\nkey = 'DIR/a-key.pem'");
        for (port, number) in [("listen", 8080), ("admin", 9901), ("elections", 9902)] {
            for (address, private) in [
                ("127.0.0.1", true),
                ("127.1.2.3", true),
                ("[::1]", true),
                ("[::ffff:127.0.0.1]", true),
                ("0.0.0.0", false),
                ("[::]", false),
                ("10.0.0.5", false),
            ] {
                let table = format!("[{port}]\naddress = '{address}:{number}'\n");
                assert_eq!(parse(&(table.clone() + ROUTE)).is_ok(), private, "{table}");
                assert!(parse(&format!("{table}insecure = true\n{ROUTE}")).is_ok(), "{table}");
                assert_eq!(parse(&format!("{table}insecure = false\n{ROUTE}")).is_ok(), private, "{table}");
                assert!(parse(&(table.clone() + &certificate.replace("PORT", port))).is_ok(), "{table}");
                let flagged = Overrides { insecure: true, ..Overrides::default() };
                assert!(Config::parse(&(table + ROUTE), Path::new("f.toml"), &flagged).is_ok());
            }
        }
        let message = refusal(&format!("[listen]\naddress = '0.0.0.0:8080'\n{ROUTE}"));
        assert!(
            message
                .starts_with("f.toml:2:11: listen.insecure: 0.0.0.0:8080 is another address than loopback"),
            "{message}"
        );
    }

    #[test]
    fn an_address_by_a_flag_is_held_to_the_same_rule() {
        let flagged = Overrides { listen: "0.0.0.0:8080".parse().ok(), ..Overrides::default() };
        let message = Config::parse(ROUTE, Path::new("f.toml"), &flagged).unwrap_err().to_string();
        assert!(message.starts_with("--listen: 0.0.0.0:8080 is another address than loopback"), "{message}");
        assert!(
            message.ends_with("allowed: --insecure if that is meant, or listen.tls in a config file"),
            "{message}"
        );
    }
}
