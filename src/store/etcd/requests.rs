//! Every transaction that the store sends. Each may be run twice by etcd, and the second run changes nothing
//! that matters: its compares fail, or it says again what is so.

use highgate_etcd::fence::{MemberValue, TombstoneValue};
use highgate_etcd::keys::Keys;
use highgate_etcd::{Compare, Delete, Outcome, Put, Range, Txn};

use super::values::{fence, number, revision};
use crate::controls::{Rule, breaks};
use crate::names::Names;
use crate::replica::{Given, Incarnation, Proposal, Revision, State};
use crate::store::overview::incarnation_text;

/// How many proposals share a transaction. etcd takes 128 operations by default, those of the innermost level
/// included, and `seq` is one.
pub(super) const MAX_PROPOSALS: usize = 120;

/// The era's key and value have to be so.
fn in_era(keys: &Keys, era: u64) -> Compare {
    Compare::value_is(keys.era(), era.to_string())
}

fn put_seq(keys: &Keys) -> Put {
    Put::new(keys.seq(), "")
}

/// The era and the number of changes, which a replica compares with what it remembers before it joins.
pub(super) fn look(keys: &Keys) -> Txn {
    Txn::default().then(Range::key(keys.era())).then(Range::key(keys.seq()))
}

/// A prefix that has no era: its first, or the one after those that are remembered. Like every era it begins with a
/// tombstone, since nobody knows what was there before.
pub(super) fn initialise(keys: &Keys, era: u64, tombstone: &TombstoneValue) -> Txn {
    begin_era(keys, Compare::created_at(keys.era(), 0), era, tombstone)
}

/// After a restore the members that etcd knows are not the members that live: the tombstone stands for those.
pub(super) fn bump_era(keys: &Keys, from: u64, to: u64, tombstone: &TombstoneValue) -> Txn {
    begin_era(keys, in_era(keys, from), to, tombstone)
}

fn begin_era(keys: &Keys, given: Compare, era: u64, tombstone: &TombstoneValue) -> Txn {
    let begin = Txn::when([given])
        .then(Put::new(keys.era(), era.to_string()))
        .then(put_seq(keys))
        .or_else(Range::key(keys.era()));
    if breaks(Rule::EraTombstone) {
        return begin;
    }
    begin.then(Put::new(keys.tombstone(&format!("era-{era}")), tombstone.encode()))
}

/// How many writes come before the reads of a join that succeeded.
pub(super) const JOIN_WRITES: usize = 2;

/// JOIN: the member's key and everything but the marks, in one revision. The reads come after the writes, so that
/// they see them. A second run finds the key there and reads the same things at a later revision, which is as
/// good: this member has opened nothing meanwhile. One that was evicted before the second run stays so.
pub(super) fn join(keys: &Keys, me: Incarnation, era: u64, value: &MemberValue) -> Txn {
    let name = incarnation_text(me);
    let key = keys.member(&name);
    let absent = |key: &str| Compare::created_at(key, 0);
    let mut compares = vec![absent(&key), in_era(keys, era)];
    if !breaks(Rule::FreshName) {
        compares.push(absent(&keys.tombstone(&name)));
    }
    let mut request = Txn::when(compares).then(Put::new(key, value.encode())).then(put_seq(keys));
    for read in reads(keys) {
        request = request.then(read.clone()).or_else(read);
    }
    request
}

/// Where the reads of a join or a listing are in its answer, after the writes.
pub(super) const SEQ: usize = 0;
pub(super) const MEMBERS: usize = 1;
pub(super) const TOMBSTONES: usize = 2;
pub(super) const ERA: usize = 3;
pub(super) const NAMES: usize = 4;

fn reads(keys: &Keys) -> [Range; 5] {
    [
        Range::key(keys.seq()),
        Range::below(keys.members()),
        Range::below(keys.tombstones()),
        Range::key(keys.era()),
        Range::key(keys.names()),
    ]
}

/// The same reads without a join.
pub(super) fn list(keys: &Keys) -> Txn {
    reads(keys).into_iter().fold(Txn::default(), Txn::then)
}

/// RENEW. The first answer is what was there before: the last renewal that etcd knows of. The word is put only over
/// one that was there when this was sent (`known`, the newest revision then): a copy that arrives late must not take
/// back what was said since, such as a longer lock-delay.
pub(super) fn renew(
    keys: &Keys,
    me: Incarnation,
    (created, era): (Revision, u64),
    value: &MemberValue,
    known: Revision,
) -> Txn {
    let key = keys.member(&incarnation_text(me));
    let word = Txn::when([Compare::changed_before(key.as_str(), number(known) + 1)])
        .then(Put::new(key.as_str(), value.encode()))
        .or_else(Range::key(key.as_str()));
    Txn::when([Compare::created_at(key.as_str(), number(created)), in_era(keys, era)])
        .then(Range::key(key).keys_only())
        .then(word)
        .then(Range::key(keys.seq()).keys_only())
        .or_else(Range::key(keys.era()))
}

