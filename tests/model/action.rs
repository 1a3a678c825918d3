//! Everything that can happen next.
//!
//! Duties are what a healthy cluster does at once: time goes on only when none is left. The rest happens or not:
//! requests and their ends, elections, and faults as far as the setting allows them.

use crate::control::Control;
use crate::faults::is_due;
use crate::flights::Flight;
use crate::gateway::{Gateway, Phase};
use crate::setting::Fault;
use crate::time::at;
use crate::wire::Stage;
use crate::world::{Protocol, World};

/// Calls and flights are named by their place in the state, gateways by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Time goes on.
    Tick,
    /// A gateway's machine does what is due.
    Run(usize),
    /// Its watch tells what it has.
    Hear(usize),
    /// A watch that was silent is so no more.
    Recover(usize),
    /// etcd runs what was sent, and the answer arrives.
    Serve(usize),
    /// etcd runs what a process has sent that stands still.
    ServeUnheard(usize),
    /// The answer arrives.
    Answer(usize),
    /// Nobody waits for it any more, and etcd runs it.
    RunLate(usize),
    /// A request arrives with a token: it passes, or asks for its mark.
    Pass(usize, u64),
    Claim(usize, u64),
    /// The next of a request's writes.
    Write(usize),
    /// What was cut takes effect all the same.
    Effect(usize),
    /// It takes effect, and its response ends.
    Complete(usize),
    /// A superseded request is cut.
    Cut(usize),
    /// What was cut is over.
    Release(usize),
    /// Another leader is elected; one is gone; one has its own mark raised.
    Stand,
    Lapse,
    RaiseByElector,
    /// A process that is not a member joins.
    Start(usize),
    /// A gateway is given the other config, or tries again to put into force what it was given.
    Reload(usize),
    /// Everything under way at a gateway has the new names, and it says so.
    AcknowledgeNames(usize),
    /// A process goes on.
    Continue(usize),
    Harm(Fault, usize),
    /// Of broken rules: the client hangs up; the head of the answer arrives.
    HangUp(usize),
    Head(usize),
}

impl Protocol {
    pub(crate) fn possible(&self, world: &World, actions: &mut Vec<Action>) {
        let duties = self.duties(world);
        if duties.is_empty() && world.tick < self.last_tick() {
            actions.push(Action::Tick);
        }
        actions.extend(duties);
        self.chances_of_calls(world, actions);
        self.chances_of_gateways(world, actions);
        self.chances_of_requests(world, actions);
        self.chances_of_elections(world, actions);
    }

    /// What has to be done before time goes on.
    pub(crate) fn duties(&self, world: &World) -> Vec<Action> {
        let mut duties = Vec::new();
        for (index, gateway) in runs(world) {
            if is_due(world, index) {
                duties.push(Action::Run(index));
            }
            if !gateway.lags && has_news(world, gateway) {
                duties.push(Action::Hear(index));
            }
            if self.names_to_acknowledge(world, index).is_some() {
                duties.push(Action::AcknowledgeNames(index));
            }
        }
        for (index, call) in world.calls.iter().enumerate() {
            match (call.stage, world.gateways[call.from].stopped) {
                (Stage::Sent, false) => duties.push(Action::Serve(index)),
                (Stage::Sent, true) => duties.push(Action::ServeUnheard(index)),
                (Stage::Answered(_), false) => duties.push(Action::Answer(index)),
                _ => {}
            }
        }
        let is_over = |flight: &Flight| flight.is_over_at(world.now()) && is_running(world, flight.gateway);
        let over = world.flights.iter().enumerate().filter(|(_, flight)| is_over(flight));
        duties.extend(over.map(|(index, _)| Action::Release(index)));
        duties
    }

    fn chances_of_calls(&self, world: &World, actions: &mut Vec<Action>) {
        for (index, call) in world.calls.iter().enumerate() {
            let running = !world.gateways[call.from].stopped;
            match call.stage {
                Stage::Held if running => actions.push(Action::Serve(index)),
                Stage::AnsweredSlowly(_) if running => actions.push(Action::Answer(index)),
                Stage::Abandoned => actions.push(Action::RunLate(index)),
                _ => {}
            }
            if call.stage == Stage::Sent && running {
                let faults = [Fault::Late, Fault::Ambiguous, Fault::Twice, Fault::SlowAnswer];
                let faults = faults.into_iter().filter(|fault| call.takes(*fault));
                let faults = faults.filter(|fault| self.is_allowed(world, *fault));
                actions.extend(faults.map(|fault| Action::Harm(fault, index)));
            }
        }
    }

    fn chances_of_gateways(&self, world: &World, actions: &mut Vec<Action>) {
        for (index, gateway) in world.gateways.iter().enumerate() {
            if gateway.stopped {
                actions.push(Action::Continue(index));
                continue;
            }
            let news = has_news(world, gateway);
            if gateway.lags {
                actions.push(Action::Recover(index));
            }
            if matches!(gateway.phase, Phase::Down | Phase::Outside) && gateway.joins < self.setting.joins {
                actions.push(Action::Start(index));
            }
            if self.may_reload(world, gateway) {
                actions.push(Action::Reload(index));
            }
            let faults = [Fault::Crash, Fault::Stop, Fault::Lag, Fault::Miss];
            let makes_sense = |fault: &Fault| match fault {
                Fault::Lag => gateway.session().is_some() && !gateway.lags,
                Fault::Miss => news,
                _ => gateway.is_up(),
            };
            let faults = faults.into_iter().filter(makes_sense);
            let faults = faults.filter(|fault| self.is_allowed(world, *fault));
            actions.extend(faults.map(|fault| Action::Harm(fault, index)));
        }
        let faults = [Fault::NewEra, Fault::Restore];
        let faults = faults.into_iter().filter(|fault| self.is_allowed(world, *fault));
        actions.extend(faults.map(|fault| Action::Harm(fault, 0)));
    }

