//! Requests that are written in several parts: each asks anew whether it may be written.

use super::Phase;
use crate::control::Control;
use crate::world::{Event, World};

impl World {
    /// How many writes a request takes after its first.
    pub(super) fn writes_to_come(&mut self) -> u64 {
        if self.dice.chance(self.plan.uploads) { self.dice.between(1, 3) } else { 0 }
    }

    /// What was written was not the last of it, or the upstream begins.
    pub(super) fn go_on(&mut self, id: u64) {
        if self.flights.get(&id).is_none_or(|flight| flight.left == 0) {
            return self.serve(id);
        }
        let pause = self.dice.around(self.plan.upload_pause);
        self.set_after(pause, Event::Chunk { flight: id });
        if self.dice.chance(20) {
            let after = self.dice.below(pause + 1);
            self.set_after(after, Event::Break { flight: id });
        }
    }

    /// The next part goes to the kernel, if the incarnation that admitted the request is still valid. Others may have
    /// waited for the end of its validity, and count on nothing being written after it.
    pub(crate) fn write_on(&mut self, id: u64) {
        if self.flights.get(&id).is_none_or(|flight| flight.phase != Phase::Forwarded) {
            return;
        }
        let covered = self.covers(id);
        if !covered && !self.is(Control::NoCheckBetweenChunks) {
            self.tally.cut_uploads += 1;
            return self.cut(id);
        }
        let Some(flight) = self.flights.get_mut(&id) else { return };
        match (flight.bounded, covered) {
            // The connection is broken already, which is not known here yet.
            (true, true) => {}
            (true, false) => self.write_late(id),
            (false, _) => {
                flight.left -= 1;
                self.tally.chunks += 1;
                self.go_on(id);
            }
        }
    }

    /// The control: the upstream has waited for it, however long that took, and whatever became of what it had before.
    fn write_late(&mut self, id: u64) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        (flight.bounded, flight.took_effect) = (false, false);
        self.bound(id);
    }

    /// Whether its incarnation may write now: asked as strictly as at its admission.
    fn covers(&self, id: u64) -> bool {
        let Some(flight) = self.flights.get(&id) else { return false };
        let process = self.hosts[flight.host].process.as_ref();
        let Some(process) = process.filter(|process| process.number == flight.process) else { return false };
        let same = process.session().is_some_and(|session| session.me == flight.incarnation);
        same && process.holds(self.shown(flight.host))
    }
}
