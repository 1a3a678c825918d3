//! Runs the protocol machine over the file: inputs in, one commit for all that they propose, outputs out.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use highgate_elector::Resource;
use tokio::sync::oneshot;

use super::file::{Batch, File, Found};
use super::names::NamesInForce;
use crate::elections::{Elections, Lease, Term};
use crate::events::Notice;
use crate::ledger::Ledger;
use crate::replica::{Input, Output, Record, Replica, Revision, Snapshot, Time, Tombstone};
use crate::store::StoreFailed;
use crate::store::elections::Campaigner;
use crate::store::{Command, Override, OverrideError, Unproved};

/// How many inputs share a commit at the most.
const MAX_BATCH: usize = 8192;

pub(super) struct Driver {
    pub(super) file: File,
    replica: Replica,
    ledger: Arc<Ledger>,
    pub(super) elections: Elections,
    tell: Box<dyn Fn(Notice) + Send>,
    queued: Arc<AtomicUsize>,
    started: Instant,
    /// What the next commit takes.
    pub(super) pending: Batch,
    /// Candidates that have not been answered.
    pub(super) campaigns: HashMap<Lease, Campaigner>,
    /// How long the run-once ledger keeps its entries.
    pub(super) keep_once: Duration,
    pub(super) names: NamesInForce,
    /// A change of names that can be finished, by its revision.
    finish: Option<Revision>,
}

/// A stop that was carried out, and who waits for it.
struct Stopped {
    clean: bool,
    reply: mpsc::Sender<bool>,
}

impl Driver {
    pub(super) fn join(
        file: File,
        ledger: Arc<Ledger>,
        tell: Box<dyn Fn(Notice) + Send>,
        queued: Arc<AtomicUsize>,
        found: Found,
        names: NamesInForce,
    ) -> Result<Self, StoreFailed> {
        // A fresh folder and a clean end leave nobody whose requests could still be under way.
        let before = found.inherited_delay.map(|wait| {
            ("before".to_owned(), Tombstone { modified: found.revision, wait, ..Tombstone::default() })
        });
        let snapshot = Snapshot {
            seq: found.revision,
            watermark: found.revision,
            records: found.records,
            tombstones: before.into_iter().collect(),
            names: found.names_pending,
            ..Snapshot::default()
        };
        let (replica, outputs) = Replica::join(Time::ZERO, Time::ZERO, found.incarnation, None, snapshot);
        let mut driver = Self {
            file,
            replica,
            ledger,
            elections: Elections::default(),
            tell,
            queued,
            started: Instant::now(),
            pending: Batch::default(),
            campaigns: HashMap::new(),
            keep_once: Duration::MAX,
            names,
            finish: None,
        };
        driver.carry_out(outputs)?;
        driver.restore(found.issued, found.terms)?;
        Ok(driver)
    }

    /// Until told to stop, or until something fails.
    pub(super) fn run(mut self, inbox: &Receiver<Command>, fail: oneshot::Sender<StoreFailed>) {
        match self.serve(inbox) {
            Ok(Stopped { clean, reply }) => {
                // The file's lock goes before the answer: whoever hears it may open the store again.
                drop(self);
                let _ = reply.send(clean);
            }
            Err(error) => {
                self.ledger.halt();
                let _ = fail.send(error);
            }
        }
    }

    fn serve(&mut self, inbox: &Receiver<Command>) -> Result<Stopped, StoreFailed> {
        loop {
            // Looked at every time around: a busy inbox must not keep what is due from happening.
            if self.replica.wake_at().is_some_and(|at| at <= self.now()) {
                self.step(Input::Tick)?;
            }
            self.end_expired_terms()?;
            self.commit()?;
            if let Some(seen) = self.finish.take() {
                self.finish_names(seen)?;
            }
            for command in self.wait(inbox).into_iter().chain(inbox.try_iter().take(MAX_BATCH)) {
                if let Some(stopped) = self.obey(command)? {
                    return Ok(stopped);
                }
            }
        }
    }

    /// The next command, or none when one of the machines wants to be woken first. The ledger holds a sender of the
    /// inbox for as long as this driver lives, so the inbox never ends.
    fn wait(&self, inbox: &Receiver<Command>) -> Option<Command> {
        let now = self.now();
        match self.replica.wake_at().into_iter().chain(self.elections.wake_at()).min() {
            Some(at) => inbox.recv_timeout(at.saturating_sub(now)).ok(),
            None => inbox.recv().ok(),
        }
    }

