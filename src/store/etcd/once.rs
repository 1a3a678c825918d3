//! The run-once ledger in etcd: a key for each entry, of which each gateway removes the old ones now and then.

mod ages;

use std::ops::ControlFlow;
use std::time::Duration;

use highgate_elector::Moment;
use highgate_elector::backend::etcd::once::{self, Entry, StepError};
use highgate_elector::backend::{Grant, OnceStep};
use highgate_etcd::{Compare, Delete, KeyValue, Put, Range, Txn, prefix_end};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use self::ages::Ages;
use super::ballot::{answer, lease_id};
use super::driver::Driver;
use super::link::{Link, Trouble};
use super::terms::{Known, leads};
use crate::elections::NotHeld;
use crate::store::once::{OnceEntry, OnceOrder, Place, Question, Wanted};

/// How many entries are read at once.
const PAGE: i64 = 1000;
/// How often old entries are looked for, unless they are kept for a short time only.
const PRUNE_EVERY: Duration = Duration::from_secs(3600);

/// Removes old entries as long as it lives.
pub(super) struct Pruner(AbortHandle);

impl Drop for Pruner {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Driver {
    pub(super) fn answer_once(&mut self, question: Question) {
        let link = self.link.clone();
        match question {
            Question::Step { order, reply } => answer(reply, step(link, order)),
            Question::List { wanted, reply } => answer(reply, list(link, wanted)),
            Question::Show { place, reply } => answer(reply, show(link, place)),
            Question::Reset { place, reply } => answer(reply, reset(link, place)),
            Question::Keep { age } => {
                self.pruner = Some(Pruner(tokio::spawn(prune_for_ever(link, age)).abort_handle()));
            }
        }
    }
}

async fn step(link: Link, order: OnceOrder) -> Result<Result<OnceEntry, NotHeld>, Trouble> {
    let OnceOrder { place: Place { resource, key }, lease, actor, complete } = order;
    let candidate = link.keys.candidate(&resource, lease_id(lease));
    let known = leads(&link, &resource, &candidate).await?.ok_or(NotHeld::Gone);
    let Known { token, holder, .. } = match known.and_then(|known| known.held_by(&actor)) {
        Ok(known) => known,
        Err(not_held) => return Ok(Err(not_held)),
    };
    let lease = format!("{:x}", lease_id(lease));
    let grant = Grant { resource, holder, token, lease, ttl: Duration::ZERO, signed_token: None };
    let step = if complete { OnceStep::Complete } else { OnceStep::Begin };
    match once::step(&link.client, &link.keys, &grant, &key, step).await {
        Ok(entry) => Ok(Ok(entry.into())),
        Err(StepError::Deposed) => Ok(Err(NotHeld::Gone)),
        Err(StepError::Failed(error)) => Err(error.into()),
    }
}

async fn list(link: Link, wanted: Wanted) -> Result<Vec<(Place, OnceEntry)>, Trouble> {
    let prefix = match &wanted.resource {
        Some(resource) => link.keys.ledger(resource),
        None => link.keys.ledgers(),
    };
    let after = wanted.after.map(|Place { resource, key }| link.keys.once(&resource, &key));
    let mut found = Vec::new();
    walk(&link, &prefix, after, |kv| {
        let read = link.keys.parse_once(&kv.key).zip(Entry::parse(&kv.value));
        found.extend(read.map(|((resource, key), entry)| (Place { resource, key }, entry.into())));
        if found.len() < wanted.limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })
    .await?;
    Ok(found)
}

async fn show(link: Link, place: Place) -> Result<Option<OnceEntry>, Trouble> {
    let key = link.keys.once(&place.resource, &place.key);
    let answer = link.range(Range::key(key)).await?;
    Ok(answer.kvs.first().and_then(|kv| Entry::parse(&kv.value)).map(OnceEntry::from))
}

/// Forgets the entry as it was read. One that changes meanwhile is read again.
async fn reset(link: Link, place: Place) -> Result<Option<OnceEntry>, Trouble> {
    let key = link.keys.once(&place.resource, &place.key);
    loop {
        let answer = link.range(Range::key(key.as_str())).await?;
        let Some(kv) = answer.kvs.first() else { return Ok(None) };
        if forget(&link, kv).await? {
            return Ok(Entry::parse(&kv.value).map(OnceEntry::from));
        }
    }
}

/// Every gateway does it: removing twice is no harm, and none of them has to be there.
async fn prune_for_ever(link: Link, age: Duration) {
    let pause = (age / 4).clamp(Duration::from_secs(1), PRUNE_EVERY);
    let mut seen = None;
    loop {
        sleep(pause).await;
        match prune(&link, age, &mut seen).await {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, "old entries of the run-once ledger were removed"),
            Err(error) => tracing::warn!(%error, "old entries of the run-once ledger are not removed now"),
        }
    }
}

