//! RAISE, and everything else a resource has left to do: one proposal at a time.

use std::time::Duration;

use highgate_elector::{Resource, Token};

use super::mend::Mend;
use super::{Given, Output, Proposal, Record, Replica, Revision, State, Time, Want};

/// Between the replica that is to act first and the next one.
pub(super) const STAGGER: Duration = Duration::from_millis(100);
/// Before a proposal is made again whose answer got lost, or that was refused for what it claims.
const PAUSE: Duration = Duration::from_millis(100);

/// What a resource still waits for. Dropped when there is nothing.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Work {
    /// A proposal is with the store; its answer, or news, comes before the next.
    pub(super) outstanding: Option<Outstanding>,
    want: Option<Want>,
    /// Nothing is proposed for the want before this.
    want_from: Time,
    freeze: Option<bool>,
    /// Unknown outcomes are to be left to an operator.
    block: bool,
    /// Unknown outcomes so far are settled.
    pub(super) settle: bool,
    /// The store has lost the mark, or what was said of it: it is put back.
    pub(super) mend: Option<Mend>,
    /// The token whose leader has gone.
    vacate: Option<Token>,
    /// When the mark was raised, while it is not open.
    raised_at: Option<Time>,
    /// Since when the mark may open.
    ready_at: Option<Time>,
    /// Nothing is proposed before this.
    not_before: Time,
}

/// What was proposed.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Outstanding {
    seen: Revision,
    /// The token it raises to; none if it raises nothing.
    raise: Option<Token>,
    /// It claims that nobody leads.
    leaderless: bool,
}

/// What is to be proposed for a resource.
enum Next {
    Now(Record, Given),
    At(Time),
    Nothing,
}

impl Work {
    pub(super) fn loaded(now: Time, record: &Record) -> Self {
        let raised_at = (record.state == State::Raised).then_some(now);
        Self { raised_at, ..Self::default() }
    }

    pub(super) fn wanted(&self) -> Option<Token> {
        self.want.as_ref().map(|want| want.token)
    }

    /// Keeps the time of the raise; how long it took, once the record is open.
    pub(super) fn follow(&mut self, now: Time, record: &Record) -> Option<Time> {
        self.ready_at = None;
        match record.state {
            State::Raised => {
                self.raised_at.get_or_insert(now);
                None
            }
            State::Open => self.raised_at.take().map(|raised| now.saturating_sub(raised)),
        }
    }

    /// The record this resource should have next, as far as requests and operators say. An intent is kept
    /// until the record shows it, so that a refused proposal loses nothing.
    fn intent(&mut self, now: Time, record: &Record, watermark: Revision) -> Next {
        if record.unreadable {
            // Whatever was wanted: nobody knows what it would be written over.
            *self = Self::default();
            return Next::Nothing;
        }
        self.want.take_if(|want| want.token.get() <= record.token);
        self.freeze.take_if(|frozen| *frozen == record.frozen);
        self.block &= !record.policy();
        self.vacate
            .take_if(|token| token.get() < record.token || (token.get() == record.token && record.vacant));
        if let Some(want) = &self.want {
            if self.want_from > now {
                return Next::At(self.want_from);
            }
            let block = if self.block { Some(true) } else { want.block };
            let raised = record.raised(want.token.get(), block, want.proof.is_some(), watermark);
            return Next::Now(raised, want.proof.clone().map_or(Given::Nothing, Given::Leads));
        }
        let vacant = record.vacant || self.vacate.is_some_and(|token| token.get() == record.token);
        let frozen = self.freeze.unwrap_or(record.frozen);
        let settled = if self.settle { watermark } else { record.settled };
        let base = if self.block { record.blocking() } else { *record };
        let next = Record { vacant, frozen, settled, ..base };
        let leaves = vacant && !record.vacant && record.issued;
        let given = if leaves { Given::Leaderless } else { Given::Nothing };
        if next == *record { Next::Nothing } else { Next::Now(next, given) }
    }

