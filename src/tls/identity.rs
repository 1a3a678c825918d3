//! Whose connection or request it is: by the client's certificate, or by a secret that the client shows.
//!
//! A certificate is read once, when the handshake has ended; requests, orders and elections on the connection share it. A
//! secret is looked up with every request that shows one (`config::secrets`). The names of a certificate are
//! those of the subject alternative names, which webpki reads (it is in every build of rustls anyway, where x509-parser
//! would bring some fifteen crates), or else the common name. What must stay true: a certificate is one
//! identity or the connection is refused, and a name is plain text that a log or a grant can hold.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use highgate_elector::timestamp;
use highgate_tls::der;
use tokio_rustls::rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// `spiffe://corp/job-a`, or else `dns:job-a.internal`, or else `cn:job-a`; `bearer:ci` of who shows a secret. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Identity(Arc<[Box<str>]>);

/// Why a certificate is nobody's.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("the client's certificate cannot be read")]
    Unreadable(#[source] webpki::Error),
    #[error("the client's certificate has more than one SPIFFE ID")]
    Ambiguous,
    #[error("the client's certificate ended at {}", timestamp::format(*.0))]
    Expired(SystemTime),
}

impl Identity {
    /// The identity of a verified certificate; none if it has no name. A session that is resumed is not verified again, so
    /// the certificate's end is looked at here.
    pub(super) fn of(
        certificate: &CertificateDer<'_>,
        now: SystemTime,
    ) -> Result<Option<Self>, IdentityError> {
        if let Some(end) = der::not_after(certificate).filter(|end| *end <= now) {
            return Err(IdentityError::Expired(end));
        }
        let certificate = EndEntityCert::try_from(certificate).map_err(IdentityError::Unreadable)?;
        let mut spiffe = certificate.valid_uri_names().filter(|uri| uri.starts_with("spiffe://"));
        if let Some(id) = spiffe.next() {
            if spiffe.next().is_some() {
                return Err(IdentityError::Ambiguous);
            }
            return Ok(Self::named([id.to_owned()]));
        }
        // A wildcard is a set of names and nobody's own.
        let dns = certificate.valid_dns_names().filter(|name| !name.starts_with("*."));
        let dns = Self::named(dns.map(|name| format!("dns:{}", name.to_ascii_lowercase())));
        Ok(dns.or_else(|| {
            Self::named(der::common_name(certificate.subject()).map(|name| format!("cn:{name}")))
        }))
    }

    /// None without a name that can be shown.
    fn named(names: impl IntoIterator<Item = String>) -> Option<Self> {
        let shown = |name: &String| !name.contains(|character: char| character.is_control());
        let names: Arc<[Box<str>]> = names.into_iter().filter(shown).map(String::into_boxed_str).collect();
        (!names.is_empty()).then_some(Self(names))
    }

    /// Of who shows the secret of this name.
    pub(crate) fn bearer(name: &str) -> Self {
        Self([format!("bearer:{name}").into_boxed_str()].into())
    }

    /// Of who has proved to be both.
    pub(crate) fn and(&self, other: &Self) -> Self {
        Self(self.0.iter().chain(&*other.0).cloned().collect())
    }

    #[cfg(test)]
    pub(crate) fn for_tests(names: &[&str]) -> Self {
        Self(names.iter().map(|name| Box::from(*name)).collect())
    }

    /// All its names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|name| &**name)
    }

    /// Its first name, for logs.
    pub fn as_str(&self) -> &str {
        &self.0[0]
    }

    /// Whether this is one of its names: a certificate may have several DNS names, and all of them are its owner's.
    pub fn is(&self, name: &str) -> bool {
        self.0.iter().any(|own| **own == *name)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({:?})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{DnType, SanType};

    use super::*;
    use crate::tls::tests::Authority;

    fn identity(names: &[&str], common_name: Option<&str>) -> Result<Option<Identity>, IdentityError> {
        let issued = Authority::shared().issue(|params| {
            params.distinguished_name = rcgen::DistinguishedName::new();
            if let Some(name) = common_name {
                params.distinguished_name.push(DnType::CommonName, name);
            }
            params.subject_alt_names = names
                .iter()
                .map(|name| match name.contains(':') {
                    true => SanType::URI((*name).try_into().unwrap()),
                    false => SanType::DnsName((*name).try_into().unwrap()),
                })
                .collect();
        });
        Identity::of(issued.cert.der(), SystemTime::now())
    }

    fn name(names: &[&str], common_name: Option<&str>) -> Option<String> {
        identity(names, common_name).unwrap().map(|identity| identity.to_string())
    }

    #[test]
    fn a_spiffe_id_comes_before_a_dns_name_before_the_common_name() {
        let (spiffe, dns) = ("spiffe://corp/job-a", "Job-A.internal");
        assert_eq!(name(&[dns, "https://corp/x", spiffe], Some("a")).as_deref(), Some(spiffe));
        assert_eq!(name(&["https://corp/x", dns], Some("a")).as_deref(), Some("dns:job-a.internal"));
        assert_eq!(name(&["https://corp/x"], Some("job a")).as_deref(), Some("cn:job a"));
        assert_eq!(name(&[], Some("job-a")).as_deref(), Some("cn:job-a"));
        assert_eq!(name(&[], None), None);
    }

    #[test]
    fn all_dns_names_are_the_owners_and_a_wildcard_is_nobodys() {
        let several = identity(&["*.internal", "a.internal", "b.internal"], None).unwrap().unwrap();
        assert_eq!(several.as_str(), "dns:a.internal");
        assert!(
            several.is("dns:b.internal") && !several.is("dns:c.internal") && !several.is("dns:*.internal")
        );
        assert_eq!(name(&["*.internal"], Some("a")).as_deref(), Some("cn:a"));
    }

    #[test]
    fn two_spiffe_ids_are_no_identity() {
        let two = identity(&["spiffe://corp/a", "spiffe://corp/b"], None);
        assert!(matches!(two, Err(IdentityError::Ambiguous)), "{two:?}");
    }

    #[test]
    fn a_name_that_would_break_a_line_of_the_log_is_none() {
        assert_eq!(name(&[], Some("a\nb")), None);
    }

    #[test]
    fn a_certificate_that_has_ended_is_nobodys_though_its_session_was_resumed() {
        let issued = Authority::shared().issue(|params| {
            params.subject_alt_names = vec![SanType::DnsName("a".try_into().unwrap())];
        });
        let later = SystemTime::now() + Duration::from_secs(100 * 365 * 86_400);
        let error = Identity::of(issued.cert.der(), later).unwrap_err();
        assert!(matches!(error, IdentityError::Expired(_)), "{error}");
    }
}
