//! Who led which resource when: a bounded journal in the data folder, for `highgate history` and `GET /v1/history`.
//!
//! Whoever hears the store's events writes here ([`Journal::note`]), and the admin port reads. The journal is for
//! people: nothing in the gateway decides by it, and a disk that does not take it stops nothing. What must stay true:
//! - with the embedded store a line is with the kernel before whoever is elected is told, so `kill -9` loses none;
//! - nobody waits for the flush of a line: a thread of its own does it for all lines of half a second together;
//! - the files are never larger than the limit, no resource loses its past to one that takes more than its share, and a term
//!   that lasts is not lost however old it is;
//! - no wall clock makes lines old: that is for the journal's own clock to say.

mod clock;
mod entry;
mod files;
mod limits;
mod shared;
mod shares;
mod sieve;
mod since;
mod terms;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, SystemTime};

use highgate_elector::{Resource, Token};
use parking_lot::Mutex;

use crate::elections::{Ended, Event, Standing};
use crate::replica;
use entry::Entry;
pub use entry::{EndedBy, Reign};
pub use limits::Limits;
use shared::Shared;
pub use since::{SinceError, parse_since};
use terms::Gathered;
pub use terms::{History, Raise, Term, Wanted};

/// How many batches may wait for the disk.
const MAX_QUEUED: usize = 65_536;
/// How long the end waits for the disk.
const END_LIMIT: Duration = Duration::from_secs(2);
/// How often a history is read again because files went while it was read.
const READ_AGAIN: usize = 5;
/// The folder of the journal, in the data folder.
const FOLDER: &str = "history";

/// Who writes the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// Whoever notes something, before it goes on: for a store that waits for the same disk anyway.
    Caller,
    /// The journal's own thread: for a store that must not wait for a disk.
    Thread,
}

/// The journal of one gateway.
pub struct Journal {
    shared: Arc<Shared>,
    writer: Writer,
    jobs: Mutex<Option<SyncSender<Vec<Entry>>>>,
    ended: Mutex<Receiver<()>>,
}

impl Journal {
    /// Reads what the process before has left. A folder that cannot be read is said to be so, and the journal starts
    /// without it.
    pub fn open(data_folder: &Path, limits: Limits, writer: Writer) -> io::Result<Self> {
        let shared = Arc::new(Shared::open(data_folder.join(FOLDER), limits));
        let (jobs, waiting) = sync_channel(MAX_QUEUED);
        let (end, ended) = sync_channel(1);
        let own = shared.clone();
        thread::Builder::new().name("history".into()).spawn(move || {
            own.serve(&waiting);
            let _ = end.send(());
        })?;
        Ok(Self { shared, writer, jobs: Mutex::new(Some(jobs)), ended: Mutex::new(ended) })
    }

    /// Somebody was elected, or a term has ended.
    pub fn note(&self, event: &Event) {
        self.note_at(event, SystemTime::now());
    }

    fn note_at(&self, event: &Event, now: SystemTime) {
        match event {
            Event::Elected { resource, holder, token } => {
                self.write(vec![self.begin(resource, Reign::beginning(holder, token.get(), now, false))]);
            }
            Event::Ended { resource, holder, token, why } => {
                self.write(vec![self.end(resource, (holder, *token), (*why).into(), now)]);
            }
        }
    }

    /// A mark was raised. That it was for an election is seen when the journal is read.
    pub fn note_raise(&self, event: &replica::Event) {
        if let replica::Event::Raised { resource, from, to } = event {
            let (resource, from, to, at) = (resource.clone(), *from, *to, SystemTime::now());
            self.write(vec![Entry::Raised { resource, from, to, at }]);
        }
    }

    /// These lead, and nobody else. What that says of terms whose beginning or end this gateway has not seen; both are
    /// noted by this.
    pub fn catch_up(&self, standing: &[Standing]) -> Vec<Event> {
        let missed = self.missed(standing);
        let now = SystemTime::now();
        let note = |event: &Event| match event {
            Event::Elected { resource, holder, token } => {
                self.begin(resource, Reign::beginning(holder, token.get(), now, true))
            }
            Event::Ended { resource, holder, token, .. } => {
                self.end(resource, (holder, *token), EndedBy::Unknown, now)
            }
        };
        self.write(missed.iter().map(note).collect());
        missed
    }

