//! The renewer's thread: waits for the next round or the next deadline, and sends the renewals.

use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{Shared, unavailable};
use crate::Moment;
use crate::backend::{Grant, RenewError};
use crate::clock::Alarm;
use crate::leadership::term::Term;

/// Starts the thread. It ends when the other end of `stopped` is dropped.
pub(super) fn start(shared: Arc<Shared>, stopped: oneshot::Receiver<()>) -> io::Result<Handle> {
    let (tell, told) = mpsc::sync_channel(1);
    thread::Builder::new().name("elector-renewer".to_owned()).spawn(move || match prepare() {
        Ok((runtime, alarm)) => {
            let _waiting = tell.send(Ok(runtime.handle().clone()));
            let end_all = EndAll(shared);
            // What fails here is the timer itself; then the leaderships end rather than never expire.
            let _alarm_failed = runtime.block_on(beat(&end_all.0, alarm, stopped));
        }
        Err(error) => {
            let _waiting = tell.send(Err(error));
        }
    })?;
    told.recv().unwrap_or_else(|_| Err(io::Error::other("the renewer's thread ended at its start")))
}

fn prepare() -> io::Result<(Runtime, Alarm)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let alarm = {
        let _within = runtime.enter();
        Alarm::new()?
    };
    Ok((runtime, alarm))
}

/// However the thread ends, nobody goes on believing that somebody renews.
struct EndAll(Arc<Shared>);

impl Drop for EndAll {
    fn drop(&mut self) {
        self.0.table().abandon();
    }
}

async fn beat(shared: &Arc<Shared>, alarm: Alarm, mut stopped: oneshot::Receiver<()>) -> io::Result<()> {
    loop {
        let next = shared.table().next();
        tokio::select! {
            _ = &mut stopped => return Ok(()),
            () = shared.changed.notified() => {}
            rung = alarm.until(next) => rung?,
        }
        let round = shared.table().round(Moment::now());
        if !round.is_empty() {
            tokio::spawn(renew(shared.clone(), round));
        }
    }
}

/// One round: everything that is due, in one call.
async fn renew(shared: Arc<Shared>, terms: Vec<Arc<Term>>) {
    let grants: Vec<Grant> = terms.iter().map(|term| term.grant.clone()).collect();
    let limit = grants.iter().map(|grant| grant.ttl).min().unwrap_or(Duration::ZERO) / 3;
    let sent = Moment::now();
    // The backend has its own time limit for each; this one is for a backend that forgot.
    let mut answers = timeout(limit, shared.backend.renew(&grants)).await.unwrap_or_default().into_iter();
    let took = Moment::now().since(sent);
    for term in &terms {
        let missing = || Err(RenewError::Failed(unavailable("no answer to a renewal in time")));
        shared.table().settle(term, sent, answers.next().unwrap_or_else(missing));
        let remaining = term.valid_until().map_or(Duration::ZERO, Moment::remaining);
        term.metrics.beat(took, remaining);
    }
    shared.changed.notify_one();
}
