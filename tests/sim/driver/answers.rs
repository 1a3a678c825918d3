//! What etcd answers: `src/store/etcd/answers.rs`, and the steps of a join in `load.rs`.

use std::rc::Rc;
use std::time::Duration;

use highgate::names::Names;
use highgate::replica::{
    Answer as Renewed, Applied, Change, Input, Output, Proposal, Replica, Revision, Time, floor,
};
use highgate_elector::Resource;

use super::super::clock::{MILLI, Nanos};
use super::super::control::Control;
use super::super::etcd::{Reply, State, Txn};
use super::super::hooks::Hooks;
use super::super::host::{Joining, Leaver, Session, Stage};
use super::super::trace::{letter, short};
use super::super::wire::{Purpose, Report};
use super::super::world::World;

/// Before a leave is tried again that etcd did not answer.
const LEAVE_PAUSE: Nanos = 500 * MILLI;

/// Whether a failed join may have written its key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    No,
    Maybe,
}

impl World {
    pub(super) fn hear(&mut self, host: usize, report: Report) {
        let Report { purpose, before, answer } = report;
        match &purpose {
            Purpose::JoinEra { join } => {
                let revision = answer.as_ref().map_or(0, |answer| answer.revision);
                let cluster = answer.as_ref().map_or(0, |answer| answer.cluster);
                let era = answer.map(|answer| answer.reply);
                return self.heard_era(host, *join, era, (cluster, revision, before.revision));
            }
            // An etcd that went back is what this is for.
            Purpose::BumpRead => return self.heard_era_to_bump(host, answer.map(|answer| answer.reply)),
            Purpose::Bump => return,
            _ => {}
        }
        let unaware = self.is(Control::JudgedByOldEra);
        let Some(process) = &mut self.hosts[host].process else { return };
        // What was known of an etcd that is not there any more says nothing of this one.
        let answer = answer.filter(|_| before.accepted == process.memory.accepted || unaware);
        let heard = answer.is_some();
        let reply = answer.and_then(|answer| {
            let counts = process.memory.judge(answer.cluster, answer.revision, before.revision);
            counts.then_some((answer.reply, answer.revision))
        });
        let went_back = heard && reply.is_none();
        process.away = !heard;
        self.hear_judged(host, purpose, reply, went_back);
    }

    fn hear_judged(
        &mut self,
        host: usize,
        purpose: Purpose,
        reply: Option<(Reply, Revision)>,
        went_back: bool,
    ) {
        let session = match &purpose {
            Purpose::List { session }
            | Purpose::ListLoad { session, .. }
            | Purpose::Renew { session, .. }
            | Purpose::Propose { session, .. }
            | Purpose::Head { session, .. }
            | Purpose::Forget { session, .. }
            | Purpose::Rename { session }
            | Purpose::Done { session } => Some(*session),
            _ => None,
        };
        if let Some(number) = session {
            if self.hosts[host].session().is_none_or(|session| session.number != number) {
                return;
            }
            if went_back {
                self.fence(host, "went back");
                return self.save_now(host);
            }
        }
        let revision = reply.as_ref().map_or(0, |(_, revision)| *revision);
        let reply = reply.map(|(reply, _)| reply);
        match (purpose, reply) {
            (Purpose::JoinBegin { join }, reply) => self.era_begun(host, join, reply),
            (Purpose::JoinNames { join }, reply) => self.names_read(host, join, reply),
            (Purpose::JoinPutNames { join }, reply) => self.names_put(host, join, reply),
            (Purpose::Rename { .. }, reply) => self.named(host, reply),
            (Purpose::Join { join, sent }, reply) => self.join_answered(host, join, sent, reply),
            (Purpose::JoinLoad { join, sent, created, state }, reply) => {
                let loaded = matches!(reply, Some(Reply::Page(true)));
                self.join_loaded(host, join, sent, created, loaded.then_some(state));
            }
            (Purpose::JoinRenew { join, sent, created, state }, reply) => {
                match (self.joining(host, join), reply) {
                    (Some(joining), Some(Reply::Renewed(Some(_)))) => {
                        self.begin_session(host, &joining, sent, created, &state);
                    }
                    _ => self.join_failed(host, join, Written::Maybe),
                }
            }
            (Purpose::List { .. }, Some(Reply::Listed(state))) => {
                let pinned = state.revision;
                let Some(session) = self.hosts[host].session() else { return };
                let purpose = Purpose::ListLoad { session: session.number, state };
                self.call(host, purpose, Txn::ReadPage(pinned));
            }
            (Purpose::ListLoad { state, .. }, Some(Reply::Page(true))) => self.listed(host, &state),
            (Purpose::List { .. } | Purpose::ListLoad { .. }, _) => {
                if let Some(session) = self.hosts[host].session() {
                    session.listing = false;
                }
                self.list(host);
            }
            (Purpose::Renew { sent, lock_delay, confirmed, .. }, reply) => {
                self.renewed(host, sent, lock_delay, confirmed, (reply, revision));
            }
            (Purpose::Propose { proposals, .. }, reply) => self.proposed(host, proposals, reply),
            (Purpose::Head { resource, value, block, .. }, Some(Reply::Head(head))) => {
                self.heard_who_leads(host, &resource, value, block, head);
            }
            (Purpose::Forget { name, .. }, Some(Reply::Forgot(false, false))) => {
                let applied = Applied { changes: vec![Change::Forgotten(name)], ..Applied::default() };
                self.step(host, Input::Applied(applied));
            }
            (Purpose::Leave { incarnation }, reply) => self.left_for_good(host, incarnation, reply.is_some()),
            _ => {}
        }
    }

