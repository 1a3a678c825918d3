//! APPLY: whole revisions, in order and without a gap; and the listing that mends a gap.

use std::collections::BTreeMap;

use highgate_elector::Resource;

use super::news::News;
use super::{
    Applied, Change, Event, Fenced, Incarnation, Member, Output, Record, Replica, Revision, Snapshot, State,
    Time, Tombstone, open,
};

impl Replica {
    /// Any change of a mark closes the gate first. What another replica has committed counts like the own.
    pub(super) fn apply(&mut self, now: Time, applied: Applied, outputs: &mut Vec<Output>) {
        let Applied { revision, seq, changes } = self.without_what_is_applied(applied);
        if seq.is_some_and(|seq| seq != self.seq + 1) || self.misses_a_word(&changes) {
            // Something was lost. Nothing is acknowledged before it was told again, or everything read again.
            outputs.push(Output::Resync);
            return;
        }
        let buried = |name: &str| {
            changes.iter().any(|change| matches!(change, Change::Tombstone(put, _) if put == name))
        };
        let gone: Vec<(Incarnation, bool)> = changes
            .iter()
            .filter_map(|change| match change {
                Change::Gone(member) => Some((*member, buried(&name_of(*member)))),
                _ => None,
            })
            .collect();
        let mut changed = Vec::new();
        let mut hindrance_gone = !gone.is_empty();
        for change in changes {
            match change {
                Change::Record(resource, record) => {
                    self.apply_record(now, &resource, record, outputs);
                    changed.push(resource);
                }
                Change::Lost(resource) => {
                    self.lose(now, &resource, 0, revision);
                    changed.push(resource);
                }
                Change::Member(id, member) => self.apply_member(now, id, member, outputs),
                // Below, when the revision's tombstones are known.
                Change::Gone(_) => {}
                Change::Tombstone(name, tombstone) => self.apply_tombstone(now, name, tombstone),
                Change::Forgotten(name) => hindrance_gone |= self.tombstones.remove(&name).is_some(),
                Change::Era(era) if era != self.era => return self.fence(Fenced::NewEra, outputs),
                Change::Era(_) => {}
                Change::Names { pending } => self.names_changed(now, revision, pending),
            }
        }
        for (member, buried) in gone {
            if member == self.me {
                return self.fence(Fenced::Evicted, outputs);
            }
            self.apply_gone(now, revision, member, buried, seq.is_some(), outputs);
        }
        if let Some(seq) = seq {
            self.seq = seq;
            self.me().watermark = revision;
            self.news.counted.moved(now, revision);
        }
        for resource in changed {
            self.advance(now, &resource, outputs);
        }
        if hindrance_gone {
            self.advance_all(now, outputs);
        }
    }

    /// A log that is told again begins before what was lost, so that much of it is known. Up to the watermark that is all
    /// but this member's own words, which are counted on their own.
    fn without_what_is_applied(&self, applied: Applied) -> Applied {
        let Applied { revision, seq, mut changes } = applied;
        let is_told_again = revision > 0 && revision <= self.watermark();
        let knows = |resource: &Resource, at: Revision| at > 0 && self.record(resource).modified >= at;
        changes.retain(|change| match change {
            Change::Member(id, word) if *id == self.me => {
                word.version == 0 || word.version > self.own().version
            }
            _ if is_told_again => false,
            Change::Member(id, word) => {
                self.members.get(id).is_none_or(|known| known.modified < word.modified)
            }
            Change::Record(resource, record) => !knows(resource, record.modified),
            Change::Lost(resource) => !knows(resource, revision),
            _ => true,
        });
        Applied { revision, seq: seq.filter(|_| !is_told_again), changes }
    }

    fn apply_record(&mut self, now: Time, resource: &Resource, record: Record, outputs: &mut Vec<Output>) {
        if self.is_undone(now, resource, &record) {
            return;
        }
        let record = self.recall(now, resource, record);
        let before = self.records.insert(resource.clone(), record).unwrap_or_default();
        let work = self.work.entry(resource.clone()).or_default();
        work.outstanding = None;
        if record.settled > before.settled {
            work.settle = false;
        }
        let opened_after = work.follow(now, &record);
        if record.state == State::Raised {
            self.start_draining(now, resource, record.modified);
            self.begin_raise(now, resource.clone(), record.modified);
            self.renewal.progress(now);
        } else if let Some(raise) = self.undrained.remove(resource) {
            self.stop_draining(now, raise);
        }
        if before.state == State::Raised && before.modified != record.modified {
            self.end_raise(resource, before.modified);
        }
        if record.settled > before.settled && before.block {
            outputs.push(Output::Settle { resource: resource.clone() });
        }
        outputs.push(if self.passes(&record) {
            open(resource, &record)
        } else {
            self.close(resource, &record)
        });
        outputs.extend(tell(resource, &before, &record, opened_after).map(Output::Tell));
    }

