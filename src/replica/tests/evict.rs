//! Who is taken for gone, and when what is left of it is forgotten.

use super::cluster::{Cluster, PEER, TIMING};
use super::*;

#[test]
fn a_silent_member_is_evicted_only_by_who_was_heard_after_the_silence_began() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    cluster.raise(8);
    cluster.step(drained());
    cluster.pass(TIMING.validity / 2 - Duration::from_millis(1));
    assert_eq!(cluster.evicts(), [0u128; 0]);
    cluster.pass(SECOND);
    assert!(cluster.evicts().contains(&PEER));

    // The same without a single renewal that was accepted.
    let mut deaf = Cluster::join(&[record(7, State::Open)]);
    deaf.now += Duration::from_millis(1);
    deaf.raise(8);
    while let Some(at) = deaf.replica.wake_at().filter(|at| *at < deaf.now + TIMING.validity) {
        deaf.now = deaf.now.max(at);
        if deaf.now >= Duration::from_secs(1000) + TIMING.validity {
            break;
        }
        deaf.step(Input::Tick);
    }
    assert_eq!(deaf.evicts(), [0u128; 0], "it may be this replica that hears nothing");
}

#[test]
fn a_member_that_makes_progress_is_not_evicted_and_an_idle_one_is_after_twice_the_validity() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    cluster.pass(TIMING.validity * 2 - Duration::from_millis(1));
    assert_eq!(cluster.evicts(), [0u128; 0]);
    cluster.pass(Duration::from_millis(500));
    assert!(cluster.evicts().contains(&PEER));
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    for token in 8..20 {
        let raise = cluster.raise(token);
        cluster.pass(SECOND);
        cluster.peer_says(raise, &[]);
    }
    assert_eq!(cluster.evicts(), [0u128; 0]);
}

#[test]
fn an_old_tombstone_is_forgotten_but_not_one_that_may_have_left_what_blocks() {
    let forgets = |output: &Output| match output {
        Output::Forget { name, .. } => Some(name.clone()),
        _ => None,
    };
    let grave = Tombstone { modified: 99, wait: TIMING.wait(), ..Tombstone::default() };
    let open = record(7, State::Open);
    let mut cluster = Cluster::join_with(&[open], vec![("old".to_owned(), grave.clone())]);
    cluster.pass(TIMING.wait() + SECOND / 2);
    assert!(cluster.take(forgets).is_empty());
    cluster.pass(SECOND);
    assert!(cluster.take(forgets).contains(&"old".to_owned()));

    let blocking = Record { block: true, block_next: true, ..open };
    let mut cluster = Cluster::join_with(&[blocking], vec![("old".to_owned(), grave)]);
    cluster.pass(TIMING.wait() * 3);
    assert!(cluster.take(forgets).is_empty(), "an operator has to settle it");
    cluster.step(Input::Freeze { resource: resource(), frozen: false });
    let settled = cluster.take(|output| match output {
        Output::Propose(proposal) => Some(proposal.record),
        _ => None,
    });
    assert_eq!(settled, [Record { settled: 100, ..blocking }]);
    cluster.log(vec![Change::Record(resource(), Record { modified: 101, ..settled[0] })]);
    cluster.pass(SECOND);
    assert!(cluster.take(forgets).contains(&"old".to_owned()));
}

/// The peer renews twice a second for this long, and says the same every time.
fn peer_repeats(cluster: &mut Cluster, span: Duration, watermark: Revision, draining: &[Revision]) {
    let end = cluster.now + span;
    while cluster.now < end {
        cluster.pass((SECOND / 2).min(end - cluster.now));
        cluster.peer_says(watermark, draining);
    }
}

#[test]
fn a_member_that_renews_but_does_not_follow_is_asked_out_again_and_again() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    cluster.peer_says(100, &[]);
    cluster.raise(8);
    cluster.step(drained());
    peer_repeats(&mut cluster, TIMING.validity / 2 - Duration::from_millis(1), 100, &[]);
    assert_eq!(cluster.evicts(), [0u128; 0]);
    peer_repeats(&mut cluster, SECOND / 2, 100, &[]);
    assert_eq!(cluster.evicts(), [PEER]);
    peer_repeats(&mut cluster, 3 * SECOND, 100, &[]);
    assert_eq!(cluster.evicts(), [PEER; 3], "once a second: the first word may have been lost");
}

#[test]
fn a_member_that_falls_behind_but_moves_gets_its_time_anew() {
    let mut cluster = Cluster::join(&[]);
    let raise = cluster.raise(8);
    let other = Record { token: 8, modified: raise + 1, state: State::Raised, ..Record::default() };
    cluster.log(vec![Change::Record(Resource::parse("other").unwrap(), other)]);
    cluster.pass(Duration::from_millis(1900));
    cluster.peer_says(raise, &[]);
    peer_repeats(&mut cluster, Duration::from_millis(1900), raise, &[]);
    assert_eq!(cluster.evicts(), [0u128; 0]);
    peer_repeats(&mut cluster, SECOND / 2, raise, &[]);
    assert_eq!(cluster.evicts(), [PEER]);
}

#[test]
fn a_member_that_is_done_is_not_blamed_for_another() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    let raise = cluster.raise(8);
    peer_repeats(&mut cluster, 20 * SECOND, raise, &[]);
    assert_eq!(cluster.evicts(), [0u128; 0], "it is this replica that still drains");
}

#[test]
fn a_member_that_drains_for_ever_is_evicted_unless_an_operator_has_the_word() {
    let raised = |block| Record { modified: 101, block, ..record(8, State::Raised) };
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    let raise = cluster.log(vec![Change::Record(resource(), raised(false))]);
    cluster.step(drained());
    let limit = TIMING.drain_timeout + TIMING.lock_delay + TIMING.validity / 2;
    peer_repeats(&mut cluster, limit - Duration::from_millis(1), raise, &[raise]);
    assert_eq!(cluster.evicts(), [0u128; 0]);
    peer_repeats(&mut cluster, SECOND / 2, raise, &[raise]);
    assert_eq!(cluster.evicts(), [PEER]);

    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    let raise = cluster.log(vec![Change::Record(resource(), raised(true))]);
    cluster.step(drained());
    peer_repeats(&mut cluster, 3 * limit, raise, &[raise]);
    assert_eq!(cluster.evicts(), [0u128; 0], "an unknown outcome there blocks until it is settled");
}

#[test]
fn a_tombstone_is_kept_for_as_long_as_the_slowest_of_all_and_a_margin() {
    let grave = |wait| Tombstone { modified: 99, wait, ..Tombstone::default() };
    let graves = vec![("quick".to_owned(), grave(SECOND)), ("slow".to_owned(), grave(3 * SECOND))];
    let mut cluster = Cluster::join_with(&[], graves);
    let forgets = |output: &Output| match output {
        Output::Forget { name, modified } => Some((name.clone(), *modified)),
        _ => None,
    };
    cluster.pass(4 * SECOND - Duration::from_millis(1));
    assert!(cluster.take(forgets).is_empty(), "another replica may have seen the slow one last");
    cluster.pass(Duration::from_millis(1));
    assert_eq!(cluster.take(forgets), [("quick".to_owned(), 99), ("slow".to_owned(), 99)]);
}
