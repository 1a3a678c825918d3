use etcd_client::proto::{
    PbCompare, PbCompareTarget, PbDeleteResponse, PbRangeResponse, PbTargetUnion, PbTxnOpRequest,
    PbTxnRequest, PbTxnRequestOp,
};
use proptest::prelude::*;

use super::*;

/// What etcd would read in a transaction that was sent.
fn read(txn: PbTxnRequest) -> Txn {
    let operations = |operations: Vec<PbTxnRequestOp>| operations.into_iter().map(read_operation).collect();
    Txn {
        compares: txn.compare.into_iter().map(read_compare).collect(),
        success: operations(txn.success),
        failure: operations(txn.failure),
    }
}

fn read_operation(operation: PbTxnRequestOp) -> Op {
    match operation.request.expect("an operation is one of four") {
        PbTxnOpRequest::RequestPut(put) => {
            assert!(!put.prev_kv && !put.ignore_lease);
            Op::Put(Put { key: put.key, value: put.value, lease: put.lease, keep_value: put.ignore_value })
        }
        PbTxnOpRequest::RequestRange(range) => {
            assert!(!range.serializable, "a read is of what the cluster agrees on");
            let by_age = (SortTarget::Create as i32, SortOrder::Ascend as i32);
            let order = (range.sort_target, range.sort_order);
            assert!(order == by_age || order == (0, 0));
            Op::Range(Range {
                key: range.key,
                range_end: range.range_end,
                limit: range.limit,
                revision: range.revision,
                oldest_first: order == by_age,
                keys_only: range.keys_only,
                changed_from: range.min_mod_revision,
            })
        }
        PbTxnOpRequest::RequestDeleteRange(delete) => {
            Op::Delete(Delete { key: delete.key, range_end: delete.range_end })
        }
        PbTxnOpRequest::RequestTxn(txn) => Op::Txn(read(txn)),
    }
}

/// By etcd's own numbers.
fn read_compare(compare: PbCompare) -> Compare {
    let relation = match compare.result {
        0 => Relation::Equal,
        1 => Relation::Greater,
        2 => Relation::Less,
        3 => Relation::NotEqual,
        other => panic!("etcd has no relation {other}"),
    };
    let (number, target) = match compare.target_union.expect("a compare has an operand") {
        PbTargetUnion::Version(version) => (PbCompareTarget::Version, Target::Version(version)),
        PbTargetUnion::CreateRevision(revision) => (PbCompareTarget::Create, Target::Created(revision)),
        PbTargetUnion::ModRevision(revision) => (PbCompareTarget::Mod, Target::Changed(revision)),
        PbTargetUnion::Value(value) => (PbCompareTarget::Value, Target::Value(value)),
        PbTargetUnion::Lease(lease) => (PbCompareTarget::Lease, Target::Lease(lease)),
    };
    assert_eq!(compare.target, number as i32, "what is compared is what the operand is of");
    Compare { key: compare.key, range_end: compare.range_end, relation, target }
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..4)
}

fn compares() -> impl Strategy<Value = Vec<Compare>> {
    let relation =
        prop::sample::select(vec![Relation::Equal, Relation::NotEqual, Relation::Greater, Relation::Less]);
    let target = prop_oneof![
        any::<i64>().prop_map(Target::Version),
        any::<i64>().prop_map(Target::Created),
        any::<i64>().prop_map(Target::Changed),
        bytes().prop_map(Target::Value),
        any::<i64>().prop_map(Target::Lease),
    ];
    let compare = (bytes(), bytes(), relation, target)
        .prop_map(|(key, range_end, relation, target)| Compare { key, range_end, relation, target });
    prop::collection::vec(compare, 0..4)
}

fn plain_operation() -> impl Strategy<Value = Op> {
    let put = (bytes(), bytes(), any::<i64>(), any::<bool>());
    let range = (bytes(), bytes(), any::<[i64; 3]>(), any::<[bool; 2]>());
    prop_oneof![
        put.prop_map(|(key, value, lease, keep_value)| Put { key, value, lease, keep_value }.into()),
        range.prop_map(|(key, range_end, [limit, revision, changed_from], [oldest_first, keys_only])| {
            Range { key, range_end, limit, revision, oldest_first, keys_only, changed_from }.into()
        }),
        (bytes(), bytes()).prop_map(|(key, range_end)| Delete { key, range_end }.into()),
    ]
}

