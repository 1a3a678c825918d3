//! Between what etcd holds and what the machine knows, as in `src/store/etcd/values.rs`.

use std::rc::Rc;
use std::time::Duration;

use highgate::names::Names;
use highgate::replica::{Applied, Change, Member, Revision, Snapshot, Timing, Tombstone};
use highgate_elector::Resource;

use super::control::Control;
use super::etcd::{Entry, Kept, KeyChange, MemberValue, State, TombstoneValue};
use super::hooks;

/// How a replica reads values: by its own times, and by the rules it was built with.
#[derive(Clone, Copy)]
pub(crate) struct Reader {
    pub(crate) own: Timing,
    pub(crate) control: Option<Control>,
}

/// A candidate came at a revision, or went.
pub(crate) type Poll = (Resource, u64, Option<Revision>);

/// One revision, as the machine, the gateway and the elections see it.
pub(crate) struct Sorted {
    pub(crate) applied: Applied,
    pub(crate) names: Option<Rc<Names>>,
    pub(crate) polls: Vec<Poll>,
}

impl Reader {
    fn own_wait(&self) -> Duration {
        hooks::wait(self.control, &self.own)
    }

    /// Who promises to take longer is waited for longer.
    fn wait(&self, validity: Duration, lock_delay: Duration) -> Duration {
        let theirs = Timing { validity, lock_delay, ..self.own };
        self.own_wait().max(hooks::wait(self.control, &theirs))
    }

    fn member(&self, kept: &Kept<MemberValue>) -> Member {
        let Kept { value, created, modified } = kept;
        let mut member = Member::new(*created);
        member.modified = *modified;
        member.watermark = value.watermark;
        member.draining = value.draining.iter().copied().collect();
        member.wait = self.wait(value.validity, value.lock_delay);
        member
    }

    pub(crate) fn tombstone(&self, value: &TombstoneValue, modified: Revision) -> Tombstone {
        let age = self.wait(value.validity, value.lock_delay);
        Tombstone {
            created: value.created,
            watermark: value.watermark,
            draining: value.draining.iter().copied().collect(),
            modified,
            wait: if self.control == Some(Control::TombstoneAgeIgnored) { Duration::ZERO } else { age },
            ..Tombstone::default()
        }
    }

    /// What is left of a member that is taken out.
    pub(crate) fn tombstone_of(&self, member: &Member) -> TombstoneValue {
        TombstoneValue {
            created: member.created,
            watermark: member.watermark,
            draining: member.draining.iter().copied().collect(),
            validity: self.own.validity,
            lock_delay: self.own.lock_delay + member.wait.saturating_sub(self.own_wait()),
        }
    }

    /// What an era begins with.
    pub(crate) fn era_tombstone(&self) -> TombstoneValue {
        let Timing { validity, lock_delay, .. } = self.own;
        TombstoneValue { created: 0, watermark: 0, draining: Vec::new(), validity, lock_delay }
    }

    /// What is left of a member by an operator's order: what it has said so far does not count.
    pub(crate) fn tombstone_for(&self, member: &Member) -> TombstoneValue {
        TombstoneValue { watermark: 0, draining: Vec::new(), ..self.tombstone_of(member) }
    }

    pub(crate) fn snapshot(&self, state: &State) -> Snapshot {
        Snapshot {
            seq: state.seq.0,
            watermark: state.seq.1,
            era: state.era.unwrap_or_default(),
            records: state.fences.iter().map(|(resource, record)| (resource.clone(), *record)).collect(),
            members: state.members.iter().map(|(id, kept)| (*id, self.member(kept))).collect(),
            tombstones: state
                .tombstones
                .iter()
                .map(|(name, kept)| (name.clone(), self.tombstone(&kept.value, kept.modified)))
                .collect(),
            names: state.names.as_ref().filter(|(_, names)| names.next.is_some()).map(|(at, _)| *at),
        }
    }

    pub(crate) fn sort(&self, entry: &Entry) -> Sorted {
        let mut applied = Applied { revision: entry.revision, seq: entry.seq, changes: Vec::new() };
        let (mut polls, mut names) = (Vec::new(), None);
        for change in &entry.changes {
            applied.changes.push(match change {
                KeyChange::Fence(resource, record) => Change::Record(resource.clone(), *record),
                KeyChange::Member(id, kept) => Change::Member(*id, self.member(kept)),
                KeyChange::MemberGone(id) => Change::Gone(*id),
                KeyChange::Tombstone(name, kept) => {
                    Change::Tombstone(name.clone(), self.tombstone(&kept.value, kept.modified))
                }
                KeyChange::TombstoneGone(name) => Change::Forgotten(name.clone()),
                KeyChange::Era(era) => Change::Era(*era),
                KeyChange::Names(put) => {
                    names = Some(put.clone());
                    Change::Names { pending: put.next.is_some() }
                }
                KeyChange::Came(resource, lease, candidate) => {
                    polls.push((resource.clone(), *lease, Some(candidate.created)));
                    continue;
                }
                KeyChange::Went(resource, lease) => {
                    polls.push((resource.clone(), *lease, None));
                    continue;
                }
            });
        }
        Sorted { applied, names, polls }
    }
}
