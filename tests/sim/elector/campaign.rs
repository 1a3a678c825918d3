//! Queueing up for leadership: `backend/etcd/campaign.rs`, and the loop of `elector/contend.rs` around it.

use std::time::Duration;

use highgate::replica::{Revision, Time, floor};
use highgate_elector::Token;
use highgate_elector::backend::etcd::ground::Ground;
use highgate_elector::backend::etcd::lease::Stage;

use super::super::etcd::{Reply, Txn};
use super::super::world::World;
use super::{Ask, At, Claim, Extension, PAUSE, Round, Seat, Then};

const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(3);
/// Before a candidate that was overtaken queues up again.
const PAUSE_AFTER_OVERTAKEN: Duration = Duration::from_millis(250);

impl World {
    pub(super) fn begin_campaign(&mut self, elector: usize, resource: usize) {
        let shown = self.elector_shows(elector);
        if let Some(candidate) = self.candidate(elector, resource) {
            candidate.asked = shown;
            candidate.term = None;
        }
        self.campaign(elector, resource);
    }

    /// To the end of the line, on a lease that lives.
    pub(super) fn campaign(&mut self, elector: usize, resource: usize) {
        let (shown, ttl) = (self.elector_shows(elector), self.plan.ttl);
        let step = self.go(elector, resource, At::Rest);
        let machine = &mut self.electors[elector];
        let now = machine.instant(shown);
        let Some(candidate) = machine.candidates.get_mut(&resource) else { return };
        candidate.since = shown;
        candidate.seat = None;
        candidate.claim = None;
        candidate.news = None;
        let name = self.resources[resource].as_str();
        if let Some((lease, kept)) = machine.pool.iter_mut().find(|(_, kept)| kept.has_room(name, ttl, now)) {
            kept.seats.insert(name.to_owned(), Stage::Waiting { created: None });
            candidate.seat = Some(Seat::on(*lease));
            return self.enter(elector, resource);
        }
        let lease = self.number();
        let txn = Txn::Grant { lease, ttl: super::super::clock::nanos(ttl) };
        self.ask_etcd(elector, Ask::Grant { resource, step, lease, sent: shown }, txn);
    }

    pub(super) fn granted_lease(
        &mut self,
        elector: usize,
        resource: usize,
        (lease, sent): (u64, Time),
        reply: Option<Reply>,
    ) {
        let Some(Reply::Granted { term }) = reply else { return self.campaign_failed(elector, resource) };
        self.add_lease(elector, lease, sent, term);
        let name = self.resources[resource].as_str().to_owned();
        let machine = &mut self.electors[elector];
        if let Some(kept) = machine.pool.get_mut(&lease) {
            kept.seats.insert(name, Stage::Waiting { created: None });
        }
        if let Some(candidate) = machine.candidates.get_mut(&resource) {
            candidate.seat = Some(Seat::on(lease));
        }
        self.enter(elector, resource);
    }

    fn enter(&mut self, elector: usize, resource: usize) {
        let step = self.go(elector, resource, At::Entering);
        let Some(lease) = self.seat(elector, resource).map(|seat| seat.lease) else { return };
        let txn = Txn::Enter { resource: self.resources[resource].clone(), lease };
        self.ask_etcd(elector, Ask::Enter { resource, step }, txn);
    }

    pub(super) fn seat(&mut self, elector: usize, resource: usize) -> Option<Seat> {
        self.candidate(elector, resource)?.seat
    }

    /// An answer that got lost was asked for again, and the second one finds the key of the first.
    pub(super) fn entered(&mut self, elector: usize, resource: usize, reply: Option<Reply>) {
        let (created, head, ground) = match reply {
            Some(Reply::Entered(Some(entered))) => entered,
            Some(_) => return self.gone(elector, resource),
            None => return self.campaign_failed(elector, resource),
        };
        self.tally.read_back += u64::from(i64::try_from(created).is_ok_and(|at| at < ground.revision));
        let name = self.resources[resource].as_str().to_owned();
        let machine = &mut self.electors[elector];
        let Some(candidate) = machine.candidates.get_mut(&resource) else { return };
        let (since, Some(seat)) = (candidate.since, &mut candidate.seat) else { return };
        seat.created = Some(created);
        let lease = seat.lease;
        let seated = machine.pool.get_mut(&lease);
        if !seated.is_some_and(|kept| kept.enter(&name, i64::try_from(created).unwrap_or(0))) {
            return self.gone(elector, resource);
        }
        if head != created {
            return self.turn(elector, resource);
        }
        self.take_claim(elector, resource, created, since, ground);
        self.go(elector, resource, At::Extending);
        let round = self.begin_round(elector, resource, since);
        self.extend_since(elector, resource, lease, (round, since));
    }

    /// etcd has said in one transaction that the candidate leads, and on what ground.
    fn take_claim(
        &mut self,
        elector: usize,
        resource: usize,
        created: Revision,
        since: Time,
        mut ground: Ground,
    ) {
        let shown = self.elector_shows(elector);
        let machine = &mut self.electors[elector];
        let now = machine.instant(shown);
        ground.guarded |= machine.graves.may_forward(now, &ground.graves);
        let looked_at = self.electors[elector].clock.when(since);
        let Some(token) = Token::new(floor(ground.era) + created) else { return };
        if let Some(candidate) = self.candidate(elector, resource) {
            candidate.claim = Some(Claim { token, created, since, ground, looked_at });
        }
    }

    pub(super) fn begin_round(&mut self, elector: usize, resource: usize, sent: Time) -> u64 {
        let number = self.number();
        if let Some(candidate) = self.candidate(elector, resource) {
            candidate.round = Round { number, sent, ..Round::default() };
        }
        number
    }

