//! Runs the protocol machine over the file: inputs in, one commit for all that they propose, outputs out.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use highgate_elector::Resource;
use tokio::sync::oneshot;

use super::StoreFailed;
use super::file::{File, Found};
use crate::ledger::Ledger;
use crate::replica::{Event, Input, Output, Proposal, Replica, Time, Tombstone};
use crate::store::Command;

/// How many inputs share a commit at the most.
const MAX_BATCH: usize = 8192;

pub(super) struct Driver {
    file: File,
    replica: Replica,
    ledger: Arc<Ledger>,
    tell: Box<dyn Fn(Event) + Send>,
    queued: Arc<AtomicUsize>,
    started: Instant,
    /// What the machine has proposed and the next commit takes.
    proposals: Vec<Proposal>,
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
        tell: Box<dyn Fn(Event) + Send>,
        queued: Arc<AtomicUsize>,
        found: Found,
    ) -> Result<Self, StoreFailed> {
        // A fresh folder and a clean end leave nobody whose requests could still be under way.
        let before = found.inherited_delay.map(|wait| Tombstone { first_seen: Time::ZERO, wait });
        let (replica, outputs) = Replica::join(
            Time::ZERO,
            found.incarnation,
            found.revision,
            found.records,
            before.into_iter().collect(),
        );
        let started = Instant::now();
        let mut driver = Self { file, replica, ledger, tell, queued, started, proposals: Vec::new() };
        driver.carry_out(outputs)?;
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
            self.commit()?;
            match self.wait(inbox) {
                Some(first) => {
                    for command in std::iter::once(first).chain(inbox.try_iter().take(MAX_BATCH)) {
                        if let Some(stopped) = self.obey(command)? {
                            return Ok(stopped);
                        }
                    }
                }
                None => self.step(Input::Tick)?,
            }
        }
    }

    /// The next command, or none when the machine wants to be woken first. The ledger holds a sender of the
    /// inbox for as long as this driver lives, so the inbox never ends.
    fn wait(&self, inbox: &Receiver<Command>) -> Option<Command> {
        let now = self.now();
        match self.replica.wake_at(now) {
            Some(at) => inbox.recv_timeout(at - now).ok(),
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
            Command::Promise { lock_delay, reply } => {
                self.file.promise(lock_delay)?;
                let _ = reply.send(());
            }
            Command::Stop { reply } => return Ok(Some(Stopped { clean: self.stop()?, reply })),
        }
        Ok(None)
    }

    /// Commits until the machine has nothing more to propose.
    fn commit(&mut self) -> Result<(), StoreFailed> {
        while !self.proposals.is_empty() {
            let proposals = std::mem::take(&mut self.proposals);
            for input in self.file.commit(proposals)? {
                self.step(input)?;
            }
        }
        Ok(())
    }

    fn step(&mut self, input: Input) -> Result<(), StoreFailed> {
        let outputs = self.replica.step(self.now(), input);
        self.carry_out(outputs)
    }

    fn carry_out(&mut self, outputs: Vec<Output>) -> Result<(), StoreFailed> {
        for output in outputs {
            match output {
                Output::Propose(proposal) => self.proposals.push(proposal),
                Output::Close { resource, mark, frozen } => {
                    if self.ledger.close(&resource, mark, frozen).remaining == 0 {
                        self.step(Input::Drained { resource })?;
                    }
                }
                Output::Open { resource } => self
                    .ledger
                    .open(&resource)
                    .map_err(|source| StoreFailed::OpenedEarly { resource, source })?,
                Output::Tell(event) => (self.tell)(event),
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

    fn now(&self) -> Time {
        self.started.elapsed()
    }
}
