//! The guard of a leadership: who has it leads, as long as [`Leadership::check`] says so.
//!
//! It comes from [`Elector::campaign`](crate::Elector::campaign); the heart renews it from another thread. It is
//! not `Clone`: two owners would be two ends of one leadership, and the first to resign would let the next
//! leader start beside the second. Whoever only needs the token gets a [`TokenSource`].

pub(crate) mod term;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{BackendError, Grant};
use crate::heartbeat::Heart;
use crate::token::headers;
use crate::{Moment, Resource, Token};
use term::Term;
pub use term::validity;

/// Why somebody does not lead (any more).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The backend itself says that the leadership is over.
    #[error("deposed: the backend says that this leadership is over")]
    Deposed,
    /// It could not be renewed in time. The backend may not even know yet.
    #[error("expired: it was not renewed in time")]
    Expired,
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
    heart: Heart,
}

impl Leadership {
    /// The guard of a term that the heart renews.
    pub(crate) fn new(term: Arc<Term>, heart: Heart) -> Self {
        Self { term, heart }
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
        self.over();
        self.heart.resign(self.term.grant.clone()).await
    }

    pub(crate) fn heart(&self) -> &Heart {
        &self.heart
    }

    pub(crate) fn term(&self) -> &Arc<Term> {
        &self.term
    }

    fn over(&self) {
        self.term.end(Lost::Resigned);
        self.heart.forget(&self.term);
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        let before = self.term.check().err();
        self.over();
        // Who was deposed has nothing to give up, and who resigned has said so.
        if !matches!(before, Some(Lost::Deposed | Lost::Resigned)) {
            self.heart.resign_in_background(self.term.grant.clone());
        }
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership").field("grant", &self.term.grant).field("check", &self.check()).finish()
    }
}

/// The token of one leadership, for as long as it is valid. Cheap to clone, and it keeps nobody leading.
#[derive(Clone)]
pub struct TokenSource(Arc<Term>);

impl TokenSource {
    /// The token, if the leadership is valid now.
    pub fn token(&self) -> Result<Token, Lost> {
        self.0.check()
    }

    /// The headers to send with a request, for clients that have no tower layers: `.header(name, value)` for each. A
    /// route that knows its resource by itself ignores the second; any other has to be told.
    pub fn headers(&self) -> Result<[(&'static str, String); 2], Lost> {
        let token = self.token()?.to_string();
        Ok([(headers::TOKEN, token), (headers::RESOURCE, self.resource().to_string())])
    }

    pub fn resource(&self) -> &Resource {
        &self.0.grant.resource
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TokenSource").field(&self.token()).finish()
    }
}