    /// Extends the lease, unless that was done since.
    pub(super) fn extend_since(
        &mut self,
        elector: usize,
        resource: usize,
        name: u64,
        (round, since): (u64, Time),
    ) {
        let machine = &self.electors[elector];
        let since = machine.instant(since);
        match machine.pool.get(&name) {
            None => self.extended(elector, (resource, round), Some(false)),
            Some(kept) if kept.kept >= since && !kept.closed => {
                self.extended(elector, (resource, round), Some(true));
            }
            Some(_) => self.extend_lease(elector, name, Some((resource, round))),
        }
    }

    pub(super) fn extended(&mut self, elector: usize, whose: (usize, u64), alive: Option<bool>) {
        let (resource, round) = whose;
        let Some(candidate) = self.candidate(elector, resource).filter(|known| known.round.number == round)
        else {
            return;
        };
        candidate.round.alive = Some(alive);
        if candidate.at != At::Extending {
            return self.round_heard(elector, resource);
        }
        match alive {
            Some(true) => self.seal(elector, resource),
            Some(false) => self.gone(elector, resource),
            None => self.campaign_failed(elector, resource),
        }
    }

    /// Waits until the watch says that it is first, or gone.
    pub(super) fn turn(&mut self, elector: usize, resource: usize) {
        self.go(elector, resource, At::Waiting);
        self.wake(elector, resource);
    }

    /// Asks etcd whether the own key lives and is the oldest, and extends the lease on the way.
    pub(super) fn confirm(&mut self, elector: usize, resource: usize, sealing: bool, missing: bool) {
        self.go(elector, resource, At::Confirming { sealing, missing });
        let since = self.elector_shows(elector);
        let Some(Seat { lease, created: Some(created), .. }) = self.seat(elector, resource) else { return };
        let round = self.begin_round(elector, resource, since);
        let txn = Txn::Confirm { resource: self.resources[resource].clone(), lease, created };
        self.ask_etcd(elector, Ask::Confirm { resource, round }, txn);
        self.extend_since(elector, resource, lease, (round, since));
    }

    /// On the way to a seal.
    pub(super) fn look_closely(&mut self, elector: usize, resource: usize) {
        self.confirm(elector, resource, true, false);
    }

    /// Both answers to `confirm` are there.
    pub(super) fn confirmed(
        &mut self,
        elector: usize,
        resource: usize,
        (sealing, missing): (bool, bool),
        round: &Round,
    ) {
        let answer = match &round.answer {
            Some(Some(Reply::Confirmed { first, lives, ground })) => Some((*first, *lives, ground.clone())),
            _ => None,
        };
        let created = self.seat(elector, resource).and_then(|seat| seat.created);
        match (answer, round.alive.flatten()) {
            (Some((true, _, ground)), Some(true)) => {
                self.take_claim(elector, resource, created.unwrap_or_default(), round.sent, ground);
                self.seal(elector, resource);
            }
            (Some((_, false, _)), _) | (Some(_), Some(false)) => self.gone(elector, resource),
            // It waits, or nobody knows.
            _ => {
                if missing {
                    // The watch has told of what etcd was before it was restored.
                    self.list_elections(elector);
                }
                let then = if sealing { Then::Look } else { Then::Turn };
                self.later(elector, resource, PAUSE, then);
            }
        }
    }

    /// The key or its lease is gone.
    pub(super) fn gone(&mut self, elector: usize, resource: usize) {
        if let Some(seat) = self.seat(elector, resource)
            && let Some(kept) = self.electors[elector].pool.get_mut(&seat.lease)
        {
            kept.closed = true;
        }
        self.tally.lost_campaigns += 1;
        self.leave(elector, resource);
        self.campaign(elector, resource);
    }

    pub(super) fn overtaken(&mut self, elector: usize, resource: usize) {
        self.leave(elector, resource);
        self.go(elector, resource, At::Rest);
        self.later(elector, resource, PAUSE_AFTER_OVERTAKEN, Then::Campaign);
    }

    /// etcd is away: asked again after a while.
    pub(super) fn campaign_failed(&mut self, elector: usize, resource: usize) {
        self.leave(elector, resource);
        self.rest(elector, resource);
    }

    pub(super) fn rest(&mut self, elector: usize, resource: usize) {
        self.tally.lost_campaigns += 1;
        self.go(elector, resource, At::Rest);
        let wait = self.backoff(elector, resource);
        self.later(elector, resource, wait, Then::Begin);
    }

    pub(super) fn backoff(&mut self, elector: usize, resource: usize) -> Duration {
        let Some(candidate) = self.candidate(elector, resource) else { return FIRST_BACKOFF };
        let full = LONGEST_BACKOFF.min(FIRST_BACKOFF * 2u32.saturating_pow(candidate.failures));
        candidate.failures = (candidate.failures + 1).min(16);
        self.jittered(full)
    }

    /// Between half of a span and all of it.
    pub(super) fn jittered(&mut self, full: Duration) -> Duration {
        let half = super::super::clock::nanos(full) / 2;
        Duration::from_nanos(half + self.dice.below(half + 1))
    }

    pub(super) fn extend_lease(&mut self, elector: usize, name: u64, whose: Option<(usize, u64)>) {
        let sent = self.elector_shows(elector);
        let carriers = self.electors[elector].pool.get(&name).map(|kept| kept.carriers());
        let number = |carrier: &i64| u64::try_from(*carrier).unwrap_or(0);
        let mut left: Vec<u64> = carriers.unwrap_or_default().iter().rev().map(number).collect();
        let lease = left.pop().unwrap_or(name);
        let extension = Extension { name, sent, left, alive: true, term: 0, whose };
        self.ask_etcd(elector, Ask::KeepAlive(extension), Txn::KeepAlive { lease });
    }
}