/// What an accepted renewal shows to be in etcd, and has to arrive by the watch: the revision of the last change that
/// counts, and that of the word itself, if it was put.
pub(super) fn shown_by_renewal(answer: &Outcome) -> (Revision, Revision) {
    let counted = answer.found(2).first().map_or(0, |kv| revision(kv.mod_revision));
    (counted, if word_was_put(answer) { revision(answer.revision()) } else { 0 })
}

/// Whether the word of a renewal that etcd accepted was put, by this copy of it.
pub(super) fn word_was_put(answer: &Outcome) -> bool {
    answer.nested(1).is_some_and(|word| word.succeeded)
}

/// Whether it is what etcd holds, by whichever copy.
pub(super) fn word_stands(answer: &Outcome, value: &MemberValue) -> bool {
    let there = |word: &Outcome| word.found(0).first().is_some_and(|kv| kv.value == value.encode());
    word_was_put(answer) || answer.nested(1).is_some_and(there)
}

/// RAISE, SEAL and whatever else changes marks: each proposal on its own condition, all in one revision. The
/// answer to each is at its own place; that of one that was refused has read the mark.
pub(super) fn propose(keys: &Keys, era: u64, proposals: &[Proposal]) -> Txn {
    let mut request = Txn::when([in_era(keys, era)]);
    for proposal in proposals {
        request = request.then(one_proposal(keys, proposal));
    }
    request.then(put_seq(keys))
}

fn one_proposal(keys: &Keys, proposal: &Proposal) -> Txn {
    let Proposal { resource, seen, record, given } = proposal;
    let key = keys.fence(resource);
    let mut compares = vec![Compare::changed_at(key.as_str(), number(*seen))];
    if record.state == State::Open && breaks(Rule::SealCompare) {
        compares.clear();
    }
    match given {
        Given::Nothing => {}
        Given::Leads(candidate) => {
            let created = number(record.token & ((1 << 48) - 1));
            compares.extend(Compare::issued(keys, resource, candidate.to_vec(), created));
        }
        Given::Leaderless => {
            compares.push(Compare::created_at(keys.election(resource), 0).of_all_below());
        }
    }
    Txn::when(compares).then(Put::new(key.as_str(), fence(record).encode())).or_else(Range::key(key))
}

/// RENAME: the names, if they are still those that were seen (0: there were none) and all that is given is so.
pub(super) fn put_names(
    keys: &Keys,
    era: u64,
    seen: Revision,
    names: &Names,
    mut given: Vec<Compare>,
) -> Txn {
    given.extend([Compare::changed_at(keys.names(), number(seen)), in_era(keys, era)]);
    Txn::when(given)
        .then(Put::new(keys.names(), names.encode()))
        .then(put_seq(keys))
        .or_else(Range::key(keys.names()))
}

/// EVICT: a member becomes a tombstone, if it has said nothing since.
pub(super) fn evict(keys: &Keys, member: Incarnation, modified: Revision, tombstone: &TombstoneValue) -> Txn {
    let name = incarnation_text(member);
    let key = keys.member(&name);
    let evict = Txn::when([Compare::changed_at(key.as_str(), number(modified))])
        .then(Delete::key(key))
        .then(put_seq(keys));
    if breaks(Rule::Tombstone) {
        return evict;
    }
    evict.then(Put::new(keys.tombstone(&name), tombstone.encode()))
}

/// EVICT by an operator's order, whatever the member says meanwhile.
pub(super) fn retire(keys: &Keys, member: Incarnation, tombstone: &TombstoneValue) -> Txn {
    let name = incarnation_text(member);
    let key = keys.member(&name);
    Txn::when([Compare::created_after(key.as_str(), 0)])
        .then(Delete::key(key))
        .then(Put::new(keys.tombstone(&name), tombstone.encode()))
        .then(put_seq(keys))
        .or_else(Range::key(keys.tombstone(&name)))
}

/// A member that vanished by somebody's hand gets the tombstone that it should have had.
pub(super) fn bury(keys: &Keys, member: Incarnation, tombstone: &TombstoneValue) -> Txn {
    let name = incarnation_text(member);
    let absent = |key: String| Compare::created_at(key, 0);
    Txn::when([absent(keys.member(&name)), absent(keys.tombstone(&name))])
        .then(Put::new(keys.tombstone(&name), tombstone.encode()))
        .then(put_seq(keys))
}

/// FORGET. The answer of a refusal says whether the tombstone is there at all.
pub(super) fn forget(keys: &Keys, name: &str, modified: Revision) -> Txn {
    let key = keys.tombstone(name);
    Txn::when([Compare::changed_at(key.as_str(), number(modified))])
        .then(Delete::key(key.as_str()))
        .then(put_seq(keys))
        .or_else(Range::key(key))
}

/// LEAVE: nothing of this incarnation is under way any more. It may have been evicted meanwhile.
pub(super) fn leave(keys: &Keys, me: Incarnation) -> Txn {
    let name = incarnation_text(me);
    let (member, tombstone) = (keys.member(&name), keys.tombstone(&name));
    let evicted = Txn::when([Compare::created_after(tombstone.as_str(), 0)])
        .then(Delete::key(tombstone))
        .then(put_seq(keys));
    Txn::when([Compare::created_after(member.as_str(), 0)])
        .then(Delete::key(member))
        .then(put_seq(keys))
        .or_else(evicted)
}
