//! What the driver hears of etcd: answers to what it asked, and the changes that the watch tells of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use highgate_elector::{Resource, Token};
use highgate_etcd::{CallError, Event, Outcome, Watch, prefix_end};
use tokio::task::AbortHandle;

use super::driver::{Changes, Driver, Renewal, Report, Stage, now_time};
use super::link::Trouble;
use super::load::{JoinError, Joined, Loaded};
use super::proofs::Proofs;
use super::queues::Queues;
use super::requests;
use super::retell::Told;
use super::serve::fenced;
use super::session::{Leaver, Session};
use super::values::{Poll, Sorted, revision, sort};
use crate::controls::{Rule, breaks};
use crate::events::Notice;
use crate::names::NamesError;
use crate::replica::{
    Answer, Applied, Change, Fenced, Given, Incarnation, Input, Output, Proposal, Record, Replica, Revision,
    floor,
};

/// Before a leave is tried again that etcd did not answer.
const LEAVE_PAUSE: Duration = Duration::from_millis(500);

impl Driver {
    pub(super) fn hear(&mut self, report: Report) {
        match report {
            Report::Joined { join, me, result } if self.is_current(join) => self.joined(me, result),
            Report::Joined { result: Err(JoinError::Trouble(_)), .. } => {}
            Report::Joined { me, .. } => {
                // Nobody waits for it any more; what it may have written is taken back.
                self.past.insert(me);
                self.leavers.push(Leaver::new(me, None));
            }
            Report::Left { incarnation, result } => self.left_for_good(incarnation, result),
            Report::LookedAfter(looked) => self.looked_after(looked),
            Report::AwaitTurn { resource, waiting } => self.await_turn(resource, waiting),
            Report::Listed { session, result } if self.is_session(session) => self.listed(result),
            Report::Renewed { session, renewal, result } if self.is_session(session) => {
                self.renewed(&renewal, result);
            }
            #[cfg(feature = "controls")]
            Report::KeptAlive { session, sent } if self.is_session(session) => {
                self.step(Input::Renewed { sent, answer: Answer::Accepted });
            }
            Report::Proposed { session, proposals, result } if self.is_session(session) => {
                self.proposed(proposals, result);
            }
            Report::Named { session, result } if self.is_session(session) => self.named(result),
            Report::Leads { session, resource, result } if self.is_session(session) => {
                self.heard_who_leads(&resource, result);
            }
            Report::AskHowFar { session } if self.is_session(session) => self.ask_how_far(),
            Report::HowFar { session, result } if self.is_session(session) => self.heard_how_far(result),
            Report::Forgot { session, name, result } if self.is_session(session) => self.forgot(name, result),
            Report::Done { session, result } if self.is_session(session) => drop(self.judge(result)),
            // Of an incarnation that is over.
            _ => {}
        }
    }

    pub(super) fn is_session(&self, number: u64) -> bool {
        matches!(&self.stage, Stage::Inside(session) if session.number == number)
    }

    /// The answer, if it counts. An etcd that went back fences.
    pub(super) fn judge<T>(&mut self, result: Result<T, Trouble>) -> Option<T> {
        self.note(result.as_ref().map(drop));
        match result {
            Ok(answer) => Some(answer),
            Err(Trouble::WentBack(error)) => {
                tracing::error!(%error, "etcd is not what it was");
                self.fence(&error.to_string());
                self.save_now();
                None
            }
            Err(Trouble::Call(_) | Trouble::Outdated) => None,
        }
    }

    pub(super) fn joined(&mut self, me: Incarnation, result: Result<Joined, JoinError>) {
        let Stage::Outside { joining: true, why, .. } = &self.stage else { return };
        let joined = match result {
            Ok(joined) => joined,
            Err(error) => {
                let text = error.to_string();
                if *why != text {
                    tracing::warn!(why = text, "this replica cannot join; it goes on trying");
                }
                if let JoinError::Trouble(trouble) | JoinError::Unsure(trouble) = &error {
                    self.note(Err(trouble));
                    if matches!(trouble, Trouble::WentBack(_)) {
                        self.save_now();
                    }
                }
                if !matches!(error, JoinError::Trouble(_)) {
                    // What may have been written is taken back.
                    self.past.insert(me);
                    self.leavers.push(Leaver::new(me, None));
                }
                for promise in self.promises.drain(..) {
                    // The next join carries it, and nothing passes before.
                    let _ = promise.reply.send(());
                }
                return self.stay_outside(text);
            }
        };
        self.note(Ok(()));
        self.begin(me, joined);
    }

