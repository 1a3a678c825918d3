//! JOIN and the listing after a gap: everything that etcd holds, as it is at one revision.
//!
//! The members, the tombstones and the number of the last change come in one transaction. The marks, of which there
//! may be millions, take longer than the others wait for a member, so a join reads them before it (`base.rs`) and
//! then only what has changed since; and a listing reads only those that have changed since the watermark.

use std::sync::Arc;

use highgate_elector::{Moment, Resource};
use highgate_etcd::fence::MemberValue;
use highgate_etcd::keys::Key;
use highgate_etcd::{CallError, KeyValue, Outcome, Range};

use super::base::{Base, NEWEST};
use super::link::{Link, Trouble};
use super::memory::Verdict;
use super::pages::pages;
use super::requests::{self, ERA, JOIN_WRITES, MEMBERS, NAMES, SEQ, TOMBSTONES};
use super::values::{self, Poll, came, incarnation, revision};
use super::warden::wall_ahead;
use crate::config::Naming;
use crate::controls::{Rule, breaks};
use crate::names::{Names, NamesError};
use crate::replica::{Incarnation, Record, Revision, Snapshot, Timing, floor};
use crate::store::overview::incarnation_text;

/// What a replica starts from.
pub(super) struct Loaded {
    /// Everything is as it was at this revision; what comes after is watched.
    pub(super) revision: i64,
    pub(super) snapshot: Snapshot,
    pub(super) candidates: Vec<Poll>,
    /// How resources are named, and the revision of that.
    pub(super) names: (Revision, Names),
}

/// A join that worked.
pub(super) struct Joined {
    /// Before it was sent: validity counts from here.
    pub(super) sent: Moment,
    /// How far the wall clock was ahead then.
    pub(super) ahead: i64,
    pub(super) created: Revision,
    pub(super) loaded: Loaded,
}

/// The names that a replica brings.
pub(super) struct Bringing {
    pub(super) naming: Naming,
    /// Only a start changes the names in force: a process that joins again is checked under those beside its own.
    pub(super) starts: bool,
    /// The names that were in force when this process last served.
    pub(super) known: Option<Arc<Names>>,
    /// Whether it served until it saw them deleted.
    pub(super) saw_deletion: bool,
}

