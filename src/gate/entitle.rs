//! Who sends a request, and whether that identity may write to the resource that it claims.
//!
//! Between `claim` and `fence`: before the body is read and before anything is asked of a store. Whoever may not use a
//! resource learns nothing of it, so it is forbidden before it can be stale: the answer to a stale token has the mark.
//! Requests that need no token are the upstream's business and are not judged. What must stay true: a right is asked
//! for again after every wait, so that no request passes by a grant that was taken away before it was sent.

use highgate_elector::{Resource, Token, headers};
use http::HeaderMap;

use crate::config::{Right, Route};
use crate::grants::{Access, InForce};
use crate::ledger::Ledger;
use crate::signing::Holder;
use crate::tls::Identity;

/// A request that may write to its resource, by the access of one moment.
#[derive(Debug, Default)]
pub(crate) struct Entitled {
    /// None: nobody has asked who it is.
    who: Option<Identity>,
    generation: u64,
}

/// What says who sends a request.
#[derive(Clone, Copy)]
pub(crate) struct Sender<'r> {
    /// Whose connection it came on.
    pub(super) certificate: Option<&'r Identity>,
    pub(super) headers: &'r HeaderMap,
}

/// Why a request may not use the resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Forbidden {
    /// It shows nothing that says who sends it.
    Nobody,
    /// What it shows is no secret of anybody.
    UnknownCredential,
    NotGranted(Identity),
    /// The election that issued the token was won by another identity.
    NotHolder(Option<Identity>),
    /// Nobody knows who has won the election that issued the token.
    UnknownHolder,
}

/// Judges a request that writes to this resource.
pub(super) fn entitle(
    access: &Access,
    route: &Route,
    resource: &Resource,
    sender: Sender<'_>,
) -> Result<Entitled, Forbidden> {
    let generation = access.generation();
    if access.is_open() && !route.bind_holder {
        return Ok(Entitled { who: None, generation });
    }
    let credential = sender.headers.get(headers::CREDENTIAL);
    let shown = credential.and_then(|shown| access.secrets.identify(shown.as_bytes()));
    let who = match (sender.certificate, shown) {
        (Some(certificate), Some(shown)) => Some(certificate.and(shown)),
        (certificate, shown) => certificate.or(shown).cloned(),
    };
    if access.allows(who.as_ref(), Right::Write, resource) {
        return Ok(Entitled { who, generation });
    }
    Err(match (who, credential) {
        (Some(who), _) => Forbidden::NotGranted(who),
        (None, Some(_)) => Forbidden::UnknownCredential,
        (None, None) => Forbidden::Nobody,
    })
}

impl Entitled {
    /// The same request after a wait: judged anew, if anything has changed meanwhile.
    pub(super) fn still(
        &mut self,
        in_force: &InForce,
        route: &Route,
        resource: &Resource,
        sender: Sender<'_>,
    ) -> Result<(), Forbidden> {
        let access = in_force.load();
        if access.generation() != self.generation {
            *self = entitle(&access, route, resource, sender)?;
        }
        Ok(())
    }

    /// Where only the winner of an election may use its token: whether this is the winner. To be asked of a token that is
    /// the mark; `names` are those of its resource, of which one has had the election.
    pub(super) fn holds<'n>(
        &self,
        route: &Route,
        ledger: &Ledger,
        token: Token,
        names: impl IntoIterator<Item = &'n Resource>,
    ) -> Result<(), Forbidden> {
        if !route.bind_holder {
            return Ok(());
        }
        let mut known =
            names.into_iter().filter_map(|name| ledger.is_held_by(name, token, self.who.as_ref()));
        match known.next() {
            Some(true) => Ok(()),
            Some(false) => Err(Forbidden::NotHolder(self.who.clone())),
            None => Err(Forbidden::UnknownHolder),
        }
    }

    /// The same of a signed token, whose holder is known from its signature.
    pub(super) fn is(&self, route: &Route, holder: &Holder) -> Result<(), Forbidden> {
        match holder {
            _ if !route.bind_holder => Ok(()),
            Holder::Identity(name) if self.who.as_ref().is_some_and(|who| who.is(name)) => Ok(()),
            Holder::Identity(_) => Err(Forbidden::NotHolder(self.who.clone())),
            // What somebody calls itself is nobody's own.
            Holder::Named(_) => Err(Forbidden::UnknownHolder),
        }
    }

    pub(super) fn identity(&self) -> Option<&Identity> {
        self.who.as_ref()
    }
}

impl Forbidden {
    /// Who was refused, if that is known.
    pub(super) fn identity(&self) -> Option<&Identity> {
        match self {
            Self::NotGranted(who) => Some(who),
            Self::NotHolder(who) => who.as_ref(),
            Self::Nobody | Self::UnknownCredential | Self::UnknownHolder => None,
        }
    }
}
