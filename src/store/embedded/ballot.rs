//! The driver's part in elections: terms go to disk with the raises they cause, and answers come after.

use highgate_elector::Resource;

use super::driver::Driver;
use crate::elections::{Candidate, Elections, Output, Term};
use crate::events::Notice;
use crate::replica::{Event, Input, State, Want};
use crate::store::StoreFailed;
use crate::store::elections::{CampaignError, Election, Leader, Order};

impl Driver {
    /// Takes over the terms that the process before left, if their holders can know of them: those whose
    /// token is the mark and was open. Any other was never told, or was deposed and not yet forgotten.
    pub(super) fn restore(&mut self, issued: u64, terms: Vec<(Resource, Term)>) -> Result<(), StoreFailed> {
        let (held, void): (Vec<_>, Vec<_>) = terms.into_iter().partition(|(resource, term)| {
            let record = self.record(resource);
            record.token == term.token.get() && record.state == State::Open
        });
        for (resource, term) in &held {
            self.note_holder(resource, Some(term));
        }
        self.elections = Elections::restore(self.now(), issued, held);
        self.tell(Notice::Standing(self.elections.standing()));
        for (resource, term) in void {
            self.pending.terms.push((resource.clone(), None));
            self.step(Input::Vacate { resource, token: term.token })?;
        }
        Ok(())
    }

    pub(super) fn order(&mut self, order: Order) -> Result<(), StoreFailed> {
        match order {
            Order::Campaign { resource, candidate, campaigner, .. } => {
                self.campaigns.insert(candidate.lease, campaigner);
                let ceiling = self.ceiling(&resource);
                let outputs = self.elections.campaign(resource, candidate, ceiling);
                self.hold(outputs)
            }
            Order::Withdraw { resource, lease, .. } => {
                self.campaigns.remove(&lease);
                let outputs = self.elections.withdraw(&resource, lease, self.ceiling(&resource));
                self.hold(outputs)
            }
            Order::Leave { resource, lease, reply, .. } => {
                let left = self.elections.leave(&resource, lease);
                if left {
                    self.campaigns.remove(&lease);
                }
                let _ = reply.send(left);
                self.hold(Vec::new())
            }
            Order::Renew { resource, lease, actor, reply } => {
                let renewed = self.elections.renew(self.now(), &resource, lease, &actor);
                let held = renewed.and_then(|_ttl| self.elections.held(&resource, lease, &actor));
                let _ = reply.send(held.map(leader));
                Ok(())
            }
            Order::Resign { resource, lease, actor, reply } => {
                let resigned = self.elections.resign(&resource, lease, &actor, self.ceiling(&resource));
                let (outputs, answer) = match resigned {
                    Ok(outputs) => (outputs, Ok(())),
                    Err(not_held) => (Vec::new(), Err(not_held)),
                };
                self.hold(outputs)?;
                // Whoever hears that it is over may count on it.
                self.commit()?;
                let _ = reply.send(answer);
                Ok(())
            }
            Order::Evict { resource, token, reply } => {
                let leader = self.elections.leader(resource.as_str()).map(leader);
                let leader = leader.filter(|leader| token.is_none_or(|token| token == leader.token.get()));
                if leader.is_some() {
                    let outputs = self.elections.evict(&resource, self.ceiling(&resource));
                    self.hold(outputs.unwrap_or_default())?;
                    self.commit()?;
                }
                let _ = reply.send(leader);
                Ok(())
            }
            Order::Show { resource, reply } => {
                let leader = self.elections.leader(resource.as_str()).map(leader);
                let waiting = self.elections.waiting(resource.as_str());
                let _ = reply.send(Election { leader, waiting });
                Ok(())
            }
            Order::Leaders { resources, reply } => {
                let leads = |resource: &Resource| self.elections.leader(resource.as_str()).map(leader);
                let _ = reply.send(resources.iter().map(leads).collect());
                Ok(())
            }
            Order::Once(question) => self.answer_once(question),
        }
    }

    pub(super) fn end_expired_terms(&mut self) -> Result<(), StoreFailed> {
        let now = self.now();
        if self.elections.wake_at().is_none_or(|at| at > now) {
            return Ok(());
        }
        let mut elections = std::mem::take(&mut self.elections);
        let outputs = elections.expire(now, |resource| self.ceiling(resource));
        self.elections = elections;
        self.hold(outputs)
    }

    /// What a change of a mark means for who leads.
    pub(super) fn follow(&mut self, event: &Event) -> Result<(), StoreFailed> {
        let outputs = match event {
            Event::Raised { resource, .. } => self.elections.raised(resource, self.ceiling(resource)),
            // Sealed is not open: a frozen resource's winner is told when it is thawed.
            Event::Opened { resource, mark, .. } | Event::Thawed { resource, mark }
                if self.is_open(resource) =>
            {
                self.elections.opened(self.now(), resource, *mark)
            }
            _ => Vec::new(),
        };
        self.hold(outputs)
    }

    fn hold(&mut self, outputs: Vec<Output>) -> Result<(), StoreFailed> {
        for output in outputs {
            match output {
                Output::Keep { resource, term } => {
                    self.note_holder(&resource, term.as_ref());
                    self.pending.terms.push((resource, term));
                }
                Output::Raise { resource, token } => {
                    let want = Want { resource, token, block: None, proof: None, patient: false };
                    self.step(Input::Want(want))?;
                }
                Output::Vacate { resource, token } => self.step(Input::Vacate { resource, token })?,
                Output::Grant { lease, token } => {
                    // A winner that is gone has withdrawn, or is about to: the order is on its way.
                    if let Some(campaigner) = self.campaigns.remove(&lease) {
                        let _ = campaigner.send(Ok(token));
                    }
                }
                Output::Exhausted { lease } => {
                    if let Some(campaigner) = self.campaigns.remove(&lease) {
                        let _ = campaigner.send(Err(CampaignError::Exhausted));
                    }
                }
                Output::Tell(event) => self.tell(Notice::Election(event)),
            }
        }
        // Last: whoever hears of a leader's end knows who waited for it then.
        for (resource, waiting) in self.elections.changed_lines() {
            self.tell(Notice::Line { resource, waiting });
        }
        Ok(())
    }
}

fn leader(term: &Term) -> Leader {
    let Candidate { holder, ttl, owner, .. } = term.candidate.clone();
    Leader { holder, token: term.token, ttl: Some(ttl), owner }
}
