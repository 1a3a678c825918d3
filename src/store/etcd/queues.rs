//! Who waits for which resource, as the watch tells it: the oldest candidate leads.
//!
//! The driver raises the mark when a leader changes and shuts it when the last one goes, so that leaders which
//! know nothing of Highgate, such as `etcdctl elect`, are fenced too. What must stay true: this is a hint.
//! Whether a token was issued is proved by etcd, in the transaction that raises the mark.

use std::collections::{BTreeMap, HashMap};

use highgate_elector::Resource;
use highgate_etcd::KeyValue;
use highgate_etcd::candidate::CandidateValue;

use super::values::Poll;
use crate::elections::Ended;
use crate::replica::Revision;

/// How many keys that are not there may be waited for.
const MAX_UNSEEN: usize = 10_000;

/// All elections.
#[derive(Default)]
pub(super) struct Queues {
    /// By create revision, then by key: one transaction can create several.
    by_resource: HashMap<Resource, BTreeMap<(Revision, Vec<u8>), Candidate>>,
    by_key: HashMap<Vec<u8>, Revision>,
    /// What it means when one of these keys goes: etcd does not tell.
    endings: HashMap<Vec<u8>, Ended>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) key: Vec<u8>,
    pub(super) holder: String,
    /// The identity that a gateway has checked; none: nobody knows.
    pub(super) owner: Option<String>,
    /// It is on no lease, or not named after one: no election has put it there.
    pub(super) by_hand: bool,
}

impl Candidate {
    /// `name` is what comes after the election's prefix.
    pub(super) fn read(name: &[u8], kv: &KeyValue) -> Self {
        let by_hand = kv.lease == 0 || name.is_empty() || name.contains(&b'/');
        let CandidateValue { holder, owner } = CandidateValue::decode(&kv.value);
        Self { key: kv.key.clone(), holder, owner, by_hand }
    }
}

/// Who leads a resource, and since which revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) created: Revision,
    pub(super) candidate: Candidate,
}

/// A resource's leader before and after a change.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) resource: Resource,
    pub(super) before: Option<Head>,
    pub(super) after: Option<Head>,
    /// Why the one before leads no longer.
    pub(super) why: Ended,
}

impl Queues {
    pub(super) fn load(polls: Vec<Poll>) -> Self {
        let mut queues = Self::default();
        for poll in polls {
            queues.change(poll);
        }
        queues
    }

    /// Applies all changes of one revision; the resources whose leader is another one now.
    pub(super) fn apply(&mut self, polls: Vec<Poll>) -> Vec<Turn> {
        let mut before: BTreeMap<Resource, Option<Head>> = BTreeMap::new();
        let mut ended: HashMap<Vec<u8>, Ended> = HashMap::new();
        // Why comes with what, and either may come first.
        let (says_why, polls): (Vec<_>, Vec<_>) =
            polls.into_iter().partition(|poll| matches!(poll, Poll::Ends { .. }));
        says_why.into_iter().for_each(|poll| self.change(poll));
        for poll in polls {
            if let Poll::Went { key, .. } = &poll {
                ended.extend(self.endings.remove_entry(key));
            }
            let resource = poll.resource();
            if !before.contains_key(resource) {
                before.insert(resource.clone(), self.head(resource));
            }
            self.change(poll);
        }
        let turn = |(resource, before): (Resource, Option<Head>)| {
            let after = self.head(&resource);
            let created = |head: &Option<Head>| head.as_ref().map(|head| head.created);
            let why = before.as_ref().and_then(|head| ended.get(&head.candidate.key));
            let why = why.copied().unwrap_or(Ended::Gone);
            (created(&before) != created(&after)).then_some(Turn { resource, before, after, why })
        };
        before.into_iter().filter_map(turn).collect()
    }

    /// If this key goes, that will be why.
    pub(super) fn expect(&mut self, key: Vec<u8>, why: Ended) {
        if self.endings.len() > 2 * self.by_key.len() + MAX_UNSEEN {
            // Candidates that never came, and names that somebody made up.
            self.endings.retain(|key, _| self.by_key.contains_key(key));
        }
        self.endings.insert(key, why);
    }

