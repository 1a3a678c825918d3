//! Watching who leads, through all failures of the backend: for observers, and for campaigns that tell.
//!
//! What must stay true: one state is told once, however often the backend's stream is opened again, and time
//! without a leader counts only while the backend says so, not while it says nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::{Observed, Settings};
use crate::backend::{BackendError, Leader, Observation};
use crate::backoff::Backoff;
use crate::metrics::Metrics;
use crate::stream::next;

/// How often time without a leader is added up.
const LEADERLESS_STEP: Duration = Duration::from_secs(1);

pub(super) struct Follow {
    settings: Arc<Settings>,
    stream: Observation,
    /// The stream has ended, so the next one is opened after a while; or it was refused, and there is none.
    ended: Option<End>,
    backoff: Backoff,
    told: Option<Option<Leader>>,
    gap: Gap,
}

enum End {
    Broken,
    Refused,
}

impl Follow {
    pub(super) fn new(settings: Arc<Settings>) -> Self {
        let stream = settings.observe();
        let gap = Gap { metrics: settings.metrics.clone(), since: None, counted: Duration::ZERO };
        Self { settings, stream, ended: None, backoff: Backoff::default(), told: None, gap }
    }

    /// The next change or failure; none after the backend has refused.
    pub(super) async fn next(&mut self) -> Option<Observed> {
        loop {
            match self.ended {
                Some(End::Refused) => return None,
                Some(End::Broken) => self.reopen().await,
                None => {}
            }
            match self.gap.counting(next(&mut self.stream)).await {
                Some(Ok(state)) if self.told.as_ref() == Some(&state) => self.backoff.reset(),
                Some(Ok(state)) => return Some(Ok(self.note(state))),
                Some(Err(error)) => return Some(Err(self.failed(error))),
                None => self.ended = Some(End::Broken),
            }
        }
    }

    async fn reopen(&mut self) {
        self.gap.since = None;
        sleep(self.backoff.next()).await;
        self.stream = self.settings.observe();
        self.ended = None;
    }

    fn note(&mut self, state: Option<Leader>) -> Option<Leader> {
        self.backoff.reset();
        self.gap.note(self.told.as_ref(), state.as_ref());
        self.told = Some(state.clone());
        state
    }

    fn failed(&mut self, error: BackendError) -> BackendError {
        let refused = matches!(error, BackendError::Refused { .. });
        self.ended = Some(if refused { End::Refused } else { End::Broken });
        error
    }
}

impl Settings {
    fn observe(&self) -> Observation {
        self.renewer.backend().observe(&self.candidacy.resource)
    }
}

/// A time without a leader, as it is observed.
struct Gap {
    metrics: Arc<Metrics>,
    since: Option<Instant>,
    /// How much of it is in the metrics.
    counted: Duration,
}

impl Gap {
    fn note(&mut self, before: Option<&Option<Leader>>, state: Option<&Leader>) {
        match (self.since, state) {
            (None, None) => (self.since, self.counted) = (Some(Instant::now()), Duration::ZERO),
            (Some(since), Some(_)) => {
                self.count(since);
                self.metrics.failover(since.elapsed());
                self.since = None;
            }
            // From one leader to the next without a gap.
            (None, Some(_)) if matches!(before, Some(Some(_))) => self.metrics.failover(Duration::ZERO),
            _ => {}
        }
    }

    /// Waits, and counts meanwhile.
    async fn counting<T>(&mut self, wait: impl Future<Output = T>) -> T {
        let mut wait = std::pin::pin!(wait);
        loop {
            let Some(since) = self.since else { return wait.await };
            if let Ok(item) = timeout(LEADERLESS_STEP, wait.as_mut()).await {
                return item;
            }
            self.count(since);
        }
    }

    fn count(&mut self, since: Instant) {
        let all = since.elapsed();
        self.metrics.leaderless(all.saturating_sub(self.counted));
        self.counted = all;
    }
}
