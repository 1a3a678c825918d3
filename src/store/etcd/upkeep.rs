//! Upkeep of etcd: the replicas compact its history, and say when it runs out of room.
//!
//! Every renewal is a revision, and etcd keeps all of them until somebody compacts them. One that nobody compacts is full
//! after some weeks, takes no more writes, and then every replica fences at once. So each replica notes from time to
//! time how far etcd has come, and the oldest member compacts what is older than the history that is to be kept.
//! Nothing rests on it: whoever needs a revision that is gone reads everything again. That two replicas both
//! take themselves for the oldest does no harm, since a second compaction at the same revision changes nothing.

use std::collections::VecDeque;
use std::mem::discriminant;
use std::time::Duration;

use highgate_etcd::{Alarm, CallError, Client};

use super::driver::{Driver, Report, Stage, now_time};
use super::values::number;
use crate::replica::{Revision, Time};

/// How often etcd is asked for its room, at the least.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// So many times within the history that is kept, some of it is compacted.
const STEPS: u32 = 12;
const MIB: i64 = 1 << 20;

/// What is wrong with etcd, for an operator to mend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Warning {
    #[error(
        "etcd has raised the alarm NOSPACE: it takes no writes, so nothing can be raised and every gateway is fenced. \
         Compact and defragment it (etcdctl compact, etcdctl defrag), then run etcdctl alarm disarm"
    )]
    NoSpace,
    #[error(
        "etcd has raised the alarm CORRUPT: its nodes do not hold the same. Do not rely on it before it is mended"
    )]
    Corrupt,
    #[error(
        "etcd's database has {size} MiB of {quota} MiB, {used} MiB of it in use: when it is full, it takes no writes, and \
         every gateway is fenced. Defragment it (etcdctl defrag), or give it more room (--quota-backend-bytes)"
    )]
    AlmostFull { size: i64, used: i64, quota: i64 },
    #[error(
        "etcd does not let this gateway compact its history ({0}). Let etcd do it (--auto-compaction-retention=1h) and \
         set store.compact = \"off\", or it fills up"
    )]
    MayNotCompact(String),
}

/// What is known of etcd's room and history.
pub(super) struct Upkeep {
    /// How much history is kept; none: etcd is left alone.
    keep: Option<Duration>,
    /// How far etcd had come, the newest last. At most one is older than what is kept.
    history: VecDeque<(Time, Revision)>,
    compacted: Revision,
    look_at: Time,
    is_looking: bool,
    may_not: Option<String>,
    warnings: Vec<Warning>,
}

/// What a look at etcd has shown.
pub(super) struct Looked {
    /// None if etcd did not say.
    warnings: Option<Vec<Warning>>,
    /// Up to where its history was to be compacted, and what became of it.
    compacted: Option<(Revision, Result<(), CallError>)>,
}

impl Upkeep {
    pub(super) fn new(keep: Option<Duration>) -> Self {
        Self {
            keep,
            history: VecDeque::new(),
            compacted: 0,
            look_at: Time::ZERO,
            is_looking: false,
            may_not: None,
            warnings: Vec::new(),
        }
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        self.warnings.iter().map(ToString::to_string).collect()
    }

    fn look_every(&self) -> Duration {
        self.keep.map_or(LOOK_EVERY, |keep| LOOK_EVERY.min(keep / STEPS))
    }

    /// etcd has come to this revision.
    fn note(&mut self, now: Time, revision: Revision) {
        let Some(keep) = self.keep else { return };
        if self.history.back().is_none_or(|(at, _)| now >= *at + keep / STEPS) {
            self.history.push_back((now, revision));
        }
        // Twice that, for those that leave it to others first.
        while self.history.get(1).is_some_and(|(at, _)| now >= *at + 2 * keep) {
            self.history.pop_front();
        }
    }

