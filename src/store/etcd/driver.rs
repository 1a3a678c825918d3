//! Runs the protocol's machine over etcd: commands, answers, changes and time in; requests and gates out.
//!
//! Everything happens on one task, one thing after the other; only the waiting for etcd is elsewhere. What must
//! stay true: gates are closed and drained before the renewal that says so is sent, and nothing of an incarnation
//! that is over is listened to.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use highgate_elector::{Alarm, Moment, Resource};
use highgate_etcd::fence::MemberValue;
use highgate_etcd::{Event, Listing, Outcome, WatchError};
use tokio::sync::mpsc;

use super::ballot::{Campaigns, Waiting};
use super::link::{Link, Trouble};
use super::load::{Bringing, JoinError, Joined, Loaded, join};
use super::once::Pruner;
use super::requests::{self, MAX_PROPOSALS};
use super::revoke::Revoker;
use super::session::{Leaver, Promise, Session};
use super::upkeep::{Looked, Upkeep};
use super::warden::Watched;
use crate::controls::{Rule, breaks};
use crate::events::Notice;
use crate::ledger::Ledger;
use crate::names::Names;
use crate::replica::{Incarnation, Input, Proposal, Revision, Time, Timing};
use crate::store::overview::Overview;
use crate::store::{Command, OwnNames};

/// How many commands are taken before time and answers are looked at.
const MAX_BATCH: usize = 8192;
/// Between two attempts to join, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long the end waits for etcd to hear of it.
const LEAVE_LIMIT: Duration = Duration::from_secs(3);
/// How many changes the watch may be ahead.
const MAX_UNREAD: usize = 256;

/// What the driver shares with the rest of the gateway.
pub(super) struct Shared {
    pub(super) ledger: Arc<Ledger>,
    pub(super) watched: Arc<Watched>,
    pub(super) cut: Arc<dyn Fn() + Send + Sync>,
    pub(super) queued: Arc<AtomicUsize>,
    pub(super) away: Arc<AtomicBool>,
    pub(super) overview: Arc<ArcSwap<Overview>>,
    pub(super) own_names: OwnNames,
}

pub(super) struct Driver {
    pub(super) link: Link,
    pub(super) location: String,
    pub(super) name: String,
    pub(super) timing: Timing,
    pub(super) shared: Shared,
    tell: Box<dyn Fn(Notice) + Send>,
    pub(super) stage: Stage,
    /// The names that were in force when this process last was one of those that serve; none if it never was.
    pub(super) known_names: Option<Arc<Names>>,
    /// Whether this process served under them until somebody deleted them: only then nobody can have changed them since.
    pub(super) saw_names_deleted: bool,
    /// How many joins were tried.
    joins: u64,
    pause: Duration,
    pub(super) leavers: Vec<Leaver>,
    /// Every incarnation of this process that is over: a join that etcd runs late may bring one back.
    pub(super) past: HashSet<Incarnation>,
    /// Longer lock-delays that somebody waits for while a join is under way.
    pub(super) promises: Vec<Promise>,
    pub(super) watches: u64,
    /// How many proposals share a transaction: fewer than at first, if etcd was told to take less.
    pub(super) batch: usize,
    pub(super) campaigns: Campaigns,
    /// Removes old entries of the run-once ledger.
    pub(super) pruner: Option<Pruner>,
    /// Compacts etcd's history and knows what is wrong with it.
    pub(super) upkeep: Upkeep,
    pub(super) reports: mpsc::UnboundedSender<Report>,
    heard: Option<mpsc::UnboundedReceiver<Report>>,
    pub(super) changes: mpsc::Sender<Changes>,
    changed: Option<mpsc::Receiver<Changes>>,
    pub(super) saved: Instant,
    /// Asks for what is remembered of etcd to be written down.
    pub(super) save: std::sync::mpsc::Sender<()>,
    pub(super) shown: Option<Instant>,
}

/// Whether this replica is one of those that serve.
pub(super) enum Stage {
    Outside { why: String, try_at: Moment, joining: bool },
    Inside(Box<Session>),
}

/// What the watch of a session says.
pub(super) struct Changes {
    pub(super) session: u64,
    pub(super) watch: u64,
    pub(super) news: Result<Vec<Event>, WatchError>,
}

/// What became of a question to etcd.
pub(super) enum Report {
    Joined {
        join: u64,
        me: Incarnation,
        result: Result<Joined, JoinError>,
    },
    Listed {
        session: u64,
        result: Result<Loaded, JoinError>,
    },
    Renewed {
        session: u64,
        renewal: Renewal,
        result: Result<Outcome, Trouble>,
    },
    /// Some node has said something.
    #[cfg(feature = "controls")]
    KeptAlive {
        session: u64,
        sent: Time,
    },
    Proposed {
        session: u64,
        proposals: Vec<Proposal>,
        result: Result<Outcome, Trouble>,
    },
    Leads {
        session: u64,
        resource: Resource,
        result: Result<Listing, Trouble>,
    },
    /// It is time to ask how far etcd has come.
    AskHowFar {
        session: u64,
    },
    HowFar {
        session: u64,
        result: Result<Listing, Trouble>,
    },
    Forgot {
        session: u64,
        name: String,
        result: Result<Outcome, Trouble>,
    },
    /// Of something that nobody waits for.
    Done {
        session: u64,
        result: Result<Outcome, Trouble>,
    },
    Left {
        incarnation: Incarnation,
        result: Result<Outcome, Trouble>,
    },
    /// Of names that were put for this replica.
    Named {
        session: u64,
        result: Result<Outcome, Trouble>,
    },
    LookedAfter(Looked),
    /// A candidate of this gateway has queued up.
    AwaitTurn {
        resource: Resource,
        waiting: Waiting,
    },
}

