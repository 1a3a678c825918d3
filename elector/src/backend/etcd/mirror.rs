//! One watch for all elections of a process: who is next, and who leads.
//!
//! A campaign that has to wait registers its key here and is woken when it is first in line or gone, without
//! a request of its own: a handover among hundreds of candidates wakes one. Observers read from here, too, and
//! whoever is interested in a mark hears from here that it changed. What must stay true: a waiter whose key is at
//! the head, or gone, at the mirrored revision has been told; and whenever the watch opens, etcd is asked whether it
//! still has the past that the picture was drawn from: one that was restored from a backup has not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use highgate_etcd::keys::Keys;
use highgate_etcd::{CallError, Client, Event, KeyValue, News, Range, Watch, WatchError, prefix_end};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use super::audience::{Audience, Known, Seen, Turn};
use super::interest::Interests;
use super::leases::Leases;
use crate::backend::BackendError;

const PAGE: i64 = 2000;
/// How often it is asked whether etcd is still the one that was listed. One that was restored from a backup may be as
/// far again when its watch goes on, and what it lost is never told.
const SAME_ETCD_EVERY: Duration = Duration::from_secs(5);
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(500);
/// Endpoints of two clusters would never agree.
const PAUSE_AFTER_DOUBT: Duration = Duration::from_millis(100);
/// After so long the watch should have told of a key that is known to have been created.
const OVERDUE: Duration = Duration::from_secs(2);

pub(super) struct Mirror {
    name: String,
    client: Client,
    leases: Arc<Leases>,
    interests: Arc<Interests>,
    /// The candidates and the era, which are listed, from here to there.
    first: Vec<u8>,
    end: Vec<u8>,
    era_key: Vec<u8>,
    /// The watch goes on to here, and so covers the marks if somebody may wait for one.
    watch_end: Vec<u8>,
    audience: Mutex<Audience>,
    started: AtomicBool,
    resync: Notify,
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
        Self {
            name,
            client,
            leases,
            interests,
            first: keys.elections().into_bytes(),
            end,
            era_key: keys.era().into_bytes(),
            watch_end,
            audience: Mutex::new(Audience::new(keys)),
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
        self.audience().turn(election, key, created)
    }

    pub(super) fn observe(&self, election: &str) -> mpsc::UnboundedReceiver<Seen> {
        self.audience().observe(election)
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
        let (mut expected, mut overdue) = (Known::new(), Instant::now());
        let mut ask_at = Instant::now() + SAME_ETCD_EVERY;
        loop {
            let news = tokio::select! {
                news = watch.news() => news,
                () = self.resync.notified() => return,
                () = sleep_until(ask_at) => {
                    if self.is_another_etcd().await {
                        return;
                    }
                    ask_at = Instant::now() + SAME_ETCD_EVERY;
                    continue;
                }
                () = sleep_until(overdue), if !expected.is_empty() => {
                    if self.audience().any_unseen(&std::mem::take(&mut expected)) {
                        return;
                    }
                    continue;
                }
            };
            match news {
                Ok(News::Changes(events)) => self.apply(&events),
                Ok(News::Ended) => self.audience().nothing_is_heard(),
                Ok(News::Opened) => {
                    (expected, overdue) = (self.audience().unseen(), Instant::now() + OVERDUE);
                    if !self.is_still_so().await {
                        return sleep(PAUSE_AFTER_DOUBT).await;
                    }
                }
                Err(WatchError::Compacted) => return,
                Err(WatchError::Refused(detail)) => {
                    self.report(&CallError::Refused(detail));
                    return sleep(PAUSE_AFTER_FAILURE).await;
                }
            }
        }
    }

    /// Whether etcd is not as far as it was, or has an era that the watch should have told of: every restore is
    /// followed by a new one. While it does not answer nobody knows.
    async fn is_another_etcd(&self) -> bool {
        let before = self.audience().revision();
        let Ok(answer) = self.client.range(Range::key(self.era_key.clone())).await else {
            return false;
        };
        let era = answer.kvs.first().map(|kv| (&kv.value[..], kv.mod_revision));
        answer.header.revision < before || self.audience().has_missed(era)
    }

    /// Whether etcd had at the picture's revision what the picture shows: then the watch goes on from there.
    async fn is_still_so(&self) -> bool {
        let revision = {
            let mut audience = self.audience();
            audience.nothing_is_heard();
            audience.revision()
        };
        let Ok((listed, _)) = self.read(revision).await else { return false };
        if !self.audience().goes_on(&listed) {
            return false;
        }
        // Marks are not in the picture.
        self.interests.tell_all();
        true
    }

    /// Draws the picture anew. The revision that it is of.
    async fn list(&self) -> Result<i64, CallError> {
        let known = self.audience().known();
        let (listed, revision) = self.read(0).await?;
        listed.iter().for_each(|kv| self.leases.remove_if_orphaned(kv));
        self.audience().replace(&listed, revision, &known);
        self.interests.tell_all();
        Ok(revision)
    }

    /// Reads everything, in pages of one revision, which it returns: this one, or, of 0, the latest.
    async fn read(&self, revision: i64) -> Result<(Vec<KeyValue>, i64), CallError> {
        let mut listed: Vec<KeyValue> = Vec::new();
        let mut page = Range {
            key: self.first.clone(),
            range_end: self.end.clone(),
            limit: PAGE,
            revision,
            ..Range::default()
        };
        loop {
            let answer = self.client.range(page.clone()).await?;
            page.revision = if page.revision == 0 { answer.header.revision } else { page.revision };
            listed.extend(answer.kvs);
            match listed.last() {
                Some(last) if answer.more => page.key = [&last.key[..], b"\0"].concat(),
                _ => break,
            }
        }
        Ok((listed, page.revision))
    }

    /// Revision by revision, telling after each: an observer sees every leader there was.
    fn apply(&self, events: &[Event]) {
        for changes in events.chunk_by(|one, other| one.kv.mod_revision == other.kv.mod_revision) {
            let created = changes.iter().filter(|event| event.kv.create_revision > 0);
            created.for_each(|event| self.leases.remove_if_orphaned(&event.kv));
            if self.audience().apply(changes) {
                // Eras are begun where etcd was restored or rebuilt: then what was told before is not how it is.
                self.interests.tell_all();
                self.resync();
            }
            changes.iter().for_each(|event| self.interests.tell(&event.kv));
        }
    }

    fn report(&self, error: &CallError) {
        self.audience().report(|| backend_error(&self.name, error));
    }

    fn audience(&self) -> MutexGuard<'_, Audience> {
        self.audience.lock().expect("nothing panics while it holds this lock")
    }
}

pub(super) fn backend_error(backend: &str, error: &CallError) -> BackendError {
    let (backend, detail) = (backend.to_owned(), error.to_string());
    match error {
        CallError::Refused(_) | CallError::TokenRefused => BackendError::Refused { backend, detail },
        _ => BackendError::Unavailable { backend, detail },
    }
}
