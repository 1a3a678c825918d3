//! What a replica reads before it joins: all marks and candidates at one revision, and then what changes.
//!
//! A member that has joined and still reads would hold up every raise and be evicted for it. So the long reading comes
//! first, and between the join and the first request there is only the difference. What must stay true: the changes
//! that count follow one another without a gap from the revision that was read to the join's own, so that the marks
//! are exactly those that the join found.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use highgate_elector::Resource;
use highgate_elector::backend::etcd::client::CallError;
use highgate_elector::backend::etcd::txn::prefix_end;
use highgate_elector::backend::etcd::watch::{Watch, WatchError};
use highgate_elector::backend::etcd::wire::{Event, RangeRequest};

use super::link::{Link, Trouble};
use super::load::{candidates, marks};
use super::values::{Poll, number, revision, sort};
use crate::replica::{Change, Record, Revision, Timing};

/// How long the difference may take; the join is tried again after that.
const LIMIT: Duration = Duration::from_secs(5);

/// Everything as it was at one revision, kept up with a watch.
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
        let (pinned, watermark, seq) = last_change(link).await?;
        let (records, candidates) = tokio::try_join!(marks(link, pinned, 0), candidates(link, pinned))?;
        let root = link.keys.root().into_bytes();
        let watch = Watch::from_revision(&link.client, &root, &prefix_end(&root), pinned + 1);
        let records = records.into_iter().collect();
        let ahead = VecDeque::new();
        let mut base = Self { link, timing, watch, ahead, seq, watermark, records, candidates };
        let (_, watermark, seq) = last_change(link).await?;
        base.follow_to(watermark, seq).await?;
        Ok(base)
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
        }
        Ok(())
    }

    async fn hear_more(&mut self, watermark: Revision) -> Result<(), Trouble> {
        if self.ahead.iter().any(|event| modified(event) >= watermark) {
            return Ok(());
        }
        let heard = self.watch.changes().await.map_err(|error| match error {
            WatchError::Compacted => Trouble::Call(CallError::Compacted),
            WatchError::Refused(why) => Trouble::Call(CallError::Refused(why)),
        })?;
        self.ahead.extend(heard);
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
                if let Change::Record(resource, record) = change {
                    self.records.insert(resource, record);
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

/// The newest revision; the revision of the last change that counts, and its number.
async fn last_change(link: &Link) -> Result<(i64, Revision, u64), Trouble> {
    let answer = link.range(RangeRequest::key(link.keys.seq())).await?;
    let seq = answer.kvs.first();
    let version = seq.map_or(0, |kv| u64::try_from(kv.version).unwrap_or(0));
    let pinned = answer.header.as_ref().map_or(0, |header| header.revision);
    Ok((pinned, seq.map_or(0, |kv| revision(kv.mod_revision)), version))
}

fn modified(event: &Event) -> Revision {
    event.kv.as_ref().map_or(0, |kv| revision(kv.mod_revision))
}

fn missed() -> Trouble {
    unavailable("a change was missed while everything was read")
}

fn unavailable(why: &str) -> Trouble {
    Trouble::Call(CallError::Unavailable(why.to_owned()))
}
