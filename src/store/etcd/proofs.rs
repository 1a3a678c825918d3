//! Tokens above the mark that claim to have been issued, and what that may cost.
//!
//! What the watch has shown already needs no question. Of a token that is beyond it, etcd is asked how far it has
//! come, one question for all; a forged one is beyond that, too. Only then etcd is asked who leads: once per
//! resource at a time however many ask, not again for a token that was just refused, and not more often than a
//! limit. What must stay true: a flood of forged tokens costs a bounded number of requests and a bounded amount
//! of memory, an honest one is never refused for being early, and no claim waits for a mark that has reached it: a mark
//! is told of when it moves, and by then nobody may have waited for it.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use highgate_elector::{Resource, Token};

use crate::replica::Time;
use crate::store::{Unproved, Verdict};

/// How long a refused token is not asked about again.
const REMEMBERED: Duration = Duration::from_secs(1);
const MAX_REMEMBERED: usize = 10_000;
/// Questions per second, and how many at once after a pause.
const RATE: f64 = 50.0;
const BURST: f64 = 100.0;
const MAX_WAITING: usize = 10_000;
/// More changes than etcd can make before it is heard of again: a token that is so far beyond the last answer
/// cannot have been issued.
pub(super) const OUT_OF_REACH: u64 = 10_000_000;
/// Between two questions of how far etcd has come.
const SPACING: Duration = Duration::from_millis(100);

/// Somebody who wants to know whether its token was issued.
pub(super) struct Claim {
    pub(super) token: Token,
    pub(super) block: Option<bool>,
    pub(super) reply: Verdict,
}

/// What is to be done about a claim.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// Ask etcd who leads the resource.
    Ask,
    /// It waits for a question that is under way, or was answered.
    Settled,
}

#[derive(Default)]
pub(super) struct Proofs {
    /// Claims of tokens beyond what the watch has shown, for the next question of how far etcd has come.
    early: Vec<(Resource, Claim)>,
    /// Those that wait for the answer to the last one.
    asking: Vec<(Resource, Claim)>,
    scheduled: bool,
    asked_at: Option<Time>,
    /// Claims that wait for a question about their resource.
    asked: HashMap<Resource, Vec<Claim>>,
    /// Claims whose raise is under way.
    raising: HashMap<Resource, Vec<Claim>>,
    waiting: usize,
    refused: HashMap<(Resource, Token), Time>,
    refused_in_order: VecDeque<(Time, Resource, Token)>,
    budget: Option<(Time, f64)>,
}

impl Proofs {
    /// Takes a claim whose token is beyond what the watch has shown. Some: how far etcd has come is to be asked
    /// after this time; none: that is under way.
    pub(super) fn early(&mut self, now: Time, resource: Resource, claim: Claim) -> Option<Duration> {
        self.forget_old(now);
        if self.refused.contains_key(&(resource.clone(), claim.token)) {
            claim.settle(Err(Unproved::NotIssued));
            return None;
        }
        if self.waiting >= MAX_WAITING {
            claim.settle(Err(Unproved::Overloaded));
            return None;
        }
        self.waiting += 1;
        self.early.push((resource, claim));
        self.schedule(now)
    }

    fn schedule(&mut self, now: Time) -> Option<Duration> {
        if self.scheduled || self.early.is_empty() {
            return None;
        }
        self.scheduled = true;
        Some(self.asked_at.map_or(Duration::ZERO, |asked| (asked + SPACING).saturating_sub(now)))
    }

    /// The question is sent now: its answer is for whoever has come before.
    pub(super) fn ask_how_far(&mut self, now: Time) {
        self.asked_at = Some(now);
        self.asking.append(&mut self.early);
    }

    /// The answer is there: who waited for it and is still above the mark, and when the next question is due.
    pub(super) fn heard_how_far(
        &mut self,
        now: Time,
        mark: impl Fn(&Resource) -> u64,
    ) -> (Vec<(Resource, Claim)>, Option<Duration>) {
        self.scheduled = false;
        let claims = std::mem::take(&mut self.asking);
        self.waiting -= claims.len();
        let above = |(resource, claim): (Resource, Claim)| {
            claim.unless_reached(mark(&resource)).map(|claim| (resource, claim))
        };
        (claims.into_iter().filter_map(above).collect(), self.schedule(now))
    }

    /// Takes a claim of which only etcd can say whether it leads.
    pub(super) fn claim(&mut self, now: Time, resource: &Resource, claim: Claim) -> Course {
        self.forget_old(now);
        if self.refused.contains_key(&(resource.clone(), claim.token)) {
            claim.settle(Err(Unproved::NotIssued));
            return Course::Settled;
        }
        if self.waiting >= MAX_WAITING {
            claim.settle(Err(Unproved::Overloaded));
            return Course::Settled;
        }
        if let Some(claims) = self.asked.get_mut(resource) {
            claims.push(claim);
            self.waiting += 1;
            return Course::Settled;
        }
        if !self.afford(now) {
            claim.settle(Err(Unproved::Overloaded));
            return Course::Settled;
        }
        self.waiting += 1;
        self.asked.insert(resource.clone(), vec![claim]);
        Course::Ask
    }

