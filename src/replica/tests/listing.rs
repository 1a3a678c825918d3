//! What is kept and what is believed when everything is read again.

use super::cluster::{Cluster, ME, PEER, TIMING};
use super::*;

/// Reads everything again: the records as this replica knows them, and these.
fn list(cluster: &mut Cluster, members: Vec<(Incarnation, Member)>, tombstones: Vec<(String, Tombstone)>) {
    let snapshot = Snapshot {
        seq: cluster.seq,
        watermark: cluster.revision,
        records: vec![(resource(), cluster.replica.record(&resource()))],
        members,
        tombstones,
        ..Snapshot::default()
    };
    cluster.step(Input::Listed(snapshot));
}

/// A member as a listing has it: its last word was at `modified`, about everything up to `watermark`.
fn said(created: Revision, modified: Revision, watermark: Revision) -> Member {
    Member { modified, watermark, wait: TIMING.wait(), ..Member::new(created) }
}

#[test]
fn what_this_replica_drains_it_knows_better_than_any_listing() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    let raise = cluster.raise(8);
    list(&mut cluster, vec![(ME, said(100, 101, 100)), (PEER, said(50, 102, raise))], vec![]);
    assert!(cluster.replica.members()[&ME].draining.contains(&raise));
    cluster.pass(SECOND);
    assert_eq!(cluster.seals(), [0u64; 0], "7 is still under way here");
    cluster.step(drained());
    cluster.pass(SECOND);
    assert_eq!(cluster.seals(), [8], "and the peer's word was in the list");
}

#[test]
fn who_is_in_the_list_for_the_first_time_is_waited_for_and_who_is_not_is_gone() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    let raise = cluster.raise(8);
    cluster.step(drained());
    list(&mut cluster, vec![(ME, said(100, 100, 100)), (3, said(90, 99, 99))], vec![]);
    assert_eq!(cluster.replica.members().keys().copied().collect::<Vec<_>>(), [ME, 3]);
    cluster.pass(SECOND);
    assert_eq!(cluster.seals(), [0u64; 0]);
    list(&mut cluster, vec![(ME, said(100, 100, 100)), (3, said(90, 105, raise))], vec![]);
    cluster.pass(SECOND);
    assert_eq!(cluster.seals(), [8]);
}

#[test]
fn a_listing_is_a_sign_of_life_only_of_who_has_spoken_since() {
    let silence = TIMING.validity * 2;
    for (modified, evicted) in [(50, true), (101, false)] {
        let mut cluster = Cluster::join(&[]);
        cluster.pass(silence - SECOND);
        list(&mut cluster, vec![(ME, said(100, 100, 100)), (PEER, said(50, modified, 100))], vec![]);
        cluster.pass(2 * SECOND);
        assert_eq!(cluster.evicts().contains(&PEER), evicted, "its last word was at {modified}");
    }
}

#[test]
fn who_has_spoken_before_a_listing_gets_its_time_anew_to_follow_a_raise() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    cluster.raise(8);
    cluster.pass(TIMING.validity / 2 - Duration::from_millis(100));
    list(&mut cluster, vec![(ME, said(100, 100, 100)), (PEER, said(50, 101, 100))], vec![]);
    cluster.pass(TIMING.validity / 2 - Duration::from_millis(100));
    assert_eq!(cluster.evicts(), [0u128; 0], "how far it came in between is not known");
    cluster.pass(SECOND / 2);
    assert_eq!(cluster.evicts(), [PEER]);
}

#[test]
fn a_tombstone_that_only_this_replica_knows_counts_until_it_is_old() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    cluster.peer_says(100, &[]);
    cluster.raise(8);
    cluster.step(drained());
    cluster.log_aside(vec![Change::Gone(PEER)]);
    cluster.pass(TIMING.wait() - SECOND);
    list(&mut cluster, vec![(ME, said(100, 100, 100))], vec![]);
    assert_eq!(cluster.seals(), [0u64; 0], "the list does not have it, and it is too young");
    assert_eq!(cluster.replica.tombstones().len(), 1);
    cluster.pass(SECOND);
    assert_eq!(cluster.seals(), [8]);
    list(&mut cluster, vec![(ME, said(100, 100, 100))], vec![]);
    assert!(cluster.replica.tombstones().is_empty());
}

#[test]
fn a_tombstone_in_the_list_keeps_the_age_it_has_here() {
    let grave = Tombstone { created: 40, watermark: 40, wait: TIMING.wait(), ..Tombstone::default() };
    let graves = || vec![("old".to_owned(), grave.clone())];
    let mut cluster = Cluster::join_with(&[record(7, State::Open)], graves());
    cluster.pass(2 * SECOND);
    list(&mut cluster, vec![(ME, said(100, 100, 100))], graves());
    assert_eq!(cluster.replica.tombstones()["old"].left(cluster.now), TIMING.wait() - 2 * SECOND);
}

#[test]
fn a_listing_of_another_era_is_the_end() {
    let mut cluster = Cluster::join(&[]);
    let members = vec![(ME, said(100, 100, 100))];
    cluster.step(Input::Listed(Snapshot { era: 1, seq: 11, watermark: 103, members, ..Snapshot::default() }));
    assert_eq!(cluster.is_fenced(), Some(Fenced::NewEra));
}

#[test]
fn a_proposal_without_an_answer_is_made_again_after_a_listing() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    let proposed = |cluster: &mut Cluster| {
        cluster.take(|output| match output {
            Output::Propose(proposal) => Some(proposal.record.token),
            _ => None,
        })
    };
    cluster.step(want(8));
    assert_eq!(proposed(&mut cluster), [8]);
    list(&mut cluster, vec![(ME, said(100, 100, 100))], vec![]);
    assert_eq!(proposed(&mut cluster), [8]);
}
