//! What the journal's own thread and whoever notes something share: the files, who leads, and what went wrong.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use highgate_elector::Resource;
use parking_lot::Mutex;

use super::clock::{self, Clock};
use super::entry::{Entry, Reign};
use super::files::{self, Files, Part};
use super::limits::Limits;
use super::shares::Shares;

/// All lines of this time share a flush.
const FLUSH_EVERY: Duration = Duration::from_millis(500);
/// Files that are too old are looked for this often.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

/// Whoever needs both locks takes that of the files first. Neither is held during a flush.
pub(super) struct Shared {
    pub(super) folder: PathBuf,
    pub(super) clock: Clock,
    pub(super) files: Mutex<Files>,
    /// Who leads now.
    pub(super) leads: Mutex<HashMap<Resource, Reign>>,
    /// Lines that are not in the journal because the disk did not take them, or not in time.
    pub(super) lost: AtomicU64,
    pub(super) failing: AtomicBool,
    /// Written since the last flush.
    pub(super) dirty: AtomicBool,
}

/// What the process before has left.
#[derive(Default)]
struct Found {
    parts: Vec<Part>,
    shares: Shares,
    /// Who led when it ended, as far as it wrote that down.
    leads: HashMap<Resource, Reign>,
    /// Where the journal's clock stood.
    clock: Duration,
}

impl Shared {
    /// Goes on with what is there. Where that cannot be read, it is said to be so, and left aside.
    pub(super) fn open(folder: PathBuf, limits: Limits) -> Self {
        let found = Found::read(&folder);
        let failing = found.is_err();
        let Found { parts, shares, leads, clock } = found.unwrap_or_else(|error| {
            complain(&folder, &error);
            Found::default()
        });
        Self {
            files: Mutex::new(Files::new(&folder, limits, parts, shares)),
            clock: Clock::resume(clock),
            leads: Mutex::new(leads),
            lost: AtomicU64::new(0),
            failing: AtomicBool::new(failing),
            dirty: AtomicBool::new(false),
            folder,
        }
    }

    /// Until nobody can write any more.
    pub(super) fn serve(&self, jobs: &Receiver<Vec<Entry>>) {
        loop {
            match jobs.recv_timeout(LOOK_EVERY) {
                Ok(batch) => self.append(&batch),
                Err(RecvTimeoutError::Timeout) => self.look_after(),
                Err(RecvTimeoutError::Disconnected) => {
                    self.note_clock();
                    return self.flush();
                }
            }
            // What comes within this time shares the flush.
            let until = Instant::now() + FLUSH_EVERY;
            while let Ok(batch) = jobs.recv_timeout(until.saturating_duration_since(Instant::now())) {
                self.append(&batch);
            }
            self.flush();
        }
    }

    pub(super) fn append(&self, entries: &[Entry]) {
        for entry in entries {
            let line = entry.line();
            let appended = self.files.lock().append(&line, self.clock.now(), &|line| self.lasts(line));
            match appended {
                Ok(()) if self.failing.swap(false, Ordering::Relaxed) => {
                    tracing::info!(folder = %self.folder.display(), "the history is written again");
                }
                Ok(()) => {}
                Err(error) => self.fail(1, &error),
            }
        }
    }

    /// Whether a line is the beginning of a term that has not ended: as long as it lasts, it is part of the answer.
    fn lasts(&self, line: &str) -> bool {
        match Entry::parse(line) {
            Some(Entry::Won { resource, reign }) => {
                self.leads.lock().get(&resource).is_some_and(|leads| leads.token == reign.token)
            }
            _ => false,
        }
    }

    /// Once in a while, when nothing else happens.
    pub(super) fn look_after(&self) {
        let removed = self.files.lock().remove_old(self.clock.now(), &|line| self.lasts(line));
        if let Err(error) = removed {
            self.fail(0, &error);
        }
        self.note_clock();
    }

    fn note_clock(&self) {
        let noted = self.files.lock().note_clock(self.clock.now());
        if let Err(error) = noted {
            self.fail(0, &error);
        }
    }

    fn flush(&self) {
        // Before the flush: what is written during it is flushed by the next one.
        self.dirty.store(false, Ordering::Release);
        let flush = self.files.lock().flush();
        if let Err(error) = flush.and_then(files::Flush::run) {
            self.fail(0, &error);
        }
    }

    /// Says it once, until a line was written again.
    pub(super) fn fail(&self, lines: u64, error: &io::Error) {
        self.lost.fetch_add(lines, Ordering::Relaxed);
        if !self.failing.swap(true, Ordering::Relaxed) {
            complain(&self.folder, error);
        }
    }
}

impl Found {
    fn read(folder: &Path) -> io::Result<Self> {
        let mut found = Self::default();
        for (number, size) in files::listing(folder)? {
            found.parts.push(Part { number, size, begun: Duration::ZERO });
        }
        files::read(folder, |number, line| found.take(number, line))?;
        Ok(found)
    }

    fn take(&mut self, number: u64, line: &str) {
        if let Some(name) = Entry::subject(line) {
            self.shares.add(self.shares.key(name), number, line.len() as u64 + 1);
        }
        match Entry::parse(line) {
            Some(Entry::Won { resource, reign }) => drop(self.leads.insert(resource, reign)),
            Some(Entry::Ended { resource, reign, .. }) => {
                if self.leads.get(&resource).is_some_and(|leads| leads.token <= reign.token) {
                    self.leads.remove(&resource);
                }
            }
            Some(Entry::Raised { .. }) => {}
            None => self.take_clock(number, line),
        }
    }

    fn take_clock(&mut self, number: u64, line: &str) {
        let Some(clock) = clock::parse(line) else { return };
        self.clock = self.clock.max(clock);
        // The first one in a file says when it was begun.
        if let Ok(index) = self.parts.binary_search_by_key(&number, |part| part.number)
            && self.parts[index].begun.is_zero()
        {
            self.parts[index].begun = clock;
        }
    }
}

fn complain(folder: &Path, error: &io::Error) {
    let folder = folder.display();
    tracing::error!(
        target: "audit",
        event = "history-failed",
        %folder,
        %error,
        "the history cannot be kept; requests and elections go on without it, and it is tried again with each event"
    );
}
