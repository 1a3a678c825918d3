//! Where no election issues tokens: leaders one after the other, and zombies that still show older tokens. And
//! everywhere the last leader of all, whose requests have to pass at every gateway once trouble has ended.

use std::collections::BTreeSet;

use highgate::replica::{State, floor};
use highgate_elector::Token;

use super::clock::nanos;
use super::etcd::Txn;
use super::world::{Event, World};

/// Everybody who ever led one resource.
#[derive(Default)]
pub(crate) struct Line {
    tokens: Vec<Token>,
    counted: u64,
    /// Which elector has resigned last, and what.
    pub(crate) resigned: Option<(usize, Token)>,
    /// The last leader, and where its requests have passed.
    last: Option<Token>,
    served: BTreeSet<usize>,
}

impl Line {
    pub(crate) fn served(&mut self, host: usize, token: Token) {
        if self.last == Some(token) {
            self.served.insert(host);
        }
    }
}

impl World {
    /// Done by somebody whose way to etcd is of no interest here.
    pub(crate) fn perform(&mut self, txn: Txn) {
        let (_, entry) = self.etcd.execute(&txn, self.now);
        if let Some(entry) = entry {
            self.committed(&entry, &txn);
        }
    }

    pub(crate) fn client(&mut self, resource: usize) {
        if self.quiet_since.is_some() || self.plan.issued[resource] {
            return;
        }
        let next = self.dice.around(self.plan.request_every);
        self.set_after(next, Event::Client { resource });
        if self.etcd.state.era.is_none() || self.etcd.paused_until > self.now {
            return;
        }
        if self.lines[resource].tokens.is_empty() || self.dice.chance(self.plan.handover) {
            self.lines[resource].counted += self.dice.between(1, 3);
        }
        let Some(leader) = self.leader(resource) else { return };
        let line = &mut self.lines[resource];
        if line.tokens.last() != Some(&leader) {
            line.tokens.push(leader);
        }
        let recent = line.tokens.len().min(4);
        let zombie = line.tokens[line.tokens.len() - 1 - self.dice.index(recent)];
        let token = if self.dice.chance(self.plan.zombie) { zombie } else { leader };
        self.request(resource, token);
    }

    pub(crate) fn request(&mut self, resource: usize, token: Token) {
        let host = self.dice.index(self.hosts.len());
        let delay = self.latency();
        self.set_after(delay, Event::Arrive { host, resource, token });
    }

    /// Who may write: whoever says so, or the one whose job was told by its elector.
    fn leader(&self, resource: usize) -> Option<Token> {
        if self.plan.issued[resource] {
            return self.told_leader(resource);
        }
        Token::new(floor(self.etcd.state.era?) + self.lines[resource].counted)
    }

    /// The last leader comes, and asks everywhere until it was let through.
    pub(crate) fn check(&mut self) {
        if self.etcd.state.era.is_some() {
            self.settle_names();
            for resource in 0..self.resources.len() {
                self.settle_last(resource);
                self.ask_everywhere(resource);
                self.thaw_if_needed(resource);
            }
        }
        let hosts = self.hosts.len();
        let served = |line: &Line| line.last.is_some() && line.served.len() == hosts;
        if self.lines.iter().all(served) && self.names_are_settled() {
            self.done = true;
            return;
        }
        let since = self.quiet_since.unwrap_or(self.now);
        if self.now > since + self.plan.patience() {
            let stuck = self.describe_stuck();
            return self.accuse("liveness", || stuck);
        }
        let again = nanos(self.plan.timing.validity) / 4;
        self.set_after(again, Event::Check);
    }

    fn settle_last(&mut self, resource: usize) {
        let era = self.etcd.state.era.unwrap_or_default();
        let stands = !self.plan.issued[resource] || self.leader(resource) == self.lines[resource].last;
        if stands && self.lines[resource].last.is_some_and(|token| token.era() == era) {
            return;
        }
        self.lines[resource].counted += 1;
        self.lines[resource].last = self.leader(resource);
        self.lines[resource].served.clear();
    }

    fn ask_everywhere(&mut self, resource: usize) {
        let Some(token) = self.lines[resource].last else { return };
        for host in 0..self.hosts.len() {
            if !self.lines[resource].served.contains(&host) {
                self.set(self.now, Event::Arrive { host, resource, token });
            }
        }
    }

    fn thaw_if_needed(&mut self, resource: usize) {
        let frozen = |name| self.etcd.state.fences.get(name).is_some_and(|record| record.frozen);
        if self.marked_names(resource).iter().any(frozen) || self.plan.blocks[resource] {
            self.thaw(resource);
        }
    }

    fn describe_stuck(&self) -> String {
        let mut lines = Vec::new();
        for (resource, line) in self.resources.iter().zip(&self.lines) {
            let record = self.etcd.state.fences.get(resource);
            lines.push(format!(
                "{resource}: last {:?}, served by {:?}, mark {record:?}",
                line.last, line.served
            ));
        }
        lines.extend(self.describe_electors());
        let names = self.etcd.state.names.as_ref().filter(|(_, names)| names.next.is_some());
        lines.extend(names.map(|(at, _)| format!("the change of names of {at} is not finished")));
        for (index, host) in self.hosts.iter().enumerate() {
            let Some(session) = host.process.as_ref().and_then(|process| process.session()) else {
                lines.push(format!("{}: outside", super::trace::letter(index)));
                continue;
            };
            for record in self.resources.iter().map(|resource| session.replica.record(resource)) {
                let (members, tombstones) = session.replica.waits_for(self.shown(index), &record);
                if record.state == State::Raised {
                    let me = super::trace::letter(index);
                    lines.push(format!("{me}: {} waits for {members:?} {tombstones:?}", record.token));
                }
            }
        }
        lines.join("; ")
    }
}