/// A renewal that was sent.
pub(super) struct Renewal {
    pub(super) sent: Moment,
    /// How far the wall clock was ahead then.
    pub(super) ahead: i64,
    /// What it says of this replica.
    pub(super) value: MemberValue,
    /// What etcd had confirmed by then.
    pub(super) confirmed: Revision,
}

impl Driver {
    pub(super) fn new(
        link: Link,
        location: String,
        name: String,
        timing: Timing,
        shared: Shared,
        tell: Box<dyn Fn(Notice) + Send>,
        save: std::sync::mpsc::Sender<()>,
    ) -> Self {
        let (reports, heard) = mpsc::unbounded_channel();
        let (changes, changed) = mpsc::channel(MAX_UNREAD);
        let why = "it has not joined yet".to_owned();
        let campaigns = Campaigns::new(Revoker::new(link.client.clone()));
        Self {
            link,
            location,
            name,
            timing,
            shared,
            tell,
            known_names: None,
            saw_names_deleted: false,
            stage: Stage::Outside { why, try_at: Moment::now(), joining: false },
            joins: 0,
            pause: FIRST_PAUSE,
            leavers: Vec::new(),
            past: HashSet::new(),
            promises: Vec::new(),
            watches: 0,
            batch: MAX_PROPOSALS,
            campaigns,
            pruner: None,
            upkeep: Upkeep::new(None),
            reports,
            heard: Some(heard),
            changes,
            changed: Some(changed),
            saved: Instant::now(),
            save,
            shown: None,
        }
    }