/// Why there is no join.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum JoinError {
    #[error(transparent)]
    Trouble(#[from] Trouble),
    /// The member's key may have been written.
    #[error("{0}")]
    Unsure(Trouble),
    #[error("the era changed, or this replica was taken out, while it joined")]
    NewEra,
    #[error("the gateways do not name their resources as this one's config does: {0}")]
    Names(#[from] NamesError),
    #[error("the key {key} holds {value:?}, which is no era; it was not written by this program")]
    BadEra { key: String, value: String },
}

impl From<CallError> for JoinError {
    fn from(error: CallError) -> Self {
        Self::Trouble(error.into())
    }
}

/// Joins as `me`. An era that was not known before is an operator's word that etcd is what it is now.
pub(super) async fn join(
    link: &Link,
    me: Incarnation,
    value: &MemberValue,
    timing: &Timing,
    own: &Bringing,
) -> Result<Joined, JoinError> {
    let era = current_era(link, value, timing).await?;
    agree_on_names(link, era, own).await?;
    let too_early =
        if breaks(Rule::LoadAfterJoin) { Some(read_too_early(link, timing).await?) } else { None };
    let mut base = Base::read(link, timing).await?;
    let (mut sent, mut ahead) = (Moment::now(), wall_ahead());
    let answer = link.txn(requests::join(&link.keys, me, era, value)).await.map_err(JoinError::Unsure)?;
    let writes = if answer.succeeded { JOIN_WRITES } else { 0 };
    let members = answer.found(writes + MEMBERS);
    let own_key = link.keys.member(&incarnation_text(me));
    let Some(own_member) = members.iter().find(|kv| kv.key == own_key.as_bytes()) else {
        // The only other compare is the era's.
        return Err(JoinError::NewEra);
    };
    let created = revision(own_member.create_revision);
    let mut snapshot = small(&answer, writes, era, timing);
    let names = named(&answer, writes)?;
    if own.starts && !names.1.knows(&own.naming) {
        return Err(NamesError::Overtaken.into());
    }
    base.follow_to(snapshot.watermark, snapshot.seq).await.map_err(JoinError::Unsure)?;
    let (records, candidates) = base.into_parts();
    snapshot.records = records;
    // Between the last change that counts and the answer there may be candidates: the watch tells of them.
    let revision = super::values::number(snapshot.watermark);
    let mut loaded = Loaded { revision, snapshot, candidates, names };
    if let Some(records) = too_early {
        loaded.snapshot.records = records;
    }
    if Moment::now().since(sent) > timing.validity / 4 {
        // There was much to load: the validity would be over before it began.
        (sent, ahead) = (Moment::now(), wall_ahead());
        let renewal = requests::renew(&link.keys, me, (created, era), value, link.memory.revision());
        if !link.txn(renewal).await.map_err(JoinError::Unsure)?.succeeded {
            return Err(JoinError::NewEra);
        }
    }
    link.memory.joined(era);
    Ok(Joined { sent, ahead, created, loaded })
}

/// The marks as they were a while before the join.
async fn read_too_early(link: &Link, timing: &Timing) -> Result<Vec<(Resource, Record)>, JoinError> {
    let records = list(link, timing, 0).await?.snapshot.records;
    tokio::time::sleep(timing.validity).await;
    Ok(records)
}

/// Reads everything again but the marks that have not changed after the revision `known`.
pub(super) async fn list(link: &Link, timing: &Timing, known: Revision) -> Result<Loaded, JoinError> {
    let (answer, asked) = link.ask(requests::list(&link.keys)).await?;
    let changes = answer.found(SEQ).first().map_or(0, version);
    link.memory.judge_changes(changes, asked).map_err(Trouble::from)?;
    let era = match answer.found(ERA).first() {
        Some(kv) => parse_era(kv)?,
        None => return Err(JoinError::NewEra),
    };
    let pinned = answer.revision();
    let from = super::values::number(known) + 1;
    let (records, candidates) = tokio::try_join!(marks(link, pinned, from), candidates(link, pinned))?;
    let snapshot = Snapshot { records, ..small(&answer, 0, era, timing) };
    let names = named(&answer, 0)?;
    Ok(Loaded { revision: pinned, snapshot, candidates, names })
}

/// The era; a prefix that has none gets its first. The changes are counted here, before the join adds its own.
async fn current_era(link: &Link, value: &MemberValue, timing: &Timing) -> Result<u64, JoinError> {
    // Before the question: an answer to an earlier one may overtake this one's.
    let asked = link.memory.asking();
    let answer = link.client.txn(requests::look(&link.keys)).await?;
    let era = answer.found(0).first().map(parse_era).transpose()?;
    let changes = answer.found(1).first().map_or(0, version);
    let judged = link
        .memory
        .judge(answer.header, asked)
        .and_then(|()| link.memory.judge_changes(changes, asked))
        .and_then(|()| link.memory.judge_era(era, asked));
    match judged {
        Ok(()) => {}
        Err(Verdict::WentBack(went_back)) if era.is_some_and(|era| era > link.memory.era()) => {
            tracing::warn!(era, %went_back, "an era has begun that was not known: etcd is taken for what it is now");
            let now = (era.unwrap_or_default(), changes);
            if !link.memory.accept(answer.header, now, asked) {
                return Err(Trouble::Outdated.into());
            }
        }
        Err(verdict) => return Err(Trouble::from(verdict).into()),
    }
    match era {
        Some(era) => Ok(era),
        None => {
            let tombstone = values::era_tombstone(value, timing, link.memory.longest_wait());
            let answer = link.txn(requests::initialise(&link.keys, 0, &tombstone)).await?;
            if answer.succeeded {
                Ok(0)
            } else {
                answer.found(0).first().map_or(Err(JoinError::NewEra), parse_era)
            }
        }
    }
}

/// How often a key was put.
fn version(kv: &KeyValue) -> u64 {
    u64::try_from(kv.version).unwrap_or(0)
}

fn parse_era(kv: &KeyValue) -> Result<u64, JoinError> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    values::era(&kv.value).ok_or_else(|| JoinError::BadEra { key: text(&kv.key), value: text(&kv.value) })
}

