//! What a coordination system has to offer so that jobs can elect a leader over it.
//!
//! Five methods. The elector calls them; it keeps the clock, the heartbeat and the validity itself, so that a
//! backend is only a translation. What must stay true of every backend: two grants of one resource never have
//! the same token, a later grant has a higher one, and `renew` says [`RenewError::Gone`] only when the
//! coordination system itself said so.

#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "highgate")]
pub mod highgate;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::{Resource, Token};

/// A future that a backend returns. Boxed, because backends are chosen by URL at run time.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A stream of who leads: the current state first, then every change.
pub type Observation = Pin<Box<dyn futures_core::Stream<Item = Result<Option<Leader>, BackendError>> + Send>>;

/// A coordination system.
pub trait Backend: Send + Sync + 'static {
    /// Queues up and waits until this candidate leads. Dropping the future withdraws the candidacy.
    fn campaign<'a>(&'a self, candidacy: &'a Candidacy) -> BoxFuture<'a, Result<Grant, BackendError>>;

    /// Renews many leaderships at once: one answer for each, in order. A backend whose leases are shared
    /// renews each lease once. The time that counts is the one before this was called.
    fn renew<'a>(&'a self, grants: &'a [Grant]) -> BoxFuture<'a, Vec<Result<Renewed, RenewError>>>;

    /// Gives a leadership up, so that the next candidate leads at once. Of one that is gone already: fine.
    fn resign<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<(), BackendError>>;

    /// Who leads a resource, now and from now on.
    fn observe(&self, resource: &Resource) -> Observation;

    /// One step in the run-once ledger, fenced by the grant: a leader that was deposed changes nothing. A key
    /// belongs to the grant's resource: the same key of another resource is another entry.
    fn once<'a>(
        &'a self,
        grant: &'a Grant,
        key: &'a str,
        step: OnceStep,
    ) -> BoxFuture<'a, Result<OnceState, OnceError>>;
}

/// A wish to lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidacy {
    pub resource: Resource,
    /// Who asks; unique per process.
    pub holder: String,
    /// How long leadership outlives its last renewal.
    pub ttl: Duration,
}

/// A leadership as the backend knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub resource: Resource,
    pub holder: String,
    pub token: Token,
    /// The backend's own name for the lease or session behind it.
    pub lease: String,
    /// What was granted, which may differ from what was asked.
    pub ttl: Duration,
    /// The token with the signature of who issued it, where the backend signs. A renewal brings another.
    pub signed_token: Option<SignedToken>,
}

/// A leadership that goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renewed {
    /// In place of the one before, which ends with the lease that it was issued for; none: nothing new.
    pub signed_token: Option<SignedToken>,
}

/// A token as a route with `tokens = "signed"` wants it. Whoever has it can use it until it ends, so it never prints
/// itself. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct SignedToken(Arc<str>);

impl SignedToken {
    /// Longer than any that a gateway signs.
    const LONGEST: usize = 4096;

    /// None of a text that cannot be one: a number, a dot, and letters, digits, `-` and `_`.
    pub fn parse(text: &str) -> Option<Self> {
        let (number, signature) = text.split_once('.')?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_signature = !signature.is_empty() && signature.bytes().all(is_plain);
        let is_token = is_signature && text.len() <= Self::LONGEST && Token::parse(number.as_bytes()).is_ok();
        is_token.then(|| Self(text.into()))
    }

    /// The value of the token's header.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SignedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SignedToken")
    }
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    pub holder: String,
    pub token: Token,
}

/// A step in the run-once ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnceStep {
    /// I am about to run it.
    Begin,
    /// I have run it.
    Complete,
}

/// What the run-once ledger says of a key after a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnceState {
    /// The asking leader runs it now, whoever began it before.
    Running,
    /// It was completed, by whom and when, by the clock of who completed it.
    Completed { holder: String, token: Token, at: SystemTime },
}

/// The backend could not do it (now).
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// It may work later: unreachable, time-out, no quorum.
    #[error("the backend {backend} is unavailable: {detail}")]
    Unavailable { backend: String, detail: String },
    /// It will not work however often it is tried: a bad URL, wrong credentials, a refused request.
    #[error("the backend {backend} refused: {detail}")]
    Refused { backend: String, detail: String },
}

/// A leadership was not renewed.
#[derive(Debug, thiserror::Error)]
pub enum RenewError {
    /// The backend itself says that this leadership is over.
    #[error("the leadership is over")]
    Gone,
    /// Nobody knows; the lease runs on meanwhile.
    #[error(transparent)]
    Failed(#[from] BackendError),
}

/// A step in the run-once ledger was not taken.
#[derive(Debug, thiserror::Error)]
pub enum OnceError {
    /// The leadership is over, so its word does not count any more.
    #[error("the leadership is over")]
    Deposed,
    #[error(transparent)]
    Failed(#[from] BackendError),
}

impl fmt::Display for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with token {}", self.holder, self.token)
    }
}
