//! Whoever sends a request, and by what right it writes: its identity, its grant, and the signature of its token.
//!
//! `fence` asks, before the first wait and after the last. What must stay true: whatever a request had a right by counts only
//! if it still does when the request goes on.

use std::net::IpAddr;

use highgate_elector::{Resource, Token};
use http::request::Parts;

use super::Worker;
use super::accept::Conduct;
use super::claim::Signature;
use super::entitle::{Entitled, Forbidden, Sender};
use super::respond::Refusal;
use super::signature::Proof;
use crate::config::Route;

pub(super) struct Claimant<'r> {
    entitled: Entitled,
    client: &'r Conduct,
    pub(super) head: &'r Parts,
    proof: Proof,
}

impl<'r> Claimant<'r> {
    pub(super) fn new(entitled: Entitled, client: &'r Conduct, head: &'r Parts) -> Self {
        Self { entitled, client, head, proof: Proof::default() }
    }

    /// Where it sends from.
    pub(super) fn address(&self) -> IpAddr {
        self.client.peer().ip()
    }

    /// Judges the signature of its token, and whether that was issued to it. `names` are those of the resource.
    pub(super) fn prove<'n>(
        &mut self,
        worker: &Worker,
        route: &Route,
        (token, signature): (Token, Signature),
        names: impl IntoIterator<Item = &'n Resource> + Clone,
    ) -> Result<(), Refusal> {
        self.proof = Proof::check(signature, &worker.signing, token, names.clone())?;
        Ok(self.holds(worker, route, token, names)?)
    }

    /// Whether it may (still) write to the resource.
    pub(super) fn is_entitled(
        &mut self,
        worker: &Worker,
        route: &Route,
        resource: &Resource,
    ) -> Result<(), Forbidden> {
        let sender = Sender { certificate: self.client.identity(), headers: &self.head.headers };
        self.entitled.still(&worker.access, route, resource, sender)
    }

    /// After the last wait: a grant or a key that was taken away meanwhile does not count, and whoever it now is has to hold
    /// the token. `names` are those of the resource, its own first.
    pub(super) fn still<'n>(
        &mut self,
        worker: &Worker,
        route: &Route,
        (resource, token): (&Resource, Token),
        names: impl IntoIterator<Item = &'n Resource> + Clone,
    ) -> Result<(), Refusal> {
        self.is_entitled(worker, route, resource)?;
        self.proof.still(&worker.signing, token, names.clone())?;
        Ok(self.holds(worker, route, token, names)?)
    }

    /// Where only the winner of an election may use its token: whether this is the winner.
    pub(super) fn holds<'n>(
        &self,
        worker: &Worker,
        route: &Route,
        token: Token,
        names: impl IntoIterator<Item = &'n Resource>,
    ) -> Result<(), Forbidden> {
        match self.proof.holder() {
            Some(holder) => self.entitled.is(route, holder),
            None => self.entitled.holds(route, &worker.ledger, token, names),
        }
    }
}
