//! What the guardian has to know to give the leadership up in place of a `run` that was killed.
//!
//! `run` tells it once, over their socket: a password or a secret never stands in a command line or in the environment
//! that the command gets. What must stay true: it is used only when nothing of the command is left.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use highgate_elector::backend::{BackendError, Grant};
use highgate_elector::{ClientTls, Resource, Token};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::order::NotALine;
use super::secrets::Access;

/// How long the backend may take to answer. A lease that runs out meanwhile needs no answer.
const RESIGNING: Duration = Duration::from_secs(5);

/// A leadership and the way to the backend that granted it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lease {
    backend: String,
    secret: Option<String>,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    resource: String,
    holder: String,
    token: u64,
    lease: String,
    ttl: Duration,
}

/// Why a lease runs out instead of being given up.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotResigned {
    #[error("{0}")]
    Unusable(String),
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error("the backend does not answer")]
    Silent,
}

impl Lease {
    pub(super) fn new(access: &Access, grant: &Grant) -> Self {
        Self {
            backend: access.url.clone(),
            secret: access.secret.clone(),
            ca: access.tls.ca.clone(),
            cert: access.tls.cert.clone(),
            key: access.tls.key.clone(),
            resource: grant.resource.to_string(),
            holder: grant.holder.clone(),
            token: grant.token.get(),
            lease: grant.lease.clone(),
            ttl: grant.ttl,
        }
    }

    /// Lets the next one lead.
    pub(super) async fn resign(&self) -> Result<(), NotResigned> {
        let unusable = |detail: &str| NotResigned::Unusable(detail.to_owned());
        let grant = self.grant().ok_or_else(|| unusable("what `run` said of its lease is not usable"))?;
        let backend = self.access().connect().map_err(|error| unusable(&error.to_string()))?;
        timeout(RESIGNING, backend.resign(&grant)).await.map_err(|_| NotResigned::Silent)??;
        Ok(())
    }

    /// Files are read again: certificates may have been renewed since.
    fn access(&self) -> Access {
        let tls = ClientTls { ca: self.ca.clone(), cert: self.cert.clone(), key: self.key.clone() };
        Access { url: self.backend.clone(), secret: self.secret.clone(), tls }
    }

    fn grant(&self) -> Option<Grant> {
        Some(Grant {
            resource: Resource::parse(&self.resource).ok()?,
            holder: self.holder.clone(),
            token: Token::new(self.token)?,
            lease: self.lease.clone(),
            ttl: self.ttl,
            signed_token: None,
        })
    }
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for Lease {
    type Err = NotALine;

    fn from_str(line: &str) -> Result<Self, NotALine> {
        serde_json::from_str(line).map_err(|_| NotALine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_one_line_that_the_guardian_understands() {
        let grant = Grant {
            resource: "jobs/nightly".parse().unwrap(),
            holder: "a\nb \"c\"".to_owned(),
            token: Token::new(Token::MAX).unwrap(),
            lease: "5f".to_owned(),
            ttl: Duration::from_millis(1500),
            signed_token: None,
        };
        let tls = ClientTls { ca: None, cert: Some("c.pem".into()), key: Some("k.pem".into()) };
        let access =
            Access { url: "highgate://a:1".to_owned(), secret: Some("s3cret".to_owned()), tls: tls.clone() };
        let line = Lease::new(&access, &grant).to_string();
        assert!(!line.contains('\n'), "{line}");
        let read: Lease = line.parse().ok().unwrap();
        assert_eq!(read.grant(), Some(grant));
        assert_eq!((read.backend.as_str(), read.secret.as_deref()), ("highgate://a:1", Some("s3cret")));
        assert_eq!(read.access().tls, tls);
        assert!("until 7".parse::<Lease>().is_err());
    }
}