    pub(super) fn joining(&self, host: usize, join: u64) -> Option<Joining> {
        match &self.hosts[host].process.as_ref()?.stage {
            Stage::Outside { joining: Some(joining), .. } if joining.number == join => Some(joining.clone()),
            _ => None,
        }
    }

    pub(super) fn join_failed(&mut self, host: usize, join: u64, written: Written) {
        let Some(joining) = self.joining(host, join) else { return };
        if written == Written::Maybe
            && let Some(process) = &mut self.hosts[host].process
        {
            process.past.insert(joining.me);
            process.leavers.push(Leaver::new(joining.me, None));
        }
        if let Some(process) = &mut self.hosts[host].process {
            // The next join carries them, and nothing passes before.
            process.lock_delay = process.promises.drain(..).fold(process.lock_delay, Duration::max);
        }
        self.stay_outside(host);
    }

    /// An era that was not known before is an operator's word that etcd is what it is now.
    fn heard_era(&mut self, host: usize, join: u64, reply: Option<Reply>, header: (u64, Revision, Revision)) {
        if self.joining(host, join).is_none() {
            return;
        }
        let Some(process) = &mut self.hosts[host].process else { return };
        process.away = reply.is_none();
        let Some(Reply::Era(era)) = reply else { return self.join_failed(host, join, Written::No) };
        let (cluster, revision, before) = header;
        if !process.memory.judge(cluster, revision, before) {
            if era.is_none_or(|era| era <= process.memory.era) {
                return self.join_failed(host, join, Written::No);
            }
            process.memory.cluster = cluster;
            process.memory.revision = revision;
            process.memory.era = era.unwrap_or_default();
            process.memory.lost = false;
            process.memory.accepted += 1;
        }
        match era {
            Some(era) if era < process.memory.era => self.join_failed(host, join, Written::No),
            Some(era) => self.agree_on_names(host, join, era),
            None => {
                let tombstone = self.reader(host).era_tombstone();
                let begin = Txn::BeginEra { from: None, to: 0, tombstone };
                self.call(host, Purpose::JoinBegin { join }, begin);
            }
        }
    }

    fn era_begun(&mut self, host: usize, join: u64, reply: Option<Reply>) {
        match reply {
            Some(Reply::Begun(Some(era))) => self.agree_on_names(host, join, era),
            _ => self.join_failed(host, join, Written::No),
        }
    }

    pub(super) fn send_join(&mut self, host: usize, join: u64) {
        let Some(Joining { me, era, value, .. }) = self.joining(host, join) else { return };
        let sent = self.shown(host);
        self.call(host, Purpose::Join { join, sent }, Txn::Join { me, era, value });
    }

    fn join_answered(&mut self, host: usize, join: u64, sent: Time, reply: Option<Reply>) {
        let Some(Joining { me, .. }) = self.joining(host, join) else { return };
        let Some(Reply::Joined(state)) = reply else { return self.join_failed(host, join, Written::Maybe) };
        let Some(created) = state.members.get(&me).map(|own| own.created) else {
            return self.join_failed(host, join, Written::Maybe);
        };
        let Some(process) = &self.hosts[host].process else { return };
        let own = &self.namings[process.config];
        let knows = |(_, names): &(_, Rc<Names>)| process.has_served || names.knows(own);
        if !state.names.as_ref().is_some_and(knows) {
            return self.join_failed(host, join, Written::Maybe);
        }
        let pinned = state.revision;
        self.call(host, Purpose::JoinLoad { join, sent, created, state }, Txn::ReadPage(pinned));
    }

