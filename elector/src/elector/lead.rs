//! Work while this process leads: once, or again and again.
//!
//! Both campaign, start the work, and when the leadership ends tell it to stop and why. The work then has its grace to end
//! in order; what has not ended by then is dropped, wherever it awaits. What must stay true: the work has ended or was
//! dropped before the lease can expire, if its runtime gets to run, and before the leadership is resigned.

use std::pin::pin;
use std::sync::Arc;

use super::{BuildError, Builder, CampaignError, Elector};
use crate::leadership::term::Stop;
use crate::leadership::{Leadership, Lost};

/// What [`Elector::run`] does after the work of a term has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<T> {
    /// Resigns, lets others lead, and campaigns again.
    LeadAgain,
    /// Resigns, and returns this.
    Finish(T),
}

/// Work was not done under one leadership from its beginning to its end.
#[derive(Debug, thiserror::Error)]
pub enum LeadError {
    #[error("the settings do not make an elector")]
    Settings(#[from] BuildError),
    #[error("there was no leadership to be had")]
    Campaign(#[from] CampaignError),
    /// The work was told to stop, and has stopped or was dropped.
    #[error("leadership was lost before the work had ended")]
    Lost(#[source] Lost),
}

impl Builder {
    /// Builds the elector, and leads once: see [`Elector::lead`].
    pub async fn lead<T, F, W>(self, work: F) -> Result<T, LeadError>
    where
        F: FnOnce(Arc<Leadership>) -> W,
        W: Future<Output = T>,
    {
        self.build()?.lead(work).await
    }
}

impl Elector {
    /// Leads once: campaigns, runs `work`, resigns, and returns what the work returned. When the leadership is lost, the
    /// work is told to stop ([`Leadership::proceed`], [`Leadership::stopping`]), has the grace to end, and is dropped
    /// after it; then this fails with [`LeadError::Lost`], whatever the work returned. Dropping the future withdraws,
    /// or drops the work and resigns.
    pub async fn lead<T, F, W>(&self, work: F) -> Result<T, LeadError>
    where
        F: FnOnce(Arc<Leadership>) -> W,
        W: Future<Output = T>,
    {
        let leadership = Arc::new(self.campaign().await?);
        match self.perform(&leadership, work(leadership.clone())).await {
            Ended::ByItself(value) => {
                resign(&leadership).await;
                Ok(value)
            }
            Ended::Told(stop, _) => {
                leadership.abandon(stop.why);
                Err(LeadError::Lost(stop.why))
            }
        }
    }

    /// Leads again and again: campaigns, runs `work` for each leadership, and campaigns anew until the work says
    /// [`Next::Finish`]. When a leadership is lost, its work is told to stop ([`Leadership::proceed`],
    /// [`Leadership::stopping`]), has the grace to end, and is dropped after it. Dropping the future ends all of it.
    pub async fn run<T, F, W>(&self, mut work: F) -> Result<T, CampaignError>
    where
        F: FnMut(Arc<Leadership>) -> W,
        W: Future<Output = Next<T>>,
    {
        loop {
            let leadership = Arc::new(self.campaign().await?);
            let next = match self.perform(&leadership, work(leadership.clone())).await {
                Ended::ByItself(next) => {
                    resign(&leadership).await;
                    next
                }
                Ended::Told(stop, next) => {
                    leadership.abandon(stop.why);
                    next.unwrap_or(Next::LeadAgain)
                }
            };
            if let Next::Finish(value) = next {
                return Ok(value);
            }
        }
    }

    /// Runs the work of one leadership to its end, or to the end of its grace.
    async fn perform<T>(&self, leadership: &Leadership, work: impl Future<Output = T>) -> Ended<T> {
        let mut work = pin!(work);
        let mut ended = tokio::select! {
            biased;
            _ = leadership.stop() => None,
            // Work that looked at the head of its loop may have ended because it was told to stop, in this very poll; work
            // that blocked its thread, or was paused, may have ended long after the lease.
            value = &mut work => match leadership.proceed() {
                Ok(_) => return Ended::ByItself(value),
                Err(_) => Some(value),
            },
        };
        let stop = leadership.stop().await;
        let rest = async {
            if ended.is_none() {
                ended = Some(work.await);
            }
        };
        let told = async {
            if let Some(tell) = &self.0.on_lost {
                tell(stop.why).await;
            }
        };
        tokio::select! {
            biased;
            () = self.0.renewer.wait_until(stop.by) => {}
            _ = async { tokio::join!(rest, told) } => {}
        }
        Ended::Told(stop, ended)
    }
}

/// How work ended.
enum Ended<T> {
    ByItself(T),
    /// It was told to stop, and has returned this unless it was dropped.
    Told(Stop, Option<T>),
}

async fn resign(leadership: &Leadership) {
    // Unsaid, the lease runs out; that is the backend's trouble and not the work's.
    let _unavailable = leadership.release().await;
}
