//! Which certificate a client gets, by the server name that it asks for.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_rustls::rustls::SignatureScheme;
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use webpki::EndEntityCert;

/// Certificates by their names. The first is everybody's who asks for another name, or for none.
#[derive(Debug)]
pub(super) struct ByName {
    all: Vec<Arc<CertifiedKey>>,
    /// Places in `all`, in the order of the configuration; a wildcard is here with its `*`.
    named: HashMap<String, Vec<usize>>,
}

impl ByName {
    pub(super) fn new(all: Vec<Arc<CertifiedKey>>) -> Self {
        let mut named: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, certified) in all.iter().enumerate() {
            let parsed = certified.cert.first().and_then(|der| EndEntityCert::try_from(der).ok());
            for name in parsed.iter().flat_map(|certificate| certificate.valid_dns_names()) {
                named.entry(name.to_ascii_lowercase()).or_default().push(at);
            }
        }
        Self { all, named }
    }

    /// The places of those that are for this name; the first of all if none is.
    fn candidates(&self, name: Option<&str>) -> &[usize] {
        let wildcard = |name: &str| name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        let found = name
            .map(str::to_ascii_lowercase)
            .and_then(|name| self.named.get(&name).or_else(|| self.named.get(&wildcard(&name)?)));
        found.map_or(&[0], Vec::as_slice)
    }

    /// Of several that are for one name, one by which the client can check a signature.
    fn choose(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let candidates = self.candidates(name).iter().filter_map(|at| self.all.get(*at));
        let signs = |certified: &&Arc<CertifiedKey>| certified.key.choose_scheme(schemes).is_some();
        candidates.clone().find(signs).or_else(|| candidates.clone().next()).cloned()
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.choose(hello.server_name(), hello.signature_schemes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::tests::Authority;

    #[test]
    fn the_name_decides_and_the_first_is_for_everybody_else() {
        let authority = Authority::shared();
        let all: Vec<_> = [&["a.test"][..], &["*.b.test", "b.test"], &["x.b.test"]]
            .into_iter()
            .map(|names| authority.certified(names))
            .collect();
        let by_name = ByName::new(all.clone());
        let schemes = [SignatureScheme::ECDSA_NISTP256_SHA256];
        for (name, expected) in [
            (None, 0),
            (Some("elsewhere.test"), 0),
            (Some("A.Test"), 0),
            (Some("b.test"), 1),
            (Some("y.b.test"), 1),
            (Some("x.b.test"), 2),
            (Some("z.y.b.test"), 0),
        ] {
            let chosen = by_name.choose(name, &schemes).unwrap();
            let at = all.iter().position(|one| Arc::ptr_eq(one, &chosen));
            assert_eq!(at, Some(expected), "{name:?}");
        }
    }
}
