//! The guard of a leadership: who has it leads, as long as [`Leadership::check`] says so.
//!
//! It comes from [`Elector::campaign`](crate::Elector::campaign); the renewer renews it from another thread. It is
//! not `Clone`: two owners would be two ends of one leadership, and the first to resign would let the next
//! leader start beside the second. Whoever only needs the token gets a [`TokenSource`].
//!
//! A leadership ends in two steps, so that its work can end in order: it is told to stop ([`Leadership::stopping`]) while
//! there is a grace left in which its writes still pass, and then the leadership is over ([`Leadership::lost`]).

pub(crate) mod term;

mod source;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::backend::{BackendError, Grant};
use crate::heartbeat::Renewer;
use crate::{Moment, Resource, Token};
pub use source::TokenSource;
pub use term::validity;
use term::{Stop, Term};

/// Why somebody does not lead (any more).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// The backend itself says that the leadership is over: an operator evicted it, or its lease ended there.
    #[error("deposed: the backend says that this leadership is over")]
    Deposed,
    /// It was not renewed in time, because this process did not get to it: it was stopped, or the machine slept.
    #[error("expired: it was not renewed in time")]
    Expired,
    /// It could not be renewed in time, because the backend did not answer. The backend may not even know yet.
    #[error("away: the backend did not renew it in time")]
    BackendAway,
    /// A gateway refused a write with its token, because a later leader has taken over.
    #[error("stale: a write with its token was refused, because a later leader has taken over")]
    Stale,
    /// The work made no progress for longer than the watchdog allows, so it was not renewed.
    #[error("stuck: it was not renewed, because the work made no progress")]
    Stuck,
    /// It was given up.
    #[error("resigned")]
    Resigned,
}

/// A leadership. Dropped, it resigns in the background, if it gets to that; [`Leadership::resign`] is sure.
#[must_use = "a leadership that is dropped is resigned"]
pub struct Leadership {
    term: Arc<Term>,
    renewer: Renewer,
    /// The backend was told, or is being told.
    is_resigned: AtomicBool,
}

impl Leadership {
    /// The guard of a term that the renewer renews.
    pub(crate) fn new(term: Arc<Term>, renewer: Renewer) -> Self {
        Self { term, renewer, is_resigned: AtomicBool::new(false) }
    }

    /// The fencing token. It stays the same for the whole term and says nothing about whether the term is over.
    pub fn token(&self) -> Token {
        self.term.grant.token
    }

    pub fn resource(&self) -> &Resource {
        &self.term.grant.resource
    }

    pub fn holder(&self) -> &str {
        &self.term.grant.holder
    }

    /// What the backend knows of it.
    pub fn grant(&self) -> &Grant {
        &self.term.grant
    }

    /// The token, if this process leads now by its own clock: nobody else can have been elected yet.
    pub fn check(&self) -> Result<Token, Lost> {
        self.term.check()
    }

    pub fn is_valid(&self) -> bool {
        self.check().is_ok()
    }

    /// When it ends unless it is renewed until then. Once it is over, the moment has passed.
    pub fn valid_until(&self) -> Moment {
        self.term.valid_until().unwrap_or_else(|_| Moment::now())
    }

    /// How long it is valid without another renewal; nothing when it is over.
    pub fn remaining(&self) -> Duration {
        self.valid_until().remaining()
    }

    /// The token, if the work may go on: for the head of its loop. Fails one grace before `check` does, which is the
    /// time to end what was begun; see [`Builder::grace`](crate::Builder::grace).
    pub fn proceed(&self) -> Result<Token, Lost> {
        self.term.proceed()
    }

    /// Resolves when the work has to stop, and says why: one grace before the leadership is over if it is not being
    /// renewed, or as soon as it is over. That is final: a renewal that comes later takes nothing back.
    pub fn stopping(&self) -> impl Future<Output = Lost> + Send + use<> {
        let term = self.term.clone();
        async move { term.stop().await.why }
    }

    /// Resolves when the leadership is over, before the backend can let anybody else lead.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + use<> {
        let term = self.term.clone();
        async move { term.lost().await }
    }

    /// Tells the watchdog that the work goes on.
    pub fn progress(&self) {
        self.term.progress();
    }

    /// A handle for whoever sends the token.
    pub fn source(&self) -> TokenSource {
        TokenSource(self.term.clone())
    }

    /// Gives it up: call it when the work has stopped. The next candidate leads after a round trip. After an
    /// error, the lease just runs out.
    pub async fn resign(self) -> Result<(), BackendError> {
        self.release().await
    }

    /// Ends the term and tells the backend. For those who have only borrowed the guard.
    pub(crate) async fn release(&self) -> Result<(), BackendError> {
        self.is_resigned.store(true, Ordering::Relaxed);
        self.over(Lost::Resigned);
        self.renewer.resign(self.term.grant.clone()).await
    }

    /// Ends the term for this reason, and tells the backend without waiting for it: it may be away.
    pub(crate) fn abandon(&self, why: Lost) {
        let before = self.term.check().err();
        self.over(why);
        // Who was deposed has nothing to give up.
        if !self.is_resigned.swap(true, Ordering::Relaxed) && before != Some(Lost::Deposed) {
            self.renewer.resign_in_background(self.term.grant.clone());
        }
    }

    /// When the work has to stop, by when, and why.
    pub(crate) async fn stop(&self) -> Stop {
        self.term.stop().await
    }

    pub(crate) fn renewer(&self) -> &Renewer {
        &self.renewer
    }

    pub(crate) fn term(&self) -> &Arc<Term> {
        &self.term
    }

    fn over(&self, why: Lost) {
        self.term.end(why);
        self.renewer.forget(&self.term);
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        self.abandon(Lost::Resigned);
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership").field("grant", &self.term.grant).field("check", &self.check()).finish()
    }
}
