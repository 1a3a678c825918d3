//! What happens to electors and to the leases that etcd keeps for them.

use super::super::clock::{MILLI, Nanos, nanos};
use super::super::etcd::{Reply, Txn};
use super::super::trace::format_millis;
use super::super::world::{Event, World};
use super::{Ask, Candidate, Graves, Word};

impl World {
    pub(crate) fn start_elector(&mut self, elector: usize) {
        if self.electors[elector].life != 0 || !self.plan.issued.contains(&true) {
            return;
        }
        let life = self.number();
        let machine = &mut self.electors[elector];
        machine.life = life;
        let led = (0..self.plan.issued.len()).filter(|resource| self.plan.issued[*resource]);
        machine.candidates = led.map(|resource| (resource, Candidate::new())).collect();
        self.note(|| format!("elector {elector} starts"));
        self.list_elections(elector);
        let round = self.dice.below(200 * MILLI);
        self.set_after(round, Event::Keep { elector, life });
        self.set_after(round, Event::SameEtcd { elector, life });
        let resources: Vec<usize> = self.electors[elector].candidates.keys().copied().collect();
        for resource in resources {
            self.begin_campaign(elector, resource);
        }
    }

    fn some_elector(&mut self) -> Option<usize> {
        let elector = self.dice.index(self.electors.len());
        (self.electors[elector].life != 0).then_some(elector)
    }

    pub(crate) fn pause_elector(&mut self, length: Nanos) {
        let Some(elector) = self.some_elector().filter(|it| self.electors[*it].paused_until.is_none()) else {
            return;
        };
        self.tally.elector_pauses += 1;
        self.note(|| format!("elector {elector} is paused for {} ms", format_millis(length)));
        self.electors[elector].paused_until = Some(self.now + length);
        self.set_after(length, Event::ResumeElector { elector });
    }

    /// Its threads go on with whatever they were about to do, in any order.
    pub(crate) fn resume_elector(&mut self, elector: usize) {
        if self.electors[elector].paused_until.is_none_or(|until| until > self.now) {
            return;
        }
        self.note(|| format!("elector {elector} goes on"));
        self.electors[elector].paused_until = None;
        for event in std::mem::take(&mut self.electors[elector].deferred) {
            let delay = self.dice.below(2 * MILLI);
            self.set_after(delay, event);
        }
        self.read_inbox(elector);
    }

    pub(crate) fn crash_elector(&mut self) {
        let Some(elector) = self.some_elector() else { return };
        self.tally.elector_crashes += 1;
        self.note(|| format!("elector {elector} crashes"));
        let machine = &mut self.electors[elector];
        machine.life = 0;
        machine.paused_until = None;
        machine.deferred.clear();
        machine.inbox.clear();
        machine.pool.clear();
        machine.graves = Graves::default();
        machine.candidates.clear();
        let stream = std::mem::take(&mut machine.mirror).stream();
        self.streams.remove(&stream);
        let delay = self.spell();
        self.set_after(delay, Event::StartElector { elector });
    }

    pub(crate) fn unplug_elector(&mut self, length: Nanos) {
        if let Some(elector) = self.some_elector() {
            self.note(|| format!("elector {elector} and etcd do not reach each other"));
            self.electors[elector].unplugged_until = self.now + length;
        }
    }

    pub(crate) fn quiet_electors(&mut self) {
        for elector in 0..self.electors.len() {
            self.electors[elector].unplugged_until = 0;
            if self.electors[elector].paused_until.is_some() {
                self.electors[elector].paused_until = Some(self.now);
                self.resume_elector(elector);
            }
            self.set(self.now, Event::StartElector { elector });
        }
    }

    pub(crate) fn elector_hears(&mut self, elector: usize, life: u64, ask: Ask, reply: Option<Reply>) {
        if self.electors[elector].life == life {
            self.electors[elector].inbox.push_back(Word::Answer(ask, reply));
            self.read_inbox(elector);
        }
    }

    pub(super) fn read_inbox(&mut self, elector: usize) {
        while self.electors[elector].paused_until.is_none() {
            match self.electors[elector].inbox.pop_front() {
                Some(Word::Answer(ask, reply)) => self.heed(elector, ask, reply),
                Some(Word::Changes(stream, news)) => self.take_elector_changes(elector, stream, news),
                None => return,
            }
        }
    }

