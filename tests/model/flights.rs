//! Requests that were forwarded: when they take effect, how they end, and who still waits for them.

use highgate::replica::{Incarnation, Input, Revision, Time};
use highgate_elector::Token;

use crate::control::Control;
use crate::gateway::Deed;
use crate::naming::NameSet;
use crate::time::{HALF, TIMING};
use crate::world::{Protocol, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flight {
    pub(crate) gateway: usize,
    pub(crate) incarnation: Incarnation,
    pub(crate) token: u64,
    /// Under which it holds a place.
    pub(crate) names: NameSet,
    /// It was admitted by a table that is not in force any more.
    pub(crate) outdated: bool,
    /// The gateway counts it as under way.
    pub(crate) guard: bool,
    /// Writes that are still to come until the upstream has the whole request.
    left: u8,
    /// It has taken effect.
    pub(crate) effect: bool,
    /// It was cut, or its gateway was lost: it takes effect until then or never.
    bound: Option<Time>,
    /// When the gateway takes it for over.
    over_at: Option<Time>,
    /// Sent again by a client that should not have.
    resent: bool,
}

impl Flight {
    pub(crate) fn may_take_effect(&self, now: Time) -> bool {
        !self.effect && self.bound.is_none_or(|bound| now <= bound)
    }

    /// Whether a request of another token may not be forwarded beside it.
    pub(crate) fn is_under_way(&self, now: Time) -> bool {
        self.bound.is_none() || self.may_take_effect(now)
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.bound.is_some()
    }

    /// The upstream has all of it, and may answer.
    pub(crate) fn is_whole(&self) -> bool {
        self.left == 0
    }

    /// The gateway has more of it to write, and has not given it up.
    pub(crate) fn goes_on(&self) -> bool {
        self.left > 0 && self.guard && self.over_at.is_none()
    }

    pub(crate) fn is_over_at(&self, now: Time) -> bool {
        self.guard && self.over_at.is_some_and(|over| over <= now)
    }

    /// Nobody has anything to do with it any more.
    fn is_gone(&self, now: Time) -> bool {
        !self.guard && !self.is_under_way(now)
    }

    /// From now on the upstream has D.
    fn bound_by(&mut self, latest: Time) {
        self.bound = Some(self.bound.map_or(latest, |bound| bound.min(latest)));
    }
}

impl Protocol {
    /// Admitted under each of its names, and written: what lies between is shorter than what is left of the validity.
    pub(crate) fn pass(&self, world: &mut World, gateway: usize, token: u64) {
        let Some(me) = world.gateways[gateway].session().map(|session| session.me) else { return };
        let Some(admitted) = Token::new(token) else { return };
        let unguarded = self.control == Some(Control::CheckThenAct);
        if !world.gateways[gateway].passes(token) {
            return;
        }
        let names = world.gateways[gateway].table.names;
        world.gateways[gateway].change(|gateway| {
            for gate in names.iter().map(|name| name as usize) {
                gateway.gates[gate].admit(admitted).expect("it was seen open at this token");
                if unguarded {
                    let _ = gateway.gates[gate].release();
                }
            }
        });
        world.spent.requests += 1;
        world.judge_forward(self.control, gateway, token, names);
        world.flights.push(Flight {
            gateway,
            incarnation: me,
            token,
            names,
            outdated: false,
            guard: !unguarded,
            left: self.setting.writes - 1,
            effect: false,
            bound: None,
            over_at: None,
            resent: false,
        });
    }

    /// What comes next of a request's body. The incarnation that admitted it has to be valid still, or it is cut: others
    /// may have waited for the end of its validity, and count on nothing being written after it.
    pub(crate) fn write(&self, world: &mut World, index: usize) {
        let (now, Flight { gateway, incarnation, .. }) = (world.now(), world.flights[index]);
        let session = world.gateways[gateway].session();
        let holds = session.is_some_and(|session| session.me == incarnation && now < session.valid);
        if !holds && self.control != Some(Control::NoCheckBetweenChunks) {
            return self.cut(world, index);
        }
        let flight = &mut world.flights[index];
        flight.left -= 1;
        if flight.is_cut() {
            // The upstream has waited for it, however long it took.
            flight.bound = Some(latest_effect(self.control, now));
        }
    }

    pub(crate) fn take_effect(&self, world: &mut World, index: usize) {
        world.flights[index].effect = true;
        let token = world.flights[index].token;
        world.judge_effect(token);
    }

    /// It takes effect at the last moment, and its response ends.
    pub(crate) fn complete(&self, world: &mut World, index: usize) {
        let flight = world.flights.swap_remove(index);
        world.judge_effect(flight.token);
        if flight.guard {
            self.give_back(world, flight.gateway, flight.names);
        }
    }

    /// The connection is reset, or was broken off: what was sent may take effect for D.
    pub(crate) fn cut(&self, world: &mut World, index: usize) {
        let (now, control) = (world.now(), self.control);
        let flight = &mut world.flights[index];
        flight.bound_by(latest_effect(control, now));
        flight.over_at = Some(now + TIMING.lock_delay);
        let flight = *flight;
        if control == Some(Control::ClientRetriesOn) && !flight.resent {
            let again = Flight { guard: false, bound: None, over_at: None, resent: true, ..flight };
            world.flights.push(again);
        }
        if control == Some(Control::GuardDroppedAtTheCut) {
            self.drop_guard(world, index);
        }
    }

    /// A whole response that says only that somebody on the way gave up waiting: what was sent may take effect for D.
    pub(crate) fn answer_unknown(&self, world: &mut World, index: usize) {
        let (now, control) = (world.now(), self.control);
        let flight = &mut world.flights[index];
        flight.bound_by(latest_effect(control, now));
        flight.over_at = Some(now + TIMING.lock_delay);
        if control == Some(Control::GatewayTimeoutIsAnAnswer) {
            self.drop_guard(world, index);
        }
    }

    /// D is over since the cut, or since an answer that leaves the outcome unknown.
    pub(crate) fn release(&self, world: &mut World, index: usize) {
        self.drop_guard(world, index);
    }

    pub(crate) fn drop_guard(&self, world: &mut World, index: usize) {
        let flight = &mut world.flights[index];
        if std::mem::take(&mut flight.guard) {
            let (gateway, names) = (flight.gateway, flight.names);
            self.give_back(world, gateway, names);
        }
    }

    fn give_back(&self, world: &mut World, gateway: usize, names: NameSet) {
        self.with_gateway(world, gateway, |gateway, moment| {
            let mut deeds = Vec::new();
            for name in names.iter() {
                if gateway.gates[name as usize].release() {
                    gateway.left(moment, name, &mut deeds);
                }
            }
            ((), deeds)
        });
    }

    /// What is under way here was admitted by another table than the one in force.
    pub(crate) fn outdate(&self, world: &mut World, gateway: usize) {
        for flight in world.flights.iter_mut().filter(|flight| flight.gateway == gateway) {
            flight.outdated = true;
        }
    }

    /// The change of names whose new names everything under way at this gateway has, if it has not said so yet.
    pub(crate) fn names_to_acknowledge(&self, world: &World, gateway: usize) -> Option<Revision> {
        let lacks = |flight: &Flight| flight.gateway == gateway && flight.guard && flight.outdated;
        let lacking = world.flights.iter().any(lacks);
        world.gateways[gateway].names_to_acknowledge(self.control, lacking)
    }

    pub(crate) fn acknowledge_names(&self, world: &mut World, gateway: usize) {
        if let Some(revision) = self.names_to_acknowledge(world, gateway) {
            self.input(world, gateway, Input::NamesKnown { revision });
        }
    }

    /// FENCE: what is under way is cut; its guards stay for D.
    pub(crate) fn fenced(&self, world: &mut World, gateway: usize, _: Incarnation) {
        if self.control != Some(Control::FenceWithoutCutting) {
            for index in 0..world.flights.len() {
                let flight = &world.flights[index];
                if flight.gateway == gateway && flight.over_at.is_none() {
                    self.cut(world, index);
                }
            }
        }
        self.abandon_calls(world, gateway);
    }

    /// The process is gone: the kernel and the upstream have D.
    pub(crate) fn orphan(&self, world: &mut World, gateway: usize) {
        let latest = latest_effect(self.control, world.now());
        for flight in world.flights.iter_mut().filter(|flight| flight.gateway == gateway) {
            flight.bound_by(latest);
            flight.guard = false;
            flight.over_at = None;
        }
    }

    /// Whose validity is over has D from then on, whether or not anybody has told the upstream.
    pub(crate) fn bound_the_invalid(&self, world: &mut World) {
        for gateway in 0..world.gateways.len() {
            let now = world.now();
            let gate = &world.gateways[gateway];
            let Some(valid) = gate.session().map(|session| session.valid).filter(|valid| *valid <= now)
            else {
                continue;
            };
            if self.control == Some(Control::FenceWithoutCutting) && !gate.stopped {
                continue;
            }
            let latest = latest_effect(self.control, valid);
            let own = world.flights.iter_mut().filter(|flight| flight.gateway == gateway);
            own.for_each(|flight| flight.bound_by(latest));
        }
    }

    /// Drops what is over.
    pub(crate) fn tidy_flights(&self, world: &mut World) {
        let now = world.now();
        world.flights.retain(|flight| !flight.is_gone(now));
    }

    /// Incarnations that are over leave as soon as nothing of theirs is under way.
    pub(crate) fn let_leavers_go(&self, world: &mut World) {
        let hasty = self.control == Some(Control::LeaveWithRequestsInFlight);
        for index in 0..world.gateways.len() {
            let gateway = &world.gateways[index];
            if gateway.leaving.is_empty() || gateway.stopped || !gateway.is_up() {
                continue;
            }
            let flights = &world.flights;
            let busy = |me: &Incarnation| {
                let own = |flight: &&Flight| flight.gateway == index && flight.incarnation == *me;
                flights.iter().filter(own).any(|flight| flight.guard)
            };
            let free: Vec<Incarnation> =
                gateway.leaving.iter().copied().filter(|me| hasty || !busy(me)).collect();
            if free.is_empty() {
                continue;
            }
            world.gateways[index].change(|gateway| gateway.leaving.retain(|me| !free.contains(me)));
            for me in free {
                self.with_gateway(world, index, |_, _| ((), vec![Deed::Send(crate::txn::Txn::Leave { me })]));
            }
        }
    }
}

fn latest_effect(control: Option<Control>, from: Time) -> Time {
    let lingers = control == Some(Control::DefaultLinger);
    from + TIMING.lock_delay + if lingers { 2 * HALF } else { Time::ZERO }
}
