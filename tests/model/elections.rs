//! Leaders: candidates in etcd, whose oldest leads, or tokens that are trusted. Whoever had one may still use it.

use highgate::replica::{Record, State, floor};
use highgate_elector::Token;

use crate::control::Control;
use crate::etcd::{Candidate, resource};
use crate::gateway::Gateway;
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
        world.etcd.change(|etcd| etcd.commit_with(false, Vec::new(), Some(candidate), None));
        world.tokens.extend(world.etcd.token_of(candidate).map(Token::get));
    }

    /// The leader's lease ran out, or it resigned. Its job may not know.
    pub(crate) fn lapse(&self, world: &mut World) {
        let Some(Candidate { lease, .. }) = world.etcd.head() else { return };
        world.etcd.change(|etcd| etcd.commit_with(false, Vec::new(), None, Some(lease)));
    }

    pub(crate) fn may_raise(&self, world: &World) -> bool {
        let head = world.etcd.head().and_then(|head| world.etcd.token_of(head));
        head.is_some_and(|token| token.get() > world.etcd.record.token)
    }

    /// RAISE by the elector itself, with the proof in its transaction.
    pub(crate) fn raise_by_elector(&self, world: &mut World) {
        let Some(token) = world.etcd.head().and_then(|head| world.etcd.token_of(head)) else { return };
        let before = world.etcd.record;
        world.etcd.change(|etcd| {
            let record = Record {
                token: token.get(),
                state: State::Raised,
                vacant: false,
                issued: true,
                ..etcd.record
            };
            etcd.put_record(record);
        });
        world.judge_mark(&self.setting, self.control, &before);
    }

    /// Whether this token asks a gateway for something that nobody has asked it for yet.
    pub(crate) fn may_claim(&self, world: &World, gateway: &Gateway, token: u64) -> bool {
        let Some(session) = gateway.session().filter(|session| world.now() < session.valid) else {
            return false;
        };
        if self.control == Some(Control::PerReplicaCache) {
            return token > gateway.gate.token();
        }
        let era = session.replica.era();
        let leads = || world.etcd.head().and_then(|head| world.etcd.token_of(head)).map(Token::get);
        token > session.replica.ceiling(&resource())
            && (floor(era)..floor(era + 1)).contains(&token)
            && (!self.setting.issued || leads() == Some(token))
    }

    pub(crate) fn claim(&self, world: &mut World, gateway: usize, token: u64) {
        let Some(token) = Token::new(token) else { return };
        let of = world.etcd.head().filter(|_| self.setting.issued);
        self.with_gateway(world, gateway, |gateway, moment| ((), gateway.claim(moment, token, of)));
    }
}
