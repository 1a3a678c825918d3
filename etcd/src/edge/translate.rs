//! From our words to those of `etcd-client`, and back.
//!
//! What must stay true: nothing gets lost on the way there, least of all a compare, and nothing that etcd may say makes
//! this panic. An answer that lacks what every etcd sends is no answer.

use etcd_client::proto::{
    PbEvent, PbKeyValue, PbResponseHeader, PbResponseOp, PbTxnOpResponse, PbTxnResponse,
};
use etcd_client::{
    AlarmType, CompareOp, DeleteOptions, EventType, GetOptions, PutOptions, SortOrder, SortTarget, TxnOp,
};

use super::unavailable;
use crate::answer::{Alarm, Answer, Event, EventKind, Granted, Header, KeyValue, Listing, Outcome};
use crate::client::CallError;
use crate::txn::{Compare, Delete, Op, Put, Range, Relation, Target, Txn};

pub(super) fn transaction(txn: Txn) -> etcd_client::Txn {
    let operations = |operations: Vec<Op>| operations.into_iter().map(operation).collect::<Vec<_>>();
    etcd_client::Txn::new()
        .when(txn.compares.into_iter().map(compare).collect::<Vec<_>>())
        .and_then(operations(txn.success))
        .or_else(operations(txn.failure))
}

fn operation(operation: Op) -> TxnOp {
    match operation {
        Op::Put(Put { key, value, lease, keep_value }) => {
            let options = PutOptions::new().with_lease(lease);
            TxnOp::put(key, value, Some(if keep_value { options.with_ignore_value() } else { options }))
        }
        Op::Range(range) => {
            let (key, options) = get(range);
            TxnOp::get(key, Some(options))
        }
        Op::Delete(Delete { key, range_end }) => {
            TxnOp::delete(key, Some(DeleteOptions::new().with_range(range_end)))
        }
        Op::Txn(txn) => TxnOp::txn(transaction(txn)),
    }
}

fn compare(compare: Compare) -> etcd_client::Compare {
    let Compare { key, range_end, relation, target } = compare;
    let relation = match relation {
        Relation::Equal => CompareOp::Equal,
        Relation::NotEqual => CompareOp::NotEqual,
        Relation::Greater => CompareOp::Greater,
        Relation::Less => CompareOp::Less,
    };
    let compare = match target {
        Target::Version(version) => etcd_client::Compare::version(key, relation, version),
        Target::Created(revision) => etcd_client::Compare::create_revision(key, relation, revision),
        Target::Changed(revision) => etcd_client::Compare::mod_revision(key, relation, revision),
        Target::Value(value) => etcd_client::Compare::value(key, relation, value),
        Target::Lease(lease) => etcd_client::Compare::lease(key, relation, lease),
    };
    compare.with_range(range_end)
}

/// The key, and everything else.
pub(super) fn get(range: Range) -> (Vec<u8>, GetOptions) {
    let Range { key, range_end, limit, revision, oldest_first, keys_only, changed_from } = range;
    let mut options = GetOptions::new()
        .with_range(range_end)
        .with_limit(limit)
        .with_revision(revision)
        .with_min_mod_revision(changed_from);
    if oldest_first {
        options = options.with_sort(SortTarget::Create, SortOrder::Ascend);
    }
    if keys_only {
        options = options.with_keys_only();
    }
    (key, options)
}

pub(super) fn header(header: Option<PbResponseHeader>) -> Result<Header, CallError> {
    let header = header.ok_or_else(|| unavailable("etcd's answer has no header"))?;
    Ok(Header { cluster: header.cluster_id, revision: header.revision, term: header.raft_term })
}

pub(super) fn listing(header: Header, kvs: Vec<PbKeyValue>, more: bool) -> Listing {
    Listing { header, kvs: kvs.into_iter().map(key_value).collect(), more }
}

pub(super) fn outcome(header: Header, answer: PbTxnResponse) -> Result<Outcome, CallError> {
    let answers = answer.responses.into_iter().map(|answer| one_answer(header, answer));
    Ok(Outcome { header, succeeded: answer.succeeded, answers: answers.collect::<Result<_, _>>()? })
}

/// All of one transaction have its header.
fn one_answer(header: Header, answer: PbResponseOp) -> Result<Answer, CallError> {
    let answer = answer.response.ok_or_else(|| unavailable("etcd's answer to an operation is empty"))?;
    Ok(match answer {
        PbTxnOpResponse::ResponsePut(_) => Answer::Put,
        PbTxnOpResponse::ResponseRange(range) => Answer::Range(listing(header, range.kvs, range.more)),
        PbTxnOpResponse::ResponseDeleteRange(delete) => Answer::Deleted(delete.deleted),
        PbTxnOpResponse::ResponseTxn(txn) => Answer::Txn(outcome(header, txn)?),
    })
}

fn key_value(kv: PbKeyValue) -> KeyValue {
    let PbKeyValue { key, create_revision, mod_revision, version, value, lease } = kv;
    KeyValue { key, create_revision, mod_revision, version, value, lease }
}

/// None of what is neither a put nor a deletion.
pub(super) fn event(event: PbEvent) -> Option<Event> {
    let kind = match EventType::try_from(event.r#type).ok()? {
        EventType::Put => EventKind::Put,
        EventType::Delete => EventKind::Delete,
    };
    Some(Event { kind, kv: key_value(event.kv?) })
}

pub(super) fn granted(ttl: i64, header: Option<PbResponseHeader>) -> Granted {
    Granted { ttl, term: header.map_or(0, |header| header.raft_term) }
}

/// None of one that nobody here knows.
pub(super) fn alarm(alarm: i32) -> Option<Alarm> {
    match AlarmType::try_from(alarm).ok()? {
        AlarmType::None => None,
        AlarmType::Nospace => Some(Alarm::NoSpace),
        AlarmType::Corrupt => Some(Alarm::Corrupt),
    }
}

#[cfg(test)]
mod tests;
