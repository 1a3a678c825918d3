//! Requests in flight, at the upstream, and cut; before the gate they are in `approach.rs`.
//!
//! The upstream takes its time, and what was cut, or belongs to a gateway
//! that crashed or passed its validity, takes effect within D after that, or not at all: that is assumed of it.
//! What must stay true: the judge hears of every forward, effect and certain end at its true time.

mod approach;
mod gave_up;
mod upload;

use std::rc::Rc;
use std::time::Duration;

use highgate::ledger::Permit;
use highgate::replica::Incarnation;
use highgate_elector::{Resource, Token};

use super::clock::{MILLI, at_most};
use super::control::Control;
use super::host::Approach;
use super::naming::Table;
use super::trace::letter;
use super::world::{Event, World};

pub(crate) struct Flight {
    pub(crate) host: usize,
    pub(crate) process: u64,
    incarnation: Incarnation,
    pub(crate) resource: usize,
    pub(crate) token: Token,
    /// Under which it was admitted.
    names: Rc<[Resource]>,
    /// Gone when the host is done with it.
    held: Option<Held>,
    phase: Phase,
    /// Writes that are still to come until the upstream has the whole request.
    left: u64,
    lock_delay: Duration,
    swept: bool,
    /// Which of the planned effects counts.
    draw: u32,
    took_effect: bool,
    /// Everything has happened by then: the connection was cut, or is as good as cut.
    bounded: bool,
}

/// As long as a request is under way, so is the table that it was claimed by.
struct Held {
    permit: Permit,
    _table: Rc<Table>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing was written yet.
    Admitted,
    Forwarded,
    /// The gateway knows of no end, and waits.
    Limbo,
    /// The gateway is done with it.
    Over,
}

impl World {
    /// The bytes go to the kernel. That no pause beyond the validity comes before is assumed.
    pub(crate) fn write(&mut self, id: u64) {
        let Some(flight) = self.flights.get(&id) else { return };
        if flight.phase != Phase::Admitted {
            return;
        }
        let (host, resource, token) = (flight.host, flight.resource, flight.token);
        let shown = self.shown(host);
        let process = self.hosts[host].process.as_ref();
        let valid = process.and_then(|process| process.until).is_some_and(|until| shown < until);
        if !valid && !self.is(Control::PauseBeforeWrite) {
            return self.abandon(id);
        }
        self.forward(id);
        if self.quiet_since.is_some() {
            self.lines[resource].served(host, token);
        }
    }

