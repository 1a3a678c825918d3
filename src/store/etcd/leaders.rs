//! Who leads, and what that means for marks: raised for a new leader, vacant after the last, and proved by etcd for
//! whoever brings a token that the mark does not have yet.

use std::time::Duration;

use highgate_elector::{Resource, Token};
use highgate_etcd::{Listing, Range, keys};

use super::driver::{Driver, Report, Stage, now_time};
use super::link::Trouble;
use super::proofs::{Claim, Course, OUT_OF_REACH};
use super::queues::{Candidate, Head, Turn};
use super::session::Session;
use super::values::{number, revision};
use crate::controls::{Rule, breaks};
use crate::replica::{Input, Want, floor};
use crate::shorten::shorten;
use crate::store::Unproved;

/// Whoever writes a key in etcd decides how long it is.
const MAX_KEY: usize = 1024;

impl Driver {
    /// A leader changed: the mark follows, even if whoever was elected knows nothing of Highgate.
    pub(super) fn follow(&mut self, turn: Turn) {
        let Turn { resource, before, after, why } = turn;
        self.note_holder(&resource, after.as_ref());
        self.tell_of_turn(&resource, before.as_ref().map(|head| (head, why)), after.as_ref());
        match after {
            Some(head) => {
                report_if_put_by_hand(&resource, &head);
                self.want(&resource, &head, None, true);
            }
            None => self.vacate(resource),
        }
    }

    /// After a join or a gap: whoever leads now.
    pub(super) fn follow_all_leaders(&mut self) {
        self.tell_who_stands();
        let Stage::Inside(session) = &self.stage else { return };
        for (resource, head) in session.queues.heads() {
            report_if_put_by_hand(&resource, &head);
            self.want(&resource, &head, None, true);
        }
        let Stage::Inside(session) = &self.stage else { return };
        let left: Vec<Resource> =
            session.replica.departed(|resource, created| session.queues.has(resource, created));
        for resource in left {
            self.vacate(resource);
        }
    }

    /// The gate is told whose token it will be before it opens at it: a candidate comes before its raise, and both are
    /// applied in the order of etcd's revisions.
    fn note_holder(&self, resource: &Resource, head: Option<&Head>) {
        let Stage::Inside(session) = &self.stage else { return };
        let holder = head.and_then(|head| {
            let token = keys::token(session.replica.era(), number(head.created))?;
            Some((token, head.candidate.owner.as_deref()?))
        });
        self.shared.ledger.note_holder(resource, holder);
    }

    /// The same for everybody who leads, before a join or a listing opens any gate.
    pub(super) fn note_all_holders(&self) {
        let Stage::Inside(session) = &self.stage else { return };
        for (resource, head) in session.queues.heads() {
            self.note_holder(&resource, Some(&head));
        }
    }

    pub(super) fn want(&mut self, resource: &Resource, head: &Head, block: Option<bool>, patient: bool) {
        let Stage::Inside(session) = &self.stage else { return };
        let era = session.replica.era();
        let Some(token) = keys::token(era, number(head.created)) else { return };
        let proof = Some(head.candidate.key.clone().into_boxed_slice());
        self.step(Input::Want(Want { resource: resource.clone(), token, block, proof, patient }));
    }

    /// The last candidate has gone. If the mark was one of them, nobody passes until the next.
    pub(super) fn vacate(&mut self, resource: Resource) {
        let Stage::Inside(session) = &self.stage else { return };
        let record = session.replica.record(&resource);
        if session.queues.head(&resource).is_none()
            && record.issued
            && let Some(token) = Token::new(record.token)
        {
            self.step(Input::Vacate { resource, token });
        }
    }

    pub(super) fn prove(&mut self, resource: &Resource, claim: Claim) {
        if breaks(Rule::SharedMarks) {
            self.raise_here(resource, claim.token);
            return claim.settle(Ok(()));
        }
        let Stage::Inside(session) = &mut self.stage else { return claim.settle(Err(Unproved::Away)) };
        let (era, record) = (session.replica.era(), session.replica.record(resource));
        match claim.token.era().cmp(&era) {
            std::cmp::Ordering::Less => return claim.settle(Err(Unproved::Stale { mark: floor(era) })),
            std::cmp::Ordering::Greater => return claim.settle(Err(Unproved::NotIssued)),
            std::cmp::Ordering::Equal if record.token >= claim.token.get() => return claim.settle(Ok(())),
            std::cmp::Ordering::Equal => {}
        }
        if let Some(head) = session.queues.head(resource).filter(|head| head.created == claim.token.value()) {
            return self.raise_for(resource, &head, claim);
        }
        let known = session.queues.has(resource, claim.token.value());
        let out_of_reach = self.link.memory.revision().saturating_add(OUT_OF_REACH);
        if !known && (claim.token.value() <= session.seen || claim.token.value() > out_of_reach) {
            // Every candidate up to what the watch has shown is known, and etcd cannot have come so far beyond.
            return claim.settle(Err(Unproved::NotIssued));
        }
        if !known {
            let after = session.proofs.early(now_time(), resource.clone(), claim);
            return self.ask_how_far_after(after);
        }
        self.ask_who_leads(resource, claim);
    }