    fn may_reload(&self, world: &World, gateway: &Gateway) -> bool {
        if gateway.file != gateway.table.own {
            return gateway.may_change_config();
        }
        world.spent.reloads < self.setting.limits.reloads
    }

    fn chances_of_requests(&self, world: &World, actions: &mut Vec<Action>) {
        for (index, gateway) in runs(world) {
            for token in &world.tokens {
                if world.spent.requests < self.setting.limits.requests && passes(world, gateway, *token) {
                    actions.push(Action::Pass(index, *token));
                }
                if index < self.setting.claims && self.claimable(world, gateway, *token).is_some() {
                    actions.push(Action::Claim(index, *token));
                }
            }
        }
        for (index, flight) in world.flights.iter().enumerate() {
            self.chances_of_flight(world, index, flight, actions);
        }
    }

    fn chances_of_flight(&self, world: &World, index: usize, flight: &Flight, actions: &mut Vec<Action>) {
        let running = is_running(world, flight.gateway);
        if running && flight.goes_on() {
            actions.push(Action::Write(index));
        }
        if flight.is_cut() {
            if flight.may_take_effect(world.now()) {
                actions.push(Action::Effect(index));
            }
            return;
        }
        // What was not cut takes effect together with the end of its response: until then it is under way anyway.
        if running && flight.is_whole() {
            actions.push(Action::Complete(index));
        }
        if running && self.is_allowed(world, Fault::GatewayTimeout) {
            actions.push(Action::Harm(Fault::GatewayTimeout, index));
        }
        let gateway = &world.gateways[flight.gateway];
        if running && flight.names.iter().any(|name| flight.token < gateway.gate(name).token()) {
            actions.push(Action::Cut(index));
        } else if running && self.is_allowed(world, Fault::Break) {
            actions.push(Action::Harm(Fault::Break, index));
        }
        match self.control {
            Some(Control::GuardDroppedOnDisconnect) if flight.guard => actions.push(Action::HangUp(index)),
            Some(Control::GuardDroppedAtTheHead) if flight.guard => actions.push(Action::Head(index)),
            _ => {}
        }
    }

    fn chances_of_elections(&self, world: &World, actions: &mut Vec<Action>) {
        if !self.setting.issued {
            return;
        }
        if world.tokens.len() < self.setting.tokens && world.etcd.candidates.len() < 2 {
            actions.push(Action::Stand);
        }
        // Whoever is gone for good is not replaced by nobody: the last candidate stays.
        if world.etcd.candidates.len() > 1 || world.tokens.len() < self.setting.tokens {
            actions.extend(world.etcd.head().map(|_| Action::Lapse));
        }
        if self.setting.electors && self.may_raise(world) {
            actions.push(Action::RaiseByElector);
        }
    }

    pub(crate) fn act(&self, world: &mut World, action: Action) {
        match action {
            Action::Tick => self.tick(world),
            Action::Run(gateway) => self.run(world, gateway),
            Action::Hear(gateway) => self.hear(world, gateway),
            Action::Recover(gateway) => world.gateways[gateway].change(|gateway| gateway.lags = false),
            Action::Serve(call) => self.serve(world, call),
            Action::ServeUnheard(call) => self.serve_unheard(world, call),
            Action::Answer(call) => self.answer(world, call),
            Action::RunLate(call) => self.run_late(world, call),
            Action::Pass(gateway, token) => self.pass(world, gateway, token),
            Action::Claim(gateway, token) => self.claim(world, gateway, token),
            Action::Write(flight) => self.write(world, flight),
            Action::Effect(flight) => self.take_effect(world, flight),
            Action::Complete(flight) => self.complete(world, flight),
            Action::Cut(flight) => self.cut(world, flight),
            Action::Release(flight) => self.release(world, flight),
            Action::Stand => self.stand(world),
            Action::Lapse => self.lapse(world),
            Action::RaiseByElector => self.raise_by_elector(world),
            Action::Start(gateway) => self.start(world, gateway),
            Action::Reload(gateway) => self.reload(world, gateway),
            Action::AcknowledgeNames(gateway) => self.acknowledge_names(world, gateway),
            Action::Continue(gateway) => world.gateways[gateway].change(|gateway| gateway.stopped = false),
            Action::Harm(fault, victim) => self.harm(world, fault, victim),
            Action::HangUp(flight) | Action::Head(flight) => self.drop_guard(world, flight),
        }
        self.tidy(world);
    }
}

/// Gateways whose process runs.
fn runs(world: &World) -> impl Iterator<Item = (usize, &Gateway)> {
    let all = world.gateways.iter().enumerate();
    all.filter(|(_, gateway)| gateway.is_up() && !gateway.stopped).map(|(index, gateway)| (index, &**gateway))
}

fn is_running(world: &World, gateway: usize) -> bool {
    world.gateways[gateway].is_up() && !world.gateways[gateway].stopped
}

fn has_news(world: &World, gateway: &Gateway) -> bool {
    gateway.session().is_some_and(|session| session.hears() && session.next <= world.etcd.revision)
}

/// The gate passes this token, and the gateway is valid.
fn passes(world: &World, gateway: &Gateway, token: u64) -> bool {
    let valid = gateway.session().is_some_and(|session| at(world.tick) < session.valid);
    valid && gateway.passes(token)
}
