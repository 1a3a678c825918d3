//! One watch for all elections of a process: `backend/etcd/mirror.rs`. A watch of etcd may be late and may find what
//! it asks for compacted away, but it loses nothing in between: electors rely on that, gateways do not.

use std::collections::BTreeMap;
use std::rc::Rc;

use highgate::replica::Revision;
use highgate_elector::Resource;

use super::super::clock::{MILLI, SECOND};
use super::super::driver::queues;
use super::super::etcd::{Entry, KeyChange, Reply, State, Txn, encoded};
use super::super::wire::Party;
use super::super::world::{Event, World};
use super::{Ask, At, Candidate, Seat, Word};

const SAME_ETCD_EVERY: u64 = 5 * SECOND;
const PAUSE_AFTER_FAILURE: u64 = 500 * MILLI;

/// Who stands in which line, as etcd last told.
#[derive(Default)]
pub(super) struct Mirror {
    synced: bool,
    listing: bool,
    era: u64,
    revision: Revision,
    queues: BTreeMap<Resource, BTreeMap<Revision, u64>>,
    stream: u64,
}

impl Mirror {
    /// The watch that ends with it.
    pub(super) fn stream(&self) -> u64 {
        self.stream
    }
}

impl World {
    pub(super) fn list_elections(&mut self, elector: usize) {
        let mirror = &mut self.electors[elector].mirror;
        if std::mem::replace(&mut mirror.listing, true) {
            return;
        }
        let stream = mirror.stream;
        self.streams.remove(&stream);
        self.ask_etcd(elector, Ask::List, Txn::List);
    }

    pub(crate) fn relist(&mut self, elector: usize, life: u64) {
        if self.electors[elector].life == life {
            self.electors[elector].mirror.listing = false;
            self.list_elections(elector);
        }
    }

    /// Whether etcd is still the one that was listed, asked now and then.
    pub(crate) fn ask_for_etcd(&mut self, elector: usize, life: u64) {
        if self.electors[elector].life != life {
            return;
        }
        self.set_after(SAME_ETCD_EVERY, Event::SameEtcd { elector, life });
        let Mirror { synced, listing, revision, .. } = self.electors[elector].mirror;
        if synced && !listing {
            self.ask_etcd(elector, Ask::SameEtcd { before: revision }, Txn::ReadEraAt);
        }
    }

    pub(super) fn heard_of_etcd(&mut self, elector: usize, before: Revision, reply: Option<Reply>) {
        let Some(Reply::EraAt { era, changed, revision }) = reply else { return };
        let mirror = &self.electors[elector].mirror;
        if revision < before || (changed <= mirror.revision && era != mirror.era) {
            self.tally.other_etcds += 1;
            self.list_elections(elector);
        }
    }

    pub(super) fn elections_listed(&mut self, elector: usize, reply: Option<Reply>) {
        let life = self.electors[elector].life;
        let Some(Reply::Listed(state)) = reply else {
            return self.set_after(PAUSE_AFTER_FAILURE, Event::Relist { elector, life });
        };
        let stream = self.open_stream(Party::Elector(elector), life, state.revision + 1);
        let mirror = &mut self.electors[elector].mirror;
        mirror.listing = false;
        mirror.stream = stream;
        mirror.synced = true;
        mirror.revision = state.revision;
        mirror.era = state.era.unwrap_or_default();
        mirror.queues = queues(&state);
        self.note(|| format!("elector {elector} has read the lines at {}", state.revision));
        self.remove_orphans(elector, &state);
        self.everything_may_differ(elector);
        self.wake_from_the_future(elector, state.revision);
    }

    /// Who waits with a key that etcd may never have known, since it was restored.
    fn wake_from_the_future(&mut self, elector: usize, revision: Revision) {
        let later = |candidate: &Candidate| {
            let created = candidate.seat.and_then(|seat| seat.created);
            candidate.at == At::Waiting && created.is_some_and(|created| created > revision)
        };
        let waiting = self.electors[elector].candidates.iter().filter(|(_, candidate)| later(candidate));
        let waiting: Vec<usize> = waiting.map(|(resource, _)| *resource).collect();
        for resource in waiting {
            self.confirm(elector, resource, false, true);
        }
    }

    /// Keys on leases of ours with nobody behind them.
    fn remove_orphans(&mut self, elector: usize, state: &State) {
        for ((resource, lease), candidate) in &state.candidates {
            self.remove_if_orphaned(elector, resource, (*lease, candidate.carrier), candidate.created);
        }
    }