    /// From here on the upstream knows of it.
    fn forward(&mut self, id: u64) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        flight.phase = Phase::Forwarded;
        let (host, resource, token, incarnation) =
            (flight.host, flight.resource, flight.token, flight.incarnation);
        let names = flight.names.clone();
        self.note(|| {
            let by = super::trace::short(incarnation);
            let names: Vec<_> = names.iter().map(Resource::as_str).collect();
            let names = names.join(" and ");
            format!("{} forwards {token} for {names} as {by} (request {id})", letter(host))
        });
        self.tally.forwarded += 1;
        self.judge_forward(id, resource, token, names);
        self.go_on(id);
    }

    /// The upstream has the whole request.
    fn serve(&mut self, id: u64) {
        let service = self.dice.around(self.plan.service);
        let effect = if self.dice.chance(400) { service } else { self.dice.below(service + 1) };
        self.set_after(effect, Event::Effect { flight: id, draw: 0 });
        if self.dice.chance(80) {
            let after = self.dice.below(service + 1);
            self.set_after(after, Event::Break { flight: id });
        }
        self.lose_patience(id, service);
        self.set_after(service, Event::Respond { flight: id });
        if self.is(Control::GuardDroppedAtHead) {
            let head = self.dice.below(service + 1);
            self.set_after(head, Event::Head { flight: id });
        }
        if self.is(Control::GuardDroppedAtHangUp) && self.dice.chance(200) {
            let after = self.dice.below(service + 1);
            self.set_after(after, Event::HangUp { flight: id });
        }
    }

    pub(crate) fn take_effect(&mut self, id: u64, draw: u32) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        if flight.draw != draw || flight.took_effect {
            return;
        }
        flight.took_effect = true;
        let (resource, token) = (flight.resource, flight.token);
        self.note(|| format!("upstream: {token} takes effect on r{resource} (request {id})"));
        self.judge_effect(id, resource, token);
        self.tidy(id);
    }

    /// The response has ended to its last byte.
    pub(crate) fn respond(&mut self, id: u64) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        if flight.bounded {
            return;
        }
        flight.bounded = true;
        let resource = flight.resource;
        self.judge.ended(resource, id, self.now);
        let delay = self.latency();
        self.set_after(delay, Event::Complete { flight: id });
    }

    /// The connection ends without a whole response.
    pub(crate) fn break_off(&mut self, id: u64) {
        if self.flights.get(&id).is_some_and(|flight| !flight.bounded) {
            self.bound(id);
            let delay = self.latency();
            self.set_after(delay, Event::Broken { flight: id });
        }
    }

    /// It takes effect within D from now, or not at all.
    fn bound(&mut self, id: u64) {
        let lingers = self.is(Control::DefaultLinger);
        let Some(flight) = self.flights.get_mut(&id) else { return };
        if std::mem::replace(&mut flight.bounded, true) {
            return;
        }
        let most = at_most(flight.lock_delay);
        let most = if lingers { 4 * most + 300 * MILLI } else { most };
        let ends = self.now + most;
        flight.draw += 1;
        let (resource, draw, done) = (flight.resource, flight.draw, flight.took_effect);
        self.judge.ended(resource, id, ends);
        let at = match self.dice.below(10) {
            0..=2 => None,
            3..=6 => Some(ends - 1),
            _ => Some(self.now + self.dice.below(most)),
        };
        if let Some(at) = at.filter(|at| !done && *at > self.now) {
            self.set(at, Event::Effect { flight: id, draw });
        }
    }

    pub(crate) fn complete(&mut self, id: u64) {
        if self.flights.get(&id).is_some_and(|flight| flight.phase == Phase::Forwarded) {
            self.done(id);
        }
    }

    pub(crate) fn broken(&mut self, id: u64) {
        if self.flights.get(&id).is_none_or(|flight| flight.phase != Phase::Forwarded) {
            return;
        }
        self.tally.unknown += 1;
        self.send_to_limbo(id);
        if self.is(Control::RetriesOn) {
            self.send_again(id);
        }
    }

    /// The control that dispatches again without asking.
    fn send_again(&mut self, id: u64) {
        let Some(flight) = self.flights.get(&id) else { return };
        let Flight { host, process, incarnation, resource, token, lock_delay, .. } = *flight;
        let names = flight.names.clone();
        let again = self.number();
        self.flights.insert(
            again,
            Flight {
                host,
                process,
                incarnation,
                resource,
                token,
                names,
                held: None,
                phase: Phase::Admitted,
                left: 0,
                lock_delay,
                swept: true,
                draw: 0,
                took_effect: false,
                bounded: false,
            },
        );
        let delay = self.dice.below(20 * MILLI);
        self.set_after(delay, Event::Write { flight: again });
    }

    pub(crate) fn head_arrives(&mut self, id: u64) {
        self.drop_guard(id);
    }

    pub(crate) fn hang_up(&mut self, id: u64) {
        self.drop_guard(id);
    }

    fn drop_guard(&mut self, id: u64) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        let host = flight.host;
        drop(flight.held.take());
        self.poke(host);
    }

    /// Not a byte was sent.
    fn abandon(&mut self, id: u64) {
        self.tally.not_sent += 1;
        if let Some(flight) = self.flights.get_mut(&id) {
            flight.bounded = true;
            flight.took_effect = true;
        }
        self.done(id);
    }

    /// The outcome is unknown: the guard stays for D, or until an operator says so.
    fn send_to_limbo(&mut self, id: u64) {
        let (dropped, early) = (self.is(Control::GuardDroppedAtCut), self.is(Control::BlockedAtTheCut));
        let Some(flight) = self.flights.get_mut(&id) else { return };
        flight.phase = Phase::Limbo;
        let (host, delay) = (flight.host, flight.lock_delay);
        let at_once = dropped || (self.plan.blocks[flight.resource] && early);
        let delay = if at_once { Duration::ZERO } else { delay };
        let at = self.hosts[host].clock.when(self.shown(host) + delay);
        self.set(at, Event::Release { flight: id });
    }

    /// D is over. Where outcomes are left to an operator, the guard is now kept for that.
    pub(crate) fn release(&mut self, id: u64) {
        let Some(flight) = self.flights.get_mut(&id).filter(|flight| flight.phase == Phase::Limbo) else {
            return;
        };
        if self.plan.blocks[flight.resource]
            && !matches!(self.control, Some(Control::GuardDroppedAtCut))
            && let (Some(held), Some(process)) = (flight.held.take(), &self.hosts[flight.host].process)
        {
            process.ledger.block(held.permit);
        }
        self.done(id);
    }

    /// The gateway gives the permit back.
    fn done(&mut self, id: u64) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        flight.phase = Phase::Over;
        let host = flight.host;
        drop(flight.held.take());
        self.tidy(id);
        self.poke(host);
    }

    /// Forgets what nothing can happen to any more. Effects that are planned keep it.
    fn tidy(&mut self, id: u64) {
        let over = |flight: &Flight| flight.phase == Phase::Over && flight.took_effect && flight.bounded;
        if self.flights.get(&id).is_some_and(over) {
            self.flights.remove(&id);
        }
    }

    /// A mark was raised over these: the sweeper gives them a while.
    pub(crate) fn supersede(&mut self, host: usize, resource: &Resource) {
        let Some(process) = &self.hosts[host].process else { return };
        let (number, patience) = (process.number, process.timing.drain_timeout);
        let superseded: Vec<u64> = self
            .flights
            .iter()
            .filter(|(_, flight)| flight.process == number && !flight.swept)
            .filter(|(_, flight)| flight.names.contains(resource))
            .filter(|(_, flight)| flight.held.as_ref().is_some_and(|held| held.permit.is_superseded()))
            .map(|(id, _)| *id)
            .collect();
        let at = self.hosts[host].clock.when(self.shown(host) + patience);
        for id in superseded {
            if let Some(flight) = self.flights.get_mut(&id) {
                flight.swept = true;
            }
            let late = self.dice.below(25 * MILLI);
            self.set(at + late, Event::Sweep { flight: id });
        }
    }

    pub(crate) fn sweep(&mut self, id: u64) {
        self.tally.swept +=
            u64::from(self.flights.get(&id).is_some_and(|flight| flight.phase == Phase::Forwarded));
        self.cut(id);
    }

    /// Resets the connection, now.
    fn cut(&mut self, id: u64) {
        match self.flights.get(&id).map(|flight| flight.phase) {
            Some(Phase::Admitted) => self.abandon(id),
            Some(Phase::Forwarded) => {
                self.bound(id);
                self.send_to_limbo(id);
            }
            _ => {}
        }
    }

    /// Whether a client still waits for something that it sent with this token.
    pub(crate) fn is_under_way(&self, resource: usize, token: Token) -> bool {
        let flies = |flight: &Flight| matches!(flight.phase, Phase::Admitted | Phase::Forwarded);
        let of_it = |flight: &Flight| flight.resource == resource && flight.token == token && flies(flight);
        let waits = |approach: &Approach| approach.resource == resource && approach.token == token;
        let living = self.hosts.iter().filter_map(|host| host.process.as_ref());
        self.flights.values().any(of_it) || living.flat_map(|process| &process.waiting).any(waits)
    }

    fn flights_of(&self, host: usize) -> Vec<u64> {
        let number = self.hosts[host].process_number();
        let of_it = |(_, flight): &(&u64, &Flight)| flight.host == host && flight.process == number;
        self.flights.iter().filter(of_it).map(|(id, _)| *id).collect()
    }

    /// FENCE: every connection that carries a fenced request.
    pub(crate) fn cut_all(&mut self, host: usize) {
        if self.is(Control::FenceWithoutCut) {
            return;
        }
        for id in self.flights_of(host) {
            self.cut(id);
        }
    }

    /// The gateway's validity has passed, whether or not it can do anything: assumed of the upstream.
    pub(crate) fn bound_all(&mut self, host: usize) {
        for id in self.flights_of(host) {
            if self.flights.get(&id).is_some_and(|flight| flight.phase == Phase::Forwarded) {
                self.bound(id);
            }
        }
    }

    /// The process is gone, and its guards with it.
    pub(crate) fn orphan_all(&mut self, host: usize) {
        for id in self.flights_of(host) {
            let Some(flight) = self.flights.get_mut(&id) else { continue };
            let phase = std::mem::replace(&mut flight.phase, Phase::Over);
            drop(flight.held.take());
            match phase {
                Phase::Admitted => {
                    flight.bounded = true;
                    flight.took_effect = true;
                }
                Phase::Forwarded => self.bound(id),
                Phase::Limbo | Phase::Over => {}
            }
            self.tidy(id);
        }
    }
}