    fn missed(&self, standing: &[Standing]) -> Vec<Event> {
        let leads = self.shared.leads.lock();
        let now: HashMap<&Resource, (&str, Token)> = standing
            .iter()
            .filter_map(|Standing { resource, leader, .. }| {
                leader.as_ref().map(|(holder, token)| (resource, (holder.as_str(), *token)))
            })
            .collect();
        let gone = leads.iter().filter_map(|(resource, reign)| {
            let still = now.get(resource).is_some_and(|(_, token)| token.get() == reign.token);
            let (resource, holder, why) = (resource.clone(), reign.holder.clone(), Ended::Gone);
            let token = Token::new(reign.token).filter(|_| !still)?;
            Some(Event::Ended { resource, holder, token, why })
        });
        let come = now.iter().filter_map(|(resource, (holder, token))| {
            let known = leads.get(*resource).is_some_and(|reign| reign.token == token.get());
            let (resource, holder, token) = ((*resource).clone(), (*holder).to_owned(), *token);
            (!known).then_some(Event::Elected { resource, holder, token })
        });
        gone.chain(come).collect()
    }

    fn begin(&self, resource: &Resource, reign: Reign) -> Entry {
        self.shared.leads.lock().insert(resource.clone(), reign.clone());
        Entry::Won { resource: resource.clone(), reign }
    }

    fn end(
        &self,
        resource: &Resource,
        (holder, token): (&str, Token),
        why: EndedBy,
        until: SystemTime,
    ) -> Entry {
        let mut leads = self.shared.leads.lock();
        let known = leads.get(resource).is_some_and(|reign| reign.token == token.get());
        let reign = match known.then(|| leads.remove(resource)).flatten() {
            Some(reign) => reign,
            // Nobody saw it begin.
            None => Reign::beginning(holder, token.get(), until, true),
        };
        Entry::Ended { resource: resource.clone(), reign, until, why }
    }

    fn write(&self, entries: Vec<Entry>) {
        if entries.is_empty() {
            return;
        }
        let batch = match self.writer {
            Writer::Caller => {
                self.shared.append(&entries);
                if self.shared.dirty.swap(true, Ordering::AcqRel) {
                    return;
                }
                // Nothing is left to write: the thread only has to know that a flush is due.
                Vec::new()
            }
            Writer::Thread => entries,
        };
        let count = batch.len() as u64;
        let sent = self.jobs.lock().as_ref().map(|jobs| jobs.try_send(batch));
        if let Some(Err(TrySendError::Full(_))) = sent {
            self.shared.fail(count, &io::Error::other("the disk is slower than the elections"));
        }
    }

    /// What is known of a resource. Reads the whole journal, so not on a thread that others wait for.
    pub fn history(&self, resource: &Resource, wanted: Wanted) -> io::Result<History> {
        let Shared { folder, leads, .. } = &*self.shared;
        let name = entry::escaped(resource.as_str());
        let mut gathered = Gathered::new(wanted);
        for _ in 0..READ_AGAIN {
            let whole = files::read(folder, |_, line| {
                if Entry::subject(line) == Some(name.as_str())
                    && let Some(entry) = Entry::parse(line)
                {
                    gathered.take(entry);
                }
            })?;
            if whole {
                break;
            }
        }
        let leader = leads.lock().get(resource).cloned();
        let token = leader.as_ref().map(|reign| reign.token);
        if let Some(reign) = leader {
            // It may be on its way to the disk, or the disk may not take it.
            gathered.take(Entry::Won { resource: resource.clone(), reign });
        }
        Ok(gathered.told(token))
    }

    /// How large the journal is.
    pub fn size(&self) -> u64 {
        self.shared.files.lock().size()
    }

    /// How many lines were lost because the disk did not take them.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// Flushes what was written, and takes no more. Waits for a disk that hangs only for a moment.
    pub fn close(&self) {
        if self.jobs.lock().take().is_some() {
            let _ = self.ended.lock().recv_timeout(END_LIMIT);
        }
    }
}
