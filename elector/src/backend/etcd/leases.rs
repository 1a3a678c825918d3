//! The leases of a process: a few of them carry all its candidates.
//!
//! A candidate takes a seat on a lease; up to a thousand share one, but never two of the same election, since a
//! candidate's key is named after its lease. A lease with somebody waiting on it is kept alive from here; those
//! who lead are renewed by the elector. What must stay true: a seat is free again only when etcd has confirmed
//! that its key is gone (else two lives could have one token), and a leader that is not renewed for its ttl
//! loses its key although others keep the shared lease alive.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use highgate_etcd::keys::split_candidate;
use highgate_etcd::{CallError, Client, Compare, Delete, KeyValue, Txn};
use tokio::runtime::Handle;

use super::lease::{Lease, Stage};
use super::relocate::relocate;

/// What etcd granted.
pub(super) struct Granted {
    pub(super) id: i64,
    ttl: Duration,
    term: u64,
    /// Before it was asked.
    sent: Instant,
}

pub(super) struct Leases {
    client: Client,
    runtime: Handle,
    pool: Mutex<HashMap<i64, Lease>>,
    /// Held while a lease is asked for, so that a thousand campaigns at once do not ask for a thousand.
    granting: tokio::sync::Mutex<()>,
}

/// A place in one election. Dropping it gives the candidacy up.
pub(super) struct Seat {
    leases: Arc<Leases>,
    pub(super) lease: i64,
    pub(super) ttl: Duration,
    pub(super) election: String,
    /// The revision at which the candidate's key was created, once that is known.
    pub(super) created: Option<i64>,
    leads: bool,
}

impl Seat {
    pub(super) fn key(&self) -> String {
        candidate(&self.election, self.lease)
    }

    /// etcd has created the candidate's key. False: it is on a lease that all others have left.
    pub(super) fn enter(&mut self, created: i64) -> bool {
        self.created = Some(created);
        let mut pool = self.leases.pool();
        pool.get_mut(&self.lease).is_some_and(|lease| lease.enter(&self.election, created))
    }

    /// The candidate leads: the elector renews it from now on, and its key stays when this is dropped.
    pub(super) fn lead(mut self, created: i64, since: Instant) {
        let stage = Stage::Leading { created, renewed: since };
        self.leads = true;
        self.leases.set(self.lease, &self.election, stage);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if !self.leads {
            self.leases.leave(self.lease, &self.election, self.created);
        }
    }
}

/// The key of a candidate.
pub(super) fn candidate(election: &str, lease: i64) -> String {
    format!("{election}{lease:x}")
}

impl Leases {
    pub(super) fn new(client: Client, runtime: Handle) -> Self {
        Self { client, runtime, pool: Mutex::default(), granting: tokio::sync::Mutex::default() }
    }

    /// A seat for an election on a lease of this ttl, an old one if possible.
    pub(super) async fn sit_down(self: &Arc<Self>, election: &str, ttl: Duration) -> Result<Seat, CallError> {
        if let Some(seat) = self.free_seat(election, ttl) {
            return Ok(seat);
        }
        let _granting = self.granting.lock().await;
        if let Some(seat) = self.free_seat(election, ttl) {
            return Ok(seat);
        }
        let granted = self.grant(ttl).await?;
        let mut lease = Lease::new(granted.id, ttl, granted.ttl, granted.sent, granted.term);
        lease.seats.insert(election.to_owned(), Stage::Waiting { created: None });
        self.pool().insert(granted.id, lease);
        Ok(self.seat(granted.id, granted.ttl, election))
    }

    fn free_seat(self: &Arc<Self>, election: &str, ttl: Duration) -> Option<Seat> {
        let (mut pool, now) = (self.pool(), Instant::now());
        let (id, lease) = pool.iter_mut().find(|(_, lease)| lease.has_room(election, ttl, now))?;
        lease.seats.insert(election.to_owned(), Stage::Waiting { created: None });
        Some(self.seat(*id, lease.ttl, election))
    }

    fn seat(self: &Arc<Self>, lease: i64, ttl: Duration, election: &str) -> Seat {
        let leases = Arc::clone(self);
        Seat { leases, lease, ttl, election: election.to_owned(), created: None, leads: false }
    }

    /// The id is chosen here, so that asking twice grants once.
    pub(super) async fn grant(&self, asked: Duration) -> Result<Granted, CallError> {
        let id = i64::from_ne_bytes(uuid::Uuid::new_v4().as_u64_pair().0.to_ne_bytes()) & i64::MAX;
        let seconds = asked.as_secs() + u64::from(asked.subsec_nanos() > 0);
        let ttl = i64::try_from(seconds.max(1)).unwrap_or(i64::MAX);
        let sent = Instant::now();
        let granted = match self.client.grant(id, ttl).await {
            Err(CallError::LeaseExists) => self.client.granted(id).await?,
            answer => answer?,
        };
        // etcd raises what is too short for it.
        let ttl = Duration::from_secs(u64::try_from(granted.ttl).unwrap_or(0));
        Ok(Granted { id, ttl, term: granted.term, sent })
    }

