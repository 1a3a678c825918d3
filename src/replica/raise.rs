//! RAISE, and everything else a resource has left to do: one proposal at a time.

use highgate_elector::{Resource, Token};

use super::{Event, Output, Proposal, Record, Replica, State, Time};

/// What a resource still waits for. Dropped when there is nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Work {
    /// A proposal is with the store; its answer comes before the next.
    pub(super) outstanding: bool,
    want: Option<Want>,
    freeze: Option<bool>,
    /// Whether unknown outcomes under the raised mark are to block; none: as before.
    block_when_open: Option<bool>,
    /// The token whose leader has gone.
    vacate: Option<Token>,
    /// When the mark was raised, while it is not open.
    raised_at: Option<Time>,
    /// An unknown outcome of a process before this one, to be settled by an operator.
    pub(super) blocked: bool,
}

#[derive(Clone, Copy, Debug)]
struct Want {
    token: Token,
    block: Option<bool>,
}

impl Work {
    pub(super) fn loaded(now: Time, record: &Record, blocked: bool) -> Self {
        let raised_at = (record.state == State::Raised).then_some(now);
        Self { raised_at, blocked, ..Self::default() }
    }

    pub(super) fn wanted(&self) -> Option<Token> {
        self.want.map(|want| want.token)
    }

    /// Keeps the time of the raise; how long it took, once the record is open.
    pub(super) fn follow(&mut self, now: Time, record: &Record) -> Option<Time> {
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
    fn intent(&mut self, record: &Record) -> Option<Record> {
        self.want.take_if(|want| want.token.get() <= record.token);
        self.freeze.take_if(|frozen| *frozen == record.frozen);
        self.vacate
            .take_if(|token| token.get() < record.token || (token.get() == record.token && record.vacant));
        if let Some(Want { token, block }) = self.want {
            // What is unsettled below blocks this raise even if this route would not; once open, it is as asked.
            self.block_when_open = block;
            let (token, block) = (token.get(), block.unwrap_or(false) || record.block);
            return Some(Record { token, block, state: State::Raised, vacant: false, ..*record });
        }
        let vacant = record.vacant || self.vacate.is_some_and(|token| token.get() == record.token);
        let frozen = self.freeze.unwrap_or(record.frozen);
        (vacant != record.vacant || frozen != record.frozen).then_some(Record { vacant, frozen, ..*record })
    }
}

impl Replica {
    pub(super) fn want(
        &mut self,
        now: Time,
        resource: Resource,
        token: Token,
        block: Option<bool>,
        outputs: &mut Vec<Output>,
    ) {
        if self.records.get(&resource).is_some_and(|record| record.token >= token.get()) {
            return;
        }
        let work = self.work.entry(resource.clone()).or_default();
        if work.want.is_none_or(|want| want.token < token) {
            work.want = Some(Want { token, block });
        }
        self.advance(now, &resource, outputs);
    }

    pub(super) fn freeze(&mut self, now: Time, resource: Resource, frozen: bool, outputs: &mut Vec<Output>) {
        let mark = self.records.get(&resource).map_or(0, |record| record.token);
        let work = self.work.entry(resource.clone()).or_default();
        work.freeze = Some(frozen);
        if !frozen && std::mem::take(&mut work.blocked) {
            outputs.push(Output::Tell(Event::Thawed { resource: resource.clone(), mark }));
        }
        self.advance(now, &resource, outputs);
    }

    pub(super) fn vacate(&mut self, now: Time, resource: Resource, token: Token, outputs: &mut Vec<Output>) {
        self.work.entry(resource.clone()).or_default().vacate = Some(token);
        self.advance(now, &resource, outputs);
    }

    /// The store saw another record than we did. What it saw arrives (or arrived) as `Applied`; what is still
    /// wanted after that is proposed again.
    pub(super) fn refused(&mut self, now: Time, resource: Resource, outputs: &mut Vec<Output>) {
        if let Some(work) = self.work.get_mut(&resource) {
            work.outstanding = false;
        }
        self.advance(now, &resource, outputs);
    }

    pub(super) fn advance_all(&mut self, now: Time, outputs: &mut Vec<Output>) {
        let resources: Vec<Resource> = self.work.keys().cloned().collect();
        for resource in resources {
            self.advance(now, &resource, outputs);
        }
    }

    /// Proposes the next change of a resource, if there is one and none is outstanding.
    pub(super) fn advance(&mut self, now: Time, resource: &Resource, outputs: &mut Vec<Output>) {
        let record = self.records.get(resource).copied().unwrap_or_default();
        let may_open = self.may_open(now, &record);
        let Some(work) = self.work.get_mut(resource) else { return };
        if work.outstanding {
            return;
        }
        let intent = work.intent(&record);
        let block = work.block_when_open.unwrap_or(record.block);
        let open = || Record { state: State::Open, block, ..record };
        let next = intent.or_else(|| (may_open && !work.blocked).then(open));
        match next {
            Some(next) => {
                work.outstanding = true;
                let seen = record.modified;
                outputs.push(Output::Propose(Proposal { resource: resource.clone(), seen, record: next }));
            }
            None if record.state == State::Open && !work.blocked => {
                self.work.remove(resource);
            }
            None => {}
        }
    }
}