    fn is_idle(&self) -> bool {
        self.want.is_none()
            && self.freeze.is_none()
            && self.vacate.is_none()
            && self.mend.is_none()
            && !self.settle
            && !self.block
    }
}

impl Replica {
    pub(super) fn want(&mut self, now: Time, want: Want, outputs: &mut Vec<Output>) {
        let resource = want.resource.clone();
        let of_this_era = self.timing.is_none() || want.token.era() == self.era;
        if self.record(&resource).token >= want.token.get() || !of_this_era {
            return;
        }
        let from = if want.patient { now + STAGGER * self.rank(&resource) } else { now };
        let work = self.work.entry(resource.clone()).or_default();
        match work.wanted() {
            Some(wanted) if wanted > want.token => {}
            // Whoever waits for it now makes it urgent, and a proof is never lost to a claim without one.
            Some(wanted) if wanted == want.token => {
                work.want_from = work.want_from.min(from);
                if let Some(known) = &mut work.want {
                    known.proof = known.proof.take().or(want.proof);
                    known.block = known.block.or(want.block);
                }
            }
            _ => {
                work.want_from = from;
                work.want = Some(want);
            }
        }
        self.advance(now, &resource, outputs);
    }

    pub(super) fn freeze(&mut self, now: Time, resource: Resource, frozen: bool, outputs: &mut Vec<Output>) {
        let record = self.record(&resource);
        let work = self.work.entry(resource.clone()).or_default();
        work.freeze = Some(frozen);
        // Whoever keeps an unknown outcome, here or elsewhere, hears of it by the record.
        work.settle |= !frozen && record.block;
        self.advance(now, &resource, outputs);
    }

    /// A request that may end with an outcome that only an operator can settle is about to pass.
    pub(super) fn block(&mut self, now: Time, resource: Resource, outputs: &mut Vec<Output>) {
        self.work.entry(resource.clone()).or_default().block = true;
        self.advance(now, &resource, outputs);
    }

    /// Every replica sees it; the one that comes first for the resource acts first.
    pub(super) fn vacate(&mut self, now: Time, resource: Resource, token: Token, outputs: &mut Vec<Output>) {
        let patience = STAGGER * self.rank(&resource);
        let work = self.work.entry(resource.clone()).or_default();
        work.vacate = Some(token);
        work.not_before = work.not_before.max(now + patience);
        self.advance(now, &resource, outputs);
    }

    /// The store saw another record than we did, and that arrives (or arrived) as `Applied`; what is still
    /// wanted after that is proposed again. If it saw the same, the claim itself was refused: it is dropped.
    pub(super) fn refused(
        &mut self,
        now: Time,
        resource: Resource,
        seen: Revision,
        modified: Revision,
        outputs: &mut Vec<Output>,
    ) {
        let (known, watermark) = (self.record(&resource).modified, self.watermark());
        let Some(work) = self.work.get_mut(&resource) else { return };
        let Some(outstanding) = work.outstanding.filter(|outstanding| outstanding.seen == seen) else {
            // An answer to what was overtaken by news.
            return;
        };
        if modified > known {
            // Proposing before the news has arrived would be refused again. It is read, if it does not arrive.
            return self.news.counted.expect(now, watermark, modified);
        }
        work.outstanding = None;
        if modified < known {
            // At once it would be refused again, and every refusal is a revision of the store.
            work.not_before = now + PAUSE;
            if modified == 0 {
                let lost_at = self.news.counted.newest(watermark);
                self.lose(now, &resource, 0, lost_at);
            }
        } else if modified == seen {
            // Only what was refused: a successor may have come meanwhile.
            work.want.take_if(|want| outstanding.raise == Some(want.token));
            work.vacate.take_if(|_| outstanding.leaderless);
            work.not_before = now + PAUSE;
        }
        self.advance(now, &resource, outputs);
    }

    /// It may have been committed, or may yet be: proposed again, the compare tells.
    pub(super) fn failed(
        &mut self,
        now: Time,
        resource: Resource,
        seen: Revision,
        outputs: &mut Vec<Output>,
    ) {
        let outstanding =
            |work: &&mut Work| work.outstanding.is_some_and(|outstanding| outstanding.seen == seen);
        let Some(work) = self.work.get_mut(&resource).filter(outstanding) else { return };
        work.outstanding = None;
        work.not_before = now + PAUSE;
        self.advance(now, &resource, outputs);
    }

