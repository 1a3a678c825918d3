//! A load balancer before the upstream that gives up waiting: its 504 is a whole response, and the upstream goes on.

use super::Phase;
use crate::clock::Nanos;
use crate::control::Control;
use crate::world::{Event, World};

impl World {
    /// Now and then it is not patient enough for what the upstream takes.
    pub(super) fn lose_patience(&mut self, id: u64, service: Nanos) {
        if self.dice.chance(40) {
            let after = self.dice.below(service + 1);
            self.set_after(after, Event::GaveUp { flight: id });
        }
    }

    /// The 504 is on its way. What the upstream was asked for takes effect within D from now, or not at all.
    pub(crate) fn gave_up(&mut self, id: u64) {
        if self.flights.get(&id).is_some_and(|flight| !flight.bounded) {
            self.note(|| format!("a load balancer gives up waiting for request {id}"));
            self.bound(id);
            let delay = self.latency();
            self.set_after(delay, Event::TimedOut { flight: id });
        }
    }

    /// The gateway has the 504 to its last byte, and knows no more than after a broken connection.
    pub(crate) fn timed_out(&mut self, id: u64) {
        if self.flights.get(&id).is_none_or(|flight| flight.phase != Phase::Forwarded) {
            return;
        }
        self.tally.gateway_timeouts += 1;
        match self.is(Control::GatewayTimeoutIsAnAnswer) {
            true => self.done(id),
            false => self.send_to_limbo(id),
        }
    }
}