    /// Up to where the history is old enough, if that is news. Each gateway leaves it to those that are older for a while:
    /// they may not be allowed to, or not want to.
    fn to_compact(&self, now: Time, older: u32) -> Option<Revision> {
        let keep = self.keep?;
        let age = keep + older.min(STEPS) * (keep / STEPS);
        let (_, revision) = *self.history.iter().rev().find(|(at, _)| now >= *at + age)?;
        (revision > self.compacted && self.may_not.is_none()).then_some(revision)
    }

    /// What became of a compaction. One that somebody else has done is as good.
    fn was_compacted(&mut self, up_to: Revision, result: Result<(), CallError>) {
        match result {
            Ok(()) | Err(CallError::Compacted) => self.compacted = up_to,
            Err(CallError::Refused(why)) => self.may_not = Some(why),
            // It was restored meanwhile.
            Err(CallError::NotReached) => self.history.clear(),
            // It is tried again with the next look.
            Err(_) => {}
        }
    }

    /// Takes these for what is wrong now; those that are new.
    fn warn(&mut self, mut warnings: Vec<Warning>) -> Vec<Warning> {
        warnings.extend(self.may_not.clone().map(Warning::MayNotCompact));
        let before = std::mem::replace(&mut self.warnings, warnings);
        let is_new =
            |warning: &&Warning| before.iter().all(|old| discriminant(old) != discriminant(*warning));
        self.warnings.iter().filter(is_new).cloned().collect()
    }
}

impl Driver {
    /// Looks at etcd, if it is time to.
    pub(super) fn look_after_etcd(&mut self) {
        let now = now_time();
        if self.upkeep.is_looking || now < self.upkeep.look_at {
            return;
        }
        (self.upkeep.is_looking, self.upkeep.look_at) = (true, now + self.upkeep.look_every());
        self.upkeep.note(now, self.link.memory.revision());
        let up_to = self.older_members().and_then(|older| self.upkeep.to_compact(now, older));
        let (client, reports) = (self.link.client.clone(), self.reports.clone());
        tokio::spawn(async move {
            let compacted = match up_to {
                Some(up_to) => Some((up_to, compact(&client, up_to).await)),
                None => None,
            };
            let looked = Looked { warnings: look(&client).await.ok(), compacted };
            let _ = reports.send(Report::LookedAfter(looked));
        });
    }

    /// How many members joined before this one.
    fn older_members(&self) -> Option<u32> {
        let Stage::Inside(session) = &self.stage else { return None };
        let older = session.replica.members().values().filter(|member| member.created < session.created);
        u32::try_from(older.count()).ok()
    }

    pub(super) fn looked_after(&mut self, looked: Looked) {
        let Looked { warnings, compacted } = looked;
        self.upkeep.is_looking = false;
        if let Some((up_to, result)) = compacted {
            tracing::debug!(up_to, ?result, "etcd's history was to be compacted");
            self.upkeep.was_compacted(up_to, result);
        }
        let Some(warnings) = warnings else { return };
        for warning in self.upkeep.warn(warnings) {
            tracing::warn!(%warning, "etcd needs an operator");
        }
        self.shown = None;
    }
}

async fn compact(client: &Client, up_to: Revision) -> Result<(), CallError> {
    client.compact(number(up_to)).await
}

/// What is wrong, as far as a node says. One that does not let this user ask says nothing.
async fn look(client: &Client) -> Result<Vec<Warning>, CallError> {
    let alarms = unless_refused(client.alarms().await)?.unwrap_or_default();
    let room = unless_refused(client.room().await)?.unwrap_or_default();
    let (size, quota) = (room.size / MIB, room.quota / MIB);
    let almost_full = Warning::AlmostFull { size, used: room.used / MIB, quota };
    let is_almost_full = quota > 0 && size.saturating_mul(5) >= quota.saturating_mul(4);
    let found = [
        (alarms.contains(&Alarm::NoSpace), Warning::NoSpace),
        (alarms.contains(&Alarm::Corrupt), Warning::Corrupt),
        (is_almost_full, almost_full),
    ];
    Ok(found.into_iter().filter(|(is_so, _)| *is_so).map(|(_, warning)| warning).collect())
}

