//! The leases of a process: `backend/etcd/{leases,keeper,relocate}.rs`. What is due is decided by the real code.

use std::time::Duration;

use highgate::replica::{Revision, Time};
use highgate_elector::Resource;
use highgate_elector::backend::etcd::lease::{Due, Lease};

use super::super::clock::{MILLI, nanos};
use super::super::etcd::{Reply, Txn};
use super::super::world::{Event, World};
use super::{Ask, Extension, Then};

/// Between two rounds of the keeper.
const ROUND: u64 = 200 * MILLI;
const MOVE_PAUSE: u64 = 200 * MILLI;

impl World {
    pub(super) fn add_lease(&mut self, elector: usize, lease: u64, sent: Time, term: u64) {
        let ttl = self.plan.ttl;
        let machine = &mut self.electors[elector];
        let kept = machine.instant(sent);
        machine.pool.insert(lease, Lease::new(i64::try_from(lease).unwrap_or(0), ttl, ttl, kept, term));
    }

    /// A round over all leases.
    pub(crate) fn keep(&mut self, elector: usize, life: u64) {
        if self.electors[elector].life != life {
            return;
        }
        self.set_after(ROUND, Event::Keep { elector, life });
        let shown = self.elector_shows(elector);
        let machine = &mut self.electors[elector];
        let now = machine.instant(shown);
        let mut all: Vec<(u64, Due)> = Vec::new();
        for (name, lease) in &mut machine.pool {
            let mut due = lease.due(now);
            due.sort_by_key(|due| match due {
                Due::Remove { election, .. } => election.clone(),
                _ => String::new(),
            });
            all.extend(due.into_iter().map(|due| (*name, due)));
        }
        for (name, due) in all {
            self.do_due(elector, name, due);
        }
    }

    fn do_due(&mut self, elector: usize, name: u64, due: Due) {
        match due {
            Due::KeepAlive => self.extend_lease(elector, name, None),
            Due::Remove { election, created } => {
                let resource = self.resources.iter().position(|known| known.as_str() == election);
                let created = created.and_then(|created| u64::try_from(created).ok());
                if let Some(resource) = resource {
                    self.remove(elector, name, resource, created, None);
                }
            }
            Due::Revoke { carriers } => {
                self.electors[elector].pool.remove(&name);
                for lease in carriers {
                    let lease = u64::try_from(lease).unwrap_or(0);
                    self.ask_etcd(elector, Ask::Done, Txn::Revoke { lease });
                }
            }
        }
    }

    /// One etcd lease was extended, or is gone; then the next one.
    pub(super) fn kept_alive(&mut self, elector: usize, mut extension: Extension, reply: Option<Reply>) {
        let Some(Reply::Kept { alive, term }) = reply else {
            return self.extension_ends(elector, &extension, None);
        };
        extension.alive &= alive;
        extension.term = extension.term.max(term);
        if let Some(lease) = extension.left.pop() {
            return self.ask_etcd(elector, Ask::KeepAlive(extension), Txn::KeepAlive { lease });
        }
        let machine = &mut self.electors[elector];
        let sent = machine.instant(extension.sent);
        let answered = machine.pool.get_mut(&extension.name);
        if answered.is_some_and(|lease| lease.answered(sent, extension.alive, extension.term)) {
            self.relocate(elector, self.electors[elector].life, extension.name, None);
        }
        self.extension_ends(elector, &extension, Some(extension.alive));
    }

    fn extension_ends(&mut self, elector: usize, extension: &Extension, alive: Option<bool>) {
        if let Some(whose) = extension.whose {
            return self.extended(elector, whose, alive);
        }
        if alive == Some(false) {
            // Its keys are gone. The watch has said so, unless this is an etcd that was restored.
            self.list_elections(elector);
            let (life, name) = (self.electors[elector].life, extension.name);
            return self.set_after(5 * ROUND, Event::KeepAgain { elector, life, name });
        }
        self.keep_again(elector, self.electors[elector].life, extension.name);
    }

    pub(crate) fn keep_again(&mut self, elector: usize, life: u64, name: u64) {
        let machine = &mut self.electors[elector];
        if let Some(lease) = machine.pool.get_mut(&name).filter(|_| machine.life == life) {
            lease.keeping = false;
        }
    }

    /// The candidate's key has to go; at once, and if that fails, later.
    pub(super) fn leave(&mut self, elector: usize, resource: usize) {
        let Some(seat) = self.candidate(elector, resource).and_then(|known| known.seat.take()) else {
            return;
        };
        self.remove(elector, seat.lease, resource, seat.created, None);
    }

    /// Gives a leadership up. Who waits for the answer campaigns after it.
    pub(super) fn resign_quietly(&mut self, elector: usize, resource: usize, resigned: Option<u64>) {
        let Some(candidate) = self.candidate(elector, resource) else { return };
        let created = candidate.claim.as_ref().map(|claim| claim.created);
        if let Some(seat) = candidate.seat {
            self.remove(elector, seat.lease, resource, created, resigned);
        }
    }

