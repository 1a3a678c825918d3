//! Between what etcd holds and what the protocol's machine knows.
//!
//! A value that cannot be read is taken for the worst it could mean: a mark that is shut, a member that has
//! acknowledged nothing.

use std::time::Duration;

use highgate_elector::Resource;
use highgate_etcd::fence::{Fence, MemberValue, TombstoneValue};
use highgate_etcd::keys::{Key, Keys};
use highgate_etcd::{Event, EventKind, KeyValue};

use super::queues::Candidate;
use crate::config::{LONGEST_DURATION, VALIDITIES};
use crate::elections::Ended;
use crate::names::{Names, NamesError};
use crate::replica::{Applied, Change, Incarnation, Member, Record, Revision, State, Timing, Tombstone};

/// etcd counts revisions from 1 in 63 bits.
pub(super) fn revision(number: i64) -> Revision {
    Revision::try_from(number).unwrap_or(0)
}

pub(super) fn number(revision: Revision) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

pub(super) fn record(kv: &KeyValue) -> Record {
    let modified = revision(kv.mod_revision);
    let Some(fence) = Fence::decode(&kv.value) else {
        let key = String::from_utf8_lossy(&kv.key);
        tracing::error!(
            %key,
            "this mark cannot be read: somebody has written it by hand. A gateway that knows the mark puts it back; if \
             none does, its resource stays shut until you put {{\"state\":\"raised\",\"token\":N}} there, with the \
             highest token N that was ever used"
        );
        return Record { modified, frozen: true, unreadable: true, ..Record::default() };
    };
    Record {
        token: fence.token,
        modified,
        settled: revision(fence.settled),
        state: if fence.raised { State::Raised } else { State::Open },
        frozen: fence.frozen,
        vacant: fence.vacant,
        block: fence.block,
        block_next: fence.block_next,
        issued: fence.issued,
        unreadable: false,
    }
}

pub(super) fn fence(record: &Record) -> Fence {
    Fence {
        token: record.token,
        raised: record.state == State::Raised,
        frozen: record.frozen,
        vacant: record.vacant,
        block: record.block,
        block_next: record.block_next,
        issued: record.issued,
        settled: number(record.settled),
    }
}

/// `own` is what this replica waits for; one that promises to take longer is waited for longer.
pub(super) fn member(kv: &KeyValue, own: &Timing) -> Member {
    let mut member = Member::new(revision(kv.create_revision));
    member.modified = revision(kv.mod_revision);
    member.version = revision(kv.version);
    member.watermark = 0;
    member.wait = own.wait();
    if let Some(value) = MemberValue::decode(&kv.value) {
        member.watermark = revision(value.watermark);
        member.draining = value.draining.iter().copied().map(revision).collect();
        member.wait = wait(own, value.validity, value.lock_delay);
        member.name = value.name;
    }
    member
}

pub(super) fn tombstone(kv: &KeyValue, own: &Timing) -> Tombstone {
    let modified = revision(kv.mod_revision);
    match TombstoneValue::decode(&kv.value) {
        Some(value) => Tombstone {
            created: revision(value.created),
            watermark: revision(value.watermark),
            draining: value.draining.iter().copied().map(revision).collect(),
            modified,
            wait: wait(own, value.validity, value.lock_delay),
            ..Tombstone::default()
        },
        None => Tombstone { modified, wait: own.wait(), ..Tombstone::default() },
    }
}

/// Never longer than the longest that a gateway can be configured to need: a value that says more was not written by
/// one, and would hold up every raise for as long as it says.
fn wait(own: &Timing, validity: Duration, lock_delay: Duration) -> Duration {
    let said = Timing { validity, lock_delay, ..*own }.wait();
    let longest = Timing { validity: *VALIDITIES.end(), lock_delay: LONGEST_DURATION, ..*own }.wait();
    own.wait().max(said.min(longest))
}

/// What is left of a member that is taken out.
pub(super) fn tombstone_value(member: &Member, own: &Timing) -> TombstoneValue {
    TombstoneValue {
        created: number(member.created),
        watermark: number(member.watermark),
        draining: member.draining.iter().copied().map(number).collect(),
        validity: own.validity,
        // The member's own promise, in the only number that is left of it.
        lock_delay: own.lock_delay + member.wait.saturating_sub(own.wait()),
    }
}

pub(super) fn incarnation(name: &str) -> Option<Incarnation> {
    Incarnation::from_str_radix(name, 16).ok()
}

/// A candidate came or went.
pub(super) enum Poll {
    Came {
        resource: Resource,
        created: Revision,
        candidate: Candidate,
    },
    Went {
        resource: Resource,
        key: Vec<u8>,
    },
    /// Somebody says why the candidate of this key goes, in the same revision.
    Ends {
        resource: Resource,
        key: Vec<u8>,
        why: Ended,
    },
}

impl Poll {
    pub(super) fn resource(&self) -> &Resource {
        let (Self::Came { resource, .. } | Self::Went { resource, .. } | Self::Ends { resource, .. }) = self;
        resource
    }
}

/// One revision, as the machine and the elections see it.
pub(super) struct Sorted {
    pub(super) applied: Applied,
    /// The names, if they were changed.
    pub(super) names: Option<Result<Names, NamesError>>,
    pub(super) polls: Vec<Poll>,
}