    fn change(&mut self, poll: Poll) {
        match poll {
            Poll::Ends { key, why, .. } => self.expect(key, why),
            Poll::Came { resource, created, candidate } => {
                // A holder that changes its value, or its lease, keeps its place. One that was created anew has left it,
                // whether or not that was told.
                if self.by_key.get(&candidate.key).is_some_and(|known| *known != created) {
                    self.leave(&resource, &candidate.key);
                }
                let key = candidate.key.clone();
                self.by_key.insert(key.clone(), created);
                self.by_resource.entry(resource).or_default().insert((created, key), candidate);
            }
            Poll::Went { resource, key } => self.leave(&resource, &key),
        }
    }

    fn leave(&mut self, resource: &Resource, key: &[u8]) {
        let Some(created) = self.by_key.remove(key) else { return };
        let Some(queue) = self.by_resource.get_mut(resource) else { return };
        queue.remove(&(created, key.to_vec()));
        if queue.is_empty() {
            self.by_resource.remove(resource);
        }
    }

    pub(super) fn head(&self, resource: &Resource) -> Option<Head> {
        let ((created, _), candidate) = self.by_resource.get(resource)?.first_key_value()?;
        Some(Head { created: *created, candidate: candidate.clone() })
    }

    /// Whether the candidate that was created at this revision still stands.
    pub(super) fn has(&self, resource: &Resource, created: Revision) -> bool {
        let Some(queue) = self.by_resource.get(resource) else { return false };
        queue.range((created, Vec::new())..).next().is_some_and(|((first, _), _)| *first == created)
    }

    /// How many wait behind the leader.
    pub(super) fn waiting(&self, resource: &Resource) -> usize {
        self.by_resource.get(resource).map_or(0, |queue| queue.len().saturating_sub(1))
    }

