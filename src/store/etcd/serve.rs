//! What the driver does: the gateway's commands in, the machine's outputs to the gates and to etcd.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use highgate_elector::{Moment, Resource, Token};
use highgate_etcd::Txn;

use super::driver::{Driver, Renewal, Report, Stage, moment, now_time};
use super::load::list;
use super::proofs::Claim;
use super::requests;
use super::session::Promise;
use super::values::tombstone_value;
use super::warden::{Ended, wall_ahead};
use crate::controls::{Rule, breaks};
use crate::events::Notice;
use crate::ledger::{NotOpened, Shut};
use crate::replica::{Fenced, Incarnation, Input, Output, Proposal, Revision, State, Unsettled};
use crate::store::{Command, MAX_QUEUED};

/// Between two listings.
const LISTING_PAUSE: Duration = Duration::from_millis(300);
/// How long a seal may be on its way, where it is sent without its compare.
const SLOW_SEAL: Duration = Duration::from_secs(1);
/// Transactions with proposals that may be under way at once.
const MAX_SENDING: usize = 8;

impl Driver {
    pub(super) fn obey(&mut self, command: Command) {
        match command {
            Command::Input(input) => {
                self.shared.queued.fetch_sub(1, Ordering::Relaxed);
                match input {
                    Input::Want(want) if breaks(Rule::SharedMarks) => {
                        self.raise_here(&want.resource, want.token);
                    }
                    Input::Want(_) if self.is_overloaded() => {}
                    input => self.step(input),
                }
            }
            Command::Left(resource) => self.left(resource),
            Command::Promise { lock_delay, drain_timeout, reply } => {
                self.timing.drain_timeout = drain_timeout;
                self.promise(Promise { lock_delay, reply });
            }
            Command::Election(order) => self.order(order),
            Command::AskUnsettled { resource, reply } => {
                // Outside, nothing is known of the others.
                let unsettled = match &self.stage {
                    Stage::Inside(session) => session.replica.unsettled(&resource),
                    _ => Unsettled::Unheard,
                };
                let _ = reply.send(unsettled);
            }
            Command::Name { own, reply } => self.rename(own, reply),
            Command::Override(order) => self.override_with(order),
            Command::Prove { resource, token, block, reply } => {
                self.prove(&resource, Claim { token, block, reply });
            }
            Command::Expired(why) => self.expired(why),
            Command::Stop { .. } => unreachable!("the loop ends with it"),
        }
    }

    /// What a replica would do that shares nothing.
    pub(super) fn raise_here(&self, resource: &Resource, token: Token) {
        let _ = self.shared.ledger.close(resource, token.get(), Shut::Raised);
        let _ = self.shared.ledger.open(resource, token.get(), false);
    }

    /// Raises that etcd is too slow for are dropped: whoever waits for one is told to try again.
    fn is_overloaded(&self) -> bool {
        matches!(&self.stage, Stage::Inside(session) if session.replica.backlog() >= MAX_QUEUED)
    }

    pub(super) fn step(&mut self, input: Input) {
        if let Stage::Inside(session) = &mut self.stage {
            let outputs = session.replica.step(now_time(), input);
            self.carry_out(outputs);
        }
    }

