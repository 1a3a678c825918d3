//! Takes back the leases of candidates that do not want to lead any more, until etcd has said that they are gone.
//!
//! etcd may be away when a candidate withdraws, and gives every lease its whole time again when it is back: a candidate
//! whose revocation got lost would then lead, for nobody. The election API calls it ([`super::ballot`],
//! [`super::campaign`]). What must stay true: a lease is tried again until etcd has answered, and however many wait,
//! few questions are under way at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use highgate_etcd::{CallError, Client};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::ballot::lease_id;
use crate::elections::Lease;

/// How many are asked for at once.
const AT_ONCE: usize = 16;
/// Beyond this the oldest are left to run out by themselves: they have the least time left.
const MAX_WAITING: usize = 10_000;
/// Before those are tried again that etcd did not answer.
const PAUSE: Duration = Duration::from_millis(500);

/// Cheap to clone: all share one line.
#[derive(Clone)]
pub(super) struct Revoker {
    client: Client,
    line: Arc<Mutex<Line>>,
    idle: Arc<Notify>,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<Lease>,
    /// A task is at it.
    working: bool,
}

impl Revoker {
    pub(super) fn new(client: Client) -> Self {
        Self { client, line: Arc::default(), idle: Arc::default() }
    }

    /// At once, and again for as long as etcd does not answer. Called within a runtime.
    pub(super) fn revoke(&self, lease: Lease) {
        let mut line = self.line.lock();
        if line.waiting.len() >= MAX_WAITING {
            line.waiting.pop_front();
        }
        line.waiting.push_back(lease);
        if !std::mem::replace(&mut line.working, true) {
            tokio::spawn(self.clone().work());
        }
    }

    /// When nothing is left to be revoked.
    pub(super) async fn done(&self) {
        loop {
            let idle = self.idle.notified();
            if !self.line.lock().working {
                return;
            }
            idle.await;
        }
    }

    async fn work(self) {
        while let Some(some) = self.next() {
            let unanswered = self.ask(some).await;
            if !unanswered.is_empty() {
                self.line.lock().waiting.extend(unanswered);
                sleep(PAUSE).await;
            }
        }
        self.idle.notify_waiters();
    }

    /// None: there is nothing to do, and the next one begins anew.
    fn next(&self) -> Option<Vec<Lease>> {
        let mut line = self.line.lock();
        let count = line.waiting.len().min(AT_ONCE);
        line.working = count > 0;
        line.working.then(|| line.waiting.drain(..count).collect())
    }

    /// Those that etcd has not answered.
    async fn ask(&self, leases: Vec<Lease>) -> Vec<Lease> {
        let mut asking = JoinSet::new();
        for lease in leases {
            let client = self.client.clone();
            asking.spawn(async move {
                let answer = client.revoke(lease_id(lease)).await;
                matches!(answer, Err(CallError::Unavailable(_) | CallError::TokenRefused)).then_some(lease)
            });
        }
        asking.join_all().await.into_iter().flatten().collect()
    }
}