fn unless_refused<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Err(CallError::Refused(_)) => Ok(None),
        answer => answer.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn an_hour_of_history_is_kept_and_the_rest_compacted_every_five_minutes() {
        let mut upkeep = Upkeep::new(Some(HOUR));
        let mut compactions = Vec::new();
        for minute in 0..=120u32 {
            let now = MINUTE * (1000 + minute);
            upkeep.note(now, u64::from(minute) * 100 + 1);
            if let Some(up_to) = upkeep.to_compact(now, 0) {
                compactions.push((minute, up_to));
                upkeep.was_compacted(up_to, Ok(()));
            }
        }
        let expected: Vec<_> =
            (60..=120).step_by(5).map(|minute| (minute, u64::from(minute - 60) * 100 + 1)).collect();
        assert_eq!(compactions, expected);
        assert!(upkeep.history.len() <= 26, "{}", upkeep.history.len());
    }

    #[test]
    fn a_younger_gateway_compacts_what_the_older_ones_leave() {
        let mut upkeep = Upkeep::new(Some(HOUR));
        (0..=70u32).for_each(|minute| upkeep.note(MINUTE * minute, u64::from(minute) + 1));
        assert_eq!(upkeep.to_compact(MINUTE * 60, 2), None);
        assert_eq!(upkeep.to_compact(MINUTE * 70, 2), Some(1), "two steps later than the oldest");
        upkeep.was_compacted(11, Ok(()));
        assert_eq!(upkeep.to_compact(MINUTE * 70, 2), None);
    }

    fn old_enough() -> Upkeep {
        let mut upkeep = Upkeep::new(Some(HOUR));
        upkeep.note(Time::ZERO, 7);
        upkeep
    }

    #[test]
    fn what_is_refused_is_not_tried_again_and_is_said_once() {
        let mut upkeep = old_enough();
        assert_eq!(upkeep.to_compact(HOUR, 0), Some(7));
        upkeep.was_compacted(7, Err(CallError::Refused("permission denied".to_owned())));
        assert_eq!(upkeep.to_compact(HOUR, 0), None);
        assert_eq!(upkeep.warn(Vec::new()), [Warning::MayNotCompact("permission denied".to_owned())]);
        assert_eq!(upkeep.warn(Vec::new()), []);
        assert_eq!(upkeep.warnings().len(), 1, "it is shown for as long as it is so");
    }

    #[test]
    fn a_compaction_without_an_answer_is_tried_again_and_one_that_was_done_is_not() {
        let mut upkeep = old_enough();
        upkeep.was_compacted(7, Err(CallError::Unavailable(String::new())));
        assert_eq!(upkeep.to_compact(HOUR, 0), Some(7));
        upkeep.was_compacted(7, Err(CallError::Compacted));
        assert_eq!(upkeep.to_compact(HOUR, 0), None);
    }

    #[test]
    fn a_restored_etcd_has_another_history() {
        let mut upkeep = old_enough();
        upkeep.was_compacted(7, Err(CallError::NotReached));
        assert_eq!(upkeep.to_compact(HOUR, 0), None);
    }

    #[test]
    fn an_etcd_that_is_left_alone_is_still_looked_at() {
        let mut upkeep = Upkeep::new(None);
        upkeep.note(Time::ZERO, 7);
        assert_eq!((upkeep.to_compact(HOUR, 0), upkeep.look_every()), (None, LOOK_EVERY));
    }

    #[test]
    fn a_warning_is_told_when_it_is_new_and_not_when_its_numbers_change() {
        let full = |size| Warning::AlmostFull { size, used: 1, quota: 10 };
        let mut upkeep = Upkeep::new(None);
        assert_eq!(upkeep.warn(vec![full(8)]), [full(8)]);
        assert_eq!(upkeep.warn(vec![full(9), Warning::NoSpace]), [Warning::NoSpace]);
        assert_eq!(upkeep.warn(vec![]), []);
        assert_eq!(upkeep.warn(vec![full(9)]), [full(9)], "it was gone");
    }
}
