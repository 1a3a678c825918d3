//! A store without marks, for tests of what shows an [`Overview`] and gives orders to all replicas.
//!
//! Its driver is a thread that answers such orders as the test says and drops everything else, which is what
//! a store that has stopped does. It ends with the last [`Store`].

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, mpsc};
use std::thread;

use arc_swap::ArcSwap;

use super::overview::Overview;
use super::{Bumped, Command, Inbox, Override, OverrideError, Store};
use crate::ledger::Ledger;
use crate::replica::Incarnation;

/// What the driver answers. A replica is retired if it is in the overview.
#[derive(Clone, Debug)]
pub(crate) enum Obeys {
    /// With this as the new era.
    Fully(u64),
    No(OverrideError),
    /// By dropping the order.
    Stopped,
}

/// A store that shows this.
pub(crate) fn store(overview: Overview, obeys: Obeys) -> Store {
    let (commands, inbox) = mpsc::channel();
    let known: Vec<Incarnation> = overview.replicas.iter().map(|replica| replica.id).collect();
    thread::spawn(move || {
        for command in inbox {
            if let Command::Override(order) = command {
                answer(order, &obeys, &known);
            }
        }
    });
    Store {
        inbox: Inbox::Thread(commands),
        queued: Arc::new(AtomicUsize::new(0)),
        ledger: Arc::new(Ledger::new(|_| {})),
        overview: Arc::new(ArcSwap::from_pointee(overview)),
        away: Arc::default(),
        change_of_names: Default::default(),
    }
}

fn answer(order: Override, obeys: &Obeys, known: &[Incarnation]) {
    // Whoever asked may have gone meanwhile.
    match (order, obeys) {
        (_, Obeys::Stopped) => {}
        (Override::BumpEra { reply, .. }, Obeys::Fully(era)) => {
            drop(reply.send(Ok(Bumped { era: *era, changed: true })));
        }
        (Override::BumpEra { reply, .. }, Obeys::No(error)) => drop(reply.send(Err(error.clone()))),
        (Override::Retire { reply, .. }, Obeys::No(error)) => drop(reply.send(Err(error.clone()))),
        (Override::Retire { replica, reply }, Obeys::Fully(_)) => {
            let retired = known.contains(&replica).then_some(()).ok_or(OverrideError::NoSuchReplica);
            drop(reply.send(retired));
        }
    }
}
