//! What an operator orders of all replicas at once: a new era, and a replica taken out.

use std::time::Duration;

use highgate_etcd::Outcome;
use highgate_etcd::fence::{MemberValue, TombstoneValue};

use super::driver::{Driver, Stage};
use super::link::Link;
use super::requests::{self, ERA, MEMBERS, TOMBSTONES};
use super::values::{era, era_tombstone, member, tombstone, tombstone_value};
use crate::replica::{Incarnation, Timing};
use crate::store::{Bumped, Override, OverrideError};

/// How often a changed era is read anew before a bump gives up.
const ATTEMPTS: usize = 5;

impl Driver {
    pub(super) fn override_with(&mut self, order: Override) {
        let link = self.link.clone();
        match order {
            // Also from outside: an etcd that went back is what it is for.
            Override::BumpEra { from, reply } => {
                self.note_longest_wait();
                let (value, timing) = (self.value(0, Vec::new()), self.timing);
                tokio::spawn(async move {
                    let _ = reply.send(bump_era(&link, &value, &timing, from).await);
                });
            }
            Override::Retire { replica, reply } => match self.tombstone_for(replica) {
                Ok(tombstone) => drop(tokio::spawn(async move {
                    let _ = reply.send(retire(&link, replica, &tombstone).await);
                })),
                Err(error) => drop(reply.send(Err(error))),
            },
        }
    }

    /// What it says until it is out is not waited for, so what it has said so far does not count.
    fn tombstone_for(&self, replica: Incarnation) -> Result<TombstoneValue, OverrideError> {
        let session = match &self.stage {
            Stage::Inside(session) => session,
            Stage::Outside { why, .. } => {
                return Err(OverrideError::Failed(format!("the replica that was asked is fenced: {why}")));
            }
        };
        let known = session.replica.members().get(&replica).ok_or(OverrideError::NoSuchReplica)?;
        let mut tombstone = tombstone_value(known, &self.timing);
        tombstone.watermark = 0;
        tombstone.draining.clear();
        Ok(tombstone)
    }
}

/// ERA. Above every era that this replica has seen, too: a backup may be older than the last bump. Its tombstone is
/// waited for as long as the slowest of all replicas that etcd or this one knows of.
async fn bump_era(
    link: &Link,
    value: &MemberValue,
    own: &Timing,
    ends: Option<u64>,
) -> Result<Bumped, OverrideError> {
    let failed = |error: &dyn std::fmt::Display| OverrideError::Failed(error.to_string());
    for _ in 0..ATTEMPTS {
        // Not judged by what is remembered: an etcd that went back is what this is for.
        let answer = link.client.txn(requests::list(&link.keys)).await.map_err(|error| failed(&error))?;
        let tombstone = era_tombstone(value, own, longest_wait(&answer, own).max(link.memory.longest_wait()));
        let from = match answer.found(ERA).first() {
            Some(from) => Some(era(&from.value).ok_or_else(|| failed(&"the era in etcd is not a number"))?),
            None => None,
        };
        let now = from.unwrap_or(0).max(link.memory.era());
        if ends.is_some_and(|ends| ends != now) {
            return Ok(Bumped { era: now, changed: false });
        }
        let to = now + 1;
        let bump = match from {
            Some(from) => requests::bump_era(&link.keys, from, to, &tombstone),
            None => requests::initialise(&link.keys, to, &tombstone),
        };
        let answer = link.client.txn(bump).await.map_err(|error| failed(&error))?;
        let now = answer.found(0).first().and_then(|kv| era(&kv.value));
        // Run twice, the second run finds what the first has done.
        if answer.succeeded || now == Some(to) {
            return Ok(Bumped { era: to, changed: true });
        }
    }
    Err(failed(&"the era changes all the time"))
}

/// Of all members and tombstones that etcd holds.
fn longest_wait(listed: &Outcome, own: &Timing) -> Duration {
    let members = listed.found(MEMBERS).iter().map(|kv| member(kv, own).wait);
    let tombstones = listed.found(TOMBSTONES).iter().map(|kv| tombstone(kv, own).wait);
    members.chain(tombstones).max().unwrap_or_default()
}

async fn retire(link: &Link, replica: Incarnation, tombstone: &TombstoneValue) -> Result<(), OverrideError> {
    let answer = link.txn(requests::retire(&link.keys, replica, tombstone)).await;
    let answer = answer.map_err(|error| OverrideError::Failed(error.to_string()))?;
    let is_gone = answer.succeeded || !answer.found(0).is_empty();
    if is_gone { Ok(()) } else { Err(OverrideError::NoSuchReplica) }
}
