//! The gateways that a URL names, and which of them is asked.
//!
//! All of them hold the same elections, so any may be asked; one is, until it fails. What must stay true: only calls
//! that may be sent twice are sent to a second gateway by [`Gateways::call`], and a gateway that is merely not ready
//! is left only for one that is, so that an etcd that is away does not drive everybody around.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::url::GatewayUrl;
use super::wire::{Answer, Wire};
use crate::backend::BackendError;

/// How often it is asked whether a gateway is ready, by all who wait there together.
pub(super) const PULSE: Duration = Duration::from_secs(2);

/// The gateways of one URL.
pub(super) struct Gateways {
    all: Vec<Arc<Gateway>>,
    current: AtomicUsize,
}

struct Gateway {
    wire: Wire,
    /// When it was last asked, and what it said. Whoever asks holds the lock meanwhile, so that others wait for the
    /// same answer.
    ready: Mutex<Option<(Instant, bool)>>,
}

impl Gateways {
    /// Those of a URL. Nothing is sent yet.
    pub(super) fn new(url: &GatewayUrl<'_>, secret: Option<&str>) -> Result<Self, String> {
        let mut all: Vec<Arc<Gateway>> = Vec::new();
        for address in url.addresses.split(',') {
            let wire = Wire::new(address, secret, &url.security)?;
            if all.iter().any(|known| known.wire.is_to(&wire)) {
                return Err(format!("it names {address} twice"));
            }
            all.push(Arc::new(Gateway { wire, ready: Mutex::default() }));
        }
        // Clients of the same gateways begin at different ones.
        let start = uuid::Uuid::new_v4().as_fields().0 as usize % all.len();
        Ok(Self { all, current: AtomicUsize::new(start) })
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    pub(super) fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    /// The number of the gateway to ask now.
    pub(super) fn current(&self) -> usize {
        self.current.load(Ordering::Relaxed)
    }

    pub(super) fn wire(&self, at: usize) -> &Wire {
        &self.all[at].wire
    }

    /// This one has failed: the next is asked from now on, unless somebody else has moved on already.
    pub(super) fn leave(&self, at: usize) {
        self.go(at, (at + 1) % self.all.len());
    }

    fn go(&self, from: usize, to: usize) {
        let _moved = self.current.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// All of them, the current one first.
    fn round(&self) -> impl Iterator<Item = usize> + use<> {
        let (start, count) = (self.current(), self.all.len());
        (0..count).map(move |step| (start + step) % count)
    }

    /// A call that may be sent twice. A gateway that fails or does not answer soon is not waited for alone: the
    /// next is asked as well, and the first answer that is one counts. With the way to whoever gave it.
    pub(super) async fn call(
        &self,
        path: &'static str,
        body: &Value,
        by: Instant,
    ) -> Result<(&Wire, Answer), BackendError> {
        let start = self.current();
        let patience = by.saturating_duration_since(Instant::now()) / (self.all.len() as u32 + 1);
        let mut asked = JoinSet::new();
        let mut failed = None;
        for (others, at) in self.round().enumerate() {
            let (gateway, body) = (self.all[at].clone(), body.clone());
            asked.spawn(async move { (at, gateway.wire.call(path, &body, by).await) });
            let last = others + 1 == self.all.len();
            let until = if last { by } else { Instant::now() + patience };
            while let Ok(Some(done)) = timeout_at(until, asked.join_next()).await {
                match done {
                    Ok((at, Ok(answer))) if !answer.is_unavailable() => {
                        self.go(start, at);
                        return Ok((self.wire(at), answer));
                    }
                    Ok((at, outcome)) => failed = Some(outcome.map(|answer| (self.wire(at), answer))),
                    Err(_) => {}
                }
            }
        }
        failed.unwrap_or_else(|| Err(self.wire(start).unavailable("no answer in time")))
    }

    /// Returns once this gateway is not ready and another one is, which is then the current one.
    pub(super) async fn is_worth_leaving(&self, at: usize) {
        while !self.leaves(at).await {
            tokio::time::sleep(PULSE).await;
        }
    }

    /// Leaves a gateway that is not ready for one that is. False if it is ready, or no other is.
    pub(super) async fn leaves(&self, at: usize) -> bool {
        if !self.are_several() || self.all[at].is_ready().await {
            return false;
        }
        for step in 1..self.all.len() {
            let other = (at + step) % self.all.len();
            if self.all[other].is_ready().await {
                self.go(at, other);
                return true;
            }
        }
        false
    }
}

impl Gateway {
    async fn is_ready(&self) -> bool {
        let mut known = self.ready.lock().await;
        if let Some((asked, ready)) = *known
            && asked.elapsed() < PULSE / 2
        {
            return ready;
        }
        let ready = self.wire.is_ready().await;
        *known = Some((Instant::now(), ready));
        ready
    }
}

#[cfg(test)]
mod tests;
