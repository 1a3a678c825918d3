//! A gateway's gates, one for each name of the resource: `src/store/etcd/serve.rs`.

use highgate::replica::{Input, State, floor};

use super::{Deeds, Gateway, Moment};
use crate::control::Control;
use crate::gate::Gate;
use crate::naming::Name;

impl Gateway {
    pub(crate) fn gate(&self, name: Name) -> &Gate {
        &self.gates[name as usize]
    }

    /// Whether requests with this token pass, under every name that they have here.
    pub(crate) fn passes(&self, token: u64) -> bool {
        let passes = |name| self.gate(name).is_open() && self.gate(name).token() == token;
        token >= self.table.floor && self.table.names.iter().all(passes)
    }

    pub(super) fn close(&mut self, moment: Moment, name: Name, mark: u64, deeds: &mut Deeds) {
        if moment.control == Some(Control::PerReplicaCache) || self.passes_anyway(moment, name) {
            return;
        }
        let remaining = self.gates[name as usize].close(mark);
        if let Some(session) = self.session_mut() {
            session.held_back = session.held_back.without(name);
        }
        if remaining == 0 || moment.control == Some(Control::NoDrain) {
            self.step(moment, Input::Drained { resource: name.resource() }, deeds);
        }
    }

    /// The control that lets a mark of an older era pass.
    fn passes_anyway(&mut self, moment: Moment, name: Name) -> bool {
        let Some(session) = self.session() else { return false };
        let record = session.replica.record(&name.resource());
        let older = record.token > 0 && record.token < floor(session.replica.era());
        if moment.control != Some(Control::OlderEraOpen) || record.state != State::Open || !older {
            return false;
        }
        let gate = &mut self.gates[name as usize];
        let _ = gate.close(record.token);
        gate.open()
    }

    pub(super) fn open(&mut self, moment: Moment, name: Name, mark: u64, deeds: &mut Deeds) {
        if moment.control == Some(Control::PerReplicaCache) {
            return;
        }
        if self.gate(name).token() != mark {
            // etcd holds less than it did.
            return self.fence(deeds);
        }
        let opened = self.gates[name as usize].open();
        if let Some(session) = self.session_mut() {
            let held_back = session.held_back.without(name);
            session.held_back = if opened { held_back } else { held_back.and(name) };
        }
    }

    /// A permit was given back: only a gate that is shut and empty now has drained.
    pub(crate) fn left(&mut self, moment: Moment, name: Name, deeds: &mut Deeds) {
        if self.gate(name).is_open() || self.gate(name).held() > 0 {
            return;
        }
        self.step(moment, Input::Drained { resource: name.resource() }, deeds);
        let Some(session) = self.session().filter(|session| session.held_back.contains(name)) else { return };
        let record = session.replica.record(&name.resource());
        if session.replica.passes(&record) {
            self.open(moment, name, record.token, deeds);
        }
    }
}