    pub(super) fn carry_out(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            let Stage::Inside(session) = &mut self.stage else { return };
            match output {
                Output::Close { resource, .. } if breaks(Rule::SharedMarks) => {
                    self.step(Input::Drained { resource });
                }
                Output::Open { .. } if breaks(Rule::SharedMarks) => {}
                Output::Propose(proposal) => {
                    // One that was not sent yet is overtaken by what has been heard since.
                    session.proposals.insert(proposal.resource.clone(), proposal);
                }
                Output::Close { resource, mark, shut } => {
                    session.held_back.remove(&resource);
                    if self.shared.ledger.close(&resource, mark, shut).remaining == 0 {
                        self.step(Input::Drained { resource });
                    }
                }
                Output::Open { resource, mark, blocks } => self.open(resource, mark, blocks),
                Output::Settle { resource } => self.shared.ledger.settle(&resource),
                Output::Renew { watermark, draining } => self.renew(watermark, draining),
                Output::Valid { until } => {
                    if !self.shared.watched.validity.extend(moment(until)) {
                        self.fence(expired());
                    }
                }
                Output::Evict { member, modified } => self.evict(member, modified),
                Output::Bury { member, value } => {
                    let tombstone = tombstone_value(&value, &self.timing);
                    self.send(requests::bury(&self.link.keys, member, &tombstone));
                }
                Output::Forget { name, modified } => self.forget(name, modified),
                Output::Resync => self.make_up("a change was missed"),
                Output::FinishNames { seen } => self.finish_names(seen),
                Output::Fence(why) => self.fence(fenced(why)),
                Output::Tell(event) => self.tell(Notice::Fence(event)),
            }
        }
    }

    pub(super) fn open(&mut self, resource: Resource, mark: u64, blocks: bool) {
        let opened = self.shared.ledger.open(&resource, mark, blocks);
        let Stage::Inside(session) = &mut self.stage else { return };
        match opened {
            Ok(()) => {}
            // Requests of an incarnation of this process that is over: the others have waited for them, and this
            // process waits for them itself.
            Err(NotOpened::Held(held)) => {
                tracing::info!(%resource, %held, "open for the others; here it waits for what was cut");
                session.held_back.insert(resource);
            }
            Err(NotOpened::WentBack { known, mark }) => {
                let error = self.link.memory.lost_mark(known, mark);
                tracing::error!(%resource, %error, "etcd holds less than it did");
                self.fence(&error.to_string());
                self.save_now();
            }
        }
    }

    /// Only a gate that is shut and empty *now* has drained: the report may be older than a reopening.
    pub(super) fn left(&mut self, resource: Resource) {
        let cell = self.shared.ledger.enter(&resource);
        if cell.is_open() || cell.in_flight() > 0 {
            return;
        }
        self.step(Input::Drained { resource: resource.clone() });
        let Stage::Inside(session) = &mut self.stage else { return };
        if session.held_back.remove(&resource) {
            let record = session.replica.record(&resource);
            if session.replica.passes(&record) {
                self.open(resource, record.token, record.block);
            }
        }
    }

    pub(super) fn expired(&mut self, why: Ended) {
        // A fence that this driver has made itself, and a join after it, may have overtaken the warden's word.
        if self.shared.watched.validity.ends().is_none() {
            self.fence(match why {
                Ended::Expired => expired(),
                Ended::ClockJumped => "the clock jumped: this machine was paused",
            });
        }
    }

    pub(super) fn promise(&mut self, promise: Promise) {
        self.timing.lock_delay = self.timing.lock_delay.max(promise.lock_delay);
        match &mut self.stage {
            Stage::Inside(session) => {
                session.replica.retime(self.timing, now_time());
                session.promises.push(promise);
            }
            // The join that is under way carries the old one.
            Stage::Outside { joining: true, .. } => self.promises.push(promise),
            // The next join carries it, and nothing passes before.
            Stage::Outside { .. } => drop(promise.reply.send(())),
        }
    }

    pub(super) fn send_proposals(&mut self) {
        let Stage::Inside(session) = &mut self.stage else { return };
        while !session.proposals.is_empty() && session.sending < MAX_SENDING {
            let next = std::iter::from_fn(|| session.proposals.pop_first());
            let proposals: Vec<Proposal> = next.take(self.batch).map(|(_, proposal)| proposal).collect();
            session.sending += 1;
            let request = requests::propose(&self.link.keys, session.replica.era(), &proposals);
            let (link, number, reports) = (self.link.clone(), session.number, self.reports.clone());
            let slow = breaks(Rule::SealCompare) && is_slow_seal(&proposals);
            tokio::spawn(async move {
                if slow {
                    tokio::time::sleep(SLOW_SEAL).await;
                }
                let result = link.txn(request).await;
                let _ = reports.send(Report::Proposed { session: number, proposals, result });
            });
        }
    }

    pub(super) fn renew(&mut self, watermark: Revision, draining: Vec<Revision>) {
        let Stage::Inside(session) = &self.stage else { return };
        let value = self.value(watermark, draining);
        let known = self.link.memory.revision().max(session.seen);
        let there = (session.created, session.replica.era());
        let request = requests::renew(&self.link.keys, session.me, there, &value, known);
        let (link, number, reports) = (self.link.clone(), session.number, self.reports.clone());
        let renewal =
            Renewal { sent: Moment::now(), ahead: wall_ahead(), value, confirmed: session.confirmed };
        #[cfg(feature = "controls")]
        self.keep_alive(number);
        tokio::spawn(async move {
            let result = link.txn(request).await;
            let _ = reports.send(Report::Renewed { session: number, renewal, result });
        });
    }

    /// What a replica would do that takes any word of any node for a renewal.
    #[cfg(feature = "controls")]
    fn keep_alive(&self, session: u64) {
        if !breaks(Rule::ValidityFromRenewal) {
            return;
        }
        let (location, sent, reports) = (self.location.clone(), now_time(), self.reports.clone());
        tokio::spawn(async move {
            if crate::controls::keep_alive::is_answered(&location).await {
                let _ = reports.send(Report::KeptAlive { session, sent });
            }
        });
    }

    pub(super) fn evict(&mut self, member: Incarnation, modified: Revision) {
        let Stage::Inside(session) = &self.stage else { return };
        let Some(judged) = session.replica.members().get(&member) else { return };
        tracing::warn!(replica = format!("{member:032x}"), name = judged.name, "silent: evicting it");
        let tombstone = tombstone_value(judged, &self.timing);
        self.send(requests::evict(&self.link.keys, member, modified, &tombstone));
    }

    pub(super) fn forget(&mut self, name: String, modified: Revision) {
        let Stage::Inside(session) = &self.stage else { return };
        let request = requests::forget(&self.link.keys, &name, modified);
        let (link, number, reports) = (self.link.clone(), session.number, self.reports.clone());
        tokio::spawn(async move {
            let result = link.txn(request).await;
            let _ = reports.send(Report::Forgot { session: number, name, result });
        });
    }

    /// Sends what nobody waits for.
    pub(super) fn send(&self, request: Txn) {
        let Stage::Inside(session) = &self.stage else { return };
        let (link, number, reports) = (self.link.clone(), session.number, self.reports.clone());
        tokio::spawn(async move {
            let result = link.txn(request).await;
            let _ = reports.send(Report::Done { session: number, result });
        });
    }

    /// Reads everything again. Until then no change is applied, so none is acknowledged.
    pub(super) fn list(&mut self, why: &'static str) {
        let Stage::Inside(session) = &mut self.stage else { return };
        if session.listing {
            return;
        }
        session.listing = true;
        session.watch.abort();
        // One listing after the other is a pause apart: whatever hinders it is not gone at once.
        let pause = session
            .listed_at
            .replace(Instant::now())
            .map_or(Duration::ZERO, |listed| LISTING_PAUSE.saturating_sub(listed.elapsed()));
        let (link, number, reports) = (self.link.clone(), session.number, self.reports.clone());
        // What is applied without a gap need not be read again: with many marks that takes longer than a raise
        // waits for this replica.
        let (timing, known) = (self.timing, session.replica.watermark());
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let result = list(&link, &timing, known).await;
            let _ = reports.send(Report::Listed { session: number, result });
        });
        self.tell(Notice::Resynced { why });
    }
}

/// Every other seal, by chance, is on its way for long.
fn is_slow_seal(proposals: &[Proposal]) -> bool {
    let seals = proposals.iter().any(|proposal| proposal.record.state == State::Open);
    seals && (Moment::now().nanos() / 1000).is_multiple_of(2)
}

pub(super) fn expired() -> &'static str {
    "its validity ended: etcd did not answer its renewals in time"
}

pub(super) fn fenced(why: Fenced) -> &'static str {
    match why {
        Fenced::Expired => expired(),
        Fenced::Evicted => "it was evicted: its peers heard nothing of it, or somebody took it out",
        Fenced::Refused => "etcd refused its renewal: it is not a member any more, or the era has changed",
        Fenced::NewEra => "an era has ended",
    }
}
