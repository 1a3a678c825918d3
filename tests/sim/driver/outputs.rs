//! The machine's outputs, to the gates and to etcd: `src/store/etcd/serve.rs`.

use std::time::Duration;

use highgate::ledger::NotOpened;
use highgate::replica::{
    Applied, Change, Fenced, Incarnation, Input, Output, Proposal, Revision, State, floor,
};
use highgate_elector::Resource;

use super::super::clock::{MILLI, Nanos};
use super::super::control::Control;
use super::super::etcd::Txn;
use super::super::host::{Host, Session, Stage};
use super::super::trace::{letter, short};
use super::super::wire::Purpose;
use super::super::world::{Event, World};

/// Between two listings.
const LISTING_PAUSE: Nanos = 300 * MILLI;
const MAX_SENDING: usize = 8;

impl World {
    pub(crate) fn step(&mut self, host: usize, input: Input) {
        let shown = self.shown(host);
        let Some(session) = self.hosts[host].session() else { return };
        let outputs = session.replica.step(shown, input);
        let outputs = self.in_some_order(outputs);
        self.carry_out(host, outputs);
    }

    /// The machine keeps resources in hash maps, so proposals that come together have no order of their own. Here
    /// it is the seed that decides.
    pub(super) fn in_some_order(&mut self, mut outputs: Vec<Output>) -> Vec<Output> {
        let mut from = 0;
        while from < outputs.len() {
            let proposals = outputs[from..].iter().take_while(|output| proposed(output).is_some()).count();
            let run = &mut outputs[from..from + proposals];
            run.sort_by(|one, other| proposed(one).cmp(&proposed(other)));
            self.dice.shuffle(run);
            from += proposals.max(1);
        }
        outputs
    }

    pub(super) fn carry_out(&mut self, host: usize, outputs: Vec<Output>) {
        for output in outputs {
            let Some(session) = self.hosts[host].session() else { return };
            match output {
                Output::Propose(proposal) => {
                    session.proposals.insert(proposal.resource.clone(), proposal);
                }
                Output::Close { resource, mark, shut } => {
                    session.held_back.remove(&resource);
                    if self.passes_anyway(host, &resource) {
                        continue;
                    }
                    let Some(process) = &self.hosts[host].process else { return };
                    let remaining = process.ledger.close(&resource, mark, shut).remaining;
                    self.supersede(host, &resource);
                    if remaining == 0 || self.is(Control::NoDrain) {
                        self.step(host, Input::Drained { resource });
                    }
                }
                Output::Open { resource, mark, blocks } => self.open(host, resource, mark, blocks),
                Output::Settle { resource } => {
                    if let Some(process) = &self.hosts[host].process {
                        process.ledger.settle(&resource);
                    }
                }
                Output::Renew { watermark, draining } => self.renew(host, watermark, draining),
                Output::Valid { until } => self.extend(host, until),
                Output::Evict { member, modified } => self.evict(host, member, modified),
                Output::Bury { member, value } => {
                    let tombstone = self.reader(host).tombstone_of(&value);
                    self.tally.burials += 1;
                    self.send(host, Txn::Bury { member, tombstone });
                }
                Output::Forget { name, modified } => self.forget(host, name, modified),
                Output::Resync => self.list(host),
                Output::Fence(why) => self.fence(host, reason(why)),
                Output::FinishNames { seen } => self.finish_names(host, seen),
                Output::Tell(_) => {}
            }
        }
    }

    /// The control that lets a mark of an older era pass.
    fn passes_anyway(&mut self, host: usize, resource: &Resource) -> bool {
        if !self.is(Control::OlderEraOpen) {
            return false;
        }
        let Some(process) = &self.hosts[host].process else { return false };
        let Some(session) = process.session() else { return false };
        let record = session.replica.record(resource);
        let older = record.token > 0 && record.token < floor(session.replica.era());
        if record.state != State::Open || !older {
            return false;
        }
        let _ = process.ledger.close(resource, record.token, highgate::ledger::Shut::Raised);
        process.ledger.open(resource, record.token, record.block).is_ok()
    }

    fn extend(&mut self, host: usize, until: Duration) {
        let shown = self.shown(host);
        let Some(process) = &mut self.hosts[host].process else { return };
        if process.extend(shown, until) {
            self.validity_lasts(host);
        } else {
            self.fence(host, "expired");
        }
    }

    pub(super) fn open(&mut self, host: usize, resource: Resource, mark: u64, blocks: bool) {
        let Some(process) = &mut self.hosts[host].process else { return };
        let opened = process.ledger.open(&resource, mark, blocks);
        let Stage::Inside(session) = &mut process.stage else { return };
        match opened {
            Ok(()) => self.note(|| format!("{} opens {resource} at {mark}", letter(host))),
            Err(NotOpened::Held(_)) => {
                session.held_back.insert(resource);
                self.tally.held_back += 1;
            }
            Err(NotOpened::WentBack { .. }) => {
                process.memory.lost = true;
                self.fence(host, "went back");
                self.save_now(host);
            }
        }
    }

