//! What an operator orders of all replicas at once: a new era, and a replica taken out.

use highgate_elector::backend::etcd::fence::TombstoneValue;
use highgate_elector::backend::etcd::wire::RangeRequest;

use super::driver::{Driver, Stage};
use super::link::Link;
use super::requests;
use super::values::{era, era_tombstone, tombstone_value};
use crate::replica::Incarnation;
use crate::store::{Override, OverrideError};

/// How often a changed era is read anew before a bump gives up.
const ATTEMPTS: usize = 5;

impl Driver {
    pub(super) fn override_with(&mut self, order: Override) {
        let link = self.link.clone();
        match order {
            // Also from outside: an etcd that went back is what it is for.
            Override::BumpEra { reply } => {
                let tombstone = era_tombstone(&self.value(0, Vec::new()), &self.timing);
                tokio::spawn(async move {
                    let _ = reply.send(bump_era(&link, &tombstone).await);
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

/// ERA. Above every era that this replica has seen, too: a backup may be older than the last bump.
async fn bump_era(link: &Link, tombstone: &TombstoneValue) -> Result<u64, OverrideError> {
    let failed = |error: &dyn std::fmt::Display| OverrideError::Failed(error.to_string());
    for _ in 0..ATTEMPTS {
        // Not judged by what is remembered: an etcd that went back is what this is for.
        let answer =
            link.client.call(RangeRequest::key(link.keys.era())).await.map_err(|error| failed(&error))?;
        let Some(from) = answer.kvs.first() else {
            let first = requests::initialise(&link.keys, tombstone);
            link.client.call(first).await.map_err(|error| failed(&error))?;
            continue;
        };
        let from = era(&from.value).ok_or_else(|| failed(&"the era in etcd is not a number"))?;
        let to = from.max(link.memory.era()) + 1;
        let bump = requests::bump_era(&link.keys, from, to, tombstone);
        let answer = link.client.call(bump).await.map_err(|error| failed(&error))?;
        let now = answer.found(0).first().and_then(|kv| era(&kv.value));
        // Run twice, the second run finds what the first has done.
        if answer.succeeded || now == Some(to) {
            return Ok(to);
        }
    }
    Err(failed(&"the era changes all the time"))
}

async fn retire(link: &Link, replica: Incarnation, tombstone: &TombstoneValue) -> Result<(), OverrideError> {
    let answer = link.txn(requests::retire(&link.keys, replica, tombstone)).await;
    let answer = answer.map_err(|error| OverrideError::Failed(error.to_string()))?;
    let is_gone = answer.succeeded || !answer.found(0).is_empty();
    if is_gone { Ok(()) } else { Err(OverrideError::NoSuchReplica) }
}
