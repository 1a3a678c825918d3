//! What must always hold. What must happen sometimes, so that this says something, is in `sights.rs`.
//!
//! Marks are judged name by name. The promise is about the resource, whatever it is called: what was forwarded and what
//! took effect is compared without a look at names.
//!
//! A rule that is broken on purpose has to show at the upstream or in the mark: that a gate is open or valid for too long
//! is no violation by itself then.

use highgate::replica::{Incarnation, Record, Revision, State, Time};
use stateright::Property;

use crate::hooks::Broken;
use crate::naming::{ByName, Name, NameSet};
use crate::setting::Setting;
use crate::time::TIMING;
use crate::world::{Protocol, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Violation {
    /// A mark went down, or opened without having been raised.
    Mark,
    /// A request was forwarded where the mark is not open.
    Forward,
    /// A mark was opened while a lower gate is open, or a lower request under way.
    Open,
    /// A member is valid for longer than V after its eviction.
    Validity,
    /// A lower token was forwarded, or took effect, after a higher one.
    Fall,
    /// A request was forwarded while one of another token was under way.
    Overlap,
}

impl World {
    fn accuse(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    pub(crate) fn judge_marks(&mut self, setting: &Setting, control: Broken, before: &ByName<Record>) {
        for name in Name::ALL {
            self.judge_mark(setting, control, name, &before[name as usize]);
        }
    }

    /// I1, and I3 when a mark opens.
    fn judge_mark(&mut self, setting: &Setting, control: Broken, name: Name, before: &Record) {
        let record = self.etcd.records[name as usize];
        if record.modified == before.modified {
            return;
        }
        let is_fine = match record.state {
            State::Raised => {
                record.token > before.token || (record.token == before.token && before.state == State::Raised)
            }
            State::Open => record.token == before.token,
        };
        if !is_fine {
            self.accuse(Violation::Mark);
        }
        if record.state == State::Open && before.state == State::Raised {
            let is_top =
                self.tokens.len() >= setting.tokens && self.tokens.iter().max() == Some(&record.token);
            self.notes.sealed(is_top);
            self.judge_open(control, name, record.token);
        }
    }

    fn judge_open(&mut self, control: Broken, name: Name, token: u64) {
        let now = self.now();
        let lower_gate = self.gateways.iter().any(|gateway| {
            let valid = gateway.session().is_some_and(|session| now < session.valid);
            valid && gateway.gate(name).is_open() && gateway.gate(name).token() < token
        });
        let mut flights = self.flights.iter().filter(|flight| flight.names.contains(name));
        let lower = flights.any(|flight| flight.token < token && flight.is_under_way(now));
        if (lower_gate || lower) && control.is_none() {
            self.accuse(Violation::Open);
        }
    }

    /// I2, and the promise.
    pub(crate) fn judge_forward(&mut self, control: Broken, gateway: usize, token: u64, names: NameSet) {
        let now = self.now();
        if self.flights.iter().any(|flight| flight.token != token && flight.is_under_way(now)) {
            self.accuse(Violation::Overlap);
        }
        if token < self.forwarded {
            self.accuse(Violation::Fall);
        }
        self.notes.forwarded(names, token > self.forwarded);
        self.forwarded = self.forwarded.max(token);
        let is_open = self.gateways[gateway].session().is_some_and(|session| {
            let mut records = names.iter().map(|name| session.replica.record(&name.resource()));
            records.all(|record| record.token == token && session.replica.passes(&record))
                && now < session.valid
        });
        if !is_open && control.is_none() {
            self.accuse(Violation::Forward);
        }
    }

    pub(crate) fn judge_effect(&mut self, token: u64) {
        if token < self.effected {
            self.accuse(Violation::Fall);
        }
        self.effected = self.effected.max(token);
    }

    pub(crate) fn note_names(&mut self, is_changing: bool) {
        let now = self.now();
        let mut old = self.flights.iter().filter(|flight| !flight.names.contains(Name::New));
        let over_old = old.any(|flight| flight.is_under_way(now));
        self.notes.names_put(is_changing, over_old);
    }

    pub(crate) fn note_eviction(&mut self, member: Incarnation, created: Revision) {
        self.notes.evicted();
        self.evicted.push((member, created, self.now()));
    }

    /// I4.
    pub(crate) fn judge_validity(&mut self, control: Broken, me: Incarnation, until: Time) {
        let evicted = self.evicted.iter().find(|(member, ..)| *member == me);
        if evicted.is_some_and(|(.., at)| until > *at + TIMING.validity) && control.is_none() {
            self.accuse(Violation::Validity);
        }
    }
}

/// Names are those of the protocol's invariants.
pub(crate) fn properties(setting: &Setting) -> Vec<Property<Protocol>> {
    let mut properties = vec![
        Property::always("I1 a mark grows, and opens after its own raise", |_, world: &World| {
            world.violation != Some(Violation::Mark)
        }),
        Property::always("I2 a token passes where its mark is open and valid", |_, world: &World| {
            world.violation != Some(Violation::Forward)
        }),
        Property::always("I3 nothing lower is open or under way when a mark opens", |_, world: &World| {
            world.violation != Some(Violation::Open)
        }),
        Property::always("I4 nobody is valid for more than V after an eviction", |_, world: &World| {
            world.violation != Some(Violation::Validity)
        }),
        Property::always("tokens never go down", |_, world: &World| world.violation != Some(Violation::Fall)),
        Property::always("requests of two tokens never overlap", |_, world: &World| {
            world.violation != Some(Violation::Overlap)
        }),
    ];
    properties.extend(setting.sights.iter().map(|sight| sight.property()));
    properties
}