    pub(super) fn ask_how_far_after(&self, after: Option<Duration>) {
        let (Stage::Inside(session), Some(after)) = (&self.stage, after) else { return };
        let (number, reports) = (session.number, self.reports.clone());
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            let _ = reports.send(Report::AskHowFar { session: number });
        });
    }

    pub(super) fn ask_how_far(&mut self) {
        let Stage::Inside(session) = &mut self.stage else { return };
        session.proofs.ask_how_far(now_time());
        let (link, number, reports) = (self.link.clone(), session.number, self.reports.clone());
        tokio::spawn(async move {
            let result = link.range(Range::key(link.keys.era())).await;
            let _ = reports.send(Report::HowFar { session: number, result });
        });
    }

    pub(super) fn heard_how_far(&mut self, result: Result<Listing, Trouble>) {
        let answer = self.judge(result);
        let Stage::Inside(session) = &mut self.stage else { return };
        let Session { replica, proofs, .. } = &mut **session;
        let (claims, next) = proofs.heard_how_far(now_time(), |resource| replica.record(resource).token);
        let reached = answer.map(|answer| revision(answer.header.revision));
        for (resource, claim) in claims {
            match reached {
                None => claim.settle(Err(Unproved::Away)),
                Some(reached) if claim.token.value() > reached => {
                    if let Stage::Inside(session) = &mut self.stage {
                        session.proofs.remember(now_time(), &resource, claim.token);
                    }
                    claim.settle(Err(Unproved::NotIssued));
                }
                Some(_) => self.ask_who_leads(&resource, claim),
            }
        }
        self.ask_how_far_after(next);
    }

    pub(super) fn ask_who_leads(&mut self, resource: &Resource, claim: Claim) {
        let Stage::Inside(session) = &mut self.stage else { return claim.settle(Err(Unproved::Away)) };
        if session.proofs.claim(now_time(), resource, claim) == Course::Ask {
            let (link, number, resource) = (self.link.clone(), session.number, resource.clone());
            let reports = self.reports.clone();
            tokio::spawn(async move {
                let first = Range::oldest_below(link.keys.election(&resource).as_bytes());
                let result = link.range(first).await;
                let _ = reports.send(Report::Leads { session: number, resource, result });
            });
        }
    }

    pub(super) fn raise_for(&mut self, resource: &Resource, head: &Head, claim: Claim) {
        let block = claim.block;
        if let Stage::Inside(session) = &mut self.stage {
            let mark = session.replica.record(resource).token;
            session.proofs.raising(now_time(), resource.clone(), claim, mark);
        }
        self.want(resource, head, block, false);
    }

    pub(super) fn heard_who_leads(&mut self, resource: &Resource, result: Result<Listing, Trouble>) {
        let answer = self.judge(result);
        let Stage::Inside(session) = &mut self.stage else { return };
        let mark = session.replica.record(resource).token;
        let claims = session.proofs.answered(resource, mark);
        let Some(answer) = answer else {
            return claims.into_iter().for_each(|claim| claim.settle(Err(Unproved::Away)));
        };
        let head = answer.kvs.first().map(|kv| Head {
            created: revision(kv.create_revision),
            candidate: Candidate::read(self.link.keys.name_of(resource, &kv.key), kv),
        });
        for claim in claims {
            match &head {
                Some(head) if head.created == claim.token.value() => self.raise_for(resource, head, claim),
                _ => {
                    if let Stage::Inside(session) = &mut self.stage {
                        session.proofs.remember(now_time(), resource, claim.token);
                    }
                    claim.settle(Err(Unproved::NotIssued));
                }
            }
        }
    }
}

/// Nobody renews such a key, and nobody may know that it is there.
fn report_if_put_by_hand(resource: &Resource, head: &Head) {
    if head.candidate.by_hand {
        let key = String::from_utf8_lossy(&head.candidate.key);
        let key = shorten(&key, MAX_KEY);
        tracing::warn!(
            %resource,
            %key,
            "a key that no election puts there leads this resource, and all others wait behind it until it is gone; \
             if nobody needs it, `highgate evict {resource}` removes it"
        );
    }
}
