//! Sealed leadership: `backend/etcd/seal.rs`. What there is to do is decided by the real code.

use std::time::Duration;

use highgate_elector::backend::etcd::ground::{Step, is_shut};
use highgate_elector::backend::etcd::lease::Stage;
use highgate_etcd::fence::Fence;

use super::super::control::Control;
use super::super::etcd::{Reply, Txn};
use super::super::world::World;
use super::{Ask, At, News, PAUSE, Then};

/// How often those who wait look whether there are still gateways to wait for.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl World {
    /// Takes a candidate that leads to where the gateways pass it.
    pub(super) fn seal(&mut self, elector: usize, resource: usize) {
        let sealed = self.plan.sealed && !self.is(Control::ToldUnsealed);
        let Some(candidate) = self.candidate(elector, resource) else { return };
        let Some(claim) = &candidate.claim else { return };
        let step = if sealed { claim.ground.step(claim.token) } else { Some(Step::Lead) };
        match step {
            Some(Step::Lead) => self.granted(elector, resource),
            Some(Step::QueueAgain) => self.overtaken(elector, resource),
            Some(Step::Wait) if candidate.news.is_some() => self.wait_for_gateways(elector, resource),
            Some(Step::Wait) => {
                // What changed before this is no news: look once more.
                candidate.news = Some(News::default());
                self.look_closely(elector, resource);
            }
            Some(Step::Raise(mark)) => {
                candidate.news.get_or_insert_default();
                self.raise(elector, resource, mark);
            }
            Some(Step::Never) | None => {
                let ground = claim.ground.clone();
                self.accuse("refused", || format!("an elector of r{resource} cannot pass {ground:?}"));
            }
        }
    }

    fn raise(&mut self, elector: usize, resource: usize, mark: Fence) {
        let step = self.go(elector, resource, At::Raising);
        let Some(seat) = self.seat(elector, resource) else { return };
        let Some(claim) = self.candidate(elector, resource).and_then(|known| known.claim.clone()) else {
            return;
        };
        let txn = Txn::Raise {
            resource: self.resources[resource].clone(),
            candidate: (seat.lease, claim.created),
            seen: (claim.ground.mark_changed, claim.ground.era_changed),
            mark,
        };
        self.ask_etcd(elector, Ask::Raise { resource, step }, txn);
    }

    pub(super) fn raised(&mut self, elector: usize, resource: usize, reply: Option<Reply>) {
        if matches!(reply, Some(Reply::Raised(true))) {
            return self.wait_for_gateways(elector, resource);
        }
        self.go(elector, resource, At::Raising);
        self.later(elector, resource, PAUSE, Then::Look);
    }

    fn wait_for_gateways(&mut self, elector: usize, resource: usize) {
        self.go(elector, resource, At::Sealing);
        self.later(elector, resource, LOOK_AGAIN, Then::AskForGateways);
        self.hear_news(elector, resource);
    }

    /// Whether there is something else to do than to wait.
    pub(super) fn hear_news(&mut self, elector: usize, resource: usize) {
        let Some(candidate) = self.candidate(elector, resource).filter(|known| known.at == At::Sealing)
        else {
            return;
        };
        let (Some(news), Some(claim)) = (&mut candidate.news, &candidate.claim) else { return };
        let token = claim.token;
        let shut = |mark: Option<Vec<u8>>| mark.is_some_and(|mark| is_shut(&mark, token));
        let changed = news.mark.take().is_some_and(|mark| !shut(mark));
        if changed || std::mem::take(&mut news.own) {
            self.look_closely(elector, resource);
        }
    }

    pub(super) fn ask_for_gateways(&mut self, elector: usize, resource: usize) {
        let Some(step) = self.candidate(elector, resource).map(|known| known.step) else { return };
        self.ask_etcd(elector, Ask::AnyMember { resource, step }, Txn::AnyMember);
    }

    /// While etcd does not answer there may be some.
    pub(super) fn heard_of_gateways(&mut self, elector: usize, resource: usize, reply: Option<Reply>) {
        let shown = self.elector_shows(elector);
        let machine = &mut self.electors[elector];
        let now = machine.instant(shown);
        if let Some(Reply::Gateways(false, graves)) = reply
            && !machine.graves.may_forward(now, &graves)
        {
            return self.look_closely(elector, resource);
        }
        self.later(elector, resource, LOOK_AGAIN, Then::AskForGateways);
    }

    /// The backend grants. When its lease began to count is not known to who has waited: then it is renewed first.
    fn granted(&mut self, elector: usize, resource: usize) {
        let shown = self.elector_shows(elector);
        let name = self.resources[resource].as_str().to_owned();
        let machine = &mut self.electors[elector];
        let Some(candidate) = machine.candidates.get_mut(&resource) else { return };
        let (Some(seat), Some(claim)) = (candidate.seat, &candidate.claim) else { return };
        candidate.failures = 0;
        let (asked, created) = (candidate.asked, i64::try_from(claim.created).unwrap_or(0));
        let renewed = machine.origin + claim.since;
        if let Some(kept) = machine.pool.get_mut(&seat.lease) {
            kept.seats.insert(name, Stage::Leading { created, renewed });
        }
        if shown - asked < self.heartbeat() {
            self.tell_job(elector, resource, asked);
        } else {
            self.claim_by_renewal(elector, resource, shown);
        }
    }
}
