//! Who asks, by what right, and how far that reaches: what every answer of the ports is limited by.
//!
//! [`super::access`] makes a [`Caller`] of each request. What must stay true: grants are asked when something is about to
//! be shown or done, not when the request came, so a stream or a wait does not outlive the grant it began with.

use std::net::SocketAddr;
use std::sync::Arc;

use highgate_elector::Resource;
use http::StatusCode;

use super::answer::Problem;
use crate::config::Right;
use crate::elections::Actor;
use crate::grants::InForce;
use crate::tls::Identity;

#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) address: SocketAddr,
    pub(super) identity: Option<Identity>,
    pub(super) right: Right,
    pub(super) reach: Reach,
}

/// What a caller's right covers.
#[derive(Clone, Debug)]
pub(super) enum Reach {
    /// Every resource: it has shown the secret of the port.
    Everything,
    /// What the grants in force say of its identity; everything, while there are none.
    Granted(Arc<InForce>),
}

impl Caller {
    pub(super) fn may_use(&self, resource: &Resource) -> bool {
        match &self.reach {
            Reach::Everything => true,
            Reach::Granted(access) => access.load().allows(self.identity.as_ref(), self.right, resource),
        }
    }

    /// Whether it may use whatever there is.
    pub(super) fn may_use_everything(&self) -> bool {
        let Reach::Granted(access) = &self.reach else { return true };
        let access = access.load();
        access.is_open() || access.grants.allow_everywhere(self.identity.as_ref(), self.right)
    }

    /// Whether there can be something that it may use.
    pub(super) fn may_use_anything(&self) -> bool {
        let Reach::Granted(access) = &self.reach else { return true };
        let access = access.load();
        access.is_open() || access.grants.allow_somewhere(self.identity.as_ref(), self.right)
    }

    pub(super) fn check(&self, resource: &Resource) -> Result<(), Problem> {
        if self.may_use(resource) { Ok(()) } else { Err(self.forbidden(resource.as_str()).about(resource)) }
    }

    pub(super) fn check_everything(&self) -> Result<(), Problem> {
        if self.may_use_everything() { Ok(()) } else { Err(self.forbidden("everything (`*`)")) }
    }

    pub(super) fn check_anything(&self) -> Result<(), Problem> {
        if self.may_use_anything() { Ok(()) } else { Err(self.forbidden("anything")) }
    }

    fn forbidden(&self, what: &str) -> Problem {
        let (who, right) = (self.name(), self.right);
        let detail =
            format!("{who} may not {right} {what}: no [[grants]] table of the gateway's config lets it");
        Problem::new(StatusCode::FORBIDDEN, detail)
    }

    /// For the log.
    pub(super) fn name(&self) -> &str {
        self.identity.as_ref().map_or("anybody", Identity::as_str)
    }

    /// As whom it acts on leases.
    pub(super) fn actor(&self) -> Actor {
        Actor::new(self.identity.clone())
    }
}