    fn obey(&mut self, command: Command) -> Result<Option<Stopped>, StoreFailed> {
        match command {
            Command::Input(input) => {
                self.queued.fetch_sub(1, Ordering::Relaxed);
                self.step(input)?;
            }
            Command::Left(resource) => self.left(resource)?,
            Command::Promise { lock_delay, reply, .. } => {
                self.file.promise(lock_delay)?;
                let _ = reply.send(());
            }
            Command::Election(order) => self.order(order)?,
            Command::AskUnsettled { resource, reply } => drop(reply.send(self.replica.unsettled(&resource))),
            Command::Name { own, reply } => drop(reply.send(self.rename(own)?)),
            Command::Override(order) => refuse(order),
            // Whoever is elected here had the mark raised before it was told its token.
            Command::Prove { reply, .. } => drop(reply.send(Err(Unproved::NotIssued))),
            Command::Expired(_) => {}
            Command::Stop { reply } => return Ok(Some(Stopped { clean: self.stop()?, reply })),
        }
        Ok(None)
    }

    /// Commits until the machines have nothing more to propose.
    pub(super) fn commit(&mut self) -> Result<(), StoreFailed> {
        while !self.pending.is_empty() {
            let batch = std::mem::take(&mut self.pending);
            for input in self.file.commit(batch, self.elections.issued())? {
                self.step(input)?;
            }
        }
        Ok(())
    }

    pub(super) fn step(&mut self, input: Input) -> Result<(), StoreFailed> {
        let outputs = self.replica.step(self.now(), input);
        self.carry_out(outputs)
    }

    fn carry_out(&mut self, outputs: Vec<Output>) -> Result<(), StoreFailed> {
        for output in outputs {
            match output {
                Output::Propose(proposal) => self.pending.proposals.push(proposal),
                Output::Close { resource, mark, shut } => {
                    if self.ledger.close(&resource, mark, shut).remaining == 0 {
                        self.step(Input::Drained { resource })?;
                    }
                }
                Output::Settle { resource } => self.ledger.settle(&resource),
                Output::Open { resource, mark, blocks } => self
                    .ledger
                    .open(&resource, mark, blocks)
                    .map_err(|source| StoreFailed::OpenedEarly { resource, source })?,
                Output::Tell(event) => {
                    self.follow(&event)?;
                    self.tell(Notice::Fence(event));
                }
                // Not among the inputs of a commit, whose revisions come before that of the names.
                Output::FinishNames { seen } => self.finish = Some(seen),
                Output::Renew { .. }
                | Output::Valid { .. }
                | Output::Evict { .. }
                | Output::Bury { .. }
                | Output::Forget { .. }
                | Output::Resync
                | Output::Fence(_) => unreachable!("a single process has no peers and no validity"),
            }
        }
        Ok(())
    }

    /// Only a gate that is shut and empty *now* has drained: the report may be older than a reopening.
    fn left(&mut self, resource: Resource) -> Result<(), StoreFailed> {
        let cell = self.ledger.enter(&resource);
        if cell.is_open() || cell.in_flight() > 0 {
            return Ok(());
        }
        self.step(Input::Drained { resource })
    }

    /// Writes the clean marker iff nothing is under way and nothing can come after.
    fn stop(&mut self) -> Result<bool, StoreFailed> {
        self.ledger.halt();
        let clean = self.ledger.in_flight() == 0 && !self.replica.inherits_unknowns(self.now());
        if clean {
            self.file.mark_clean()?;
        }
        Ok(clean)
    }

    pub(super) fn tell(&self, notice: Notice) {
        (self.tell)(notice);
    }

    pub(super) fn record(&self, resource: &Resource) -> Record {
        self.replica.record(resource)
    }

    /// The gate is told whose token it will be before it opens at it.
    pub(super) fn note_holder(&self, resource: &Resource, term: Option<&Term>) {
        let holder = term.and_then(|term| Some((term.token, term.candidate.owner.as_deref()?)));
        self.ledger.note_holder(resource, holder);
    }

    /// Whether requests with exactly the mark pass now.
    pub(super) fn is_open(&self, resource: &Resource) -> bool {
        self.ledger.get(resource.as_str()).is_some_and(|cell| cell.is_open())
    }

    /// The highest token that is or will be the resource's mark, as far as anybody has asked.
    pub(super) fn ceiling(&self, resource: &Resource) -> u64 {
        self.replica.ceiling(resource).max(self.names.names.floors.of(resource.as_str()))
    }

    /// Resources that an operator keeps shut.
    pub(super) fn frozen(&self) -> impl Iterator<Item = &str> {
        self.replica.frozen()
    }

    /// Every resource and its mark.
    pub(super) fn marks(&self) -> impl Iterator<Item = (&str, u64)> + Clone {
        self.replica.marks()
    }

    pub(super) fn now(&self) -> Time {
        self.started.elapsed()
    }
}

/// What needs other replicas, or an authority that can be restored from a backup, does not apply here.
fn refuse(order: Override) {
    match order {
        Override::BumpEra { reply, .. } => drop(reply.send(Err(OverrideError::Alone))),
        Override::Retire { reply, .. } => drop(reply.send(Err(OverrideError::Alone))),
    }
}
