//! What a backend's tests have to bring along, and what the cases share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use highgate_elector::backend::{
    Backend, BackendError, BoxFuture, Candidacy, Grant, Observation, OnceError, OnceState, OnceStep,
    RenewError, Renewed,
};
use highgate_elector::{Builder, Elector, Resource, connect};

/// A coordination system that a test may do anything to.
pub(crate) trait Fixture: Sized {
    /// The shortest lease that it grants as asked.
    const TTL: Duration;
    /// Whether candidates lead in the order in which they came.
    const FIFO: bool;

    /// Starts a fresh one; none if that is not possible here.
    async fn start() -> Option<Self>;

    /// Stops it and starts it again, with what it had kept and at the same address.
    async fn restart(&mut self);

    fn url(&self) -> String;

    /// A process of its own: an own connection and an own renewer, and it can crash.
    fn party(&self) -> Party {
        Party::new(&self.url(), Self::TTL)
    }
}

/// Somebody who campaigns.
pub(crate) struct Party {
    pub(crate) elector: Elector,
    line: Arc<Line>,
}

impl Party {
    fn new(url: &str, ttl: Duration) -> Self {
        let line = Arc::new(Line { backend: connect(url).unwrap(), dead: AtomicBool::new(false) });
        let elector = settings(line.clone()).ttl(ttl).build().unwrap();
        Self { elector, line }
    }

    /// From now on nothing that it does reaches the backend.
    pub(crate) fn crash(&self) {
        self.line.dead.store(true, Ordering::SeqCst);
    }
}

pub(crate) fn resource() -> Resource {
    Resource::parse("ledger/acct-7").unwrap()
}

/// An elector's settings for the resource of most cases.
pub(crate) fn settings(backend: Arc<dyn Backend>) -> Builder {
    Elector::builder(backend, resource())
}

/// Fails rather than waits for ever.
pub(crate) async fn within<T>(limit: Duration, what: &str, wait: impl Future<Output = T>) -> T {
    match tokio::time::timeout(limit, wait).await {
        Ok(done) => done,
        Err(_) => panic!("not within {limit:?}: {what}"),
    }
}

/// A backend whose connection can die in one moment: what a crash looks like from outside.
struct Line {
    backend: Arc<dyn Backend>,
    dead: AtomicBool,
}

impl Line {
    fn check(&self) -> Result<(), BackendError> {
        let (backend, detail) = ("line".to_owned(), "dead".to_owned());
        let dead = self.dead.load(Ordering::SeqCst);
        if dead { Err(BackendError::Unavailable { backend, detail }) } else { Ok(()) }
    }
}

impl Backend for Line {
    fn campaign<'a>(&'a self, candidacy: &'a Candidacy) -> BoxFuture<'a, Result<Grant, BackendError>> {
        Box::pin(async move {
            self.check()?;
            self.backend.campaign(candidacy).await
        })
    }

    fn renew<'a>(&'a self, grants: &'a [Grant]) -> BoxFuture<'a, Vec<Result<Renewed, RenewError>>> {
        Box::pin(async move {
            if self.check().is_err() {
                let failed = || self.check().map(|()| Renewed::default()).map_err(RenewError::Failed);
                return grants.iter().map(|_| failed()).collect();
            }
            self.backend.renew(grants).await
        })
    }

    fn resign<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<(), BackendError>> {
        Box::pin(async move {
            self.check()?;
            self.backend.resign(grant).await
        })
    }

    fn observe(&self, resource: &Resource) -> Observation {
        self.backend.observe(resource)
    }

    fn once<'a>(
        &'a self,
        grant: &'a Grant,
        key: &'a str,
        step: OnceStep,
    ) -> BoxFuture<'a, Result<OnceState, OnceError>> {
        Box::pin(async move {
            self.check()?;
            self.backend.once(grant, key, step).await
        })
    }
}