    /// Only a gate that is shut and empty *now* has drained: the report may be older than a reopening.
    pub(super) fn left(&mut self, host: usize, resource: Resource) {
        let Some(process) = &self.hosts[host].process else { return };
        let cell = process.ledger.enter(&resource);
        if cell.is_open() || cell.in_flight() > 0 {
            return;
        }
        self.step(host, Input::Drained { resource: resource.clone() });
        let Some(session) = self.hosts[host].session() else { return };
        if session.held_back.remove(&resource) {
            let record = session.replica.record(&resource);
            if session.replica.passes(&record) {
                self.open(host, resource, record.token, record.block);
            }
        }
    }

    pub(super) fn promise(&mut self, host: usize, lock_delay: Duration) {
        let shown = self.shown(host);
        let Some(process) = &mut self.hosts[host].process else { return };
        process.timing.lock_delay = process.timing.lock_delay.max(lock_delay);
        match &mut process.stage {
            Stage::Inside(session) => {
                session.replica.retime(process.timing, shown);
                session.promises.push(lock_delay);
            }
            // The join that is under way carries the old one.
            Stage::Outside { joining: Some(_), .. } => process.promises.push(lock_delay),
            Stage::Outside { .. } => process.lock_delay = process.lock_delay.max(lock_delay),
        }
    }

    pub(super) fn send_proposals(&mut self, host: usize) {
        loop {
            let Some(session) = self.hosts[host].session() else { return };
            if session.proposals.is_empty() || session.sending >= MAX_SENDING {
                return;
            }
            let proposals: Vec<Proposal> = std::mem::take(&mut session.proposals).into_values().collect();
            session.sending += 1;
            let (number, era) = (session.number, session.replica.era());
            let purpose = Purpose::Propose { session: number, proposals: proposals.clone() };
            self.call(host, purpose, Txn::Propose { era, proposals });
        }
    }

    fn renew(&mut self, host: usize, watermark: Revision, mut draining: Vec<Revision>) {
        let (sent, control) = (self.shown(host), self.control);
        let Some(session) = self.hosts[host].session() else { return };
        session.hooks.disown(control, &mut draining);
        let (number, me, created, confirmed) =
            (session.number, session.me, session.created, session.confirmed);
        let (era, seen) = (session.replica.era(), session.seen);
        let value = self.value(host, watermark, draining);
        let known = self.hosts[host].process.as_ref().map_or(0, |process| process.memory.revision).max(seen);
        let lock_delay = value.lock_delay;
        let purpose = Purpose::Renew { session: number, sent, lock_delay, confirmed };
        self.call(host, purpose, Txn::Renew { me, created, era, value, known });
    }

    fn evict(&mut self, host: usize, member: Incarnation, modified: Revision) {
        let reader = self.reader(host);
        let Some(session) = self.hosts[host].session() else { return };
        let Some(judged) = session.replica.members().get(&member) else { return };
        let tombstone = reader.tombstone_of(judged);
        self.note(|| format!("{} wants to evict {}", letter(host), short(member)));
        if self.is(Control::TombstoneFromSending) {
            let name = format!("{member:032x}");
            let change = Change::Tombstone(name, reader.tombstone(&tombstone, modified));
            self.step(host, Input::Applied(Applied { changes: vec![change], ..Applied::default() }));
        }
        self.send(host, Txn::Evict { member, modified, tombstone });
    }

    fn forget(&mut self, host: usize, name: String, modified: Revision) {
        let Some(session) = self.hosts[host].session() else { return };
        let purpose = Purpose::Forget { session: session.number, name: name.clone() };
        self.call(host, purpose, Txn::Forget { name, modified });
    }

    /// Sends what nobody waits for.
    pub(crate) fn send(&mut self, host: usize, txn: Txn) {
        let Some(session) = self.hosts[host].session() else { return };
        let purpose = Purpose::Done { session: session.number };
        self.call(host, purpose, txn);
    }

    /// Reads everything again. Until then no change is applied, so none is acknowledged.
    pub(super) fn list(&mut self, host: usize) {
        let Some(session) = self.hosts[host].session() else { return };
        if session.listing {
            return;
        }
        session.listing = true;
        let (number, stream) = (session.number, session.stream);
        let last = session.listed_at.replace(self.now);
        let pause = last.map_or(0, |last| (last + LISTING_PAUSE).saturating_sub(self.now));
        self.streams.remove(&stream);
        self.tally.resyncs += 1;
        self.note(|| format!("{} reads everything again", letter(host)));
        let process = self.hosts[host].process_number();
        self.set_after(pause, Event::List { host, process, session: number });
    }

    pub(crate) fn send_list(&mut self, host: usize, process: u64, session: u64) {
        let Host { process: Some(living), .. } = &self.hosts[host] else { return };
        let listing = |inside: &Session| inside.number == session && inside.listing;
        if living.number == process && living.session().is_some_and(listing) {
            self.call(host, Purpose::List { session }, Txn::List);
        }
    }
}

fn proposed(output: &Output) -> Option<&Resource> {
    match output {
        Output::Propose(proposal) => Some(&proposal.resource),
        _ => None,
    }
}

fn reason(why: Fenced) -> &'static str {
    match why {
        Fenced::Expired => "expired",
        Fenced::Evicted => "evicted",
        Fenced::Refused => "refused",
        Fenced::NewEra => "new era",
    }
}
