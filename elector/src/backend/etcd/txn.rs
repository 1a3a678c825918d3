//! Transactions and their answers, in the few words that Highgate needs of them.
//!
//! Everything that changes etcd goes through a transaction with a compare, so that sending it twice changes
//! nothing the second time: that is what lets [`super::client`] ask a second endpoint while the first is silent.

use super::wire::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, KeyValue, Operand, PutRequest, RangeRequest,
    Request, RequestOp, Response, SortOrder, SortTarget, TxnRequest, TxnResponse,
};

impl Compare {
    /// The key was created at this revision and lives; 0: it does not exist.
    pub fn created_at(key: impl Into<Vec<u8>>, revision: i64) -> Self {
        Self::revision(key, CompareTarget::Create, CompareResult::Equal, Operand::Create(revision))
    }

    /// The key was created after this revision and lives.
    pub fn created_after(key: impl Into<Vec<u8>>, revision: i64) -> Self {
        Self::revision(key, CompareTarget::Create, CompareResult::Greater, Operand::Create(revision))
    }

    /// The key was last changed at this revision; 0: it does not exist.
    pub fn changed_at(key: impl Into<Vec<u8>>, revision: i64) -> Self {
        Self::revision(key, CompareTarget::Mod, CompareResult::Equal, Operand::Mod(revision))
    }

    /// The same of every key that begins with this one.
    pub fn of_all_below(mut self) -> Self {
        self.range_end = prefix_end(&self.key);
        self
    }

    fn revision(
        key: impl Into<Vec<u8>>,
        target: CompareTarget,
        result: CompareResult,
        operand: Operand,
    ) -> Self {
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

    /// The oldest key of those that begin so: whoever heads the queue.
    pub fn oldest_below(prefix: &[u8]) -> Self {
        Self {
            key: prefix.to_vec(),
            range_end: prefix_end(prefix),
            limit: 1,
            sort_order: SortOrder::Ascend.into(),
            sort_target: SortTarget::Create.into(),
            ..Self::default()
        }
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
        match self.responses.get(place).and_then(|answer| answer.response.as_ref()) {
            Some(Response::Range(range)) => &range.kvs,
            _ => &[],
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
}