    fn join_loaded(
        &mut self,
        host: usize,
        join: u64,
        sent: Time,
        created: Revision,
        state: Option<Rc<State>>,
    ) {
        let Some(joining) = self.joining(host, join) else { return };
        let Some(state) = state else { return self.join_failed(host, join, Written::Maybe) };
        let (shown, validity) = (self.shown(host), self.reader(host).own.validity);
        if shown.saturating_sub(sent) <= validity / 4 {
            return self.begin_session(host, &joining, sent, created, &state);
        }
        let Joining { me, era, value, .. } = joining;
        let purpose = Purpose::JoinRenew { join, sent: shown, created, state };
        let known = self.hosts[host].process.as_ref().map_or(0, |process| process.memory.revision);
        self.call(host, purpose, Txn::Renew { me, created, era, value, known });
    }

    /// The gates first, then the validity.
    fn begin_session(
        &mut self,
        host: usize,
        joining: &Joining,
        sent: Time,
        created: Revision,
        state: &State,
    ) {
        let (shown, reader) = (self.shown(host), self.reader(host));
        let Joining { number, me, era, .. } = *joining;
        let Some((named_at, names)) = state.names.clone() else { return };
        let mut snapshot = reader.snapshot(state);
        snapshot.era = era;
        self.use_early_load(host, &mut snapshot);
        let mut hooks = Hooks::default();
        hooks.listed(&snapshot, !self.is(Control::JoinWithoutSeq));
        let older_passes = self.is(Control::OlderEraOpen);
        let Some(process) = &mut self.hosts[host].process else { return };
        process.memory.era = era;
        process.away = false;
        if !older_passes {
            process.ledger.bound(floor(era), floor(era + 1));
        }
        let promises = std::mem::take(&mut process.promises);
        let timing = Some(process.timing);
        let (replica, outputs) = Replica::join(shown, sent, me, timing, snapshot);
        let stream = self.watch(host, state.revision + 1);
        let session = Session {
            number,
            me,
            created,
            confirmed: created,
            replica,
            names: (named_at, names.clone()),
            renaming: None,
            counted: None,
            queues: queues(state),
            seen: state.revision,
            proposals: Default::default(),
            sending: 0,
            held_back: Default::default(),
            listing: false,
            listed_at: None,
            stream,
            joined_at: shown,
            promises,
            hooks,
        };
        let Some(process) = &mut self.hosts[host].process else { return };
        process.stage = Stage::Inside(Box::new(session));
        process.has_served = true;
        self.take_names(host, named_at, names);
        self.tally.joins += 1;
        self.note(|| format!("{} joins as {} at {}, era {era}", letter(host), short(me), state.revision));
        let outputs = self.loaded_in_some_order(outputs);
        self.carry_out(host, outputs);
        self.session_begun(host, sent);
        self.follow_all_leaders(host);
    }

    fn session_begun(&mut self, host: usize, sent: Time) {
        let Some(process) = &mut self.hosts[host].process else { return };
        if process.session().is_none() {
            return;
        }
        let until = sent + process.timing.validity;
        let counted = process.begin(until);
        if let Stage::Inside(session) = &mut process.stage {
            session.counted = Some(counted);
        }
        self.validity_lasts(host);
        self.save_now(host);
    }

    /// Resources come in no order of their own; a gate is closed before it is opened.
    fn loaded_in_some_order(&mut self, outputs: Vec<Output>) -> Vec<Output> {
        let (mut gates, mut rest): (Vec<_>, Vec<_>) = outputs
            .into_iter()
            .filter(|output| !matches!(output, Output::Valid { .. }))
            .partition(|output| gate(output).is_some());
        gates.sort_by(|one, other| gate(one).cmp(&gate(other)));
        rest = self.in_some_order(rest);
        gates.extend(rest);
        gates
    }

