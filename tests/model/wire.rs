//! Between gateways and etcd: what was sent, what was run, and what is answered.

use highgate::replica::{Answer, Applied, Change, Incarnation, Input, Record, Time};

use crate::control::Control;
use crate::naming::{ByName, listed};
use crate::setting::Fault;
use crate::txn::{Putter, Refusal, Reply, Txn};
use crate::world::{Protocol, World};

#[derive(Clone, Debug, Hash)]
pub(crate) struct Call {
    pub(crate) from: usize,
    /// The join that it belongs to.
    session: u8,
    sent: Time,
    pub(crate) txn: Txn,
    pub(crate) stage: Stage,
    /// For the control that loads the marks before it registers.
    early: Option<ByName<Record>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// It is run and answered before time goes on.
    Sent,
    /// It is run at some time, and answered then.
    Held,
    /// It was run, and is heard of as soon as the process runs; or whenever the network likes.
    Answered(Heard),
    AnsweredSlowly(Heard),
    /// Whoever sent it has given it up. It may be run at any time, or never.
    Abandoned,
}

/// An answer that is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Heard {
    Renewed(bool),
    Proposed(Option<Refusal>),
    Named(bool),
    /// It never comes.
    Nothing,
}

impl Call {
    /// Whether this fault makes a difference to it.
    pub(crate) fn takes(&self, fault: Fault) -> bool {
        match fault {
            Fault::SlowAnswer => matches!(self.txn, Txn::Renew { .. }),
            Fault::Twice => !matches!(self.txn, Txn::List | Txn::Renew { .. }),
            _ => self.txn != Txn::List,
        }
    }
}

impl Protocol {
    pub(crate) fn send(&self, world: &mut World, from: usize, txn: Txn) {
        let loads = self.control == Some(Control::LoadBeforeRegister) && matches!(txn, Txn::Join { .. });
        let early = loads.then_some(world.etcd.records);
        let session = world.gateways[from].joins;
        world.calls.push(Call { from, session, sent: world.now(), txn, stage: Stage::Sent, early });
    }

    pub(crate) fn serve(&self, world: &mut World, index: usize) {
        let call = world.calls.swap_remove(index);
        let reply = self.execute(world, &call.txn);
        self.hear_reply(world, call, reply);
    }

    /// The sender stands still, and hears of it later.
    pub(crate) fn serve_unheard(&self, world: &mut World, index: usize) {
        world.calls[index].stage = Stage::Answered(self.heard_later(world, index));
    }

    fn heard_later(&self, world: &mut World, index: usize) -> Heard {
        let txn = world.calls[index].txn.clone();
        match self.execute(world, &txn) {
            Reply::Renewed(accepted) => Heard::Renewed(accepted),
            Reply::Proposed(refusal) => Heard::Proposed(refusal),
            Reply::Named(done) => Heard::Named(done),
            _ => Heard::Nothing,
        }
    }

    pub(crate) fn answer(&self, world: &mut World, index: usize) {
        let call = world.calls.swap_remove(index);
        match call.stage {
            Stage::Answered(Heard::Renewed(accepted)) | Stage::AnsweredSlowly(Heard::Renewed(accepted)) => {
                self.hear_reply(world, call, Reply::Renewed(accepted));
            }
            Stage::Answered(Heard::Proposed(refusal)) => {
                self.hear_reply(world, call, Reply::Proposed(refusal));
            }
            Stage::Answered(Heard::Named(done)) => self.hear_reply(world, call, Reply::Named(done)),
            _ => self.hear_nothing(world, &call),
        }
    }

    pub(crate) fn run_late(&self, world: &mut World, index: usize) {
        let call = world.calls.swap_remove(index);
        self.execute(world, &call.txn);
    }

    pub(crate) fn execute(&self, world: &mut World, txn: &Txn) -> Reply {
        let (before, members) = (world.etcd.records, world.etcd.members.clone());
        let revision = world.etcd.revision;
        let reply = world.etcd.change(|etcd| etcd.run(txn, self.control));
        world.judge_marks(&self.setting, self.control, &before);
        if let (Txn::PutNames { names, .. }, Reply::Named(true)) = (txn, &reply) {
            world.note_names(names.is_changing());
        }
        if let (Txn::Renew { me, .. }, Reply::Renewed(true)) = (txn, &reply)
            && world.etcd.revision == revision
        {
            self.hear_of_life(world, *me);
        }
        if let Txn::Evict { member, tombstone, .. } = txn
            && members.contains_key(member)
            && !world.etcd.members.contains_key(member)
        {
            world.note_eviction(*member, tombstone.created);
        }
        reply
    }

    /// A renewal that says nothing new: whoever hears at all hears of it at once, which only makes it more patient.
    fn hear_of_life(&self, world: &mut World, me: Incarnation) {
        let Some(member) = world.etcd.members.get(&me).cloned() else { return };
        for index in 0..world.gateways.len() {
            let gateway = &world.gateways[index];
            let is_up_to_date = gateway.session().is_some_and(|session| {
                session.me != me && session.hears() && session.next > world.etcd.revision
            });
            if is_up_to_date && !gateway.lags && !gateway.stopped {
                let changes = vec![Change::Member(me, member.clone())];
                self.input(world, index, Input::Applied(Applied { changes, ..Applied::default() }));
            }
        }
    }