/// All but the marks, from the answer to a join or a listing.
fn small(answer: &Outcome, writes: usize, era: u64, timing: &Timing) -> Snapshot {
    let seq = answer.found(writes + SEQ).first();
    Snapshot {
        seq: seq.map_or(0, version),
        watermark: seq.map_or(0, |kv| revision(kv.mod_revision)),
        era,
        records: Vec::new(),
        members: answer
            .found(writes + MEMBERS)
            .iter()
            .filter_map(|kv| Some((incarnation(last_part(kv)?)?, values::member(kv, timing))))
            .collect(),
        tombstones: answer
            .found(writes + TOMBSTONES)
            .iter()
            .filter_map(|kv| Some((last_part(kv)?.to_owned(), values::tombstone(kv, timing))))
            .collect(),
        names: named(answer, writes).ok().filter(|(_, names)| names.next.is_some()).map(|(at, _)| at),
    }
}

/// The names, from the answer to a join or a listing. A replica puts them before it joins, so they are there.
fn named(answer: &Outcome, writes: usize) -> Result<(Revision, Names), NamesError> {
    let kv = answer.found(writes + NAMES).first().ok_or(NamesError::Unreadable)?;
    Ok((revision(kv.mod_revision), Names::decode(&kv.value)?))
}

/// Puts this replica's names down, if they are not those in force and nothing speaks against them.
async fn agree_on_names(link: &Link, era: u64, own: &Bringing) -> Result<(), JoinError> {
    let answer = link.range(Range::key(link.keys.names())).await?;
    let (seen, planned) = match answer.kvs.first() {
        None => (0, Some(missing_names(link, era, own).await?)),
        Some(_) if !own.starts => return Ok(()),
        Some(kv) => (revision(kv.mod_revision), Names::decode(&kv.value)?.plan(&own.naming)?),
    };
    let Some(names) = planned else { return Ok(()) };
    let put = link.txn(requests::put_names(&link.keys, era, seen, &names, Vec::new())).await?;
    if put.succeeded { Ok(()) } else { Err(NamesError::Overtaken.into()) }
}

/// The names of a cluster that has none: those of a new one, or what somebody deleted by hand. A gateway that served with
/// them until then puts them back, since they say which marks renamed resources start from. Any other must neither make
/// them up nor put back what it once knew, as long as there are marks that count: others may have finished a change since.
/// The marks of an era before pass nobody.
async fn missing_names(link: &Link, era: u64, own: &Bringing) -> Result<Names, JoinError> {
    let known = own.known.as_deref().cloned();
    if let Some(deleted) = known.as_ref().filter(|_| own.saw_deletion) {
        tracing::warn!("somebody has deleted the names of resources in etcd: they are put back");
        return Ok(deleted.clone());
    }
    let counts = |record: &Record| record.unreadable || record.token > floor(era);
    match marks(link, NEWEST, 0).await?.iter().any(|(_, record)| counts(record)) {
        true => Err(NamesError::Lost.into()),
        false => Ok(known.unwrap_or_else(|| Names::first(&own.naming))),
    }
}

fn last_part(kv: &KeyValue) -> Option<&str> {
    std::str::from_utf8(&kv.key).ok()?.rsplit('/').next()
}

/// The marks that were changed from this revision on, as they were at another.
pub(super) async fn marks(link: &Link, pinned: i64, from: i64) -> Result<Vec<(Resource, Record)>, Trouble> {
    let request = Range::below(link.keys.fences()).at(pinned).changed_from(from);
    let mark = |kv: KeyValue| match link.keys.parse(&kv.key) {
        Some(Key::Fence(resource)) => Some((resource, values::record(&kv))),
        _ => None,
    };
    pages(link, request, mark).await
}

pub(super) async fn candidates(link: &Link, pinned: i64) -> Result<Vec<Poll>, Trouble> {
    let request = Range::below(link.keys.elections()).at(pinned);
    let candidate = |kv: KeyValue| match link.keys.parse(&kv.key) {
        Some(Key::Candidate { resource, name }) => Some(came(resource, name, &kv)),
        _ => None,
    };
    pages(link, request, candidate).await
}
