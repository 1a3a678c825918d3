//! A state: everything there is at one moment; and the model that stateright explores.

use std::hash::{Hash, Hasher};

use highgate::replica::{Incarnation, Revision, Time};
use stateright::{Model, Property};

use crate::action::Action;
use crate::control::Control;
use crate::etcd::Etcd;
use crate::flights::Flight;
use crate::gateway::{Deed, Gateway, Moment};
use crate::hooks::Broken;
use crate::judge::Violation;
use crate::kept::{Kept, digest};
use crate::naming::{Document, Name};
use crate::setting::{Limits, Setting};
use crate::sights::Notes;
use crate::time::at;
use crate::wire::Call;

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) tick: u8,
    pub(crate) etcd: Kept<Etcd>,
    pub(crate) gateways: Vec<Kept<Gateway>>,
    /// What is on its way to etcd and back, in no order.
    pub(crate) calls: Vec<Call>,
    /// Forwarded requests, in no order.
    pub(crate) flights: Vec<Flight>,
    /// Every token that was ever issued: whoever had one may still use it.
    pub(crate) tokens: Vec<u64>,
    pub(crate) spent: Limits,
    /// When members were evicted.
    pub(crate) evicted: Vec<(Incarnation, Revision, Time)>,
    /// The highest token that was forwarded, and that took effect.
    pub(crate) forwarded: u64,
    pub(crate) effected: u64,
    pub(crate) notes: Notes,
    pub(crate) violation: Option<Violation>,
}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { tick, etcd, gateways, calls, flights, tokens, spent, evicted, .. } = self;
        (tick, etcd, gateways, tokens, spent, evicted).hash(state);
        (in_no_order(calls), in_no_order(flights)).hash(state);
        (self.forwarded, self.effected, self.notes, self.violation).hash(state);
    }
}

impl PartialEq for World {
    /// Stateright tells states apart by their hashes; so does this.
    fn eq(&self, other: &Self) -> bool {
        digest(self) == digest(other)
    }
}

fn in_no_order<T: Hash>(items: &[T]) -> u64 {
    items.iter().map(digest).fold(items.len() as u64, u64::wrapping_add)
}

/// The model: a setting, and the rule that is broken in it, if any.
pub(crate) struct Protocol {
    pub(crate) setting: Setting,
    pub(crate) control: Broken,
    /// Where every path begins.
    begin: World,
    /// What an operator would restore: the first token is open, and nobody is a member.
    backup: Etcd,
}

impl Protocol {
    pub(crate) fn new(setting: Setting, control: Broken) -> Self {
        // Replicas that share nothing would not get to know the first token together.
        let shares = control.filter(|control| *control != Control::PerReplicaCache);
        let empty = Self { setting, control: shares, begin: World::empty(&setting), backup: Etcd::default() };
        let begin = empty.warmed_up();
        let mut backup = Etcd::clone(&begin.etcd);
        backup.members.clear();
        backup.candidates.clear();
        let warm = Self { setting, control, begin, backup };
        Self { begin: warm.after_prelude(), ..warm }
    }

    pub(crate) fn backup(&self) -> Etcd {
        self.backup.clone()
    }

    pub(crate) fn last_tick(&self) -> u8 {
        self.begin.tick + 2 * self.setting.halves
    }

    pub(crate) fn moment(&self, world: &World) -> Moment {
        Moment { now: at(world.tick), control: self.control }
    }

    /// All gateways join, the first leader is elected, and its mark opens everywhere.
    fn warmed_up(&self) -> World {
        let mut world = self.begin.clone();
        for gateway in 0..self.setting.up {
            self.start(&mut world, gateway);
            self.settle(&mut world);
        }
        if self.setting.issued {
            self.stand(&mut world);
        } else {
            self.issue_trusted(&mut world);
            let token = world.tokens[0];
            self.claim(&mut world, 0, token);
        }
        let up = self.setting.up;
        self.settle(&mut world);
        while !world.gateways[..up].iter().all(|gateway| gateway.gate(Name::Old).is_open()) {
            assert!(world.tick < 12, "the first token does not open: {world:#?}");
            self.tick(&mut world);
            self.settle(&mut world);
        }
        if self.setting.aloft {
            let token = world.tokens[0];
            self.pass(&mut world, up - 1, token);
        }
        World { spent: self.setting.limits.unspent(), notes: Notes::default(), ..world }
    }

    fn after_prelude(&self) -> World {
        let mut world = self.begin.clone();
        for action in self.setting.prelude {
            if *action == Action::Tick {
                self.settle(&mut world);
            }
            self.act(&mut world, *action);
        }
        world
    }

    /// Everything that has to be done before time goes on, in one order of many.
    fn settle(&self, world: &mut World) {
        while let Some(duty) = self.duties(world).into_iter().next() {
            self.act(world, duty);
        }
    }

    pub(crate) fn with_gateway<R>(
        &self,
        world: &mut World,
        gateway: usize,
        change: impl FnOnce(&mut Gateway, Moment) -> (R, Vec<Deed>),
    ) -> R {
        let moment = self.moment(world);
        let (result, deeds) = world.gateways[gateway].change(|gateway| change(gateway, moment));
        for deed in deeds {
            self.carry_out(world, gateway, deed);
        }
        result
    }

    fn carry_out(&self, world: &mut World, gateway: usize, deed: Deed) {
        match deed {
            Deed::Send(txn) => self.send(world, gateway, txn),
            Deed::Lasts(me, until) => world.judge_validity(self.control, me, until),
            Deed::Fenced(me) => self.fenced(world, gateway, me),
            Deed::TableReplaced => self.outdate(world, gateway),
        }
    }
}

impl World {
    fn empty(setting: &Setting) -> Self {
        let names = (setting.limits.reloads > 0).then(Document::first);
        Self {
            tick: 2,
            etcd: Kept::new(Etcd::new(names)),
            gateways: (0..setting.gateways).map(|index| Kept::new(Gateway::new(index))).collect(),
            calls: Vec::new(),
            flights: Vec::new(),
            tokens: Vec::new(),
            spent: Limits::default(),
            evicted: Vec::new(),
            forwarded: 0,
            effected: 0,
            notes: Notes::default(),
            violation: None,
        }
    }

    pub(crate) fn now(&self) -> Time {
        at(self.tick)
    }

    /// Whether the resource is called so anywhere.
    pub(crate) fn is_known_by(&self, name: Name) -> bool {
        let is_checked = |gateway: &Kept<Gateway>| gateway.table.names.contains(name);
        self.etcd.records[name as usize].modified > 0 || self.gateways.iter().any(is_checked)
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.begin.clone()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.violation.is_none() {
            self.possible(world, actions);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        self.act(&mut next, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        crate::judge::properties(&self.setting)
    }
}
