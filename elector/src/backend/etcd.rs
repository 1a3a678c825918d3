//! Elections over etcd, in the layout of Go's `concurrency` package and `etcdctl elect`.
//!
//! A campaign puts a key on one of the process's few leases; the oldest key leads and its create revision is the
//! token, which the gateways below the same prefix know before the job does. One watch serves all elections, endpoints fail over, and everything runs on a thread of its own, so
//! that an application that blocks its runtime keeps what it leads. `connect` is called for `etcd://` URLs; the
//! elector calls the rest through [`Backend`]. The way to etcd, and where what is there, it has from `highgate_etcd`,
//! as the gateway's store has; [`ground`], [`graves`] and [`lease`] are public because the simulation runs them.

mod audience;
mod campaign;
pub mod graves;
pub mod ground;
mod interest;
mod keeper;
pub mod lease;
mod leases;
mod mirror;
pub mod once;
mod queue;
mod relocate;
mod renew;
mod seal;

use std::sync::Arc;
use std::time::Duration;

use highgate_etcd::keys::{self, Keys};
use highgate_etcd::url::{self, EtcdUrl, EtcdUrlError};
use highgate_etcd::{CallError, Client, OpenError};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnboundedReceiverStream;

use self::interest::Interests;
use self::leases::Leases;
use self::mirror::{Mirror, backend_error};
use self::seal::Gateways;
use super::{
    Backend, BackendError, BoxFuture, Candidacy, Grant, Observation, OnceError, OnceState, OnceStep,
    RenewError, Renewed,
};
use crate::Resource;

/// How long the thread goes on to withdraw candidacies after the backend is dropped.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// An etcd cluster as a [`Backend`].
pub struct EtcdBackend {
    core: Arc<Core>,
    runtime: Handle,
    /// Dropping it ends the thread.
    _stop: oneshot::Sender<()>,
}

/// What the tasks on the thread share.
struct Core {
    name: String,
    keys: Keys,
    client: Client,
    leases: Arc<Leases>,
    mirror: Arc<Mirror>,
    interests: Arc<Interests>,
    gateways: Gateways,
    /// Whether a winner waits for the gateways.
    sealed: bool,
}

impl EtcdBackend {
    /// Takes an `etcd://` URL (see `docs/etcd.md`). Reads certificates, but does not speak to etcd yet.
    pub fn connect(url: &str) -> Result<Self, BackendError> {
        let refuse = |detail| BackendError::Refused { backend: "etcd".to_owned(), detail };
        let refuse_url = |error: EtcdUrlError| refuse(with_causes(&error));
        let (url, sealed) = url::take_sealed(url).map_err(refuse_url)?;
        let url = EtcdUrl::parse(&url).map_err(refuse_url)?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| refuse(format!("no runtime: {error}")))?;
        let handle = runtime.handle().clone();
        let core = Arc::new(Core::open(&url, sealed, &handle).map_err(|error| refuse(with_causes(&error)))?);
        let (stop, stopped) = oneshot::channel();
        let (leases, mirror) = (Arc::clone(&core.leases), Arc::clone(&core.mirror));
        std::thread::Builder::new()
            .name("highgate-etcd".to_owned())
            .spawn(move || serve(&runtime, leases, mirror, stopped))
            .map_err(|error| refuse(format!("no thread: {error}")))?;
        Ok(Self { core, runtime: handle, _stop: stop })
    }

    /// Runs it on the backend's thread; dropping what is returned ends it there.
    fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> BoxFuture<'static, Option<T>> {
        let mut task = EndOnDrop(self.runtime.spawn(work));
        Box::pin(async move { (&mut task.0).await.ok() })
    }
}

fn serve(runtime: &Runtime, leases: Arc<Leases>, mirror: Arc<Mirror>, stopped: oneshot::Receiver<()>) {
    runtime.block_on(async {
        let keeping = tokio::spawn(keeper::keep(Arc::clone(&leases), mirror));
        // It is never sent, only dropped.
        let _ = stopped.await;
        keeping.abort();
        let _ = tokio::time::timeout(LAST_WORDS, keeper::close(&leases)).await;
    });
}