/// Which version of the ages this process has seen, and since when at the latest.
#[derive(Clone, Copy)]
struct Seen {
    changed: i64,
    since: Moment,
}

/// Removes what gateways have seen get older than `age`. How many.
async fn prune(link: &Link, age: Duration, seen: &mut Option<Seen>) -> Result<usize, Trouble> {
    let ages = move_on(link, age, seen).await?;
    let Some(limit) = ages.older_than(age) else { return Ok(0) };
    let mut old = Vec::new();
    walk(link, &link.keys.ledgers(), None, |kv| {
        let is_old = kv.mod_revision <= limit && Entry::parse(&kv.value).is_some();
        old.extend(is_old.then(|| KeyValue { value: Vec::new(), ..kv.clone() }));
        ControlFlow::Continue(())
    })
    .await?;
    let mut removed = 0;
    for kv in &old {
        removed += usize::from(forget(link, kv).await?);
    }
    Ok(removed)
}

/// Moves the clock of the ages on by as long as this process has seen nobody else do so. What is in etcd then.
async fn move_on(link: &Link, age: Duration, seen: &mut Option<Seen>) -> Result<Ages, Trouble> {
    let key = link.keys.once_ages();
    let listing = link.range(Range::key(key.as_str())).await?;
    let now = Moment::now();
    let known = listing.kvs.first();
    let changed = known.map_or(0, |kv| kv.mod_revision);
    let puts = known.map_or(0, |kv| kv.version);
    // What was put there by hand, or came along from another etcd, says nothing of this one: it begins anew.
    let ages = known.and_then(Ages::read).unwrap_or_default();
    // Seen for the first time, it may have been written just now. One that is not there yet begins with nothing.
    let passed = match seen {
        Some(seen) if seen.changed == changed => now.since(seen.since),
        _ if changed == 0 => Duration::ZERO,
        _ => {
            *seen = Some(Seen { changed, since: now });
            return Ok(ages);
        }
    };
    let mut next = ages.clone();
    next.advance(passed, listing.header.revision, age);
    let put =
        Txn::when([Compare::changed_at(key.clone(), changed)]).then(Put::new(key, next.write(puts + 1)));
    let outcome = link.txn(put).await?;
    if !outcome.succeeded {
        return Ok(ages);
    }
    *seen = Some(Seen { changed: outcome.header.revision, since: Moment::now() });
    Ok(next)
}

/// Removes an entry, if it is as it was read.
async fn forget(link: &Link, kv: &KeyValue) -> Result<bool, Trouble> {
    let gone =
        Txn::when([Compare::changed_at(kv.key.clone(), kv.mod_revision)]).then(Delete::key(kv.key.clone()));
    Ok(link.txn(gone).await?.succeeded)
}

/// Shows all entries below the prefix, page by page, until told to stop.
async fn walk(
    link: &Link,
    prefix: &str,
    after: Option<String>,
    mut show: impl FnMut(&KeyValue) -> ControlFlow<()>,
) -> Result<(), Trouble> {
    let end = prefix_end(prefix.as_bytes());
    let next = |key: &[u8]| [key, b"\0"].concat();
    let first = after.map_or(prefix.as_bytes().to_vec(), |after| next(after.as_bytes()));
    let mut from = first.max(prefix.as_bytes().to_vec());
    loop {
        let page = Range { range_end: end.clone(), ..Range::key(from) };
        let answer = link.range(page.limit(PAGE)).await?;
        for kv in &answer.kvs {
            if show(kv).is_break() {
                return Ok(());
            }
        }
        match answer.kvs.last() {
            Some(last) if answer.more => from = next(&last.key),
            _ => return Ok(()),
        }
    }
}

impl From<Entry> for OnceEntry {
    fn from(Entry { completed, holder, token, at }: Entry) -> Self {
        Self { completed, holder, token, at }
    }
}
