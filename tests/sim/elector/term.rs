//! Leading: `heartbeat`, `leadership` and the job that writes with its token, also when it should not any more.

use std::time::Duration;

use highgate::replica::Time;
use highgate_elector::{Token, validity};

use super::super::clock::{MILLI, Nanos, nanos};
use super::super::control::Control;
use super::super::etcd::{Reply, Txn};
use super::super::world::{Event, World};
use super::{Ask, At, Round, Then};

/// A leadership that a job was told of.
pub(super) struct Term {
    pub(super) token: Token,
    pub(super) lease: u64,
    /// By the local clock; none once it is over.
    pub(super) until: Option<Time>,
}

/// What became of a renewal.
enum Renewed {
    Fine,
    Gone,
    Failed,
}

impl World {
    pub(super) fn heartbeat(&self) -> Duration {
        self.plan.ttl / 3
    }

    /// Asks whether it was there, and extends its lease.
    fn renew_round(&mut self, elector: usize, resource: usize) {
        let sent = self.elector_shows(elector);
        let round = self.begin_round(elector, resource, sent);
        let Some(candidate) = self.candidate(elector, resource) else { return };
        let (Some(seat), Some(claim)) = (candidate.seat, &candidate.claim) else { return };
        let (lease, token) = (seat.lease, claim.token);
        let txn = Txn::Check { resource: self.resources[resource].clone(), lease, token };
        self.ask_etcd(elector, Ask::Check { resource, round }, txn);
        self.extend_lease(elector, lease, Some((resource, round)));
        self.later(elector, resource, self.plan.ttl / 3, Then::TooLong(round));
    }

    pub(super) fn claim_by_renewal(&mut self, elector: usize, resource: usize, granted: Time) {
        self.go(elector, resource, At::Claiming { granted });
        if self.elector_shows(elector) - granted > self.plan.ttl {
            self.resign_quietly(elector, resource, None);
            return self.rest(elector, resource);
        }
        self.renew_round(elector, resource);
    }

    pub(super) fn renew_term(&mut self, elector: usize, resource: usize) {
        if self.is_valid(elector, resource) {
            self.renew_round(elector, resource);
        }
    }

    pub(super) fn answered(&mut self, elector: usize, resource: usize, round: u64, reply: Option<Reply>) {
        let Some(candidate) = self.candidate(elector, resource).filter(|known| known.round.number == round)
        else {
            return;
        };
        candidate.round.answer = Some(reply);
        self.round_heard(elector, resource);
    }

    /// Goes on when both answers are there.
    pub(super) fn round_heard(&mut self, elector: usize, resource: usize) {
        let Some(candidate) = self.candidate(elector, resource) else { return };
        let (at, round) = (candidate.at, &mut candidate.round);
        if round.alive.is_none() || round.answer.is_none() {
            return;
        }
        let round = std::mem::take(round);
        match at {
            At::Confirming { sealing, missing } => {
                self.confirmed(elector, resource, (sealing, missing), &round);
            }
            _ => self.renewed_term(elector, resource, &round),
        }
    }

    pub(super) fn round_is_over(&mut self, elector: usize, resource: usize, number: u64) {
        let Some(candidate) = self.candidate(elector, resource) else { return };
        if candidate.round.number == number {
            let sent = std::mem::take(&mut candidate.round).sent;
            self.renewed_term(elector, resource, &Round { sent, ..Round::default() });
        }
    }

    fn renewed_term(&mut self, elector: usize, resource: usize, round: &Round) {
        let mut renewed = match (&round.answer, round.alive) {
            (Some(Some(Reply::Checked { leads: false, .. })), _) => Renewed::Gone,
            (Some(Some(Reply::Checked { leads: true, .. })), Some(Some(true))) => Renewed::Fine,
            _ => Renewed::Failed,
        };
        if matches!(&round.answer, Some(Some(Reply::Checked { outlived: true, .. }))) {
            // Everybody would wait behind its key.
            self.resign_quietly(elector, resource, None);
        }
        if matches!(renewed, Renewed::Fine) && !self.note_renewal(elector, resource, round.sent) {
            renewed = Renewed::Gone;
        }
        match self.candidate(elector, resource).map(|known| known.at) {
            Some(At::Claiming { granted }) => self.claimed(elector, resource, granted, round.sent, renewed),
            Some(At::Leading | At::Draining) => self.settle(elector, resource, round.sent, renewed),
            _ => {}
        }
    }

