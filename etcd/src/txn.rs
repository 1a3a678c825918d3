//! Transactions, in the few words that Highgate needs of etcd's.
//!
//! Gateway and elector write their questions with these, and [`crate::Client`] asks them. Plain values without any type
//! of a protocol, so that a machine without I/O, a simulation or an etcd made up for tests can have them as well. What
//! must stay true: everything that changes etcd goes through a transaction with a compare, so that sending it twice
//! changes nothing the second time; that is what lets the client ask a second endpoint while the first is silent.

use highgate_token::Resource;

use crate::keys::Keys;

/// Does `success` if all of the compares hold, else `failure`; all of it at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Txn {
    pub compares: Vec<Compare>,
    pub success: Vec<Op>,
    pub failure: Vec<Op>,
}

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    Put(Put),
    Range(Range),
    Delete(Delete),
    /// One within another: its compares decide for itself only.
    Txn(Txn),
}

/// What has to be true of a key, or of every key from it up to `range_end`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Compare {
    pub key: Vec<u8>,
    /// The first key after the range; empty: the key alone.
    pub range_end: Vec<u8>,
    pub relation: Relation,
    pub target: Target,
}

/// How what the key has stands to what the compare names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relation {
    Equal,
    NotEqual,
    Greater,
    Less,
}

/// What is compared, and with what. A key that does not exist has zeros, and no value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    Version(i64),
    Created(i64),
    Changed(i64),
    Value(Vec<u8>),
    Lease(i64),
}

/// Reads one key or a range of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Range {
    pub key: Vec<u8>,
    /// The first key after the range; empty: the key alone.
    pub range_end: Vec<u8>,
    /// No more than so many; 0: all.
    pub limit: i64,
    /// As it was at this revision; 0: now.
    pub revision: i64,
    /// By create revision; else by key.
    pub oldest_first: bool,
    pub keys_only: bool,
    /// Only keys that were last changed at this revision or later; 0: all.
    pub changed_from: i64,
}

/// Writes one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Put {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    /// The key ends with this lease; 0: with none.
    pub lease: i64,
    /// Changes the lease only: the value stays what it is.
    pub keep_value: bool,
}

/// Deletes one key or a range of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Delete {
    pub key: Vec<u8>,
    /// The first key after the range; empty: the key alone.
    pub range_end: Vec<u8>,
}

impl Txn {
    /// Does what follows if all of the compares hold.
    pub fn when(compares: impl Into<Vec<Compare>>) -> Self {
        Self { compares: compares.into(), ..Self::default() }
    }

    #[must_use]
    pub fn then(mut self, operation: impl Into<Op>) -> Self {
        self.success.push(operation.into());
        self
    }

    #[must_use]
    pub fn or_else(mut self, operation: impl Into<Op>) -> Self {
        self.failure.push(operation.into());
        self
    }
}

impl Compare {
    /// The key was created at this revision and lives; 0: it does not exist.
    pub fn created_at(key: impl Into<Vec<u8>>, revision: i64) -> Self {
        Self::new(key, Relation::Equal, Target::Created(revision))
    }

    /// The key was created after this revision and lives.
    pub fn created_after(key: impl Into<Vec<u8>>, revision: i64) -> Self {
        Self::new(key, Relation::Greater, Target::Created(revision))
    }

    /// The key was created before this revision, or does not exist.
    pub fn created_before(key: impl Into<Vec<u8>>, revision: i64) -> Self {
        Self::new(key, Relation::Less, Target::Created(revision))
    }

    /// The key was last changed at this revision; 0: it does not exist.
    pub fn changed_at(key: impl Into<Vec<u8>>, revision: i64) -> Self {
        Self::new(key, Relation::Equal, Target::Changed(revision))
    }

    /// The key was last changed before this revision, or does not exist.
    pub fn changed_before(key: impl Into<Vec<u8>>, revision: i64) -> Self {
        Self::new(key, Relation::Less, Target::Changed(revision))
    }