    /// What is harmed is a call that was sent and not run yet.
    pub(crate) fn harm_call(&self, world: &mut World, fault: Fault, index: usize) {
        match fault {
            Fault::Late => world.calls[index].stage = Stage::Held,
            Fault::SlowAnswer => {
                world.calls[index].stage = Stage::AnsweredSlowly(self.heard_later(world, index));
            }
            Fault::Twice => {
                let again = Call { stage: Stage::Abandoned, ..world.calls[index].clone() };
                self.serve(world, index);
                world.calls.push(again);
            }
            _ => {
                world.calls[index].stage = Stage::Abandoned;
                let call = world.calls[index].clone();
                self.hear_nothing(world, &call);
            }
        }
    }

    /// Of a session that is over: what was late may still be run, and nobody waits for it.
    pub(crate) fn abandon_calls(&self, world: &mut World, gateway: usize) {
        let is_late = |call: &Call| matches!(call.stage, Stage::Held | Stage::Abandoned);
        world.calls.retain(|call| call.from != gateway || is_late(call));
        for call in world.calls.iter_mut().filter(|call| call.from == gateway) {
            call.stage = Stage::Abandoned;
        }
    }

    fn is_current(&self, world: &World, call: &Call) -> bool {
        world.gateways[call.from].joins == call.session
    }

    fn hear_reply(&self, world: &mut World, call: Call, reply: Reply) {
        if !self.is_current(world, &call) {
            return;
        }
        let Call { from, sent, txn, early, .. } = call;
        match (txn, reply) {
            (Txn::Join { me, .. }, Reply::Joined(created, mut loaded)) => {
                if let (Some(early), false) = (early, loaded.snapshot.records.is_empty()) {
                    loaded.snapshot.records = listed(&early);
                }
                let knows_names = world.gateways[from].may_serve_with(loaded.names.as_ref());
                // Validity counts from when it was sent: who was answered late tries again.
                let Some(created) = created.filter(|_| sent == world.now() && knows_names) else {
                    return self.join_failed(world, from, me);
                };
                world.notes.joined(world.gateways[from].joins);
                self.with_gateway(world, from, |gateway, moment| {
                    ((), gateway.joined(moment, me, created, *loaded))
                });
            }
            (Txn::List, Reply::Listed(loaded)) => {
                self.with_gateway(world, from, |gateway, moment| ((), gateway.listed(moment, *loaded)));
            }
            (Txn::Renew { .. }, Reply::Renewed(accepted)) => self.renewed(world, from, sent, accepted),
            (Txn::Propose { proposal, .. }, Reply::Proposed(Some(refusal))) => {
                let (resource, seen) = (proposal.resource, proposal.seen);
                match refusal {
                    Refusal::Is(modified) => {
                        self.input(world, from, Input::Refused { resource, seen, modified });
                    }
                    Refusal::OtherEra => self.with_gateway(world, from, |gateway, _| ((), gateway.end())),
                }
            }
            (Txn::Forget { name, .. }, Reply::NothingToForget) => {
                self.with_gateway(world, from, |gateway, moment| ((), gateway.forgotten(moment, name)));
            }
            (Txn::PutNames { era, by: Putter::Joiner(me), .. }, Reply::Named(true)) => {
                self.send(world, from, Txn::Join { me, era });
            }
            (Txn::PutNames { by, .. }, Reply::Named(false)) => self.names_not_put(world, from, by),
            _ => {}
        }
    }

    fn renewed(&self, world: &mut World, from: usize, sent: Time, accepted: bool) {
        let late = self.control == Some(Control::ValidityFromTheAnswer);
        let sent = if late { world.now() } else { sent };
        let answer = if accepted { Answer::Accepted } else { Answer::Refused };
        self.input(world, from, Input::Renewed { sent, answer });
    }

    fn hear_nothing(&self, world: &mut World, call: &Call) {
        if !self.is_current(world, call) {
            return;
        }
        match &call.txn {
            Txn::Join { me, .. } => self.join_failed(world, call.from, *me),
            Txn::Renew { .. } => {
                self.input(world, call.from, Input::Renewed { sent: call.sent, answer: Answer::Lost });
            }
            Txn::Propose { proposal, .. } => {
                let (resource, seen) = (proposal.resource.clone(), proposal.seen);
                self.input(world, call.from, Input::Failed { resource, seen });
            }
            Txn::PutNames { by, .. } => self.names_not_put(world, call.from, *by),
            Txn::Leave { me } => {
                let me = *me;
                world.gateways[call.from].change(|gateway| gateway.leaving.push(me));
            }
            _ => {}
        }
    }

    fn names_not_put(&self, world: &mut World, gateway: usize, by: Putter) {
        world.gateways[gateway].change(|gateway| match by {
            Putter::Joiner(_) => gateway.stay_outside(),
            Putter::Changer => gateway.config_refused(),
            Putter::Finisher => {}
        });
    }

    fn join_failed(&self, world: &mut World, gateway: usize, me: Incarnation) {
        world.gateways[gateway].change(|gateway| gateway.join_failed(me));
    }

    pub(crate) fn input(&self, world: &mut World, gateway: usize, input: Input) {
        self.with_gateway(world, gateway, |gateway, moment| {
            let mut deeds = Vec::new();
            gateway.step(moment, input, &mut deeds);
            ((), deeds)
        });
    }

    pub(crate) fn run(&self, world: &mut World, gateway: usize) {
        self.input(world, gateway, Input::Tick);
    }

    pub(crate) fn hear(&self, world: &mut World, gateway: usize) {
        let next = world.gateways[gateway].session().map_or(u64::MAX, |session| session.next);
        let entries: Vec<_> = world.etcd.since(next).cloned().collect();
        self.with_gateway(world, gateway, |gateway, moment| {
            let mut deeds = Vec::new();
            for entry in entries {
                if !gateway.hear(moment, &entry, &mut deeds) {
                    break;
                }
            }
            ((), deeds)
        });
    }
}