    /// False: the keeper takes its key, since it was not renewed for too long.
    fn note_renewal(&mut self, elector: usize, resource: usize, sent: Time) -> bool {
        let name = self.resources[resource].as_str();
        let machine = &mut self.electors[elector];
        let since = machine.instant(sent);
        let Some(seat) = machine.candidates.get(&resource).and_then(|known| known.seat) else { return false };
        machine.pool.get_mut(&seat.lease).is_some_and(|kept| kept.renewed(name, since))
    }

    fn claimed(&mut self, elector: usize, resource: usize, granted: Time, sent: Time, renewed: Renewed) {
        match renewed {
            Renewed::Fine => self.tell_job(elector, resource, sent),
            Renewed::Gone => {
                if let Some(candidate) = self.candidate(elector, resource) {
                    candidate.seat = None;
                }
                self.rest(elector, resource);
            }
            Renewed::Failed => {
                self.go(elector, resource, At::Claiming { granted });
                let wait = self.backoff(elector, resource);
                self.later(elector, resource, wait, Then::ClaimAgain);
            }
        }
    }

    /// The job gets its token. Valid from before the last word of etcd was asked for.
    pub(super) fn tell_job(&mut self, elector: usize, resource: usize, sent: Time) {
        self.go(elector, resource, At::Leading);
        let sent = self.counted_from(elector, sent);
        let until = sent + validity(self.plan.ttl);
        let Some(candidate) = self.candidate(elector, resource) else { return };
        let (Some(seat), Some(claim)) = (candidate.seat, &candidate.claim) else { return };
        let token = claim.token;
        candidate.failures = 0;
        candidate.term = Some(Term { token, lease: seat.lease, until: Some(until) });
        self.judge_telling(elector, resource, token);
        self.expires_at(elector, resource, until);
        self.later(elector, resource, self.heartbeat(), Then::Renew);
        self.later(elector, resource, Duration::ZERO, Then::Work);
    }

    fn counted_from(&self, elector: usize, sent: Time) -> Time {
        if self.is(Control::ElectorFromAnswer) { self.elector_shows(elector) } else { sent }
    }

    fn expires_at(&mut self, elector: usize, resource: usize, until: Time) {
        let after = until.saturating_sub(self.elector_shows(elector));
        self.later(elector, resource, after, Then::Expire);
    }

    /// By its own clock.
    pub(super) fn is_valid(&self, elector: usize, resource: usize) -> bool {
        let shown = self.elector_shows(elector);
        let term = self.electors[elector].candidates.get(&resource).and_then(|known| known.term.as_ref());
        term.and_then(|term| term.until).is_some_and(|until| shown < until)
    }

    fn settle(&mut self, elector: usize, resource: usize, sent: Time, renewed: Renewed) {
        let shown = self.elector_shows(elector);
        if !self.is_valid(elector, resource) {
            return self.expire(elector, resource);
        }
        match renewed {
            Renewed::Fine => {
                self.tally.renewals += 1;
                let until = self.counted_from(elector, sent) + validity(self.plan.ttl);
                if let Some(term) = self.candidate(elector, resource).and_then(|known| known.term.as_mut()) {
                    term.until = term.until.max(Some(until));
                }
                self.expires_at(elector, resource, until);
                let due = (sent + self.heartbeat()).saturating_sub(shown);
                self.later(elector, resource, due, Then::Renew);
            }
            Renewed::Gone => {
                self.tally.deposed += 1;
                self.lose(elector, resource);
                if let Some(candidate) = self.candidate(elector, resource) {
                    candidate.seat = None;
                }
                self.begin_campaign(elector, resource);
            }
            Renewed::Failed => {
                let wait = self.jittered(self.heartbeat() / 4);
                self.later(elector, resource, wait, Then::Renew);
            }
        }
    }