/// All events of one revision.
pub(super) fn sort(keys: &Keys, own: &Timing, revision_of_all: i64, events: &[Event]) -> Sorted {
    let mut applied = Applied { revision: revision(revision_of_all), ..Applied::default() };
    let (mut polls, mut names) = (Vec::new(), None);
    for event in events {
        let (kv, deleted) = (&event.kv, event.kind == EventKind::Delete);
        match keys.parse(&kv.key) {
            Some(Key::Seq) => applied.seq = u64::try_from(kv.version).ok().filter(|_| !deleted),
            Some(Key::Era) => applied.changes.extend(era(&kv.value).map(Change::Era)),
            Some(Key::Names) if deleted => names = Some(Err(NamesError::Deleted)),
            Some(Key::Names) => {
                let read = Names::decode(&kv.value);
                applied.changes.extend(read.as_ref().ok().map(names_change));
                names = Some(read);
            }
            Some(Key::Fence(resource)) if deleted => applied.changes.push(Change::Lost(resource)),
            Some(Key::Fence(resource)) => applied.changes.push(Change::Record(resource, record(kv))),
            Some(Key::Member(name)) => applied.changes.extend(incarnation(name).map(|id| match deleted {
                true => Change::Gone(id),
                false => Change::Member(id, member(kv, own)),
            })),
            Some(Key::Tombstone(name)) => applied.changes.push(match deleted {
                true => Change::Forgotten(name.to_owned()),
                false => Change::Tombstone(name.to_owned(), tombstone(kv, own)),
            }),
            Some(Key::Candidate { resource, name }) => polls.push(match deleted {
                true => Poll::Went { resource, key: kv.key.clone() },
                false => came(resource, name, kv),
            }),
            None if deleted => {}
            None => polls.extend(super::endings::read(keys, kv)),
        }
    }
    Sorted { applied, names, polls }
}

fn names_change(names: &Names) -> Change {
    Change::Names { pending: names.next.is_some() }
}

pub(super) fn came(resource: Resource, name: &[u8], kv: &KeyValue) -> Poll {
    Poll::Came { resource, created: revision(kv.create_revision), candidate: Candidate::read(name, kv) }
}

/// The era is a decimal; before the first gateway there is none.
pub(super) fn era(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok().filter(|era| *era < 1 << 15)
}

/// The tombstone that an era begins with: of whoever may live without etcd knowing it. `longest` is the longest that
/// anybody had to be waited for, as far as that is known.
pub(super) fn era_tombstone(value: &MemberValue, own: &Timing, longest: Duration) -> TombstoneValue {
    TombstoneValue {
        created: 0,
        watermark: 0,
        draining: Vec::new(),
        validity: own.validity,
        // All in the only number that there is for it, as in the tombstone of a member.
        lock_delay: value.lock_delay.max(own.lock_delay + longest.saturating_sub(own.wait())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Timing = Timing {
        validity: Duration::from_secs(4),
        lock_delay: Duration::from_secs(5),
        drain_timeout: Duration::from_secs(5),
    };

    fn member_that_says(validity: Duration, lock_delay: Duration) -> KeyValue {
        let value =
            MemberValue { name: "g".to_owned(), watermark: 1, draining: Vec::new(), validity, lock_delay };
        KeyValue { value: value.encode(), create_revision: 3, mod_revision: 4, ..KeyValue::default() }
    }

    #[test]
    fn a_member_is_waited_for_as_long_as_it_says_but_no_longer_than_one_can_be_configured() {
        let longer = member(&member_that_says(Duration::from_secs(30), Duration::from_secs(60)), &OWN);
        assert_eq!(longer.wait, Duration::from_millis(30_000 + 300 + 50 + 60_000));
        let shorter = member(&member_that_says(Duration::from_secs(1), Duration::ZERO), &OWN);
        assert_eq!(shorter.wait, OWN.wait());
        let forever = Duration::from_millis(u64::MAX);
        let most = Duration::from_millis(60_000 + 600 + 50) + Duration::from_secs(86_400);
        for (validity, lock_delay) in
            [(forever, Duration::ZERO), (Duration::ZERO, forever), (forever, forever)]
        {
            let absurd = member(&member_that_says(validity, lock_delay), &OWN);
            assert!(absurd.wait <= most, "{:?}", absurd.wait);
            let left = tombstone_value(&absurd, &OWN);
            let kv = KeyValue { value: left.encode(), ..KeyValue::default() };
            assert!(tombstone(&kv, &OWN).wait <= most, "nor is what is left of it");
        }
    }

    #[test]
    fn the_tombstone_of_an_era_stands_for_the_slowest_that_is_known() {
        let value = MemberValue::decode(&member_that_says(OWN.validity, OWN.lock_delay).value).unwrap();
        let waited = |longest: Duration| {
            let value = era_tombstone(&value, &OWN, longest).encode();
            tombstone(&KeyValue { value, ..KeyValue::default() }, &OWN).wait
        };
        assert_eq!(waited(Duration::ZERO), OWN.wait());
        assert_eq!(waited(Duration::from_secs(90)), Duration::from_secs(90));
    }
}