    /// The gates first, then the validity.
    pub(super) fn begin(&mut self, me: Incarnation, joined: Joined) {
        let Joined { sent, ahead, created, loaded } = joined;
        let Loaded { revision: loaded_at, snapshot, candidates, names: (named_at, names) } = loaded;
        let valid = sent + self.timing.validity;
        let era = snapshot.era;
        let lowest = if breaks(Rule::MarkOfEra) { 0 } else { floor(era) };
        self.shared.ledger.bound(lowest, floor(era + 1));
        let (replica, outputs) =
            Replica::join(now_time(), sent.since_boot(), me, Some(self.timing), snapshot);
        let number = self.session_number();
        let session = Session {
            number,
            me,
            created,
            confirmed: created,
            replica,
            names: (named_at, Arc::new(names.clone())),
            renaming: None,
            counted: None,
            queues: Queues::load(candidates),
            seen: revision(loaded_at),
            told: Told::default(),
            proofs: Proofs::default(),
            proposals: BTreeMap::new(),
            sending: 0,
            held_back: Default::default(),
            listing: false,
            promises: std::mem::take(&mut self.promises),
            listed_at: None,
            watch: self.watch_from(number, loaded_at + 1),
            watch_number: self.watches,
            joined_at: Instant::now(),
        };
        self.stage = Stage::Inside(Box::new(session));
        self.take_names(named_at, names);
        self.note_all_holders();
        self.carry_out(
            outputs.into_iter().filter(|output| !matches!(output, Output::Valid { .. })).collect(),
        );
        if let Stage::Inside(session) = &mut self.stage {
            session.counted = Some(self.shared.watched.begin(valid, ahead));
            self.shared.ledger.wake_all();
            tracing::info!(era, revision = loaded_at, "joined: this replica serves");
            self.tell(Notice::Fence(crate::replica::Event::Joined { member: me }));
            self.save_now();
        }
        self.follow_all_leaders();
        self.shown = None;
    }

    pub(super) fn watch_from(&mut self, session: u64, from: i64) -> AbortHandle {
        self.watches += 1;
        let number = self.watches;
        let root = self.link.keys.root().into_bytes();
        let mut watch = Watch::from_revision(&self.link.client, &root, &prefix_end(&root), from);
        let changes = self.changes.clone();
        let watching = tokio::spawn(async move {
            loop {
                let news = watch.changes().await;
                let ended = news.is_err();
                if changes.send(Changes { session, watch: number, news }).await.is_err() || ended {
                    return;
                }
            }
        });
        watching.abort_handle()
    }

    /// APPLY: revision by revision.
    pub(super) fn take_changes(&mut self, changes: Changes) {
        let Changes { session: number, watch, news } = changes;
        let current = |session: &Session| session.number == number && session.watch_number == watch;
        if !matches!(&self.stage, Stage::Inside(session) if current(session)) {
            return;
        }
        let events = match news {
            Ok(events) => events,
            Err(error) => {
                tracing::warn!(%error, "the watch cannot go on");
                return self.list("the watch could not go on");
            }
        };
        let modified = |event: &Event| event.kv.mod_revision;
        for revision in events.chunk_by(|one, other| modified(one) == modified(other)) {
            // Whatever was applied before may have ended this watch.
            if !matches!(&self.stage, Stage::Inside(session) if current(session) && !session.listing) {
                return;
            }
            let at = revision.first().map_or(0, modified);
            self.apply(sort(&self.link.keys, &self.timing, at, revision));
        }
    }

    pub(super) fn apply(&mut self, sorted: Sorted) {
        let Sorted { applied, names, polls } = sorted;
        let at = applied.revision;
        let marks: Vec<(Resource, u64)> = applied
            .changes
            .iter()
            .filter_map(|change| match change {
                Change::Record(resource, record) => Some((resource.clone(), record.token)),
                _ => None,
            })
            .collect();
        self.report_losses(&applied);
        self.bury_the_past(&applied);
        let Stage::Inside(session) = &self.stage else { return };
        let (watch, watermark) = (session.watch_number, session.replica.watermark());
        if let Some(version) = applied.seq {
            self.link.memory.counted(version);
        }
        if !applied.changes.is_empty() || applied.seq.is_some() {
            self.step(Input::Applied(applied));
        }
        let Stage::Inside(session) = &mut self.stage else { return };
        if session.listing || session.watch_number != watch {
            // Something before it was missed: it was not applied.
            return;
        }
        for (resource, mark) in marks {
            session.proofs.raised(&resource, mark);
        }
        if session.told.is_new(at) {
            session.seen = session.seen.max(at);
        }
        // Names that are told again may be older than those in force.
        match names.filter(|_| at > watermark) {
            None => {}
            Some(Ok(names)) => self.take_names(at, names),
            Some(Err(error)) => {
                self.saw_names_deleted = error == NamesError::Deleted;
                return self.fence(&error.to_string());
            }
        }
        let Stage::Inside(session) = &mut self.stage else { return };
        let polls = session.told.polls(at, polls);
        let named: BTreeSet<Resource> = polls.iter().map(Poll::resource).cloned().collect();
        for turn in session.queues.apply(polls) {
            self.follow(turn);
        }
        for resource in named {
            self.tell_turns(&resource);
        }
    }

