//! What a resource proposes next, and what becomes of it: raises, orders, refusals and lost answers.

use super::cluster::{Cluster, PEER, TIMING, proposals};
use super::*;

#[test]
fn a_refusal_takes_back_only_what_was_refused() {
    let issued = Record { issued: true, ..record(7, State::Open) };
    let wish = |number, proof: &[u8]| {
        Input::Want(Want {
            resource: resource(),
            token: token(number),
            block: None,
            proof: Some(proof.into()),
            patient: false,
        })
    };
    // The last leader goes, and the next one comes before that is committed.
    let mut cluster = Cluster::join(&[issued]);
    cluster.step(Input::Vacate { resource: resource(), token: token(7) });
    cluster.pass(SECOND / 2);
    assert_eq!(cluster.take(proposals)[0].given, Given::Leaderless);
    cluster.step(wish(9, b"nine"));
    cluster.step(Input::Refused { resource: resource(), seen: 10, modified: 10 });
    cluster.pass(SECOND / 2);
    let next = cluster.take(proposals);
    assert_eq!(next.iter().map(|proposal| proposal.record.token).collect::<Vec<_>>(), [9]);

    // A raise is refused because its leader has gone; its successor came meanwhile.
    let mut cluster = Cluster::join(&[issued]);
    cluster.step(wish(8, b"eight")).step(wish(9, b"nine"));
    cluster.take(proposals);
    cluster.step(Input::Refused { resource: resource(), seen: 10, modified: 10 });
    cluster.pass(SECOND / 2);
    assert_eq!(cluster.take(proposals).last().map(|proposal| proposal.record.token), Some(9));

    // One that was refused for good is not tried for ever.
    cluster.step(Input::Refused { resource: resource(), seen: 10, modified: 10 });
    cluster.pass(SECOND);
    assert!(cluster.take(proposals).is_empty());
}

#[test]
fn a_vacant_resource_can_be_frozen_while_somebody_waits_in_line() {
    let vacant = Record { issued: true, vacant: true, ..record(7, State::Open) };
    let mut cluster = Cluster::join(&[vacant]);
    cluster.step(Input::Freeze { resource: resource(), frozen: true });
    assert_eq!(cluster.take(proposals)[0].given, Given::Nothing);
}

#[test]
fn a_thaw_settles_what_any_replica_keeps() {
    let blocking = Record { block: true, block_next: true, ..record(7, State::Open) };
    let mut cluster = Cluster::join(&[blocking]);
    cluster.step(Input::Freeze { resource: resource(), frozen: false });
    let proposed = cluster.take(proposals).remove(0).record;
    assert_eq!(proposed.settled, 100);
    // Another replica made the same proposal, or this one did: everybody sees it.
    cluster.log(vec![Change::Record(resource(), Record { modified: 101, ..proposed })]);
    let settles = cluster.take(|output| matches!(output, Output::Settle { .. }).then_some(()));
    assert_eq!(settles.len(), 1);
}

#[test]
fn a_resource_that_blocks_does_not_wait_for_what_was_gone_before_its_first_token() {
    let grave = Tombstone { modified: 90, wait: TIMING.wait(), ..Tombstone::default() };
    let mut cluster = Cluster::join_with(&[], vec![("era-0".to_owned(), grave)]);
    cluster.step(want_with(1, Some(true)));
    let raised = Record { modified: 101, ..cluster.take(proposals).remove(0).record };
    assert!(raised.block && raised.settled == 100);
    cluster.log(vec![Change::Record(resource(), raised)]);
    cluster.step(drained());
    cluster.peer_says(101, &[]);
    for _ in 0..10 {
        cluster.pass(SECOND);
        cluster.peer_says(101, &[]);
    }
    let sealed = cluster.take(proposals).pop().expect("its time is over").record;
    assert_eq!((sealed.state, sealed.block, sealed.settled), (State::Open, true, 101));
}

#[test]
fn that_outcomes_are_left_to_an_operator_is_known_before_a_request_passes_that_may_need_it() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    cluster.step(Input::Block { resource: resource() });
    let proposed = cluster.take(proposals).remove(0).record;
    assert!(proposed.block && proposed.state == State::Open);
    cluster.log(vec![Change::Record(resource(), Record { modified: 101, ..proposed })]);
    let opens = cluster.take(|output| match output {
        Output::Open { blocks, .. } => Some(*blocks),
        _ => None,
    });
    assert_eq!(opens, [true]);
    // An election that knows of no route keeps it so.
    cluster.step(want(8));
    assert!(cluster.take(proposals)[0].record.block_next);
}