    /// Resources whose mark was issued to a candidate that is not there any more, as far as anybody knows.
    pub fn departed(&self, stands: impl Fn(&Resource, u64) -> bool) -> Vec<Resource> {
        let is_departed = |(resource, record): &(&Resource, &Record)| {
            let Some(token) = Token::new(record.token) else { return false };
            let ours = record.issued && !record.vacant && token.era() == self.era;
            ours && !stands(resource, token.value())
        };
        self.records.iter().filter(is_departed).map(|(resource, _)| resource.clone()).collect()
    }

    pub(super) fn advance_all(&mut self, now: Time, outputs: &mut Vec<Output>) {
        let resources: Vec<Resource> = self.work.keys().cloned().collect();
        for resource in resources {
            self.advance(now, &resource, outputs);
        }
    }

    /// Proposes the next change of a resource, if there is one and none is outstanding.
    pub(super) fn advance(&mut self, now: Time, resource: &Resource, outputs: &mut Vec<Output>) {
        let record = self.record(resource);
        match self.next(now, resource, &record) {
            Next::Nothing => {
                let done =
                    |work: &Work| work.is_idle() && work.outstanding.is_none() && record.state == State::Open;
                if self.work.get(resource).is_some_and(done) {
                    self.work.remove(resource);
                }
            }
            Next::At(time) => {
                self.agenda.insert((time, resource.clone()));
            }
            Next::Now(next, given) => {
                let (resource, seen) = (resource.clone(), record.modified);
                if let Some(work) = self.work.get_mut(&resource) {
                    let raise = work.wanted().filter(|token| token.get() == next.token);
                    work.outstanding =
                        Some(Outstanding { seen, raise, leaderless: given == Given::Leaderless });
                }
                outputs.push(Output::Propose(Proposal { resource, seen, record: next, given }));
            }
        }
    }

    fn next(&mut self, now: Time, resource: &Resource, record: &Record) -> Next {
        let watermark = self.watermark();
        let Some(work) = self.work.get_mut(resource) else { return Next::Nothing };
        if work.outstanding.is_some() {
            return Next::Nothing;
        }
        let next = match work.intent(now, record, watermark) {
            // Whatever raises the mark puts it back as well.
            Next::Now(next, given) if next.token > record.token => Next::Now(next, given),
            other => match self.to_mend(resource, record) {
                Some((from, _)) if from > now => Next::At(from),
                Some((_, mended)) => Next::Now(mended, Given::Nothing),
                None if matches!(other, Next::Nothing) => self.seal(now, resource, record),
                None => other,
            },
        };
        match (next, self.work.get(resource).map(|work| work.not_before)) {
            (Next::Now(..), Some(not_before)) if not_before > now => Next::At(not_before),
            (next, _) => next,
        }
    }

    /// Opens what may open; the replica that comes first for it at once, the others if that one does not.
    fn seal(&mut self, now: Time, resource: &Resource, record: &Record) -> Next {
        let watermark = self.watermark();
        if !self.may_open(now, record) {
            return self.tombstone_passes_at(now, record).map_or(Next::Nothing, Next::At);
        }
        let patience = STAGGER * self.rank(resource);
        let Some(work) = self.work.get_mut(resource) else { return Next::Nothing };
        let due = *work.ready_at.get_or_insert(now) + patience;
        if now >= due { Next::Now(record.opened(watermark), Given::Nothing) } else { Next::At(due) }
    }

    /// When to look again at a raise that waits for nothing but a tombstone's age.
    fn tombstone_passes_at(&self, now: Time, record: &Record) -> Option<Time> {
        if record.state != State::Raised {
            return None;
        }
        let ends = self.tombstones.values().map(super::Tombstone::ends);
        ends.filter(|ends| *ends > now).max()
    }
}