    /// Until it is told to stop.
    pub(super) async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Command>) {
        let (Some(mut heard), Some(mut changed)) = (self.heard.take(), self.changed.take()) else { return };
        // Without a timer there is no validity to keep: it is as if etcd never answered.
        let Ok(alarm) = Alarm::new() else {
            tracing::error!("no timer can be made, so this replica cannot join");
            return;
        };
        loop {
            self.act();
            let wake = self.wake_at();
            tokio::select! {
                Some(report) = heard.recv() => {
                    self.hear(report);
                    while let Ok(report) = heard.try_recv() {
                        self.hear(report);
                    }
                }
                Some(changes) = changed.recv() => self.take_changes(changes),
                Some(command) = inbox.recv() => {
                    let mut next = Some(command);
                    for _ in 0..MAX_BATCH {
                        let Some(command) = next.take().or_else(|| inbox.try_recv().ok()) else { break };
                        if let Command::Stop { reply } = command {
                            let clean = self.stop().await;
                            let _ = reply.send(clean);
                            return;
                        }
                        self.obey(command);
                    }
                }
                _ = alarm.until(Some(wake)) => {}
            }
        }
    }

    /// Whatever is due.
    fn act(&mut self) {
        let now = Moment::now();
        if let Stage::Outside { try_at, joining: false, .. } = &self.stage
            && now >= *try_at
        {
            self.join();
        }
        if self.machine_due().is_some_and(|at| at <= now_time()) {
            self.step(Input::Tick);
        }
        self.send_proposals();
        self.let_leavers_go();
        self.save_memory();
        self.look_after_etcd();
        self.show();
    }

    fn wake_at(&self) -> Moment {
        // Never longer than this without a look: leavers and the overview have no alarm of their own.
        let soon = Moment::now() + Duration::from_millis(if self.leavers.is_empty() { 500 } else { 50 });
        match &self.stage {
            Stage::Outside { try_at, joining: false, .. } => soon.min(*try_at),
            Stage::Outside { .. } => soon,
            Stage::Inside(_) => self.machine_due().map_or(soon, |at| soon.min(moment(at))),
        }
    }

    fn machine_due(&self) -> Option<Time> {
        match &self.stage {
            Stage::Inside(session) => session.replica.wake_at(),
            Stage::Outside { .. } => None,
        }
    }

    fn join(&mut self) {
        if let Stage::Outside { joining, .. } = &mut self.stage {
            *joining = true;
        }
        self.joins += 1;
        let (link, timing, join_number) = (self.link.clone(), self.timing, self.joins);
        let value = self.value(0, Vec::new());
        let own = Bringing {
            naming: self.shared.own_names.naming.clone(),
            starts: self.known_names.is_none(),
            known: self.known_names.clone(),
            saw_deletion: self.saw_names_deleted,
        };
        let old = if breaks(Rule::FreshName) { self.past.drain().next() } else { None };
        let me = old.unwrap_or_else(|| uuid::Uuid::new_v4().as_u128());
        let reports = self.reports.clone();
        tokio::spawn(async move {
            let result = join(&link, me, &value, &timing, &own).await;
            let _ = reports.send(Report::Joined { join: join_number, me, result });
        });
    }

    pub(super) fn is_current(&self, join: u64) -> bool {
        join == self.joins
    }

    /// Outside for a while longer.
    pub(super) fn stay_outside(&mut self, why: String) {
        let try_at = Moment::now() + self.pause;
        self.pause = LONGEST_PAUSE.min(self.pause * 2);
        self.stage = Stage::Outside { why, try_at, joining: false };
        self.shown = None;
    }

    /// Joins are counted, and a session has the number of its join.
    pub(super) fn session_number(&self) -> u64 {
        self.joins
    }

    /// What this replica says of itself.
    pub(super) fn value(&self, watermark: Revision, draining: Vec<Revision>) -> MemberValue {
        MemberValue {
            name: self.name.clone(),
            watermark: super::values::number(watermark),
            draining: draining.into_iter().map(super::values::number).collect(),
            validity: self.timing.validity,
            lock_delay: self.timing.lock_delay,
        }
    }

    /// FENCE: final for the incarnation. The warden may have closed the gates already.
    pub(super) fn fence(&mut self, why: &str) {
        let Stage::Inside(session) = &self.stage else { return };
        let (me, counted, joined_at) = (session.me, session.counted, session.joined_at);
        self.shared.watched.validity.fence();
        // The gates before the sockets: who passed a gate had marked its socket before that, and is cut.
        self.shared.ledger.close_all();
        (self.shared.cut)();
        let mut try_at = Moment::now();
        if joined_at.elapsed() < self.timing.validity {
            // What ended it may still be there.
            try_at = try_at + self.pause;
            self.pause = LONGEST_PAUSE.min(self.pause * 2);
        } else {
            self.pause = FIRST_PAUSE;
        }
        self.stage = Stage::Outside { why: why.to_owned(), try_at, joining: false };
        self.forget_turns();
        self.past.insert(me);
        self.leavers.push(Leaver::new(me, counted));
        self.tell(Notice::Fenced { why: why.to_owned() });
        self.shown = None;
    }

    /// LEAVE for incarnations that are over and whose requests have all ended for certain.
    fn let_leavers_go(&mut self) {
        let validity = &self.shared.watched.validity;
        if self.shared.away.load(Ordering::Relaxed) || self.link.memory.is_suspect() {
            return;
        }
        for leaver in &mut self.leavers {
            let busy = leaver.counted.is_some_and(|counted| validity.in_flight_of(counted) > 0);
            if leaver.leaving
                || (busy && !breaks(Rule::LeaveEmpty))
                || leaver.retry_at.is_some_and(|at| Instant::now() < at)
            {
                continue;
            }
            leaver.leaving = true;
            let (link, incarnation, reports) = (self.link.clone(), leaver.incarnation, self.reports.clone());
            tokio::spawn(async move {
                let result = link.txn(requests::leave(&link.keys, incarnation)).await;
                let _ = reports.send(Report::Left { incarnation, result });
            });
        }
    }

    /// The end: with nothing under way nobody has to wait for this replica. True if so.
    async fn stop(&mut self) -> bool {
        self.shared.ledger.halt();
        let clean = self.shared.ledger.in_flight() == 0 || breaks(Rule::LeaveEmpty);
        let stage = Stage::Outside { why: "it has stopped".into(), try_at: Moment::now(), joining: true };
        let over = match std::mem::replace(&mut self.stage, stage) {
            Stage::Inside(session) => vec![session.me],
            Stage::Outside { .. } => Vec::new(),
        };
        self.shared.watched.validity.fence();
        if !clean {
            // What follows may take seconds, and the workers only end after it. Nothing may be under way by then
            // that the others do not wait for.
            self.shared.ledger.close_all();
            (self.shared.cut)();
        }
        // Only now has the warden nothing left to guard.
        self.shared.watched.stop();
        self.withdraw_candidates().await;
        if clean {
            for incarnation in over.into_iter().chain(self.leavers.drain(..).map(|leaver| leaver.incarnation))
            {
                let leave = self.link.txn(requests::leave(&self.link.keys, incarnation));
                // Final whatever the answer: without one its peers evict it.
                let _ = tokio::time::timeout(LEAVE_LIMIT, leave).await;
            }
        }
        if let Err(error) = self.link.memory.save() {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot remember how far etcd had come");
        }
        clean
    }

    pub(super) fn tell(&self, notice: Notice) {
        (self.tell)(notice);
    }

    /// Whether etcd answers, as far as the last answer tells.
    pub(super) fn note(&self, result: Result<(), &Trouble>) {
        let away = matches!(result, Err(Trouble::Call(_)));
        let was = self.shared.away.swap(away, Ordering::Relaxed);
        match result {
            Err(error) if !was => tracing::warn!(%error, "etcd does not answer as it should"),
            Ok(()) if was => tracing::info!("etcd answers again"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;

pub(super) fn now_time() -> Time {
    Moment::now().since_boot()
}

pub(super) fn moment(time: Time) -> Moment {
    Moment::from_nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}