    /// Extends a lease. False: etcd says that there is none.
    pub(super) async fn keep_alive(self: &Arc<Self>, id: i64) -> Result<bool, CallError> {
        let sent = Instant::now();
        let carriers = self.pool().get(&id).map_or_else(|| vec![id], Lease::carriers);
        let (mut alive, mut term) = (true, 0);
        for id in carriers {
            let answer = self.client.keep_alive(id).await?;
            alive &= answer.ttl > 0;
            term = term.max(answer.term);
        }
        if self.pool().get_mut(&id).is_some_and(|lease| lease.answered(sent, alive, term)) {
            self.runtime.spawn(relocate(Arc::clone(self), id));
        }
        Ok(alive)
    }

    /// Extends a lease, unless that was done after `since`: a thousand campaigns on it need it once.
    pub(super) async fn keep_alive_since(
        self: &Arc<Self>,
        id: i64,
        since: Instant,
    ) -> Result<bool, CallError> {
        let Some(extending) = self.pool().get(&id).map(|lease| Arc::clone(&lease.extending)) else {
            return Ok(false);
        };
        let _extending = extending.lock().await;
        if self.pool().get(&id).is_some_and(|lease| lease.kept >= since && !lease.closed) {
            return Ok(true);
        }
        self.keep_alive(id).await
    }

    /// Nobody new sits down on it.
    pub(super) fn close(&self, id: i64) {
        if let Some(lease) = self.pool().get_mut(&id) {
            lease.closed = true;
        }
    }

    /// The elector renewed this leadership by a call that began at `since`. False: its key is being taken, or was.
    pub(super) fn renewed(&self, id: i64, election: &str, since: Instant) -> bool {
        self.pool().get_mut(&id).is_some_and(|lease| lease.renewed(election, since))
    }

    fn set(&self, id: i64, election: &str, stage: Stage) {
        if let Some(lease) = self.pool().get_mut(&id) {
            lease.seats.insert(election.to_owned(), stage);
        }
    }

    /// Somebody is about to delete the candidate's key.
    pub(super) fn leaving(&self, id: i64, election: &str, created: Option<i64>) {
        if let Some(lease) = self.pool().get_mut(&id) {
            lease.leaving(election, created, true);
        }
    }

    /// The candidate's key has to go; at once, and if that fails, later.
    pub(super) fn leave(self: &Arc<Self>, id: i64, election: &str, created: Option<i64>) {
        self.leaving(id, election, created);
        let (leases, election) = (Arc::clone(self), election.to_owned());
        self.runtime.spawn(async move { leases.remove(id, &election, created).await });
    }

    /// Deletes a candidate's key and frees its seat. etcd keeps a key that was created later.
    pub(super) async fn remove(
        &self,
        id: i64,
        election: &str,
        created: Option<i64>,
    ) -> Result<(), CallError> {
        let removed = self.delete(&candidate(election, id), created).await;
        if let Some(lease) = self.pool().get_mut(&id) {
            lease.left(election, created, removed.is_ok());
        }
        removed
    }

    async fn delete(&self, key: &str, created: Option<i64>) -> Result<(), CallError> {
        let is_it = match created {
            // An earlier life of the key is over, too, but for an etcd that was restored from a backup.
            Some(created) => Compare::created_before(key, created + 1),
            None => Compare::created_after(key, 0),
        };
        let delete = Delete::key(key);
        self.client.txn(Txn::when([is_it]).then(delete)).await.map(drop)
    }

    /// A key on a lease of ours with nobody behind it: a request that arrived after its campaign had ended.
    pub(super) fn remove_if_orphaned(self: &Arc<Self>, kv: &KeyValue) {
        let Some((election, lease)) = split_candidate(&kv.key) else { return };
        let (id, created) = (kv.lease, Some(kv.create_revision));
        if lease != format!("{id:x}") {
            return;
        }
        // Nobody sits down there until it is gone, and leads with a key that is about to be deleted.
        let orphaned = self.pool().get_mut(&id).is_some_and(|lease| lease.take_orphan(election, created));
        if orphaned {
            let (leases, election) = (Arc::clone(self), election.to_owned());
            self.runtime.spawn(async move { leases.remove(id, &election, created).await });
        }
    }

    /// What fails runs out by itself.
    pub(super) async fn revoke(&self, carriers: &[i64]) {
        for id in carriers {
            let _ = self.client.revoke(*id).await;
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn pool(&self) -> MutexGuard<'_, HashMap<i64, Lease>> {
        self.pool.lock().expect("nothing panics while it holds this lock")
    }
}