    fn remove_if_orphaned(
        &mut self,
        elector: usize,
        resource: &Resource,
        (lease, carrier): (u64, u64),
        created: Revision,
    ) {
        let Some(index) = self.resources.iter().position(|known| known == resource) else { return };
        let known = i64::try_from(created).ok();
        let kept = self.electors[elector].pool.get_mut(&lease).filter(|_| carrier == lease);
        if kept.is_some_and(|kept| kept.take_orphan(resource.as_str(), known)) {
            self.tally.orphans += 1;
            self.remove(elector, lease, index, Some(created), None);
        }
    }

    pub(crate) fn elector_sees(
        &mut self,
        elector: usize,
        life: u64,
        stream: u64,
        news: Option<Vec<Rc<Entry>>>,
    ) {
        if self.electors[elector].life == life && self.electors[elector].mirror.stream == stream {
            self.electors[elector].inbox.push_back(Word::Changes(stream, news));
            self.read_inbox(elector);
        }
    }

    pub(super) fn take_elector_changes(&mut self, elector: usize, stream: u64, news: Option<Vec<Rc<Entry>>>) {
        let mirror = &self.electors[elector].mirror;
        if mirror.stream != stream || mirror.listing {
            return;
        }
        let Some(entries) = news else { return self.list_elections(elector) };
        for entry in entries {
            for change in &entry.changes {
                self.mirror_change(elector, change);
            }
            if self.electors[elector].mirror.listing {
                return;
            }
            self.electors[elector].mirror.revision = entry.revision;
            self.wake_all(elector);
        }
    }

    fn mirror_change(&mut self, elector: usize, change: &KeyChange) {
        let queues = &mut self.electors[elector].mirror.queues;
        match change {
            KeyChange::Came(resource, lease, candidate) => {
                queues.entry(resource.clone()).or_default().insert(candidate.created, *lease);
                self.remove_if_orphaned(elector, resource, (*lease, candidate.carrier), candidate.created);
                self.own_key_changed(elector, resource, *lease);
            }
            KeyChange::Went(resource, lease) => {
                if let Some(queue) = queues.get_mut(resource) {
                    queue.retain(|_, waiting| waiting != lease);
                }
                self.own_key_changed(elector, resource, *lease);
            }
            KeyChange::Fence(resource, record) => {
                let resource = self.resources.iter().position(|known| known == resource);
                let candidate = resource.and_then(|resource| self.candidate(elector, resource));
                if let Some(news) = candidate.and_then(|known| known.news.as_mut()) {
                    news.mark = Some(Some(encoded(record)));
                }
            }
            KeyChange::Era(_) => {
                self.everything_may_differ(elector);
                self.list_elections(elector);
            }
            _ => {}
        }
    }

    fn own_key_changed(&mut self, elector: usize, resource: &Resource, lease: u64) {
        let Some(resource) = self.resources.iter().position(|known| known == resource) else { return };
        let Some(candidate) = self.candidate(elector, resource) else { return };
        let own = candidate.seat.is_some_and(|seat| seat.lease == lease);
        if let Some(news) = candidate.news.as_mut().filter(|_| own) {
            news.own = true;
        }
    }

    fn everything_may_differ(&mut self, elector: usize) {
        for candidate in self.electors[elector].candidates.values_mut() {
            if let Some(news) = &mut candidate.news {
                (news.mark, news.own) = (Some(None), true);
            }
        }
        self.wake_all(elector);
    }

    fn wake_all(&mut self, elector: usize) {
        let waiting: Vec<usize> = self.electors[elector].candidates.keys().copied().collect();
        for resource in waiting {
            self.wake(elector, resource);
            self.hear_news(elector, resource);
        }
    }

    /// Tells a candidate that waits for its turn, if there is something to tell.
    pub(super) fn wake(&mut self, elector: usize, resource: usize) {
        let machine = &self.electors[elector];
        let (Some(candidate), mirror) = (machine.candidates.get(&resource), &machine.mirror) else { return };
        let Some(Seat { lease, created: Some(created), .. }) = candidate.seat else { return };
        if candidate.at != At::Waiting || !mirror.synced || mirror.revision < created {
            return;
        }
        let queue = mirror.queues.get(&self.resources[resource]);
        let own = queue.and_then(|queue| queue.get(&created)) == Some(&lease);
        let first = queue.and_then(|queue| queue.first_key_value()).map(|(created, _)| *created);
        match own {
            true if first == Some(created) => self.confirm(elector, resource, false, false),
            true => {}
            false => self.confirm(elector, resource, false, true),
        }
    }
}
