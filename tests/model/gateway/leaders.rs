//! Who leads, as far as a gateway has heard, and what it wants of the mark for that: `src/store/etcd/leaders.rs`.
//!
//! What leaders are elected for keeps its name.

use highgate::replica::{Input, Want, floor};
use highgate_elector::Token;

use super::{Deeds, Gateway, Moment};
use crate::control::Control;
use crate::etcd::{Candidate, Entry};
use crate::naming::Name;

impl Gateway {
    pub(super) fn poll(&mut self, moment: Moment, entry: &Entry, deeds: &mut Deeds) {
        let Some(session) = self.session_mut().filter(|session| !session.listing) else { return };
        let before = session.queue.first().copied();
        session.queue.extend(entry.came);
        session.queue.retain(|candidate| Some(candidate.lease) != entry.went);
        let after = session.queue.first().copied();
        if before != after {
            self.follow(moment, after, deeds);
        }
    }

    /// A leader changed: the mark follows, or is vacant after the last.
    fn follow(&mut self, moment: Moment, head: Option<Candidate>, deeds: &mut Deeds) {
        match head {
            Some(head) => self.want_head(moment, head, true, deeds),
            None => self.vacate(moment, deeds),
        }
    }

    pub(super) fn follow_all(&mut self, moment: Moment, deeds: &mut Deeds) {
        let Some(session) = self.session() else { return };
        if let Some(head) = session.queue.first().copied() {
            return self.want_head(moment, head, true, deeds);
        }
        let stands = |_: &_, created| session.queue.iter().any(|candidate| candidate.created == created);
        if !session.replica.departed(stands).is_empty() {
            self.vacate(moment, deeds);
        }
    }

    fn want_head(&mut self, moment: Moment, head: Candidate, patient: bool, deeds: &mut Deeds) {
        let Some(session) = self.session() else { return };
        let Some(token) = Token::new(floor(session.replica.era()) + head.created) else { return };
        let proof = Some(Box::from([head.lease]));
        let resource = Name::Old.resource();
        self.want(moment, Want { resource, token, block: None, proof, patient }, deeds);
    }

    fn vacate(&mut self, moment: Moment, deeds: &mut Deeds) {
        let Some(session) = self.session() else { return };
        let resource = Name::Old.resource();
        let record = session.replica.record(&resource);
        if record.issued
            && let Some(token) = Token::new(record.token)
        {
            self.step(moment, Input::Vacate { resource, token }, deeds);
        }
    }

    fn want(&mut self, moment: Moment, want: Want, deeds: &mut Deeds) {
        self.step(moment, Input::Want(want), deeds);
    }

    /// Somebody brings a token above the mark of a name: a number, or the candidate that etcd says it is of.
    pub(crate) fn claim(&mut self, moment: Moment, name: Name, token: Token, of: Option<Candidate>) -> Deeds {
        let mut deeds = Vec::new();
        if moment.control == Some(Control::PerReplicaCache) {
            let gate = &mut self.gates[name as usize];
            let _ = gate.close(token.get());
            let _ = gate.open();
            return deeds;
        }
        match of {
            Some(candidate) => self.want_head(moment, candidate, false, &mut deeds),
            None => {
                let (block, proof) = (None, None);
                let want = Want { resource: name.resource(), token, block, proof, patient: false };
                self.want(moment, want, &mut deeds);
            }
        }
        deeds
    }
}