    fn apply_member(&mut self, now: Time, id: Incarnation, member: Member, outputs: &mut Vec<Output>) {
        if id == self.me {
            // What this replica says of itself it knows better than the echo of what it said before.
            let me = self.me();
            (me.modified, me.version) = (member.modified, member.version);
            me.name = member.name;
            me.wait = member.wait;
            me.heard_at = now;
            self.news.said.moved(now, member.modified);
            return;
        }
        let Some(before) = self.members.get(&id).cloned() else {
            outputs.push(Output::Tell(Event::Joined { member: id }));
            self.members.insert(id, member.heard(now));
            return;
        };
        let advanced = member.watermark > before.watermark;
        let advanced_at = if advanced { now } else { before.advanced_at };
        let acknowledged: Vec<Revision> = self
            .raises
            .range(
                before.watermark.saturating_add(1)..=member.watermark.max(before.watermark.saturating_add(1)),
            )
            .map(|(raise, _)| *raise)
            .chain(before.draining.difference(&member.draining).copied())
            .collect();
        let judged_until = before.judged_until;
        self.members.insert(id, Member { heard_at: now, advanced_at, judged_until, ..member });
        for raise in acknowledged {
            self.advance_raise(now, raise, outputs);
        }
    }

    /// A tombstone that was known keeps the time it was first seen, if it is of the same life: a member that a
    /// late join has brought back is waited for anew.
    fn apply_tombstone(&mut self, now: Time, name: String, tombstone: Tombstone) {
        let known = self.tombstones.get(&name).filter(|known| known.created == tombstone.created);
        let first_seen = known.map_or(now, |known| known.first_seen);
        self.tombstones.insert(name, Tombstone { first_seen, ..tombstone });
    }

    /// A member left; or was evicted, and its tombstone stands; or vanished without a trace by somebody's
    /// hand, and may still believe in its validity.
    fn apply_gone(
        &mut self,
        now: Time,
        revision: Revision,
        id: Incarnation,
        buried: bool,
        counted: bool,
        outputs: &mut Vec<Output>,
    ) {
        let Some(member) = self.members.remove(&id) else { return };
        if buried {
            outputs.push(Output::Tell(Event::Evicted { member: id }));
        } else if counted {
            outputs.push(Output::Tell(Event::Left { member: id }));
        } else {
            self.apply_tombstone(now, name_of(id), Tombstone::of(&member, revision, now));
            outputs.push(Output::Tell(Event::Evicted { member: id }));
            outputs.push(Output::Bury { member: id, value: member });
        }
    }

    /// Everything was read again. What changed meanwhile is applied as if it had been one revision.
    pub(super) fn relist(&mut self, now: Time, snapshot: Snapshot, outputs: &mut Vec<Output>) {
        let Snapshot { seq, watermark, era, records, members, tombstones, names } = snapshot;
        if era != self.era {
            return self.fence(Fenced::NewEra, outputs);
        }
        if !members.iter().any(|(id, _)| *id == self.me) {
            return self.fence(Fenced::Evicted, outputs);
        }
        self.relist_members(now, members);
        // One that only this replica knew of is not in the list, and counts until it is old.
        self.tombstones.retain(|_, tombstone| now < tombstone.ends());
        for (name, tombstone) in tombstones {
            self.apply_tombstone(now, name, tombstone);
        }
        for (resource, record) in records {
            if self.record(&resource) != record {
                self.apply_record(now, &resource, record, outputs);
            }
        }
        if names != self.names_pending() {
            self.names_changed(now, names.unwrap_or_default(), names.is_some());
        }
        self.seq = seq;
        self.me().watermark = watermark;
        // Whatever was due is in the listing, or does not count.
        self.news = News::default();
        self.renewal.progress(now);
        for work in self.work.values_mut() {
            // Answers that were waited for may be among what was read.
            work.outstanding = None;
        }
        self.advance_all(now, outputs);
    }

    fn relist_members(&mut self, now: Time, listed: Vec<(Incarnation, Member)>) {
        let known = std::mem::take(&mut self.members);
        let keep = |(id, member): (Incarnation, Member)| match known.get(&id) {
            Some(before) if id == self.me => {
                (id, Member { modified: member.modified, version: member.version, ..before.clone() })
            }
            Some(before) if before.modified == member.modified => (id, before.clone()),
            _ => (id, member.heard(now)),
        };
        self.members = listed.into_iter().map(keep).collect::<BTreeMap<_, _>>();
    }
}

/// The name of a member's tombstone.
pub(super) fn name_of(member: Incarnation) -> String {
    format!("{member:032x}")
}

/// What a change of a record means to an operator.
fn tell(
    resource: &Resource,
    before: &Record,
    record: &Record,
    opened_after: Option<Time>,
) -> impl Iterator<Item = Event> {
    let (resource, mark) = (resource.clone(), record.token);
    let raised = (mark > before.token).then(|| Event::Raised {
        resource: resource.clone(),
        from: before.token,
        to: mark,
    });
    let opened = opened_after.map(|after| Event::Opened { resource: resource.clone(), mark, after });
    // A raise and its seal settle what is below them; that is no operator's word.
    let same = (before.token, before.state) == (record.token, record.state);
    let settled = record.settled > before.settled && same;
    let frozen = match (before.frozen, record.frozen) {
        (false, true) => Some(Event::Frozen { resource, mark }),
        (true, false) => Some(Event::Thawed { resource, mark }),
        _ if settled => Some(Event::Thawed { resource, mark }),
        _ => None,
    };
    [raised, opened, frozen].into_iter().flatten()
}
