//! What a replica reads before it joins: all marks and candidates, and what changes from before that on.
//!
//! A member that has joined and still reads would hold up every raise and be evicted for it. So the long reading comes
//! first, and between the join and the first request there is only the difference. Each page is as it is when it is read:
//! the history of etcd need not reach back to the first one, however long the last takes. A watch is open all the while,
//! and what it tells is applied after. What must stay true: the changes that count follow one another without a gap from the
//! revision before the first page to the join's own. So a key that was changed meanwhile is as its last change says,
//! any other is as it was read, and the marks are exactly those that the join found.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use highgate_elector::Resource;
use highgate_etcd::{CallError, Event, Range, Watch, WatchError, prefix_end};

use super::link::{Link, Trouble};
use super::load::{candidates, marks};
use super::values::{Poll, number, revision, sort};
use crate::replica::{Change, Record, Revision, Timing};

/// In place of a revision: every page as it is when it is read.
pub(super) const NEWEST: i64 = 0;
/// How long the difference may take; the join is tried again after that.
const LIMIT: Duration = Duration::from_secs(5);

/// Everything, kept up with a watch.
pub(super) struct Base<'a> {
    link: &'a Link,
    timing: &'a Timing,
    watch: Watch,
    /// Events that were heard and are beyond what was asked for.
    ahead: VecDeque<Event>,
    /// The number of the last change that counts, and its revision.
    seq: u64,
    watermark: Revision,
    records: HashMap<Resource, Record>,
    candidates: Vec<Poll>,
}

impl<'a> Base<'a> {
    /// Reads everything, and what has changed while that was read.
    pub(super) async fn read(link: &'a Link, timing: &'a Timing) -> Result<Self, Trouble> {
        let (before, watermark, seq) = last_change(link).await?;
        let root = link.keys.root().into_bytes();
        let watch = Watch::from_revision(&link.client, &root, &prefix_end(&root), before + 1);
        let (ahead, records, polls) = (VecDeque::new(), HashMap::new(), Vec::new());
        let mut base = Self { link, timing, watch, ahead, seq, watermark, records, candidates: polls };
        let reading = async { tokio::try_join!(marks(link, NEWEST, 0), candidates(link, NEWEST)) };
        let (records, candidates) = base.listen_during(reading).await?;
        (base.records, base.candidates) = (records.into_iter().collect(), candidates);
        let (_, watermark, seq) = last_change(link).await?;
        base.follow_to(watermark, seq).await?;
        Ok(base)
    }

    /// Keeps what the watch tells meanwhile.
    async fn listen_during<T>(
        &mut self,
        reading: impl Future<Output = Result<T, Trouble>>,
    ) -> Result<T, Trouble> {
        let mut reading = std::pin::pin!(reading);
        loop {
            tokio::select! {
                read = &mut reading => return read,
                heard = self.watch.changes() => self.ahead.extend(heard.map_err(trouble)?),
            }
        }
    }

    /// Applies what has changed up to this revision, which is that of the change with this number.
    pub(super) async fn follow_to(&mut self, watermark: Revision, seq: u64) -> Result<(), Trouble> {
        let followed = tokio::time::timeout(LIMIT, self.follow(watermark)).await;
        followed.map_err(|_| unavailable("the watch does not tell what has changed"))??;
        if self.seq == seq { Ok(()) } else { Err(missed()) }
    }

    async fn follow(&mut self, watermark: Revision) -> Result<(), Trouble> {
        while self.watermark < watermark {
            self.hear_more(watermark).await?;
            self.apply_up_to(watermark)?;
            // What is left is later than the change that is waited for, so the watch has lost that one. Without this the
            // loop would go round and never wait for anything, so that its time limit could not end it either.
            if self.watermark < watermark && !self.ahead.is_empty() {
                return Err(missed());
            }
        }
        Ok(())
    }

    async fn hear_more(&mut self, watermark: Revision) -> Result<(), Trouble> {
        if self.ahead.iter().any(|event| modified(event) >= watermark) {
            return Ok(());
        }
        self.ahead.extend(self.watch.changes().await.map_err(trouble)?);
        Ok(())
    }

    fn apply_up_to(&mut self, watermark: Revision) -> Result<(), Trouble> {
        while let Some(at) = self.ahead.front().map(modified).filter(|at| *at <= watermark) {
            let count = self.ahead.iter().take_while(|event| modified(event) == at).count();
            let events: Vec<Event> = self.ahead.drain(..count).collect();
            let sorted = sort(&self.link.keys, self.timing, number(at), &events);
            if let Some(seq) = sorted.applied.seq {
                if seq != self.seq + 1 {
                    return Err(missed());
                }
                (self.seq, self.watermark) = (seq, at);
            }
            for change in sorted.applied.changes {
                match change {
                    Change::Record(resource, record) => drop(self.records.insert(resource, record)),
                    // Whoever knew it puts it back.
                    Change::Lost(resource) => drop(self.records.remove(&resource)),
                    _ => {}
                }
            }
            self.candidates.extend(sorted.polls);
        }
        Ok(())
    }

    pub(super) fn into_parts(self) -> (Vec<(Resource, Record)>, Vec<Poll>) {
        (self.records.into_iter().collect(), self.candidates)
    }
}

fn trouble(error: WatchError) -> Trouble {
    match error {
        WatchError::Compacted => Trouble::Call(CallError::Compacted),
        WatchError::Refused(why) => Trouble::Call(CallError::Refused(why)),
    }
}

/// The newest revision; the revision of the last change that counts, and its number.
async fn last_change(link: &Link) -> Result<(i64, Revision, u64), Trouble> {
    let answer = link.range(Range::key(link.keys.seq())).await?;
    let seq = answer.kvs.first();
    let version = seq.map_or(0, |kv| u64::try_from(kv.version).unwrap_or(0));
    Ok((answer.header.revision, seq.map_or(0, |kv| revision(kv.mod_revision)), version))
}

fn modified(event: &Event) -> Revision {
    revision(event.kv.mod_revision)
}

fn missed() -> Trouble {
    unavailable("a change was missed while everything was read")
}

fn unavailable(why: &str) -> Trouble {
    Trouble::Call(CallError::Unavailable(why.to_owned()))
}
