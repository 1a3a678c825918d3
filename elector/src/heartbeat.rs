//! The renewer: one OS thread with a runtime of its own that renews all leaderships of one backend.
//!
//! Electors share it ([`Elector::builder`](crate::Elector::builder) takes a `&Renewer`), and everything that talks to
//! the backend runs on its thread: an application whose own runtime is blocked keeps leading, and its connections
//! do not depend on that runtime. What must stay true: a renewal counts from before it was sent, an answer of the
//! backend that a leadership is over ends it at once, and any other failure only lets its time run.

mod table;
mod thread;

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::Moment;
use crate::backend::{Backend, BackendError, Grant};
use crate::clock::Alarm;
use crate::leadership::term::Term;
use crate::metrics::Labels;
use table::{Rhythm, Table};

/// After that, a resignation is left to the lease.
const RESIGN_LIMIT: Duration = Duration::from_secs(5);

/// A backend and the thread that keeps leaderships of it alive. Cheap to clone; the thread ends with the last
/// clone, elector and leadership.
#[derive(Clone)]
pub struct Renewer(Arc<Handles>);

/// What the handles share. Dropping it stops the thread.
struct Handles {
    shared: Arc<Shared>,
    thread: OnceLock<Running>,
    /// Keeps two electors from starting two threads.
    starting: Mutex<()>,
}

struct Running {
    runtime: tokio::runtime::Handle,
    _stop: oneshot::Sender<()>,
}

/// What the handles share with the thread.
struct Shared {
    backend: Arc<dyn Backend>,
    /// Held for moments only, never over an await.
    table: Mutex<Table>,
    /// The table has changed.
    changed: Notify,
    labels: Labels,
}

impl Renewer {
    /// A renewer whose thread starts with its first elector.
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        let shared =
            Shared { backend, table: Mutex::default(), changed: Notify::new(), labels: Labels::default() };
        Self(Arc::new(Handles {
            shared: Arc::new(shared),
            thread: OnceLock::new(),
            starting: Mutex::default(),
        }))
    }

    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.0.shared.backend
    }

    /// Starts the thread, if it is not running.
    pub(crate) fn start(&self) -> io::Result<()> {
        let _one = self.0.starting.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if self.0.thread.get().is_none() {
            let (stop, stopped) = oneshot::channel();
            let runtime = thread::start(self.0.shared.clone(), stopped)?;
            let _first = self.0.thread.set(Running { runtime, _stop: stop });
        }
        Ok(())
    }

    pub(crate) fn labels(&self) -> &Labels {
        &self.0.shared.labels
    }

    /// Runs something on the renewer's thread. Dropping the handle ends it.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Errand<T> {
        Errand(self.runtime().spawn(work))
    }

    /// Returns at that moment of CLOCK_BOOTTIME. A clock that fails ends the wait early: whoever has to stop by then
    /// stops too soon rather than too late.
    pub(crate) async fn wait_until(&self, moment: Moment) {
        let waiting = self.spawn(async move {
            if let Ok(alarm) = Alarm::new() {
                let _failed = alarm.until(Some(moment)).await;
            }
        });
        waiting.outcome().await;
    }

    fn runtime(&self) -> &tokio::runtime::Handle {
        &self.0.thread.get().expect("an elector starts the renewer before it uses it").runtime
    }

    /// Renews a term from now on.
    pub(crate) fn adopt(&self, term: Arc<Term>, heartbeat: Duration, watchdog: Option<Duration>) {
        self.0.shared.table().adopt(term, Rhythm { heartbeat, watchdog });
        self.0.shared.changed.notify_one();
    }

    /// Renews a term no more.
    pub(crate) fn forget(&self, term: &Arc<Term>) {
        self.0.shared.table().forget(term);
        self.0.shared.changed.notify_one();
    }

    /// Tells the backend that a leadership is given up. Goes on when nobody waits for it any more.
    pub(crate) async fn resign(&self, grant: Grant) -> Result<(), BackendError> {
        let stopped = |_| Err(unavailable("the renewer has stopped"));
        self.resign_in_background(grant).await.unwrap_or_else(stopped)
    }

    pub(crate) fn resign_in_background(&self, grant: Grant) -> JoinHandle<Result<(), BackendError>> {
        // The thread lives until this has ended, because this has a handle of it.
        let renewer = self.clone();
        self.runtime().spawn(async move {
            let sent = timeout(RESIGN_LIMIT, renewer.backend().resign(&grant)).await;
            sent.unwrap_or_else(|_| Err(unavailable("no answer in time")))
        })
    }
}

impl From<Arc<dyn Backend>> for Renewer {
    fn from(backend: Arc<dyn Backend>) -> Self {
        Self::new(backend)
    }
}

impl From<&Renewer> for Renewer {
    fn from(renewer: &Renewer) -> Self {
        renewer.clone()
    }
}

impl fmt::Debug for Renewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewer").field("leaderships", &self.0.shared.table().len()).finish_non_exhaustive()
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Something that runs on the renewer's thread for somebody who waits for it.
pub(crate) struct Errand<T>(JoinHandle<T>);

impl<T> Errand<T> {
    /// Its outcome; none when the thread has ended or the errand panicked.
    pub(crate) async fn outcome(mut self) -> Option<T> {
        (&mut self.0).await.ok()
    }
}

impl<T> Drop for Errand<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn unavailable(detail: &str) -> BackendError {
    BackendError::Unavailable { backend: "elector".to_owned(), detail: detail.to_owned() }
}
