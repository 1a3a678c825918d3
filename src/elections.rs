//! Who leads which resource: elections on the gateway's own store, as a pure state machine.
//!
//! The store's driver runs it beside the fence protocol and makes its terms durable in the same commits. Waiters
//! are first come, first served. A winner's token is above everything issued before and above the mark; the
//! mark is raised and sealed before the winner is told, so that the leader before is refused from then on.
//!
//! What must stay true:
//! - no token is issued twice: the counter is durable with the term it was issued for;
//! - a term is answered only when its token is the open mark, and its lease runs from that moment;
//! - a token above a term's, however it came, ends the term.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use highgate_elector::{Resource, Token};

use crate::replica::Time;
use crate::tls::Identity;

#[cfg(test)]
mod tests;

/// The name of a lease: unguessable, so that it can stand for the right to renew.
pub type Lease = u128;

/// Somebody who wants to lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub lease: Lease,
    pub holder: String,
    pub ttl: Duration,
    /// The identity that it came with; none: nobody knows who it is.
    pub owner: Option<String>,
}

/// Who acts on a lease: renews it, gives it up, or takes a step in the run-once ledger.
#[derive(Clone, Debug, Default)]
pub struct Actor(Option<Identity>);

/// Why a lease was not acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotHeld {
    /// It does not lead (any more).
    Gone,
    /// It leads, and somebody else has won it.
    Anothers,
}

/// A leadership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    pub candidate: Candidate,
    pub token: Token,
    /// When it ends without a renewal. None until the winner has been told.
    expires: Option<Time>,
}

/// Why a term ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Resigned,
    Expired,
    Evicted,
    /// The mark was raised above its token by other means.
    Overtaken,
    /// Its key in etcd is gone; why, etcd does not tell.
    Gone,
}

/// What is to be done, in this order, before anything else happens to the resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Keep this durable, with the counter: the resource's term, or that it has none.
    Keep {
        resource: Resource,
        term: Option<Term>,
    },
    Raise {
        resource: Resource,
        token: Token,
    },
    Vacate {
        resource: Resource,
        token: Token,
    },
    /// The candidate with this lease leads, as of now.
    Grant {
        lease: Lease,
        token: Token,
    },
    /// The candidate with this lease can never lead: there is no higher token.
    Exhausted {
        lease: Lease,
    },
    Tell(Event),
}

/// What happened to a leadership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Elected { resource: Resource, holder: String, token: Token },
    Ended { resource: Resource, holder: String, token: Token, why: Ended },
}

/// An election in which somebody leads or waits, by the word of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub resource: Resource,
    /// Holder and token of who leads.
    pub leader: Option<(String, Token)>,
    pub waiting: usize,
}

/// All elections.
#[derive(Clone, Debug, Default)]
pub struct Elections {
    terms: HashMap<Resource, Term>,
    queues: HashMap<Resource, VecDeque<Candidate>>,
    /// The highest token of the first era ever issued here.
    issued: u64,
    expiries: BTreeSet<(Time, Resource)>,
    /// Whose line is longer or shorter than when that was last asked for.
    lines_changed: BTreeSet<Resource>,
}

impl Elections {
    /// As they were when the process before ended. Every lease starts anew: a leader renews later than it
    /// thinks rather than loses to a restart.
    pub fn restore(now: Time, issued: u64, terms: impl IntoIterator<Item = (Resource, Term)>) -> Self {
        let mut elections = Self { issued, ..Self::default() };
        for (resource, term) in terms {
            let ttl = term.candidate.ttl;
            elections.terms.insert(resource.clone(), term);
            elections.extend(&resource, now + ttl);
        }
        elections
    }

    /// The highest token ever issued: to be kept with every term.
    pub fn issued(&self) -> u64 {
        self.issued
    }

    /// The term of a resource, once its winner has been told.
    pub fn leader(&self, resource: &str) -> Option<&Term> {
        self.terms.get(resource).filter(|term| term.expires.is_some())
    }

    pub fn waiting(&self, resource: &str) -> usize {
        self.queues.get(resource).map_or(0, VecDeque::len)
    }