    pub(super) fn heads(&self) -> Vec<(Resource, Head)> {
        self.by_resource
            .keys()
            .filter_map(|resource| Some((resource.clone(), self.head(resource)?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ledger() -> Resource {
        Resource::parse("ledger").unwrap()
    }

    fn came(key: &str, created: Revision) -> Poll {
        let kv = KeyValue {
            key: key.into(),
            value: format!("holder of {key}").into(),
            lease: 7,
            ..KeyValue::default()
        };
        Poll::Came { resource: ledger(), created, candidate: Candidate::read(key.as_bytes(), &kv) }
    }

    fn went(key: &str) -> Poll {
        Poll::Went { resource: ledger(), key: key.into() }
    }

    fn leads(turn: &Turn) -> (Option<Revision>, Option<Revision>) {
        let created = |head: &Option<Head>| head.as_ref().map(|head| head.created);
        (created(&turn.before), created(&turn.after))
    }

    #[test]
    fn the_oldest_leads_and_its_end_is_the_next_ones_turn() {
        let mut queues = Queues::default();
        assert_eq!(leads(&queues.apply(vec![came("a", 5)])[0]), (None, Some(5)));
        assert_eq!(queues.apply(vec![came("b", 7), came("c", 6)]), [], "they only wait");
        assert_eq!(queues.waiting(&ledger()), 2);
        assert_eq!(queues.apply(vec![went("b")]), []);
        assert_eq!(leads(&queues.apply(vec![went("a")])[0]), (Some(5), Some(6)));
        assert_eq!(leads(&queues.apply(vec![went("c")])[0]), (Some(6), None));
        assert!(queues.heads().is_empty() && queues.by_key.is_empty());
    }

    #[test]
    fn what_a_key_was_expected_to_go_by_is_why_it_went_and_else_nobody_knows() {
        let mut queues = Queues::load(vec![came("a", 5), came("b", 6), came("c", 7)]);
        queues.expect(b"a".to_vec(), Ended::Expired);
        queues.expect(b"b".to_vec(), Ended::Expired);
        let ends = |key: &str, why| Poll::Ends { resource: ledger(), key: key.into(), why };
        assert_eq!(queues.apply(vec![went("a"), ends("a", Ended::Resigned)])[0].why, Ended::Resigned);
        assert_eq!(queues.apply(vec![went("b")])[0].why, Ended::Expired);
        assert_eq!(queues.apply(vec![went("c")])[0].why, Ended::Gone);
        assert!(queues.endings.is_empty());
        for number in 0..3 * MAX_UNSEEN {
            queues.expect(number.to_string().into_bytes(), Ended::Expired);
        }
        assert!(queues.endings.len() <= MAX_UNSEEN + 1, "{}", queues.endings.len());
    }

    #[test]
    fn a_change_of_value_or_of_something_unknown_changes_no_leader() {
        let mut queues = Queues::load(vec![came("a", 5)]);
        assert_eq!(queues.apply(vec![came("a", 5), went("x")]), []);
        assert!(queues.has(&ledger(), 5) && !queues.has(&ledger(), 6));
    }

    #[test]
    fn a_candidate_that_goes_and_comes_again_in_one_revision_is_a_new_one() {
        let mut queues = Queues::load(vec![came("a", 5)]);
        assert_eq!(leads(&queues.apply(vec![went("a"), came("a", 9)])[0]), (Some(5), Some(9)));
    }

    #[test]
    fn what_no_election_puts_there_is_known_as_such() {
        let by_hand = |name: &str, lease| {
            let kv = KeyValue { key: name.into(), lease, ..KeyValue::default() };
            Candidate::read(name.as_bytes(), &kv).by_hand
        };
        assert!(!by_hand("7f", 0x7f) && !by_hand("7f", 0x80), "a lease may have been exchanged");
        assert!(by_hand("7f", 0) && by_hand("a/7f", 0x7f) && by_hand("", 0x7f));
    }

    /// Of one revision: the keys that go or come, and whether the end of one that comes anew is told as well.
    type Batch = Vec<(u8, Told)>;

    #[derive(Clone, Copy, Debug)]
    enum Told {
        Came,
        Changed,
        Went,
        WentAndCame,
    }

    fn batches() -> impl Strategy<Value = Vec<Batch>> {
        let told =
            prop_oneof![Just(Told::Came), Just(Told::Changed), Just(Told::Went), Just(Told::WentAndCame)];
        prop::collection::vec(prop::collection::vec((0..5u8, told), 1..4), 1..40)
    }

    proptest! {
        #[test]
        fn the_lines_are_what_a_plain_list_of_keys_says(batches in batches()) {
            let mut queues = Queues::default();
            let mut plain: BTreeMap<Vec<u8>, Revision> = BTreeMap::new();
            let first = |plain: &BTreeMap<Vec<u8>, Revision>| {
                plain.iter().map(|(key, created)| (*created, key.clone())).min()
            };
            for (batch, revision) in batches.into_iter().zip(1..) {
                let (before, mut polls) = (first(&plain), Vec::new());
                for (number, told) in batch {
                    let key = number.to_string();
                    let known = plain.get(key.as_bytes()).copied();
                    if matches!(told, Told::Went | Told::WentAndCame) {
                        polls.push(went(&key));
                        plain.remove(key.as_bytes());
                    }
                    if let (Told::Changed, Some(created)) = (told, known) {
                        polls.push(came(&key, created));
                    } else if !matches!(told, Told::Went) {
                        polls.push(came(&key, revision));
                        plain.insert(key.into_bytes(), revision);
                    }
                }
                let turns = queues.apply(polls);
                let after = first(&plain);
                let head = queues.head(&ledger()).map(|head| (head.created, head.candidate.key));
                prop_assert_eq!(&head, &after);
                prop_assert_eq!(queues.waiting(&ledger()), plain.len().saturating_sub(1));
                for created in 0..=revision {
                    let stands = plain.values().any(|known| *known == created);
                    prop_assert_eq!(queues.has(&ledger(), created), stands);
                }
                let created = |first: &Option<(Revision, Vec<u8>)>| first.as_ref().map(|(created, _)| *created);
                let expected = (created(&before) != created(&after)).then(|| (created(&before), created(&after)));
                prop_assert_eq!(turns.first().map(leads), expected);
            }
        }
    }
}
