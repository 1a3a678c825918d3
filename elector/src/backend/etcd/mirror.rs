//! One watch for all elections of a process: who is next, and who leads.
//!
//! A campaign that has to wait registers its key here and is woken when it is first in line or gone, without
//! a request of its own: a handover among hundreds of candidates wakes one. Observers read from here, too, and
//! whoever is interested in a mark hears from here that it changed. What must stay true: a waiter whose key is at
//! the head, or gone, at the mirrored revision has been told.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::sleep;

use super::client::{CallError, Client};
use super::interest::Interests;
use super::keys::Keys;
use super::leases::Leases;
use super::queue::{Changed, Queues};
use super::txn::prefix_end;
use super::watch::{Watch, WatchError};
use super::wire::{Event, KeyValue, RangeRequest};
use crate::backend::{BackendError, Leader};

const PAGE: i64 = 2000;
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(500);

/// What an observer gets.
pub(super) type Seen = Result<Option<Leader>, BackendError>;

pub(super) struct Mirror {
    name: String,
    client: Client,
    leases: Arc<Leases>,
    interests: Arc<Interests>,
    /// The candidates and the era, which are listed, from here to there.
    first: Vec<u8>,
    end: Vec<u8>,
    /// The watch goes on to here, and so covers the marks if somebody may wait for one.
    watch_end: Vec<u8>,
    state: Mutex<State>,
    started: AtomicBool,
    resync: Notify,
}

struct State {
    queues: Queues,
    /// False until the first list.
    synced: bool,
    waiters: HashMap<Vec<u8>, Waiter>,
    observers: HashMap<String, Vec<Observer>>,
}

struct Waiter {
    election: String,
    created: i64,
    tell: oneshot::Sender<Turn>,
}

struct Observer {
    tell: mpsc::UnboundedSender<Seen>,
    /// What it was told last; None before the first word.
    last: Option<Option<Leader>>,
}

/// What happened to a candidate that waited.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is first in line.
    First,
    /// Its key is gone.
    Gone,
}

impl Mirror {
    pub(super) fn new(
        name: String,
        client: Client,
        (leases, interests): (Arc<Leases>, Arc<Interests>),
        keys: &Keys,
        sealed: bool,
    ) -> Self {
        // `e/…`, `era` and `f/…` are neighbours: one range covers them.
        let end = format!("{}\0", keys.era()).into_bytes();
        let watch_end = if sealed { prefix_end(keys.fences().as_bytes()) } else { end.clone() };
        let state = State {
            queues: Queues::new(keys),
            synced: false,
            waiters: HashMap::new(),
            observers: HashMap::new(),
        };
        Self {
            name,
            client,
            leases,
            interests,
            first: keys.elections().into_bytes(),
            end,
            watch_end,
            state: Mutex::new(state),
            started: AtomicBool::new(false),
            resync: Notify::new(),
        }
    }

    /// Begins to watch, once. Called within the runtime that is to do it.
    pub(super) fn start(self: &Arc<Self>) {
        if !self.started.swap(true, Ordering::Relaxed) {
            tokio::spawn(Arc::clone(self).run());
        }
    }

    /// Lists again: somebody has reason to believe that the picture is not etcd's any more.
    pub(super) fn resync(&self) {
        self.resync.notify_one();
    }

    /// When this candidate is first in line, or gone.
    pub(super) fn turn(&self, election: &str, key: &str, created: i64) -> oneshot::Receiver<Turn> {
        let (tell, turn) = oneshot::channel();
        let mut state = self.state();
        let waiter = Waiter { election: election.to_owned(), created, tell };
        state.waiters.insert(key.as_bytes().to_vec(), waiter);
        state.wake(key.as_bytes());
        turn
    }

    pub(super) fn observe(&self, election: &str) -> mpsc::UnboundedReceiver<Seen> {
        let (tell, seen) = mpsc::unbounded_channel();
        let mut state = self.state();
        state.observers.entry(election.to_owned()).or_default().push(Observer { tell, last: None });
        if state.synced {
            state.show(election);
        }
        seen
    }

    async fn run(self: Arc<Self>) {
        loop {
            match self.list().await {
                Ok(revision) => self.follow(revision + 1).await,
                Err(error) => {
                    self.report(&error);
                    sleep(PAUSE_AFTER_FAILURE).await;
                }
            }
        }
    }

    /// Applies changes until the picture has to be drawn anew.
    async fn follow(&self, next: i64) {
        let mut watch = Watch::from_revision(&self.client, &self.first, &self.watch_end, next);
        loop {
            let changes = tokio::select! {
                changes = watch.changes() => changes,
                () = self.resync.notified() => return,
            };
            match changes {
                Ok(events) => self.apply(&events),
                Err(WatchError::Compacted) => return,
                Err(WatchError::Refused(detail)) => {
                    self.report(&CallError::Refused(detail));
                    return sleep(PAUSE_AFTER_FAILURE).await;
                }
            }
        }
    }

