//! When a raised mark may open, and what this replica still drains.

use super::cluster::{Cluster, ME, PEER, TIMING, proposals};
use super::*;

fn other() -> Resource {
    Resource::parse("other").unwrap()
}

fn draining(cluster: &Cluster) -> Vec<Revision> {
    cluster.replica.members()[&ME].draining.iter().copied().collect()
}

#[test]
fn a_raise_of_two_resources_drains_until_both_have() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    let raised = Record { modified: 101, ..record(8, State::Raised) };
    let raise = cluster.log(vec![Change::Record(resource(), raised), Change::Record(other(), raised)]);
    cluster.step(drained());
    assert_eq!(draining(&cluster), [raise], "the other one has not drained");
    cluster.step(Input::Drained { resource: other() });
    assert_eq!(draining(&cluster), [0; 0]);
}

#[test]
fn a_mark_that_another_replica_opened_does_not_drain_any_more() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    let raised = |token, modified| Record { modified, ..record(token, State::Raised) };
    cluster.log(vec![Change::Record(resource(), raised(8, 101))]);
    let second = cluster.log(vec![Change::Record(other(), raised(8, 102))]);
    cluster.log(vec![Change::Record(resource(), Record { modified: 103, ..record(8, State::Open) })]);
    assert_eq!(draining(&cluster), [second], "what others drain is theirs to know");
}

#[test]
fn the_second_in_line_seals_a_little_later_and_only_then() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    assert_eq!(cluster.replica.rank(&resource()), 1);
    let raise = cluster.raise(8);
    cluster.step(drained());
    cluster.peer_says(raise, &[]);
    cluster.pass(Duration::from_millis(99));
    assert_eq!(cluster.seals(), [0u64; 0]);
    cluster.pass(Duration::from_millis(1));
    assert_eq!(cluster.seals(), [8]);
}

#[test]
fn the_first_in_line_seals_at_once() {
    let first = Resource::parse("b").unwrap();
    let mut cluster = Cluster::join(&[]);
    assert_eq!(cluster.replica.rank(&first), 0);
    let raised = Record { modified: 101, ..record(8, State::Raised) };
    let raise = cluster.log(vec![Change::Record(first.clone(), raised)]);
    cluster.step(Input::Drained { resource: first });
    cluster.peer_says(raise, &[]);
    assert_eq!(cluster.seals(), [8]);
}

#[test]
fn a_member_that_joined_with_the_very_raise_has_to_acknowledge_it() {
    let member = Member { watermark: 100, ..Member::new(101) };
    assert!(!member.has_acknowledged(101));
    assert!(member.has_acknowledged(100));
    assert!(Member { watermark: 101, ..member.clone() }.has_acknowledged(101));
    let draining = [101].into();
    assert!(!Member { watermark: 101, draining, ..member }.has_acknowledged(101));
}

#[test]
fn nothing_is_sealed_over_what_is_not_counted_yet() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    cluster.log(vec![Change::Gone(PEER)]);
    let raised = Record { modified: 102, ..record(8, State::Raised) };
    cluster.log_aside(vec![Change::Record(resource(), raised)]);
    cluster.step(drained());
    cluster.pass(SECOND);
    assert_eq!(cluster.seals(), [0u64; 0], "the watermark is below the raise");
}

#[test]
fn a_raise_of_an_older_era_is_never_sealed_and_one_of_this_era_is() {
    let join = |token, state| {
        let snapshot = Snapshot {
            era: 1,
            watermark: 100,
            records: vec![(resource(), record(token, state))],
            members: vec![(ME, Member::new(100))],
            ..Snapshot::default()
        };
        Replica::join(SECOND, SECOND, ME, Some(TIMING), snapshot).1
    };
    let seals = |outputs: &[Output]| outputs.iter().filter_map(proposals).count();
    assert_eq!(seals(&join(7, State::Raised)), 0);
    assert_eq!(seals(&join(floor(1) + 7, State::Raised)), 1);
    let opens = |output: &Output| matches!(output, Output::Open { .. });
    assert!(!join(7, State::Open).iter().any(opens));
    assert!(join(floor(1) + 7, State::Open).iter().any(opens));
}