    pub(super) fn remove(
        &mut self,
        elector: usize,
        name: u64,
        resource: usize,
        created: Option<Revision>,
        resigned: Option<u64>,
    ) {
        self.set_stage(elector, name, resource, created, true);
        let txn = Txn::Withdraw { resource: self.resources[resource].clone(), lease: name, created };
        self.ask_etcd(elector, Ask::Remove { name, resource, created, resigned }, txn);
    }

    fn set_stage(
        &mut self,
        elector: usize,
        name: u64,
        resource: usize,
        created: Option<Revision>,
        busy: bool,
    ) {
        let election = self.resources[resource].as_str().to_owned();
        if let Some(lease) = self.electors[elector].pool.get_mut(&name) {
            let created = created.and_then(|created| i64::try_from(created).ok());
            lease.leaving(&election, created, busy);
        }
    }

    /// A seat is free again only when etcd has confirmed that its key is gone.
    pub(super) fn removed(
        &mut self,
        elector: usize,
        name: u64,
        (resource, created): (usize, Option<Revision>),
        resigned: Option<u64>,
        done: bool,
    ) {
        let known = created.and_then(|created| i64::try_from(created).ok());
        if let Some(lease) = self.electors[elector].pool.get_mut(&name) {
            lease.left(self.resources[resource].as_str(), known, done);
        }
        let waits = |step: u64| move |known: &&mut super::Candidate| known.step == step;
        if let Some(step) = resigned
            && self.candidate(elector, resource).filter(waits(step)).is_some()
        {
            // Others first.
            let rest = Duration::from_nanos(self.dice.below(nanos(self.plan.ttl)));
            self.later(elector, resource, rest, Then::Begin);
        }
    }

    /// Moves keys to a new lease: asks for one, then puts them there until that has worked.
    pub(crate) fn relocate(
        &mut self,
        elector: usize,
        life: u64,
        name: u64,
        carrier: Option<(u64, Vec<(Resource, Revision)>)>,
    ) {
        if self.electors[elector].life != life || !self.electors[elector].pool.contains_key(&name) {
            return;
        }
        match carrier {
            None => {
                let lease = self.number();
                let txn = Txn::Grant { lease, ttl: nanos(self.plan.ttl) };
                self.ask_etcd(elector, Ask::Carrier { name, lease }, txn);
            }
            Some((carrier, keys)) => {
                let kept = self.electors[elector].pool.get(&name);
                let from = kept.map_or(0, |kept| u64::try_from(kept.moving_from()).unwrap_or(0));
                let txn = Txn::Relocate { lease: name, from, carrier, keys: keys.clone() };
                self.ask_etcd(elector, Ask::Relocated { name, carrier, keys }, txn);
            }
        }
    }

    pub(super) fn carrier_granted(&mut self, elector: usize, name: u64, lease: u64, granted: bool) {
        let life = self.electors[elector].life;
        if !granted {
            return self.set_after(MOVE_PAUSE, Event::Relocate { elector, life, name, carrier: None });
        }
        let Some(kept) = self.electors[elector].pool.get_mut(&name) else { return };
        let mut keys = kept.begin_move(i64::try_from(lease).unwrap_or(0));
        keys.sort();
        let known = |(election, created): &(String, i64)| {
            let resource = self.resources.iter().find(|known| known.as_str() == election)?;
            Some((resource.clone(), u64::try_from(*created).ok()?))
        };
        let keys: Vec<(Resource, Revision)> = keys.iter().filter_map(known).collect();
        // Who was renewed before this counts on the lease that it leaves: the carrier has to last as long.
        let ask = Ask::CarrierExtended { name, carrier: lease, keys };
        self.ask_etcd(elector, ask, Txn::KeepAlive { lease });
    }

    pub(super) fn carrier_extended(
        &mut self,
        elector: usize,
        name: u64,
        (carrier, keys): (u64, Vec<(Resource, Revision)>),
        reply: Option<Reply>,
    ) {
        let life = self.electors[elector].life;
        if matches!(reply, Some(Reply::Kept { alive: true, .. })) {
            return self.relocate(elector, life, name, Some((carrier, keys)));
        }
        self.set_after(MOVE_PAUSE, Event::Relocate { elector, life, name, carrier: None });
    }

    pub(super) fn relocated(
        &mut self,
        elector: usize,
        name: u64,
        carrier: (u64, Vec<(Resource, Revision)>),
        reply: Option<Reply>,
    ) {
        let life = self.electors[elector].life;
        match (reply, self.electors[elector].pool.get_mut(&name)) {
            (Some(Reply::Moved(true)), Some(lease)) => lease.end_move(),
            // That carrier is gone: another one.
            (Some(Reply::Moved(false)), _) => {
                self.set_after(MOVE_PAUSE, Event::Relocate { elector, life, name, carrier: None });
            }
            _ => {
                let carrier = Some(carrier);
                self.set_after(MOVE_PAUSE, Event::Relocate { elector, life, name, carrier });
            }
        }
    }
}
