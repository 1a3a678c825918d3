//! Leaders: candidates in etcd, whose oldest leads, or tokens that are trusted. Whoever had one may still use it.

use highgate::replica::{Record, State, floor};
use highgate_elector::Token;

use crate::control::Control;
use crate::etcd::{Candidate, Entry};
use crate::gateway::Gateway;
use crate::naming::Name;
use crate::world::{Protocol, World};

impl Protocol {
    /// Where tokens are trusted, all that there will be in an era are known from its beginning.
    pub(crate) fn issue_trusted(&self, world: &mut World) {
        if !self.setting.issued {
            let numbers = 1..=self.setting.tokens as u64;
            world.tokens.extend(numbers.map(|number| floor(world.etcd.era) + number));
        }
    }

    /// Another candidate.
    pub(crate) fn stand(&self, world: &mut World) {
        let lease = world.tokens.len() as u8 + 1;
        let candidate = Candidate { lease, created: world.etcd.revision + 1 };
        let entry = Entry { came: Some(candidate), ..Entry::default() };
        world.etcd.change(|etcd| etcd.append(false, entry));
        world.tokens.extend(world.etcd.token_of(candidate).map(Token::get));
    }

    /// The leader's lease ran out, or it resigned. Its job may not know.
    pub(crate) fn lapse(&self, world: &mut World) {
        let Some(Candidate { lease, .. }) = world.etcd.head() else { return };
        let entry = Entry { went: Some(lease), ..Entry::default() };
        world.etcd.change(|etcd| etcd.append(false, entry));
    }

    pub(crate) fn may_raise(&self, world: &World) -> bool {
        let head = world.etcd.head().and_then(|head| world.etcd.token_of(head));
        head.is_some_and(|token| token.get() > world.etcd.records[Name::Old as usize].token)
    }

    /// RAISE by the elector itself, with the proof in its transaction.
    pub(crate) fn raise_by_elector(&self, world: &mut World) {
        let Some(token) = world.etcd.head().and_then(|head| world.etcd.token_of(head)) else { return };
        let before = world.etcd.records;
        world.etcd.change(|etcd| {
            let record = Record {
                token: token.get(),
                state: State::Raised,
                vacant: false,
                issued: true,
                ..etcd.records[Name::Old as usize]
            };
            etcd.put_record(Name::Old, record);
        });
        world.judge_marks(&self.setting, self.control, &before);
    }

    /// The name for which a request with this token asks a gateway for a mark that nobody has asked it for yet. A request
    /// has to pass under one name after the other, and asks for nothing if it is stale under any.
    pub(crate) fn claimable(&self, world: &World, gateway: &Gateway, token: u64) -> Option<Name> {
        let session = gateway.session().filter(|session| world.now() < session.valid)?;
        if !self.setting.limits.allow_asking(&world.spent) {
            return None;
        }
        if self.control == Some(Control::PerReplicaCache) {
            return Some(Name::Old).filter(|name| token > gateway.gate(*name).token());
        }
        let era = session.replica.era();
        let leads = || world.etcd.head().and_then(|head| world.etcd.token_of(head)).map(Token::get);
        let is_stale = |name| token < gateway.gate(name).token();
        if token < gateway.table.floor
            || gateway.table.names.iter().any(is_stale)
            || !(floor(era)..floor(era + 1)).contains(&token)
            || (self.setting.issued && leads() != Some(token))
        {
            return None;
        }
        let is_shut = |name: &Name| !gateway.gate(*name).is_open() || gateway.gate(*name).token() != token;
        let first = gateway.table.in_order().find(is_shut)?;
        (token > session.replica.ceiling(&first.resource())).then_some(first)
    }

    pub(crate) fn claim(&self, world: &mut World, gateway: usize, token: u64) {
        let Some(name) = self.claimable(world, &world.gateways[gateway], token) else { return };
        let Some(token) = Token::new(token) else { return };
        if let Some(asks) = &mut world.spent.asks {
            *asks += 1;
        }
        let of = world.etcd.head().filter(|_| self.setting.issued);
        self.with_gateway(world, gateway, |gateway, moment| ((), gateway.claim(moment, name, token, of)));
    }
}