    /// Reads everything, in pages of one revision, which it returns.
    async fn list(&self) -> Result<i64, CallError> {
        let mut listed: Vec<KeyValue> = Vec::new();
        let mut page = RangeRequest {
            key: self.first.clone(),
            range_end: self.end.clone(),
            limit: PAGE,
            ..RangeRequest::default()
        };
        loop {
            let answer = self.client.call(page.clone()).await?;
            let revision = answer.header.as_ref().map_or(0, |header| header.revision);
            page.revision = if page.revision == 0 { revision } else { page.revision };
            listed.extend(answer.kvs);
            match listed.last() {
                Some(last) if answer.more => page.key = [&last.key[..], b"\0"].concat(),
                _ => break,
            }
        }
        self.replace(&listed, page.revision);
        Ok(page.revision)
    }

    fn replace(&self, listed: &[KeyValue], revision: i64) {
        listed.iter().for_each(|kv| self.leases.remove_if_orphaned(kv));
        let mut state = self.state();
        state.queues.replace(listed, revision);
        state.synced = true;
        for key in state.waiters.keys().cloned().collect::<Vec<_>>() {
            state.wake(&key);
        }
        state.show_all();
        drop(state);
        self.interests.tell_all();
    }

    /// Revision by revision, telling after each: an observer sees every leader there was.
    fn apply(&self, events: &[Event]) {
        let revision = |event: &Event| event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
        for changes in events.chunk_by(|one, other| revision(one) == revision(other)) {
            let created =
                changes.iter().filter_map(|event| event.kv.as_ref()).filter(|kv| kv.create_revision > 0);
            created.for_each(|kv| self.leases.remove_if_orphaned(kv));
            if self.state().apply(changes) {
                self.interests.tell_all();
            }
            changes.iter().filter_map(|event| event.kv.as_ref()).for_each(|kv| self.interests.tell(kv));
        }
    }

    fn report(&self, error: &CallError) {
        for observer in self.state().observers.values().flatten() {
            // One that hung up is forgotten when its election changes.
            let _ = observer.tell.send(Err(backend_error(&self.name, error)));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds this lock")
    }
}

pub(super) fn backend_error(backend: &str, error: &CallError) -> BackendError {
    let (backend, detail) = (backend.to_owned(), error.to_string());
    match error {
        CallError::Refused(_) | CallError::TokenRefused => BackendError::Refused { backend, detail },
        _ => BackendError::Unavailable { backend, detail },
    }
}

impl State {
    /// All changes of one revision; whether every token is another one now.
    fn apply(&mut self, changes: &[Event]) -> bool {
        let changed: Vec<Changed> = changes.iter().map(|event| self.queues.apply(event)).collect();
        for kv in changes.iter().filter_map(|event| event.kv.as_ref()) {
            self.wake(&kv.key);
        }
        let elections: BTreeSet<&String> = changed
            .iter()
            .filter_map(|change| match change {
                Changed::Election(election) => Some(election),
                Changed::Era | Changed::Nothing => None,
            })
            .collect();
        for election in elections {
            self.wake_first(election);
            self.show(election);
        }
        let new_era = changed.contains(&Changed::Era);
        if new_era {
            self.show_all();
        }
        new_era
    }

    fn wake_first(&mut self, election: &str) {
        if let Some((key, _)) = self.queues.head(election) {
            let key = key.to_vec();
            self.wake(&key);
        }
    }

    /// Tells the waiter with this key, if there is something to tell.
    fn wake(&mut self, key: &[u8]) {
        let Some(waiter) = self.waiters.get(key) else { return };
        if !self.synced || self.queues.revision < waiter.created {
            return;
        }
        let turn = match self.queues.created(key) {
            Some(created) if created == waiter.created => {
                let first = self.queues.head(&waiter.election).map(|(_, created)| created);
                if first != Some(created) {
                    return;
                }
                Turn::First
            }
            _ => Turn::Gone,
        };
        if let Some(waiter) = self.waiters.remove(key) {
            // A campaign that was given up does not listen.
            let _ = waiter.tell.send(turn);
        }
    }

    /// Tells the observers of an election who leads, if that is news.
    fn show(&mut self, election: &str) {
        let leader = self.queues.leader(election);
        let Some(observers) = self.observers.get_mut(election) else { return };
        observers.retain_mut(|observer| {
            if observer.last.as_ref() == Some(&leader) {
                return !observer.tell.is_closed();
            }
            observer.last = Some(leader.clone());
            observer.tell.send(Ok(leader.clone())).is_ok()
        });
        if observers.is_empty() {
            self.observers.remove(election);
        }
    }

    fn show_all(&mut self) {
        for election in self.observers.keys().cloned().collect::<Vec<_>>() {
            self.show(&election);
        }
    }
}