    /// Everybody who leads.
    pub fn standing(&self) -> Vec<Standing> {
        let leads = |(resource, term): (&Resource, &Term)| Standing {
            resource: resource.clone(),
            leader: Some((term.candidate.holder.clone(), term.token)),
            waiting: self.waiting(resource.as_str()),
        };
        self.terms.iter().filter(|(_, term)| term.expires.is_some()).map(leads).collect()
    }

    /// The lines that have changed since this was last asked, with how many wait in them now.
    pub fn changed_lines(&mut self) -> Vec<(Resource, usize)> {
        let changed = std::mem::take(&mut self.lines_changed);
        let waiting = |resource: Resource| (self.waiting(resource.as_str()), resource);
        changed.into_iter().map(waiting).map(|(waiting, resource)| (resource, waiting)).collect()
    }

    /// When the next lease runs out.
    pub fn wake_at(&self) -> Option<Time> {
        self.expiries.first().map(|(at, _)| *at)
    }

    /// Queues up. `mark` is the resource's mark now.
    pub fn campaign(&mut self, resource: Resource, candidate: Candidate, mark: u64) -> Vec<Output> {
        let mut outputs = Vec::new();
        self.lines_changed.insert(resource.clone());
        self.queues.entry(resource.clone()).or_default().push_back(candidate);
        self.elect(&resource, mark, &mut outputs);
        outputs
    }

    /// A candidate gives up waiting, or a winner was gone before it could be told.
    pub fn withdraw(&mut self, resource: &Resource, lease: Lease, mark: u64) -> Vec<Output> {
        self.leave(resource, lease);
        let has_won = self.terms.get(resource).is_some_and(|term| term.candidate.lease == lease);
        if has_won { self.end(resource, Ended::Resigned, mark) } else { Vec::new() }
    }

    /// Leaves the line. False if it was not (or no longer) in it.
    pub fn leave(&mut self, resource: &Resource, lease: Lease) -> bool {
        let Some(queue) = self.queues.get_mut(resource) else { return false };
        let before = queue.len();
        queue.retain(|candidate| candidate.lease != lease);
        let left = queue.len() < before;
        if queue.is_empty() {
            self.queues.remove(resource);
        }
        if left {
            self.lines_changed.insert(resource.clone());
        }
        left
    }

    /// The leadership on this lease, if whoever acts on it may.
    pub fn held(&self, resource: &Resource, lease: Lease, actor: &Actor) -> Result<&Term, NotHeld> {
        let term = self.leader(resource.as_str()).filter(|term| term.candidate.lease == lease);
        let term = term.ok_or(NotHeld::Gone)?;
        if actor.may_act_for(term.candidate.owner.as_deref()) { Ok(term) } else { Err(NotHeld::Anothers) }
    }

    /// How long the lease is good for now.
    pub fn renew(
        &mut self,
        now: Time,
        resource: &Resource,
        lease: Lease,
        actor: &Actor,
    ) -> Result<Duration, NotHeld> {
        let ttl = self.held(resource, lease, actor)?.candidate.ttl;
        self.extend(resource, now + ttl);
        Ok(ttl)
    }

    /// Gives a leadership up.
    pub fn resign(
        &mut self,
        resource: &Resource,
        lease: Lease,
        actor: &Actor,
        mark: u64,
    ) -> Result<Vec<Output>, NotHeld> {
        self.held(resource, lease, actor)?;
        Ok(self.end(resource, Ended::Resigned, mark))
    }

    /// An operator deposes whoever leads; none if nobody does. A winner that was not told yet does not.
    pub fn evict(&mut self, resource: &Resource, mark: u64) -> Option<Vec<Output>> {
        self.leader(resource.as_str())?;
        Some(self.end(resource, Ended::Evicted, mark))
    }

    /// The mark was raised. If that was above a term, the term is over; a winner that was not told yet is
    /// elected anew, first in line.
    pub fn raised(&mut self, resource: &Resource, mark: u64) -> Vec<Output> {
        match self.terms.get(resource) {
            Some(term) if term.token.get() < mark => {
                if term.expires.is_none() {
                    let candidate = term.candidate.clone();
                    self.queues.entry(resource.clone()).or_default().push_front(candidate);
                }
                self.end(resource, Ended::Overtaken, mark)
            }
            _ => Vec::new(),
        }
    }