#[test]
fn a_process_that_is_alone_takes_tokens_of_any_era() {
    let mut bench = Bench::join(&[record(floor(3) + 7, State::Open)], vec![]);
    assert_eq!(bench.gate, (floor(3) + 7, true));
    bench.step(want(floor(4) + 1)).commit().step(drained()).commit();
    assert_eq!(bench.gate, (floor(4) + 1, true));
}

#[test]
fn a_process_that_is_alone_drops_each_predecessor_when_its_time_is_over() {
    let graves = [("first", SECOND), ("second", 3 * SECOND)];
    let tombstones = graves.map(|(name, wait)| (name.to_owned(), predecessor(wait))).to_vec();
    let snapshot = Snapshot { tombstones, ..Snapshot::default() };
    let (mut replica, _) = Replica::join(Time::ZERO, Time::ZERO, ME, None, snapshot);
    assert_eq!(replica.wake_at(), Some(SECOND));
    replica.step(SECOND, Input::Tick);
    assert_eq!(replica.tombstones().keys().collect::<Vec<_>>(), ["second"]);
    assert_eq!(replica.wake_at(), Some(3 * SECOND));
    assert!(replica.inherits_unknowns(3 * SECOND - Duration::from_nanos(1)));
    assert!(!replica.inherits_unknowns(3 * SECOND));
    replica.step(3 * SECOND, Input::Tick);
    assert!(replica.tombstones().is_empty() && replica.wake_at().is_none());
}

#[test]
fn a_tombstone_that_comes_again_keeps_its_age() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    cluster.raise(8);
    cluster.step(drained());
    let grave = Tombstone { created: 50, watermark: 50, wait: TIMING.wait(), ..Tombstone::default() };
    let put = || Change::Tombstone(format!("{PEER:032x}"), grave.clone());
    cluster.log(vec![Change::Gone(PEER), put()]);
    cluster.pass(TIMING.wait() - SECOND);
    cluster.log(vec![put()]);
    cluster.pass(SECOND);
    assert_eq!(cluster.seals(), [8]);
}

#[test]
fn a_tombstone_whose_time_is_over_wakes_nobody_again() {
    let grave = Tombstone { created: 50, watermark: 50, wait: 5 * SECOND, ..Tombstone::default() };
    let mut cluster = Cluster::join_with(&[record(7, State::Open)], vec![("old".to_owned(), grave)]);
    cluster.now += 5 * SECOND;
    cluster.raise(8);
    cluster.step(drained());
    assert!(cluster.replica.agenda.is_empty(), "what is left to wait for is the peer, and that speaks up");
}

#[test]
fn a_tombstone_that_is_forgotten_holds_nothing_any_more() {
    let grave = Tombstone { created: 50, watermark: 50, wait: TIMING.wait(), ..Tombstone::default() };
    let mut cluster = Cluster::join_with(&[record(7, State::Open)], vec![("old".to_owned(), grave)]);
    let raise = cluster.raise(8);
    cluster.step(drained());
    cluster.peer_says(raise, &[]);
    cluster.pass(SECOND);
    assert_eq!(cluster.seals(), [0u64; 0]);
    cluster.log(vec![Change::Forgotten("old".to_owned())]);
    cluster.pass(Duration::from_millis(100));
    assert_eq!(cluster.seals(), [8], "it left in peace, and said so");
}

#[test]
fn where_outcomes_block_only_tombstones_from_before_the_last_settlement_let_pass() {
    let settled = |settled| Record { block: true, settled, ..record(7, State::Open) };
    let grave = Tombstone { modified: 100, ..Tombstone::default() };
    assert!(grave.blocks(&settled(99)));
    assert!(!grave.blocks(&settled(100)));
    assert!(!grave.blocks(&Record { block: false, ..settled(99) }));
}
