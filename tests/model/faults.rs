//! What goes wrong, and time.

use highgate::replica::Revision;
use highgate_elector::Token;

use crate::gateway::Gateway;
use crate::setting::Fault;
use crate::world::{Protocol, World};

impl Protocol {
    pub(crate) fn is_allowed(&self, world: &World, fault: Fault) -> bool {
        let limits = &self.setting.limits;
        world.spent.total < limits.total && world.spent.of(fault) < limits.of(fault)
    }

    pub(crate) fn harm(&self, world: &mut World, fault: Fault, victim: usize) {
        world.spent.spend(fault);
        match fault {
            Fault::Crash => self.crash(world, victim),
            Fault::Stop => world.gateways[victim].change(|gateway| gateway.stopped = true),
            Fault::Lag => world.gateways[victim].change(|gateway| gateway.lags = true),
            Fault::Miss => world.gateways[victim].change(|gateway| gateway.miss()),
            Fault::Break => self.cut(world, victim),
            Fault::GatewayTimeout => self.answer_unknown(world, victim),
            Fault::NewEra => self.bump_era(world),
            Fault::Restore => self.restore(world),
            Fault::Late | Fault::Ambiguous | Fault::Twice | Fault::SlowAnswer => {
                self.harm_call(world, fault, victim);
            }
        }
    }

    pub(crate) fn tick(&self, world: &mut World) {
        world.tick += 1;
        self.bound_the_invalid(world);
        // Timers are on time wherever a process runs; being late is a fault.
        for gateway in 0..world.gateways.len() {
            if is_due(world, gateway) {
                self.run(world, gateway);
            }
        }
    }

    pub(crate) fn start(&self, world: &mut World, gateway: usize) {
        let etcd = world.etcd.clone();
        let join = world.gateways[gateway].change(|gateway| gateway.join(&etcd, self.control));
        if let Some(txn) = join {
            self.send(world, gateway, txn);
        }
    }

    fn crash(&self, world: &mut World, gateway: usize) {
        world.notes.crashed();
        self.orphan(world, gateway);
        self.abandon_calls(world, gateway);
        world.gateways[gateway].change(Gateway::crash);
    }

    /// An operator gives a gateway the other config; or it tries again to put into force the one that it was given.
    pub(crate) fn reload(&self, world: &mut World, gateway: usize) {
        if world.gateways[gateway].file == world.gateways[gateway].table.own {
            world.spent.reloads += 1;
            world.gateways[gateway].change(|gateway| gateway.file = gateway.file.other());
        }
        self.with_gateway(world, gateway, |gateway, moment| ((), gateway.change_config(moment)));
    }

    fn bump_era(&self, world: &mut World) {
        world.etcd.change(|etcd| etcd.bump_era(self.control));
        self.issue_trusted(world);
        let standing = world.etcd.candidates.iter().filter_map(|candidate| world.etcd.token_of(*candidate));
        let tokens: Vec<u64> = standing.map(Token::get).collect();
        world.tokens.extend(tokens);
    }

    /// From a backup, with a new era. Whoever was a member hears nothing of it but refusals.
    fn restore(&self, world: &mut World) {
        let mut etcd = self.backup();
        etcd.forget_log_before(Revision::MAX);
        etcd.bump_era(self.control);
        world.etcd.change(|live| *live = etcd);
        self.issue_trusted(world);
        for gateway in &mut world.gateways {
            gateway.change(|gateway| gateway.go_deaf());
        }
    }

    /// What follows from an action without anybody's doing, and what nobody will ask for again.
    pub(crate) fn tidy(&self, world: &mut World) {
        self.tidy_flights(world);
        self.let_leavers_go(world);
        let heard = world.gateways.iter().filter_map(|gateway| Some(gateway.session()?.next)).min();
        let heard = heard.unwrap_or(Revision::MAX);
        if world.etcd.first_in_log().is_some_and(|first| first < heard) {
            world.etcd.change(|etcd| etcd.forget_log_before(heard));
        }
    }
}

/// Whether a gateway's machine has something to do, and runs.
pub(crate) fn is_due(world: &World, gateway: usize) -> bool {
    let gateway = &world.gateways[gateway];
    let due = gateway.session().is_some_and(|session| session.replica.wake_at() <= Some(world.now()));
    due && !gateway.stopped
}