    /// The mark is open. If it is a winner's token, the winner is told, and its lease runs from now.
    pub fn opened(&mut self, now: Time, resource: &Resource, mark: u64) -> Vec<Output> {
        let Some(term) = self.terms.get(resource) else { return Vec::new() };
        if term.token.get() != mark || term.expires.is_some() {
            return Vec::new();
        }
        let Term { candidate: Candidate { lease, holder, ttl, .. }, token, .. } = term.clone();
        self.extend(resource, now + ttl);
        let elected = Event::Elected { resource: resource.clone(), holder, token };
        // Told to the journal before the winner: what somebody was told is there after a crash.
        vec![Output::Tell(elected), Output::Grant { lease, token }]
    }

    /// Ends the leases that have run out by now.
    pub fn expire(&mut self, now: Time, mark: impl Fn(&Resource) -> u64) -> Vec<Output> {
        let mut outputs = Vec::new();
        while let Some((_, resource)) = self.expiries.first().filter(|(at, _)| *at <= now).cloned() {
            outputs.extend(self.end(&resource, Ended::Expired, mark(&resource)));
        }
        outputs
    }

    fn end(&mut self, resource: &Resource, why: Ended, mark: u64) -> Vec<Output> {
        let mut outputs = Vec::new();
        let Some(Term { candidate, token, expires }) = self.terms.remove(resource) else { return outputs };
        if let Some(at) = expires {
            self.expiries.remove(&(at, resource.clone()));
            let (resource, holder) = (resource.clone(), candidate.holder);
            outputs.push(Output::Tell(Event::Ended { resource, holder, token, why }));
        }
        outputs.push(Output::Keep { resource: resource.clone(), term: None });
        self.elect(resource, mark, &mut outputs);
        if !self.terms.contains_key(resource) {
            outputs.push(Output::Vacate { resource: resource.clone(), token });
        }
        outputs
    }

    /// Makes the first in line the winner, if there is no term.
    fn elect(&mut self, resource: &Resource, mark: u64, outputs: &mut Vec<Output>) {
        if self.terms.contains_key(resource) {
            return;
        }
        let Some(queue) = self.queues.get_mut(resource) else { return };
        self.lines_changed.insert(resource.clone());
        let Some(token) = self.issued.max(mark).checked_add(1).and_then(Token::new) else {
            outputs.extend(queue.drain(..).map(|candidate| Output::Exhausted { lease: candidate.lease }));
            self.queues.remove(resource);
            return;
        };
        let candidate = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(resource);
        }
        let Some(candidate) = candidate else { return };
        // A mark beyond the first era came from elsewhere. It must not use up the tokens of all others.
        if token.era() == 0 {
            self.issued = token.get();
        }
        let term = Term { candidate, token, expires: None };
        self.terms.insert(resource.clone(), term.clone());
        outputs.push(Output::Keep { resource: resource.clone(), term: Some(term) });
        outputs.push(Output::Raise { resource: resource.clone(), token });
    }

    fn extend(&mut self, resource: &Resource, until: Time) {
        let Some(term) = self.terms.get_mut(resource) else { return };
        if let Some(before) = term.expires.replace(until) {
            self.expiries.remove(&(before, resource.clone()));
        }
        self.expiries.insert((until, resource.clone()));
    }
}

impl Actor {
    /// Somebody with this identity. Who has none may act on every lease that it knows: where identities count, nobody
    /// comes this far without one.
    pub fn new(identity: Option<Identity>) -> Self {
        Self(identity)
    }

    /// Whether it may act on what this owner has won. A lease whose owner nobody knows is its own proof.
    pub fn may_act_for(&self, owner: Option<&str>) -> bool {
        match (&self.0, owner) {
            (Some(identity), Some(owner)) => identity.is(owner),
            (None, _) | (_, None) => true,
        }
    }
}

impl Term {
    /// A term as it was kept. Its lease does not run until the elections have restored it.
    pub fn kept(candidate: Candidate, token: Token) -> Self {
        Self { candidate, token, expires: None }
    }
}