    /// Its time may have passed. The guard, which is dropped, says so to etcd.
    pub(super) fn expire(&mut self, elector: usize, resource: usize) {
        let over = self.candidate(elector, resource).and_then(|known| known.term.as_ref()?.until).is_some();
        if !over || self.is_valid(elector, resource) {
            return;
        }
        self.tally.expired += 1;
        self.lose(elector, resource);
        self.resign_quietly(elector, resource, None);
        self.begin_campaign(elector, resource);
    }

    /// The term is over. Whether its job knows is another matter.
    fn lose(&mut self, elector: usize, resource: usize) {
        let life = self.electors[elector].life;
        let Some(term) = self.candidate(elector, resource).and_then(|known| known.term.as_mut()) else {
            return;
        };
        term.until = None;
        let token = term.token;
        self.note(|| format!("elector {elector} has lost r{resource} ({token})"));
        if self.dice.chance(self.plan.zombie) {
            let (left, delay) = (self.dice.between(1, 12), self.dice.below(self.plan.request_every));
            self.set_after(delay, Event::Zombie { elector, life, resource, token, left });
        }
    }

    pub(crate) fn zombie(&mut self, elector: usize, life: u64, resource: usize, token: Token, left: u64) {
        if self.electors[elector].life != life || self.quiet_since.is_some() {
            return;
        }
        self.tally.zombie_writes += 1;
        self.request(resource, token);
        if left > 1 {
            let next = self.dice.around(self.plan.request_every);
            self.set_after(next, Event::Zombie { elector, life, resource, token, left: left - 1 });
        }
    }

    /// What a job does while it leads: writes, and now and then gives it up.
    pub(super) fn work(&mut self, elector: usize, resource: usize) {
        let Some(candidate) = self.candidate(elector, resource).filter(|known| known.at == At::Leading)
        else {
            return;
        };
        let Some(token) = candidate.term.as_ref().filter(|term| term.until.is_some()).map(|term| term.token)
        else {
            return;
        };
        if self.quiet_since.is_some() {
            return;
        }
        if self.dice.chance(self.plan.handover) {
            return self.stop_work(elector, resource);
        }
        // A process that was paused notices only afterwards.
        self.tally.job_writes += 1;
        self.request(resource, token);
        let next = self.dice.around(self.plan.request_every);
        self.later(elector, resource, Duration::from_nanos(next), Then::Work);
    }

    fn stop_work(&mut self, elector: usize, resource: usize) {
        if let Some(candidate) = self.candidate(elector, resource) {
            candidate.at = At::Draining;
        }
        if self.is(Control::DeletedBeforeTheEnd) {
            self.resign_quietly(elector, resource, None);
        }
        let until = self.now + nanos(self.plan.ttl) + self.plan.service;
        let soon = Duration::from_nanos(self.dice.below(20 * MILLI));
        self.later(elector, resource, soon, Then::Drain { until });
    }

    /// Resigns when everything that the job has sent was answered, or will not be in time.
    pub(super) fn drain(&mut self, elector: usize, resource: usize, until: Nanos) {
        let Some(token) =
            self.candidate(elector, resource).and_then(|known| Some(known.term.as_ref()?.token))
        else {
            return;
        };
        if self.now < until && self.is_under_way(resource, token) {
            let soon = Duration::from_nanos(self.dice.between(5 * MILLI, 20 * MILLI));
            return self.later(elector, resource, soon, Then::Drain { until });
        }
        self.tally.resigned += 1;
        self.note(|| format!("elector {elector} resigns r{resource} ({token})"));
        self.lines[resource].resigned = Some((elector, token));
        if let Some(term) = self.candidate(elector, resource).and_then(|known| known.term.as_mut()) {
            term.until = None;
        }
        let step = self.go(elector, resource, At::Rest);
        self.resign_quietly(elector, resource, Some(step));
    }
}