    /// Somebody has done by hand what nothing here ever does.
    fn report_losses(&self, applied: &Applied) {
        let Stage::Inside(session) = &self.stage else { return };
        for change in &applied.changes {
            match change {
                Change::Lost(resource) => {
                    tracing::error!(%resource, "somebody has deleted this mark from etcd: it is put back");
                }
                Change::Record(resource, Record { token, unreadable: false, .. })
                    if *token < session.replica.record(resource).token =>
                {
                    let known = session.replica.record(resource).token;
                    tracing::error!(%resource, mark = token, known, "somebody has lowered this mark in etcd: it is put back");
                }
                _ => {}
            }
        }
    }

    /// A join that etcd ran late, after its incarnation had left, made a member that nobody is.
    fn bury_the_past(&mut self, applied: &Applied) {
        for change in &applied.changes {
            if let Change::Member(id, _) = change
                && self.past.contains(id)
                && !self.leavers.iter().any(|leaver| leaver.incarnation == *id)
            {
                self.leavers.push(Leaver::new(*id, None));
            }
        }
    }

    /// What was committed arrives with the watch, like everybody else's; only refusals are news.
    pub(super) fn proposed(&mut self, proposals: Vec<Proposal>, result: Result<Outcome, Trouble>) {
        if let Stage::Inside(session) = &mut self.stage {
            session.sending -= 1;
        }
        if is_too_long(&result) && proposals.len() > 1 {
            return self.send_in_smaller_batches(proposals);
        }
        let Some(answer) = self.judge(result) else {
            for Proposal { resource, seen, .. } in proposals {
                self.step(Input::Failed { resource, seen });
            }
            return;
        };
        if !answer.succeeded {
            return self.fence(fenced(Fenced::NewEra));
        }
        // Whatever became of each, the transaction counts.
        self.step(Input::Exists { counted: revision(answer.revision()), said: 0 });
        for (place, proposal) in proposals.into_iter().enumerate() {
            let Some(refused) = answer.nested(place).filter(|nested| !nested.succeeded) else { continue };
            let modified = refused.found(0).first().map_or(0, |kv| revision(kv.mod_revision));
            self.refused(proposal, modified);
        }
    }

    /// etcd was started with a smaller `--max-txn-ops`. It has run nothing of the batch.
    fn send_in_smaller_batches(&mut self, proposals: Vec<Proposal>) {
        let smaller = proposals.len().div_ceil(2);
        if smaller < self.batch {
            self.batch = smaller;
            tracing::warn!(batch = smaller, "etcd takes fewer operations in a transaction (--max-txn-ops)");
        }
        let Stage::Inside(session) = &mut self.stage else { return };
        for proposal in proposals {
            // One that was made since is newer.
            session.proposals.entry(proposal.resource.clone()).or_insert(proposal);
        }
    }

    pub(super) fn refused(&mut self, proposal: Proposal, modified: Revision) {
        let Proposal { resource, seen, record, given } = proposal;
        if let Stage::Inside(session) = &mut self.stage
            && modified == seen
            && matches!(given, Given::Leads(_))
            && let Some(token) = Token::new(record.token)
        {
            session.proofs.refuse(now_time(), &resource, token);
        }
        self.step(Input::Refused { resource, seen, modified });
    }