    fn heed(&mut self, elector: usize, ask: Ask, reply: Option<Reply>) {
        if let Ask::Grant { resource, step, .. }
        | Ask::Enter { resource, step }
        | Ask::Raise { resource, step }
        | Ask::AnyMember { resource, step } = ask
            && self.candidate(elector, resource).is_none_or(|known| known.step != step)
        {
            return;
        }
        match ask {
            Ask::Grant { resource, lease, sent, .. } => {
                self.granted_lease(elector, resource, (lease, sent), reply);
            }
            Ask::Enter { resource, .. } => self.entered(elector, resource, reply),
            Ask::Raise { resource, .. } => self.raised(elector, resource, reply),
            Ask::AnyMember { resource, .. } => self.heard_of_gateways(elector, resource, reply),
            Ask::Confirm { resource, round } | Ask::Check { resource, round } => {
                self.answered(elector, resource, round, reply);
            }
            Ask::KeepAlive(extension) => self.kept_alive(elector, extension, reply),
            Ask::Remove { name, resource, created, resigned } => {
                self.removed(elector, name, (resource, created), resigned, reply.is_some());
            }
            Ask::Carrier { name, lease } => self.carrier_granted(elector, name, lease, reply.is_some()),
            Ask::CarrierExtended { name, carrier, keys } => {
                self.carrier_extended(elector, name, (carrier, keys), reply);
            }
            Ask::Relocated { name, carrier, keys } => {
                self.relocated(elector, name, (carrier, keys), reply);
            }
            Ask::List => self.elections_listed(elector, reply),
            Ask::SameEtcd { before } => self.heard_of_etcd(elector, before, reply),
            Ask::Done => {}
        }
    }

    /// A lease was granted or extended: etcd looks at it when its time is over.
    pub(crate) fn count_lease(&mut self, txn: &Txn) {
        if let Txn::Grant { lease, .. } | Txn::KeepAlive { lease } = txn
            && let Some(held) = self.etcd.state.leases.get(lease)
        {
            self.set(held.expires, Event::LeaseDue { lease: *lease, late: false });
        }
    }

    pub(crate) fn count_leases(&mut self) {
        let leases: Vec<u64> = self.etcd.state.leases.keys().copied().collect();
        for lease in leases {
            self.count_lease(&Txn::KeepAlive { lease });
        }
    }

    /// Never too early; late if etcd has other things to do.
    pub(crate) fn lease_due(&mut self, lease: u64, late: bool) {
        let Some(held) = self.etcd.state.leases.get(&lease).copied().filter(|held| held.expires <= self.now)
        else {
            return;
        };
        if self.etcd.paused_until > self.now {
            let at = self.etcd.paused_until;
            return self.set(at, Event::LeaseDue { lease, late });
        }
        if !late && self.dice.chance(300) {
            self.tally.late_leases += 1;
            let after = self.dice.below(held.ttl);
            return self.set_after(after, Event::LeaseDue { lease, late: true });
        }
        self.tally.expired_leases += 1;
        self.perform(Txn::Revoke { lease });
    }

    /// A new leader counts all leases anew. The old one, which was stopped, may wake up and revoke what it knew.
    pub(crate) fn elect_etcd(&mut self) {
        self.note(|| "etcd elects a leader".to_owned());
        self.tally.etcd_elections += 1;
        let known = self.etcd.elect(self.now);
        self.count_leases();
        for lease in known {
            if self.dice.chance(250) {
                let after = self.dice.below(2 * nanos(self.plan.ttl));
                self.set_after(after, Event::RevokeEarly { lease });
            }
        }
    }

    pub(crate) fn revoke_early(&mut self, lease: u64) {
        let Some(held) = self.etcd.state.leases.get(&lease).copied() else { return };
        if self.quiet_since.is_some() || held.expires <= self.now {
            return;
        }
        self.tally.early_leases += 1;
        let named = self.etcd.state.candidates.iter().filter(|((_, name), _)| *name == lease);
        let moved = named.filter(|(_, candidate)| candidate.carrier != lease).count();
        self.tally.moved_in_time += moved as u64;
        self.wrong(lease);
        self.perform(Txn::Revoke { lease });
    }
}
