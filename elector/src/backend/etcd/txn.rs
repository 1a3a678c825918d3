//! Transactions and their answers, in the few words that Highgate needs of them.
//!
//! Everything that changes etcd goes through a transaction with a compare, so that sending it twice changes
//! nothing the second time: that is what lets [`super::client`] ask a second endpoint while the first is silent.

use super::keys::Keys;
use super::wire::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, KeyValue, Operand, PutRequest, RangeRequest,
    RangeResponse, Request, RequestOp, Response, SortOrder, SortTarget, TxnRequest, TxnResponse,
};
use crate::Resource;

impl Compare {
    /// The key was created at this revision and lives; 0: it does not exist.
    pub fn created_at(key: impl Into<Vec<u8>>, revision: i64) -> Self {
        Self::new(key, CompareTarget::Create, CompareResult::Equal, Operand::Create(revision))
    }

    /// The key was created after this revision and lives.
    pub fn created_after(key: impl Into<Vec<u8>>, revision: i64) -> Self {
        Self::new(key, CompareTarget::Create, CompareResult::Greater, Operand::Create(revision))
    }

    /// The key was created before this revision, or does not exist.
    pub fn created_before(key: impl Into<Vec<u8>>, revision: i64) -> Self {
        Self::new(key, CompareTarget::Create, CompareResult::Less, Operand::Create(revision))
    }

    /// The key was last changed at this revision; 0: it does not exist.
    pub fn changed_at(key: impl Into<Vec<u8>>, revision: i64) -> Self {
        Self::new(key, CompareTarget::Mod, CompareResult::Equal, Operand::Mod(revision))
    }

    /// The key was last changed before this revision, or does not exist.
    pub fn changed_before(key: impl Into<Vec<u8>>, revision: i64) -> Self {
        Self::new(key, CompareTarget::Mod, CompareResult::Less, Operand::Mod(revision))
    }

    /// The key lives and ends with this lease.
    pub fn on_lease(key: impl Into<Vec<u8>>, lease: i64) -> Self {
        Self::new(key, CompareTarget::Lease, CompareResult::Equal, Operand::Lease(lease))
    }

    /// The key exists and has exactly this value.
    pub fn value_is(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self::new(key, CompareTarget::Value, CompareResult::Equal, Operand::Value(value.into()))
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

    fn new(key: impl Into<Vec<u8>>, target: CompareTarget, result: CompareResult, operand: Operand) -> Self {
        Self {
            result: result.into(),
            target: target.into(),
            key: key.into(),
            operand: Some(operand),
            range_end: Vec::new(),
        }
    }
}

impl RangeRequest {
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

    /// Nothing but how many there are.
    #[must_use]
    pub fn count_only(mut self) -> Self {
        self.count_only = true;
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
        self.min_mod_revision = revision;
        self
    }

    /// The oldest key of those that begin so: whoever heads the queue.
    pub fn oldest_below(prefix: &[u8]) -> Self {
        Self {
            sort_order: SortOrder::Ascend.into(),
            sort_target: SortTarget::Create.into(),
            ..Self::below(prefix).limit(1)
        }
    }
}

impl PutRequest {
    /// Without a lease.
    pub fn new(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), value: value.into(), ..Self::default() }
    }
}

impl DeleteRangeRequest {
    /// One key.
    pub fn key(key: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), range_end: Vec::new() }
    }
}

impl TxnRequest {
    /// Does these if all of the compares hold.
    pub fn when(compare: impl Into<Vec<Compare>>) -> Self {
        Self { compare: compare.into(), ..Self::default() }
    }

    #[must_use]
    pub fn then(mut self, operation: impl Into<RequestOp>) -> Self {
        self.success.push(operation.into());
        self
    }

    #[must_use]
    pub fn or_else(mut self, operation: impl Into<RequestOp>) -> Self {
        self.failure.push(operation.into());
        self
    }
}

impl TxnResponse {
    /// The revision at which it was answered: of a change, the change's own.
    pub fn revision(&self) -> i64 {
        self.header.as_ref().map_or(0, |header| header.revision)
    }

    /// What the read at this place among the operations found.
    pub fn found(&self, place: usize) -> &[KeyValue] {
        self.range(place).map_or(&[], |range| &range.kvs)
    }

    /// How many keys the read at this place is about, those beyond its limit included.
    pub fn count(&self, place: usize) -> i64 {
        self.range(place).map_or(0, |range| range.count)
    }

    /// The whole answer to the read at this place.
    pub fn range(&self, place: usize) -> Option<&RangeResponse> {
        match self.responses.get(place)?.response.as_ref()? {
            Response::Range(range) => Some(range),
            _ => None,
        }
    }

    /// The answer to the transaction at this place among the operations.
    pub fn nested(&self, place: usize) -> Option<&Self> {
        match self.responses.get(place)?.response.as_ref()? {
            Response::Txn(answer) => Some(answer),
            _ => None,
        }
    }
}

impl From<RangeRequest> for RequestOp {
    fn from(range: RangeRequest) -> Self {
        Self { request: Some(Request::Range(range)) }
    }
}

impl From<PutRequest> for RequestOp {
    fn from(put: PutRequest) -> Self {
        Self { request: Some(Request::Put(put)) }
    }
}

impl From<DeleteRangeRequest> for RequestOp {
    fn from(delete: DeleteRangeRequest) -> Self {
        Self { request: Some(Request::Delete(delete)) }
    }
}

/// One within another: its compares decide for itself only.
impl From<TxnRequest> for RequestOp {
    fn from(nested: TxnRequest) -> Self {
        Self { request: Some(Request::Txn(nested)) }
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
    use super::super::wire::ResponseOp;
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
        assert_eq!(
            (others.result, others.operand),
            (CompareResult::Greater.into(), Some(Operand::Create(8)))
        );
    }

    #[test]
    fn an_answer_is_found_at_the_place_of_its_operation() {
        let kv = KeyValue { key: b"k".to_vec(), ..KeyValue::default() };
        let range = RangeResponse { kvs: vec![kv.clone()], count: 5, ..RangeResponse::default() };
        let range = ResponseOp { response: Some(Response::Range(range)) };
        let inner = TxnResponse { succeeded: true, responses: vec![range.clone()], ..TxnResponse::default() };
        let nested = ResponseOp { response: Some(Response::Txn(inner)) };
        let answer = TxnResponse { responses: vec![nested, range], ..TxnResponse::default() };
        assert!(answer.nested(0).is_some_and(|inner| inner.succeeded && inner.count(0) == 5));
        assert_eq!(answer.found(1), [kv]);
        assert!(answer.nested(1).is_none() && answer.range(0).is_none() && answer.found(0).is_empty());
    }
}