    /// The key lives and ends with this lease.
    pub fn on_lease(key: impl Into<Vec<u8>>, lease: i64) -> Self {
        Self::new(key, Relation::Equal, Target::Lease(lease))
    }

    /// The key exists and has exactly this value.
    pub fn value_is(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self::new(key, Relation::Equal, Target::Value(value.into()))
    }

    /// The proof that an election issued a token and that its holder leads now: the candidate's key was created at
    /// the token's revision and lives, and no key of the election is older.
    pub fn issued(
        keys: &Keys,
        resource: &Resource,
        candidate_key: impl Into<Vec<u8>>,
        created: i64,
    ) -> [Self; 2] {
        // A key that does not exist compares as created at 0, so 0 would prove everything: no key is created at -1.
        let created = if created > 0 { created } else { -1 };
        [
            Self::created_at(candidate_key, created),
            Self::created_after(keys.election(resource), created - 1).of_all_below(),
        ]
    }

    /// The same of every key that begins with this one.
    pub fn of_all_below(mut self) -> Self {
        self.range_end = prefix_end(&self.key);
        self
    }

    fn new(key: impl Into<Vec<u8>>, relation: Relation, target: Target) -> Self {
        Self { key: key.into(), range_end: Vec::new(), relation, target }
    }
}

impl Range {
    /// One key.
    pub fn key(key: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), ..Self::default() }
    }

    /// All keys that begin so.
    pub fn below(prefix: impl Into<Vec<u8>>) -> Self {
        let key = prefix.into();
        Self { range_end: prefix_end(&key), key, ..Self::default() }
    }

    /// No more than so many; the answer's `more` says whether there are others.
    #[must_use]
    pub fn limit(mut self, limit: i64) -> Self {
        self.limit = limit;
        self
    }

    /// Without the values.
    #[must_use]
    pub fn keys_only(mut self) -> Self {
        self.keys_only = true;
        self
    }

    /// As it was at this revision; 0: now.
    #[must_use]
    pub fn at(mut self, revision: i64) -> Self {
        self.revision = revision;
        self
    }

    /// Only keys that were last changed at this revision or later.
    #[must_use]
    pub fn changed_from(mut self, revision: i64) -> Self {
        self.changed_from = revision;
        self
    }

    /// The oldest key of those that begin so: whoever heads the queue.
    pub fn oldest_below(prefix: &[u8]) -> Self {
        Self { oldest_first: true, ..Self::below(prefix).limit(1) }
    }
}

impl Put {
    /// Without a lease.
    pub fn new(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), value: value.into(), ..Self::default() }
    }
}

impl Delete {
    /// One key.
    pub fn key(key: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), range_end: Vec::new() }
    }
}

impl From<Put> for Op {
    fn from(operation: Put) -> Self {
        Self::Put(operation)
    }
}

impl From<Range> for Op {
    fn from(operation: Range) -> Self {
        Self::Range(operation)
    }
}

impl From<Delete> for Op {
    fn from(operation: Delete) -> Self {
        Self::Delete(operation)
    }
}

impl From<Txn> for Op {
    fn from(operation: Txn) -> Self {
        Self::Txn(operation)
    }
}

/// The first key after all that begin with `prefix`.
pub fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // Everything: etcd writes that as a single zero.
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_one() {
        assert_eq!(prefix_end(b"/a/"), b"/a0");
        assert_eq!(prefix_end(b"a\xff\xff"), b"b");
        assert_eq!(prefix_end(b"\xff"), b"\0");
    }

    #[test]
    fn issuance_is_proved_by_the_own_key_and_by_every_other() {
        let (keys, resource) = (Keys::new("/p"), Resource::parse("a/b").unwrap());
        let [own, others] = Compare::issued(&keys, &resource, keys.candidate(&resource, 0x7f), 9);
        assert_eq!(own, Compare::created_at("/p/e/a%2Fb/7f", 9));
        assert_eq!((others.key, others.range_end), (b"/p/e/a%2Fb/".to_vec(), b"/p/e/a%2Fb0".to_vec()));
        assert_eq!((others.relation, others.target), (Relation::Greater, Target::Created(8)));
    }
}