struct EndOnDrop<T>(JoinHandle<T>);

impl<T> Drop for EndOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Core {
    fn open(url: &EtcdUrl, sealed: bool, runtime: &Handle) -> Result<Self, OpenError> {
        let _within = runtime.enter();
        let client = Client::open(url)?;
        let (name, keys) = (url.to_string(), Keys::new(&url.prefix));
        let leases = Arc::new(Leases::new(client.clone(), runtime.clone()));
        let interests = Arc::new(Interests::default());
        let told = (Arc::clone(&leases), Arc::clone(&interests));
        let mirror = Arc::new(Mirror::new(name.clone(), client.clone(), told, &keys, sealed));
        Ok(Self { name, keys, client, leases, mirror, interests, gateways: Gateways::default(), sealed })
    }

    fn fail(&self, error: &CallError) -> BackendError {
        backend_error(&self.name, error)
    }

    async fn resign(&self, grant: &Grant) -> Result<(), BackendError> {
        let Ok(lease) = i64::from_str_radix(&grant.lease, 16) else { return Ok(()) };
        let (election, created) = (self.keys.election(&grant.resource), Some(keys::revision(grant.token)));
        self.leases.leaving(lease, &election, created);
        self.leases.remove(lease, &election, created).await.map_err(|error| self.fail(&error))
    }

    /// The thread is gone with the process's interest in it.
    fn ended(&self) -> BackendError {
        self.fail(&CallError::Unavailable("the backend is closed".to_owned()))
    }
}

impl Backend for EtcdBackend {
    fn campaign<'a>(&'a self, candidacy: &'a Candidacy) -> BoxFuture<'a, Result<Grant, BackendError>> {
        let work = self.run(campaign::campaign(Arc::clone(&self.core), candidacy.clone()));
        Box::pin(async move { work.await.unwrap_or_else(|| Err(self.core.ended())) })
    }

    fn renew<'a>(&'a self, grants: &'a [Grant]) -> BoxFuture<'a, Vec<Result<Renewed, RenewError>>> {
        let work = self.run(renew::renew(Arc::clone(&self.core), grants.to_vec()));
        let failed = || grants.iter().map(|_| Err(RenewError::Failed(self.core.ended()))).collect();
        // A number is all that etcd issues.
        let unsigned = |answer: Result<(), RenewError>| answer.map(|()| Renewed::default());
        Box::pin(async move { work.await.unwrap_or_else(failed).into_iter().map(unsigned).collect() })
    }

    fn resign<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<(), BackendError>> {
        let (core, grant) = (Arc::clone(&self.core), grant.clone());
        // Once begun it goes on, even if nobody waits for it any more.
        let work = self.runtime.spawn(async move { core.resign(&grant).await });
        Box::pin(async move { work.await.unwrap_or_else(|_| Err(self.core.ended())) })
    }

    fn observe(&self, resource: &Resource) -> Observation {
        let _within = self.runtime.enter();
        self.core.mirror.start();
        Box::pin(UnboundedReceiverStream::new(self.core.mirror.observe(&self.core.keys.election(resource))))
    }

    fn once<'a>(
        &'a self,
        grant: &'a Grant,
        key: &'a str,
        step: OnceStep,
    ) -> BoxFuture<'a, Result<OnceState, OnceError>> {
        let (core, grant, key) = (Arc::clone(&self.core), grant.clone(), key.to_owned());
        let work = self.run(async move { once::once(&core, &grant, &key, step).await });
        Box::pin(async move { work.await.unwrap_or_else(|| Err(OnceError::Failed(self.core.ended()))) })
    }
}

/// An error in one line, with what it was caused by.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line.push_str(&format!(": {error}"));
        cause = error.source();
    }
    line
}