    /// Everybody who waited for the question about a resource and is still above its mark.
    pub(super) fn answered(&mut self, resource: &Resource, mark: u64) -> Vec<Claim> {
        let claims = self.asked.remove(resource).unwrap_or_default();
        self.waiting -= claims.len();
        claims.into_iter().filter_map(|claim| claim.unless_reached(mark)).collect()
    }

    /// The raise of this claim's token is under way, from this mark.
    pub(super) fn raising(&mut self, now: Time, resource: Resource, claim: Claim, mark: u64) {
        self.forget_old(now);
        let Some(claim) = claim.unless_reached(mark) else { return };
        if self.waiting >= MAX_WAITING {
            return claim.settle(Err(Unproved::Overloaded));
        }
        self.waiting += 1;
        self.raising.entry(resource).or_default().push(claim);
    }

    /// The mark is this, by now.
    pub(super) fn raised(&mut self, resource: &Resource, mark: u64) {
        self.settle(resource, |claim| (claim.token.get() <= mark).then_some(Ok(())));
    }

    /// etcd did not find the proof of this token.
    pub(super) fn refuse(&mut self, now: Time, resource: &Resource, token: Token) {
        self.settle(resource, |claim| (claim.token == token).then_some(Err(Unproved::NotIssued)));
        self.remember(now, resource, token);
    }

    fn settle(&mut self, resource: &Resource, verdict: impl Fn(&Claim) -> Option<Result<(), Unproved>>) {
        let Some(claims) = self.raising.remove(resource) else { return };
        let mut left = Vec::new();
        for claim in claims {
            match verdict(&claim) {
                Some(verdict) => {
                    self.waiting -= 1;
                    claim.settle(verdict);
                }
                None => left.push(claim),
            }
        }
        if !left.is_empty() {
            self.raising.insert(resource.clone(), left);
        }
    }

    /// A token that was refused is not asked about again for a while.
    pub(super) fn remember(&mut self, now: Time, resource: &Resource, token: Token) {
        self.forget_old(now);
        if self.refused.len() >= MAX_REMEMBERED {
            return;
        }
        let until = now + REMEMBERED;
        if self.refused.insert((resource.clone(), token), until).is_none() {
            self.refused_in_order.push_back((until, resource.clone(), token));
        }
    }

    /// Nobody gets an answer any more: the replica is fenced.
    pub(super) fn clear(&mut self) {
        let Self { early, asking, asked, raising, .. } = std::mem::take(self);
        let early = early.into_iter().chain(asking).map(|(_, claim)| claim);
        for claim in asked.into_values().chain(raising.into_values()).flatten().chain(early) {
            claim.settle(Err(Unproved::Away));
        }
    }

    fn forget_old(&mut self, now: Time) {
        if self.waiting >= MAX_WAITING / 2 {
            self.forget_who_gave_up();
        }
        while let Some((_, resource, token)) = self.refused_in_order.pop_front_if(|(until, ..)| *until <= now)
        {
            self.refused.remove(&(resource, token));
        }
    }

    fn forget_who_gave_up(&mut self) {
        let mut gone = 0;
        for claims in self.raising.values_mut() {
            let before = claims.len();
            claims.retain(|claim| !claim.reply.is_closed());
            gone += before - claims.len();
        }
        self.raising.retain(|_, claims| !claims.is_empty());
        self.waiting -= gone;
    }

    fn afford(&mut self, now: Time) -> bool {
        let (since, left) = self.budget.unwrap_or((now, BURST));
        let left = BURST.min(left + now.saturating_sub(since).as_secs_f64() * RATE);
        let affordable = left >= 1.0;
        self.budget = Some((now, if affordable { left - 1.0 } else { left }));
        affordable
    }
}

impl Claim {
    /// The claim, if it is above the mark. Else the gate says what becomes of it.
    fn unless_reached(self, mark: u64) -> Option<Self> {
        if self.token.get() > mark {
            return Some(self);
        }
        self.settle(Ok(()));
        None
    }

