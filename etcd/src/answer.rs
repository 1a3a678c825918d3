//! What etcd answers and tells, as plain values.
//!
//! An answer has the place of its operation, and all answers to one transaction are of one revision. The header says which
//! cluster answered and how far it was, so that whoever remembers can tell an etcd that was restored from a backup.

/// From where and when an answer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Header {
    pub cluster: u64,
    /// Of a change, the change's own.
    pub revision: i64,
    /// How often etcd has elected a leader, as far as the node knew that answered.
    pub term: u64,
}

/// A key as it was at some revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeyValue {
    pub key: Vec<u8>,
    pub create_revision: i64,
    pub mod_revision: i64,
    pub version: i64,
    pub value: Vec<u8>,
    /// The lease that the key ends with; 0: none.
    pub lease: i64,
}

/// What a [`crate::Range`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Listing {
    pub header: Header,
    pub kvs: Vec<KeyValue>,
    /// There are others beyond the limit.
    pub more: bool,
}

/// What became of a [`crate::Txn`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Outcome {
    pub header: Header,
    /// All compares held.
    pub succeeded: bool,
    /// One for each operation that was done.
    pub answers: Vec<Answer>,
}

/// What one operation of a transaction was answered with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    Put,
    Range(Listing),
    /// How many keys.
    Deleted(i64),
    Txn(Outcome),
}

/// A change of a key. Of one that was deleted, the key and the revision of its end are all there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    pub kind: EventKind,
    pub kv: KeyValue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    Put,
    Delete,
}

/// What etcd says of a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Granted {
    /// In seconds, at least what was asked for; zero or less: there is no such lease.
    pub ttl: i64,
    /// As in [`Header::term`]; 0 where nobody said.
    pub term: u64,
}

/// The room of the node that was asked, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Room {
    /// The size of the database's file, free pages included: the quota counts these, too.
    pub size: i64,
    pub used: i64,
    /// 0 of a node that does not say, as those before 3.6 do not.
    pub quota: i64,
}

/// What is wrong with a node, so that an operator has to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Alarm {
    NoSpace,
    Corrupt,
}

impl Outcome {
    /// The revision at which it was answered: of a change, the change's own.
    pub fn revision(&self) -> i64 {
        self.header.revision
    }

    /// What the read at this place among the operations found.
    pub fn found(&self, place: usize) -> &[KeyValue] {
        match self.answers.get(place) {
            Some(Answer::Range(listing)) => &listing.kvs,
            _ => &[],
        }
    }

    /// The answer to the transaction at this place among the operations.
    pub fn nested(&self, place: usize) -> Option<&Self> {
        match self.answers.get(place)? {
            Answer::Txn(outcome) => Some(outcome),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_found_at_the_place_of_its_operation() {
        let kv = KeyValue { key: b"k".to_vec(), ..KeyValue::default() };
        let range = Answer::Range(Listing { kvs: vec![kv.clone()], ..Listing::default() });
        let inner = Outcome { succeeded: true, answers: vec![range.clone()], ..Outcome::default() };
        let answers = vec![Answer::Txn(inner), range];
        let outcome = Outcome { answers, ..Outcome::default() };
        assert!(outcome.nested(0).is_some_and(|inner| inner.succeeded && inner.found(0).len() == 1));
        assert_eq!(outcome.found(1), [kv]);
        assert!(outcome.nested(1).is_none() && outcome.found(0).is_empty() && outcome.found(2).is_empty());
    }
}
