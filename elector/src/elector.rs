//! An elector: campaigns for one resource, as often as it is asked to.
//!
//! `builder.rs` makes one, `contend.rs` is the campaign, `follow.rs` watches who leads; these run on the renewer's
//! thread, and what is here only waits for them. `lead.rs` runs work while it leads. What must stay true: a campaign
//! that is dropped leaves no leadership behind, not even one that was granted at that moment.

mod builder;
mod contend;
mod follow;
mod lead;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use builder::{BuildError, Builder};
pub use contend::{CampaignError, Waiting};
use follow::Follow;
pub use lead::{LeadError, Next};

use crate::Resource;
use crate::backend::{BackendError, BoxFuture, Candidacy, Leader, Observation};
use crate::heartbeat::Renewer;
use crate::leadership::{Leadership, Lost};
use crate::metrics::Metrics;
use crate::stream::unfold;

/// How many changes an observer may be behind before the backend's stream waits for it.
const OBSERVED: usize = 256;

type OnWait = Arc<dyn Fn(&Waiting) + Send + Sync>;
type OnLost = Arc<dyn Fn(Lost) -> BoxFuture<'static, ()> + Send + Sync>;

/// Campaigns for one resource. Cheap to clone.
#[derive(Clone)]
pub struct Elector(Arc<Settings>);

struct Settings {
    renewer: Renewer,
    candidacy: Candidacy,
    heartbeat: Duration,
    grace: Duration,
    watchdog: Option<Duration>,
    strict: bool,
    on_wait: Option<OnWait>,
    on_lost: Option<OnLost>,
    metrics: Arc<Metrics>,
}

impl Elector {
    /// Settings for an elector of the resource with this name. Its backend is the one that `HIGHGATE_BACKEND` names, or
    /// else the gateway on this machine, unless [`Builder::backend`] says otherwise. A name or a URL that is not usable
    /// is reported when it is built.
    pub fn named(resource: &str) -> Builder {
        Builder::named(resource)
    }

    /// The same for a backend that is connected already. Or give it the [`Renewer`] of another elector: with thousands
    /// of elections in a process, one renews them all together, on one thread.
    pub fn builder(renewer: impl Into<Renewer>, resource: Resource) -> Builder {
        Builder::new(renewer.into(), resource)
    }

    /// Queues up and waits until this process leads. While the backend cannot be reached, it tries again; see
    /// [`Builder::on_wait`]. Dropping the future withdraws the candidacy, and resigns a leadership that was
    /// granted meanwhile.
    pub async fn campaign(&self) -> Result<Leadership, CampaignError> {
        let contending = self.0.renewer.spawn(contend::contend(self.0.clone()));
        contending.outcome().await.unwrap_or(Err(CampaignError::Stopped))
    }

    /// Who leads: the current state first, then every change. A backend that cannot be reached is an item, after
    /// which the stream goes on by itself; one that refuses ends it.
    pub fn observe(&self) -> Observation {
        let (sender, receiver) = tokio::sync::mpsc::channel(OBSERVED);
        let mut follow = Follow::new(self.0.clone());
        let following = self.0.renewer.spawn(async move {
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

    /// The renewer, to share with another elector.
    pub fn renewer(&self) -> &Renewer {
        &self.0.renewer
    }
}

impl fmt::Debug for Elector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elector").field("candidacy", &self.0.candidacy).finish_non_exhaustive()
    }
}

type Observed = Result<Option<Leader>, BackendError>;
