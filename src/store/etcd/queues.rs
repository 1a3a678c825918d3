//! Who waits for which resource, as the watch tells it: the oldest candidate leads.
//!
//! The driver raises the mark when a leader changes and shuts it when the last one goes, so that leaders which
//! know nothing of Highgate, such as `etcdctl elect`, are fenced too. What must stay true: this is a hint.
//! Whether a token was issued is proved by etcd, in the transaction that raises the mark.

use std::collections::{BTreeMap, HashMap};

use highgate_elector::Resource;

use super::values::Poll;
use crate::replica::Revision;

/// All elections.
#[derive(Default)]
pub(super) struct Queues {
    by_resource: HashMap<Resource, BTreeMap<Revision, Candidate>>,
    by_key: HashMap<Vec<u8>, Revision>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) key: Vec<u8>,
    pub(super) holder: String,
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
        for poll in polls {
            let resource = poll.resource();
            if !before.contains_key(resource) {
                before.insert(resource.clone(), self.head(resource));
            }
            self.change(poll);
        }
        let turn = |(resource, before): (Resource, Option<Head>)| {
            let after = self.head(&resource);
            let created = |head: &Option<Head>| head.as_ref().map(|head| head.created);
            (created(&before) != created(&after)).then_some(Turn { resource, before, after })
        };
        before.into_iter().filter_map(turn).collect()
    }

    fn change(&mut self, poll: Poll) {
        match poll {
            Poll::Came { resource, key, created, holder } => {
                // A holder that changes its value, or its lease, keeps its place.
                self.by_key.insert(key.clone(), created);
                self.by_resource.entry(resource).or_default().insert(created, Candidate { key, holder });
            }
            Poll::Went { resource, key } => {
                let Some(created) = self.by_key.remove(&key) else { return };
                let Some(queue) = self.by_resource.get_mut(&resource) else { return };
                queue.remove(&created);
                if queue.is_empty() {
                    self.by_resource.remove(&resource);
                }
            }
        }
    }

    pub(super) fn head(&self, resource: &Resource) -> Option<Head> {
        let (created, candidate) = self.by_resource.get(resource)?.first_key_value()?;
        Some(Head { created: *created, candidate: candidate.clone() })
    }

    /// Whether the candidate that was created at this revision still stands.
    pub(super) fn has(&self, resource: &Resource, created: Revision) -> bool {
        self.by_resource.get(resource).is_some_and(|queue| queue.contains_key(&created))
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
    use super::*;

    fn ledger() -> Resource {
        Resource::parse("ledger").unwrap()
    }

    fn came(key: &str, created: Revision) -> Poll {
        Poll::Came { resource: ledger(), key: key.into(), created, holder: format!("holder of {key}") }
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
}
