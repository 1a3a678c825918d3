//! An elector: campaigns for one resource, as often as it is asked to.
//!
//! `builder.rs` makes one, `contend.rs` is the campaign, `follow.rs` watches who leads. All three run on the
//! heart's thread; what is here only waits for them. What must stay true: a campaign that is dropped leaves no
//! leadership behind, not even one that was granted at that moment.

mod builder;
mod contend;
mod follow;

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

pub use builder::{BuildError, Builder};
pub use contend::{CampaignError, Waiting};
use follow::Follow;

use crate::Resource;
use crate::backend::{BackendError, Candidacy, Leader, Observation};
use crate::heartbeat::Heart;
use crate::leadership::Leadership;
use crate::metrics::Metrics;
use crate::stream::unfold;

/// How many changes an observer may be behind before the backend's stream waits for it.
const OBSERVED: usize = 256;

type OnWait = Arc<dyn Fn(&Waiting) + Send + Sync>;

/// Campaigns for one resource. Cheap to clone.
#[derive(Clone)]
pub struct Elector(Arc<Settings>);

struct Settings {
    heart: Heart,
    candidacy: Candidacy,
    heartbeat: Duration,
    watchdog: Option<Duration>,
    strict: bool,
    on_wait: Option<OnWait>,
    metrics: Arc<Metrics>,
}

impl Elector {
    /// Settings for an elector. Give it a backend, or the [`Heart`] of another elector: with thousands of elections
    /// in a process, one heart renews them all together, on one thread.
    pub fn builder(heart: impl Into<Heart>, resource: Resource) -> Builder {
        Builder::new(heart.into(), resource)
    }

    /// Queues up and waits until this process leads. While the backend cannot be reached, it tries again; see
    /// [`Builder::on_wait`]. Dropping the future withdraws the candidacy, and resigns a leadership that was
    /// granted meanwhile.
    pub async fn campaign(&self) -> Result<Leadership, CampaignError> {
        let contending = self.0.heart.spawn(contend::contend(self.0.clone()));
        contending.outcome().await.unwrap_or(Err(CampaignError::Stopped))
    }

    /// Leads again and again: runs `work` for each leadership, drops its future at once when the leadership is
    /// lost, and campaigns anew. `work` says what comes next when it has ended: `Break` resigns and returns,
    /// `Continue` resigns, lets others lead and campaigns again. Dropping the future of `run` ends all of it.
    pub async fn run<T, F, W>(&self, mut work: F) -> Result<T, CampaignError>
    where
        F: FnMut(Arc<Leadership>) -> W,
        W: Future<Output = ControlFlow<T>>,
    {
        loop {
            let leadership = Arc::new(self.campaign().await?);
            let ended = tokio::select! {
                biased;
                lost = leadership.lost() => Err(lost),
                next = work(leadership.clone()) => Ok(next),
            };
            match ended {
                Ok(next) => {
                    // Unsaid, the lease runs out; that is the backend's trouble and not the work's.
                    let _unavailable = leadership.release().await;
                    if let ControlFlow::Break(value) = next {
                        return Ok(value);
                    }
                }
                // The work has stopped. If the backend does not know that the leadership is over, the guard,
                // which is dropped here, says so.
                Err(_lost) => {}
            }
        }
    }

    /// Who leads: the current state first, then every change. A backend that cannot be reached is an item, after
    /// which the stream goes on by itself; one that refuses ends it.
    pub fn observe(&self) -> Observation {
        let (sender, receiver) = tokio::sync::mpsc::channel(OBSERVED);
        let mut follow = Follow::new(self.0.clone());
        let following = self.0.heart.spawn(async move {
            while let Some(item) = follow.next().await {
                if sender.send(item).await.is_err() {
                    return;
                }
            }
        });
        // The errand goes along with the receiver, so that dropping the stream ends it.
        unfold((receiver, following), |(mut receiver, following)| {
            Box::pin(async move { receiver.recv().await.map(|item| (item, (receiver, following))) })
        })
    }

    pub fn resource(&self) -> &Resource {
        &self.0.candidacy.resource
    }

    pub fn holder(&self) -> &str {
        &self.0.candidacy.holder
    }

    /// The heart, to share with another elector.
    pub fn heart(&self) -> &Heart {
        &self.0.heart
    }
}

impl fmt::Debug for Elector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elector").field("candidacy", &self.0.candidacy).finish_non_exhaustive()
    }
}

type Observed = Result<Option<Leader>, BackendError>;