    fn renewed(
        &mut self,
        host: usize,
        sent: Time,
        lock_delay: Duration,
        confirmed: Revision,
        (reply, revision): (Option<Reply>, Revision),
    ) {
        let overtaken = matches!(reply, Some(Reply::Overtaken));
        let answer = match reply {
            Some(Reply::Overtaken) => Renewed::Lost,
            Some(Reply::Renewed(Some((there, put)))) => {
                if there < confirmed {
                    // A renewal that etcd had confirmed is not there.
                    if let Some(process) = &mut self.hosts[host].process {
                        process.memory.lost = true;
                    }
                    self.fence(host, "went back");
                    return self.save_now(host);
                }
                if let Some(session) = self.hosts[host].session().filter(|_| put) {
                    session.confirmed = session.confirmed.max(revision);
                    // What is only kept alive has no word in the log that it could miss and so be found out by.
                    if !self.is(Control::ValidityFromKeepAlive) {
                        self.step(host, Input::Exists { counted: 0, said: revision });
                    }
                }
                Renewed::Accepted
            }
            Some(_) => Renewed::Refused,
            None => Renewed::Lost,
        };
        let sent = if self.is(Control::ValidityFromAnswer) { self.shown(host) } else { sent };
        self.step(host, Input::Renewed { sent, answer });
        let shown = self.shown(host);
        let Some(process) = &mut self.hosts[host].process else { return };
        if let (true, Stage::Inside(session)) = (overtaken, &mut process.stage) {
            session.replica.retime(process.timing, shown);
        }
        if answer != Renewed::Accepted {
            return;
        }
        if let Stage::Inside(session) = &mut process.stage {
            for kept in session.promises.extract_if(.., |promise| *promise <= lock_delay) {
                process.lock_delay = process.lock_delay.max(kept);
            }
        }
    }

    /// What was committed arrives with the watch; only refusals are news.
    fn proposed(&mut self, host: usize, proposals: Vec<Proposal>, reply: Option<Reply>) {
        if let Some(session) = self.hosts[host].session() {
            session.sending -= 1;
        }
        let refusals = match reply {
            Some(Reply::Proposed(Some(refusals))) => refusals,
            Some(_) => return self.fence(host, "new era"),
            None => {
                for Proposal { resource, seen, .. } in proposals {
                    self.step(host, Input::Failed { resource, seen });
                }
                return;
            }
        };
        for (Proposal { resource, seen, .. }, refused) in proposals.into_iter().zip(refusals) {
            if let Some(modified) = refused {
                self.tally.refused_proposals += 1;
                self.step(host, Input::Refused { resource, seen, modified });
            }
        }
    }

    fn listed(&mut self, host: usize, state: &State) {
        let snapshot = self.reader(host).snapshot(state);
        let (Some(_), Some((named_at, names))) = (state.era, state.names.clone()) else {
            return self.fence(host, "new era");
        };
        let Some(session) = self.hosts[host].session() else { return };
        session.listing = false;
        session.queues = queues(state);
        session.seen = state.revision;
        session.hooks.listed(&snapshot, true);
        if session.names.0 != named_at {
            // Before the machine hears of it: what is claimed from now on has the names that it acknowledges.
            self.take_names(host, named_at, names);
        }
        self.note(|| format!("{} has read everything at {}", letter(host), state.revision));
        self.step(host, Input::Listed(snapshot));
        if self.hosts[host].session().is_some() {
            let stream = self.watch(host, state.revision + 1);
            if let Some(session) = self.hosts[host].session() {
                session.stream = stream;
            }
        }
        self.follow_all_leaders(host);
    }

    fn left_for_good(&mut self, host: usize, incarnation: u128, answered: bool) {
        let now = self.now;
        let Some(process) = &mut self.hosts[host].process else { return };
        if answered {
            process.leavers.retain(|leaver| leaver.incarnation != incarnation);
        } else {
            for leaver in process.leavers.iter_mut().filter(|leaver| leaver.incarnation == incarnation) {
                leaver.leaving = false;
                leaver.retry_at = now + LEAVE_PAUSE;
            }
        }
    }
}

pub(crate) fn queues(
    state: &State,
) -> std::collections::BTreeMap<Resource, std::collections::BTreeMap<Revision, u64>> {
    let mut queues: std::collections::BTreeMap<_, std::collections::BTreeMap<_, _>> = Default::default();
    for ((resource, lease), candidate) in &state.candidates {
        queues.entry(resource.clone()).or_default().insert(candidate.created, *lease);
    }
    queues
}

/// The resource whose gate an output moves.
fn gate(output: &Output) -> Option<&Resource> {
    match output {
        Output::Close { resource, .. } | Output::Open { resource, .. } => Some(resource),
        _ => None,
    }
}