    pub(super) fn renewed(&mut self, renewal: &Renewal, result: Result<Outcome, Trouble>) {
        let sent = if breaks(Rule::ValidityFromSending) { now_time() } else { renewal.sent.since_boot() };
        let result = result.and_then(|answer| self.check_for_loss(renewal, answer));
        if let Ok(answer) = &result
            && answer.succeeded
        {
            let (counted, said) = requests::shown_by_renewal(answer);
            if let Stage::Inside(session) = &mut self.stage {
                session.told.shows(session.replica.watermark(), (counted, said));
            }
            self.step(Input::Exists { counted, said });
        }
        let (answer, overtaken) = match self.judge(result) {
            Some(answer) if !answer.succeeded => (Answer::Refused, false),
            Some(answer) if requests::word_stands(&answer, &renewal.value) => (Answer::Accepted, false),
            Some(_) => (Answer::Lost, true),
            None => (Answer::Lost, false),
        };
        if answer == Answer::Accepted {
            self.shared.watched.renewed(renewal.ahead);
        }
        self.step(Input::Renewed { sent, answer });
        if let Stage::Inside(session) = &mut self.stage
            && overtaken
        {
            // Another word of this replica was there before it, and may be the older one: it is said again at once.
            session.replica.retime(self.timing, now_time());
        }
        if let Stage::Inside(session) = &mut self.stage
            && answer == Answer::Accepted
        {
            for promise in
                session.promises.extract_if(.., |promise| promise.lock_delay <= renewal.value.lock_delay)
            {
                let _ = promise.reply.send(());
            }
        }
    }

    /// A renewal that etcd had confirmed has to be there, or a later one: else etcd went back, however far it has
    /// come since.
    pub(super) fn check_for_loss(&mut self, renewal: &Renewal, answer: Outcome) -> Result<Outcome, Trouble> {
        if answer.succeeded
            && let Stage::Inside(session) = &mut self.stage
        {
            let there = answer.found(0).first().map_or(0, |kv| revision(kv.mod_revision));
            if there < renewal.confirmed {
                return Err(self.link.memory.lost(renewal.confirmed, there).into());
            }
            if requests::word_was_put(&answer) {
                session.confirmed = session.confirmed.max(revision(answer.revision()));
            }
        }
        Ok(answer)
    }

    pub(super) fn forgot(&mut self, name: String, result: Result<Outcome, Trouble>) {
        let Some(answer) = self.judge(result) else { return };
        if !answer.succeeded && answer.found(0).is_empty() {
            // One that only this replica knew of: it has no place in etcd to be removed from.
            let change = Change::Forgotten(name);
            self.step(Input::Applied(Applied { changes: vec![change], ..Default::default() }));
        }
    }

    pub(super) fn listed(&mut self, result: Result<Loaded, JoinError>) {
        let loaded = match result {
            Ok(loaded) => loaded,
            Err(JoinError::Trouble(trouble) | JoinError::Unsure(trouble)) => {
                self.judge::<()>(Err(trouble));
                if let Stage::Inside(session) = &mut self.stage {
                    session.listing = false;
                }
                return self.list("reading everything again failed");
            }
            Err(error) => return self.fence(&error.to_string()),
        };
        let Loaded { revision: loaded_at, snapshot, candidates, names: (named_at, names) } = loaded;
        let Stage::Inside(session) = &mut self.stage else { return };
        let news = session.names.0 != named_at;
        session.listing = false;
        session.queues = Queues::load(candidates);
        session.seen = revision(loaded_at);
        session.told.everything();
        let number = session.number;
        let marks: Vec<_> =
            snapshot.records.iter().map(|(resource, record)| (resource.clone(), record.token)).collect();
        if news {
            // Before the machine hears of it: what is claimed from now on has the names that it acknowledges.
            self.take_names(named_at, names);
        }
        self.note_all_holders();
        self.step(Input::Listed(snapshot));
        let watch = self.watch_from(number, loaded_at + 1);
        match &mut self.stage {
            Stage::Inside(session) => {
                session.watch = watch;
                session.watch_number = self.watches;
                for (resource, mark) in marks {
                    session.proofs.raised(&resource, mark);
                }
            }
            Stage::Outside { .. } => watch.abort(),
        }
        // Whoever waits for its turn asks again.
        self.forget_turns();
        self.follow_all_leaders();
    }

    pub(super) fn left_for_good(&mut self, incarnation: Incarnation, result: Result<Outcome, Trouble>) {
        match result {
            Ok(_) => self.leavers.retain(|leaver| leaver.incarnation != incarnation),
            Err(_) => {
                for leaver in self.leavers.iter_mut().filter(|leaver| leaver.incarnation == incarnation) {
                    leaver.leaving = false;
                    leaver.retry_at = Some(Instant::now() + LEAVE_PAUSE);
                }
            }
        }
    }
}

fn is_too_long(result: &Result<Outcome, Trouble>) -> bool {
    let too_long = |why: &str| why.contains("too many operations");
    matches!(result, Err(Trouble::Call(CallError::Refused(why))) if too_long(why))
}
