//! Whoever hears the store: every notice of it goes to the metrics, the journal, the log and whoever listens, once.

use std::sync::Arc;

use super::{Bus, Notice, audit};
use crate::elections::Standing;
use crate::journal::Journal;
use crate::metrics::Metrics;

/// How many leaders that were found after a start or a gap get a line each.
const MAX_FOUND_LINES: usize = 100;

/// Passes on what the store and the gateway tell.
#[derive(Clone)]
pub struct Observer {
    pub metrics: Arc<Metrics>,
    pub journal: Arc<Journal>,
    pub bus: Bus,
}

impl Observer {
    /// On the store's own thread: nothing here waits for a flush or for whoever listens.
    pub fn hear(&self, notice: Notice) {
        match &notice {
            Notice::Fence(event) => {
                self.metrics.fence_event(event);
                self.journal.note_raise(event);
            }
            Notice::Election(event) => {
                self.journal.note(event);
                self.metrics.election_event(event);
            }
            Notice::Standing(standing) => return self.catch_up(standing),
            Notice::Line { resource, waiting } => return self.metrics.line(resource, *waiting),
            _ => {}
        }
        audit::log(&notice);
        self.bus.publish(notice);
    }

    /// What the journal did not know is told as if it had happened now.
    fn catch_up(&self, standing: &[Standing]) {
        let missed = self.journal.catch_up(standing);
        let count = missed.len();
        for event in missed {
            let notice = Notice::Election(event);
            if count <= MAX_FOUND_LINES {
                audit::log(&notice);
            }
            self.bus.publish(notice);
        }
        if count > MAX_FOUND_LINES {
            audit::leaders_found(count);
        }
        self.metrics.stand(standing);
    }
}