/// With others within, three deep.
fn txn() -> impl Strategy<Value = Txn> {
    let txn_of = |operation: BoxedStrategy<Op>| {
        let operations = prop::collection::vec(operation, 0..4);
        (compares(), operations.clone(), operations).prop_map(|(compares, success, failure)| Txn {
            compares,
            success,
            failure,
        })
    };
    let nested = plain_operation().boxed().prop_recursive(3, 24, 4, move |inner| {
        prop_oneof![plain_operation(), txn_of(inner).prop_map(Op::Txn)]
    });
    txn_of(nested.boxed())
}

proptest! {
    #[test]
    fn etcd_reads_every_transaction_as_it_was_written(txn in txn()) {
        prop_assert_eq!(read(transaction(txn.clone()).into()), txn);
    }
}

/// Not left to chance.
#[test]
fn every_relation_of_every_target_is_translated() {
    for relation in [Relation::Equal, Relation::NotEqual, Relation::Greater, Relation::Less] {
        for target in [
            Target::Version(1),
            Target::Created(2),
            Target::Changed(3),
            Target::Value(b"4".to_vec()),
            Target::Lease(5),
        ] {
            let compare = Compare { key: b"k".to_vec(), range_end: b"l".to_vec(), relation, target };
            let txn = Txn::when([compare]);
            assert_eq!(read(transaction(txn.clone()).into()), txn);
        }
    }
}

fn answer(response: PbTxnOpResponse) -> PbResponseOp {
    PbResponseOp { response: Some(response) }
}

#[test]
fn an_answer_keeps_its_place_and_has_the_transactions_header() {
    let kv = PbKeyValue {
        key: b"k".to_vec(),
        create_revision: 1,
        mod_revision: 2,
        version: 3,
        value: b"v".to_vec(),
        lease: 4,
    };
    let range = PbRangeResponse { kvs: vec![kv], more: true, ..PbRangeResponse::default() };
    let deleted = PbDeleteResponse { deleted: 6, ..PbDeleteResponse::default() };
    let responses = vec![
        answer(PbTxnOpResponse::ResponseRange(range)),
        answer(PbTxnOpResponse::ResponsePut(<_>::default())),
    ];
    let inner = PbTxnResponse { succeeded: true, responses, ..PbTxnResponse::default() };
    let responses = vec![
        answer(PbTxnOpResponse::ResponseDeleteRange(deleted)),
        answer(PbTxnOpResponse::ResponseTxn(inner)),
    ];
    let header = Header { cluster: 7, revision: 8, term: 9 };
    let read = outcome(header, PbTxnResponse { responses, ..PbTxnResponse::default() }).unwrap();

    let (key, value) = (b"k".to_vec(), b"v".to_vec());
    let kv = KeyValue { key, create_revision: 1, mod_revision: 2, version: 3, value, lease: 4 };
    let listing = Answer::Range(Listing { header, kvs: vec![kv], more: true });
    let inner = Answer::Txn(Outcome { header, succeeded: true, answers: vec![listing, Answer::Put] });
    let answers = vec![Answer::Deleted(6), inner];
    assert_eq!(read, Outcome { header, succeeded: false, answers });
}

#[test]
fn an_answer_that_lacks_what_every_etcd_sends_is_none() {
    let empty =
        PbTxnResponse { responses: vec![PbResponseOp { response: None }], ..PbTxnResponse::default() };
    assert!(matches!(outcome(Header::default(), empty), Err(CallError::Unavailable(_))));
    assert!(matches!(header(None), Err(CallError::Unavailable(_))));
}

#[test]
fn events_and_alarms_that_nobody_knows_pass_by() {
    let told = |kind, kv| event(PbEvent { r#type: kind, kv, prev_kv: None }).map(|event| event.kind);
    let kv = || Some(PbKeyValue::default());
    assert_eq!((told(0, kv()), told(1, kv())), (Some(EventKind::Put), Some(EventKind::Delete)));
    assert_eq!((told(2, kv()), told(0, None)), (None, None));
    assert_eq!([0, 1, 2, 3].map(alarm), [None, Some(Alarm::NoSpace), Some(Alarm::Corrupt), None]);
}