    /// Whoever asked may have given up.
    pub(super) fn settle(self, verdict: Result<(), Unproved>) {
        let _ = self.reply.send(verdict);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    fn ledger() -> Resource {
        Resource::parse("ledger").unwrap()
    }

    fn claim(token: u64) -> (Claim, oneshot::Receiver<Result<(), Unproved>>) {
        let (reply, answer) = oneshot::channel();
        (Claim { token: Token::new(token).unwrap(), block: None, reply }, answer)
    }

    #[test]
    fn one_question_serves_all_who_ask_about_a_resource() {
        let mut proofs = Proofs::default();
        let (first, _answer) = claim(7);
        let (second, _other) = claim(8);
        assert_eq!(proofs.claim(Time::ZERO, &ledger(), first), Course::Ask);
        assert_eq!(proofs.claim(Time::ZERO, &ledger(), second), Course::Settled);
        assert_eq!(proofs.answered(&ledger(), 0).len(), 2);
    }

    #[test]
    fn a_token_that_was_refused_is_not_asked_about_for_a_while() {
        let mut proofs = Proofs::default();
        let token = Token::new(7).unwrap();
        proofs.remember(Time::ZERO, &ledger(), token);
        let (again, mut answer) = claim(7);
        assert_eq!(proofs.claim(Time::ZERO, &ledger(), again), Course::Settled);
        assert_eq!(answer.try_recv(), Ok(Err(Unproved::NotIssued)));
        let (later, _answer) = claim(7);
        assert_eq!(proofs.claim(REMEMBERED, &ledger(), later), Course::Ask);
    }

    #[test]
    fn a_flood_of_forged_tokens_asks_no_more_than_the_limit() {
        let mut proofs = Proofs::default();
        let mut questions = 0;
        for number in 1..=5000 {
            let resource = Resource::parse(&format!("r{number}")).unwrap();
            let (forged, _answer) = claim(number);
            let now = Time::from_micros(number * 200);
            questions += usize::from(proofs.claim(now, &resource, forged) == Course::Ask);
            proofs
                .answered(&resource, 0)
                .into_iter()
                .for_each(|claim| claim.settle(Err(Unproved::NotIssued)));
        }
        assert!((100..=152).contains(&questions), "{questions} in a second");
    }

    #[test]
    fn one_question_of_how_far_etcd_has_come_serves_all_and_comes_no_sooner_than_it_may() {
        let mut proofs = Proofs::default();
        let at = Time::from_millis;
        let early = |proofs: &mut Proofs, now, number| {
            let resource = Resource::parse(&format!("r{number}")).unwrap();
            proofs.early(now, resource, claim(number).0)
        };
        assert_eq!(early(&mut proofs, at(1000), 1), Some(Duration::ZERO), "the first waits for nothing");
        assert_eq!(early(&mut proofs, at(1001), 2), None);
        proofs.ask_how_far(at(1002));
        assert_eq!(early(&mut proofs, at(1003), 3), None, "it is for the next question");
        let (answered, next) = proofs.heard_how_far(at(1004), |_| 0);
        assert_eq!((answered.len(), next), (2, Some(Duration::from_millis(98))));
        proofs.ask_how_far(at(1102));
        let (answered, next) = proofs.heard_how_far(at(1103), |_| 0);
        assert_eq!((answered.len(), next, proofs.waiting), (1, None, 0));
    }

    #[test]
    fn a_claim_hears_when_the_mark_has_reached_it_or_its_proof_failed() {
        let mut proofs = Proofs::default();
        let ((first, mut heard), (second, mut other)) = (claim(7), claim(9));
        proofs.raising(Time::ZERO, ledger(), first, 6);
        proofs.raising(Time::ZERO, ledger(), second, 6);
        proofs.raised(&ledger(), 7);
        assert_eq!(heard.try_recv(), Ok(Ok(())));
        assert!(other.try_recv().is_err());
        proofs.refuse(Time::ZERO, &ledger(), Token::new(9).unwrap());
        assert_eq!(other.try_recv(), Ok(Err(Unproved::NotIssued)));
        assert_eq!(proofs.waiting, 0);
    }

    #[test]
    fn a_claim_that_the_mark_has_reached_while_etcd_was_asked_waits_no_longer() {
        let mut proofs = Proofs::default();
        let ((early, mut heard), (higher, mut other)) = (claim(7), claim(9));
        proofs.early(Time::ZERO, ledger(), early);
        proofs.early(Time::ZERO, ledger(), higher);
        proofs.ask_how_far(Time::ZERO);
        let (mut left, _) = proofs.heard_how_far(Time::ZERO, |_| 7);
        assert_eq!((heard.try_recv(), left.len()), (Ok(Ok(())), 1));

        let (_, higher) = left.remove(0);
        proofs.claim(Time::ZERO, &ledger(), higher);
        assert!(proofs.answered(&ledger(), 8).len() == 1 && other.try_recv().is_err());
        let (asked, mut heard) = claim(8);
        proofs.claim(Time::ZERO, &ledger(), asked);
        assert!(proofs.answered(&ledger(), 9).is_empty(), "a successor's mark");
        assert_eq!(heard.try_recv(), Ok(Ok(())), "the gate says that it is stale");

        let (raised, mut heard) = claim(9);
        proofs.raising(Time::ZERO, ledger(), raised, 9);
        assert_eq!(heard.try_recv(), Ok(Ok(())), "nobody tells of the mark again");
        assert_eq!(proofs.waiting, 0);
    }
}
