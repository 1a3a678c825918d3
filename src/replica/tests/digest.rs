//! When two replicas are the same to a model checker.

use std::hash::{BuildHasher, RandomState};

use super::cluster::Cluster;
use super::*;

#[test]
fn replicas_are_the_same_exactly_as_long_as_the_same_has_happened_to_them() {
    let state = RandomState::new();
    let joined = Cluster::join(&[record(7, State::Open)]).replica;
    let (mut one, mut other) = (joined.clone(), joined);
    assert_eq!(state.hash_one(&one), state.hash_one(&other));
    one.step(SECOND, want(8));
    assert_ne!(state.hash_one(&one), state.hash_one(&other), "one has something left to do");
    other.step(SECOND, want(8));
    assert_eq!(state.hash_one(&one), state.hash_one(&other));
}

#[test]
fn where_maps_keep_their_entries_makes_no_difference() {
    let state = RandomState::new();
    let named = |number: u64| Resource::parse(&format!("ledger/{number}")).unwrap();
    let join = |records: Vec<(Resource, Record)>| {
        let snapshot = Snapshot { records, ..Snapshot::default() };
        Replica::join(Time::ZERO, Time::ZERO, 1, None, snapshot).0
    };
    let records = || (1..=40).map(|number| (named(number), record(number, State::Open)));
    let (forwards, backwards) = (join(records().collect()), join(records().rev().collect()));
    assert_eq!(state.hash_one(&forwards), state.hash_one(&backwards));
    let fewer = join(records().skip(1).collect());
    assert_ne!(state.hash_one(&forwards), state.hash_one(&fewer), "every record counts");
}
