//! What a resource proposes next, and what becomes of it: raises, orders, refusals and lost answers.

use super::cluster::{Cluster, ME, TIMING, proposals};
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
fn what_a_thaw_would_settle_is_known_as_far_as_processes_that_are_gone_go() {
    let blocking = Record { block: true, block_next: true, ..record(7, State::Open) };
    let grave = Tombstone { modified: 90, wait: TIMING.wait(), ..Tombstone::default() };
    let graves = || vec![("grave".to_owned(), grave.clone())];
    let unsettled = |cluster: &Cluster| cluster.replica.unsettled(&resource());
    assert_eq!(unsettled(&Cluster::join_with(&[record(7, State::Open)], graves())), Unsettled::Nothing);
    let mut cluster = Cluster::join_with(&[blocking], graves());
    assert_eq!(unsettled(&cluster), Unsettled::Something);
    cluster.step(Input::Freeze { resource: resource(), frozen: false });
    let proposed = cluster.take(proposals).remove(0).record;
    cluster.log(vec![Change::Record(resource(), Record { modified: 101, ..proposed })]);
    assert_eq!(unsettled(&cluster), Unsettled::Unheard, "its peer may keep one and has not said so");
    let alone = Bench::join(&[blocking], vec![]);
    assert_eq!(alone.replica.unsettled(&resource()), Unsettled::Nothing, "there is nobody else to hear of");
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

/// A resource for which this replica comes first; for `resource()` it is second.
fn first() -> Resource {
    let first = Resource::parse("b").unwrap();
    assert_eq!(Cluster::join(&[]).replica.rank(&first), 0);
    assert_eq!(Cluster::join(&[]).replica.rank(&resource()), 1);
    first
}

fn wish(resource: Resource, proof: Option<&[u8]>, patient: bool) -> Input {
    Input::Want(Want { resource, token: token(8), block: None, proof: proof.map(Into::into), patient })
}

#[test]
fn a_patient_want_leaves_the_first_word_to_who_comes_first() {
    let mut cluster = Cluster::join(&[]);
    cluster.step(wish(first(), None, true));
    assert_eq!(cluster.take(proposals).len(), 1);
    cluster.step(wish(resource(), None, true));
    cluster.pass(Duration::from_millis(99));
    assert!(cluster.take(proposals).is_empty());
    cluster.pass(Duration::from_millis(1));
    assert_eq!(cluster.take(proposals).len(), 1);
}

#[test]
fn whoever_waits_makes_a_patient_want_urgent_and_its_proof_is_kept() {
    let mut cluster = Cluster::join(&[]);
    cluster.step(wish(resource(), Some(b"eight"), true));
    assert!(cluster.take(proposals).is_empty());
    cluster.step(want_with(8, Some(true)));
    let proposed = cluster.take(proposals).remove(0);
    assert_eq!(proposed.given, Given::Leads(b"eight".as_slice().into()));
    assert!(proposed.record.issued && proposed.record.block_next);
}

#[test]
fn a_departed_leader_is_reported_by_who_comes_first_and_then_by_the_others() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    cluster.step(Input::Vacate { resource: resource(), token: token(7) });
    cluster.pass(Duration::from_millis(99));
    assert!(cluster.take(proposals).is_empty());
    cluster.pass(Duration::from_millis(1));
    assert_eq!(cluster.take(proposals)[0].record, Record { vacant: true, ..record(7, State::Open) });
    cluster.log(vec![Change::Record(first(), Record { modified: 101, ..record(7, State::Open) })]);
    cluster.step(Input::Vacate { resource: first(), token: token(7) });
    assert_eq!(cluster.take(proposals).len(), 1);
}

#[test]
fn a_leader_that_went_before_its_raise_was_seen_leaves_the_mark_vacant_too() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    cluster.step(Input::Vacate { resource: resource(), token: token(9) });
    cluster.pass(SECOND);
    assert!(cluster.take(proposals).is_empty(), "9 is not the mark yet");
    cluster.raise(9);
    let proposed = cluster.take(proposals).remove(0).record;
    assert!(proposed.vacant && proposed.token == 9);
    cluster.log(vec![Change::Record(resource(), Record { modified: 102, ..proposed })]);
    assert!(cluster.take(proposals).is_empty(), "once is enough");
}

#[test]
fn a_vacancy_that_is_refused_is_not_claimed_again_and_a_refused_raise_takes_none_with_it() {
    let issued = Record { issued: true, ..record(7, State::Open) };
    let refused = || Input::Refused { resource: resource(), seen: 10, modified: 10 };
    let mut cluster = Cluster::join(&[issued]);
    cluster.step(Input::Vacate { resource: resource(), token: token(7) });
    cluster.pass(SECOND);
    assert_eq!(cluster.take(proposals).len(), 1);
    cluster.step(refused());
    cluster.pass(SECOND);
    assert!(cluster.take(proposals).is_empty(), "somebody leads");

    let mut cluster = Cluster::join(&[issued]);
    cluster.step(wish(resource(), Some(b"eight"), false));
    cluster.step(Input::Vacate { resource: resource(), token: token(7) });
    cluster.take(proposals);
    cluster.step(refused());
    cluster.pass(SECOND);
    assert_eq!(cluster.take(proposals)[0].given, Given::Leaderless, "8 has gone, and so has 7");
}

#[test]
fn an_order_changes_only_what_it_is_about() {
    let open = record(7, State::Open);
    let blocking = Record { block: true, settled: 3, ..open };
    let proposed = |record: Record, frozen| {
        let mut cluster = Cluster::join(&[record]);
        cluster.step(Input::Freeze { resource: resource(), frozen });
        cluster.take(proposals).pop().map(|proposal| proposal.record)
    };
    assert_eq!(proposed(open, true), Some(Record { frozen: true, ..open }));
    assert_eq!(
        proposed(blocking, true),
        Some(Record { frozen: true, ..blocking }),
        "a freeze settles nothing"
    );
    let frozen = Record { frozen: true, ..open };
    assert_eq!(proposed(frozen, false), Some(open), "there was nothing to settle");
    assert_eq!(proposed(open, false), None);
    assert_eq!(proposed(frozen, true), None);
}

#[test]
fn a_thaw_that_meets_a_raise_settles_after_it() {
    let blocking = Record { block: true, block_next: true, ..record(7, State::Open) };
    let mut cluster = Cluster::join(&[blocking]);
    cluster.step(Input::Freeze { resource: resource(), frozen: false });
    cluster.take(proposals);
    let raised = Record { token: 8, modified: 101, state: State::Raised, ..blocking };
    cluster.log(vec![Change::Record(resource(), raised)]);
    assert!(!cluster.outputs.iter().any(|output| matches!(output, Output::Settle { .. })));
    let proposed = cluster.take(proposals).remove(0).record;
    assert_eq!(proposed, Record { settled: 101, ..raised });
    cluster.log(vec![Change::Record(resource(), Record { modified: 102, ..proposed })]);
    assert!(cluster.outputs.iter().any(|output| matches!(output, Output::Settle { .. })));
    assert!(cluster.take(proposals).is_empty(), "once is enough");
}

#[test]
fn nothing_is_settled_where_nothing_blocks() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    let settled = Record { modified: 101, settled: 100, ..record(7, State::Open) };
    cluster.log(vec![Change::Record(resource(), settled)]);
    assert!(!cluster.outputs.iter().any(|output| matches!(output, Output::Settle { .. })));
}

#[test]
fn a_proposal_whose_answer_got_lost_is_made_again_after_a_pause() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    cluster.step(want(8));
    let proposed = cluster.take(proposals);
    cluster.step(Input::Failed { resource: resource(), seen: 9 });
    cluster.pass(SECOND);
    assert!(cluster.take(proposals).is_empty(), "that was about another proposal");
    cluster.step(Input::Failed { resource: resource(), seen: 10 });
    cluster.pass(Duration::from_millis(99));
    assert!(cluster.take(proposals).is_empty());
    cluster.pass(Duration::from_millis(1));
    assert_eq!(cluster.take(proposals), proposed);
}

#[test]
fn a_refusal_of_a_proposal_that_news_has_overtaken_is_no_news() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    cluster.step(want(9));
    cluster.take(proposals);
    cluster.raise(8);
    assert_eq!(cluster.take(proposals)[0].seen, 101, "it is made again on top of 8");
    cluster.step(Input::Refused { resource: resource(), seen: 10, modified: 101 });
    assert!(cluster.take(proposals).is_empty(), "that was the first one's");
    cluster.step(Input::Refused { resource: resource(), seen: 101, modified: 101 });
    cluster.pass(SECOND);
    assert_eq!(cluster.replica.ceiling(&resource()), 8, "and this is the end of the second");
}

#[test]
fn a_claim_that_was_refused_pauses_what_else_there_is_to_do() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    cluster.step(want(8)).step(Input::Freeze { resource: resource(), frozen: true });
    cluster.take(proposals);
    cluster.step(Input::Refused { resource: resource(), seen: 10, modified: 10 });
    cluster.pass(Duration::from_millis(99));
    assert!(cluster.take(proposals).is_empty());
    cluster.pass(Duration::from_millis(1));
    assert_eq!(cluster.take(proposals)[0].record, Record { frozen: true, ..record(7, State::Open) });
}

#[test]
fn how_long_a_raise_took_counts_from_when_it_was_seen() {
    let mut cluster = Cluster::join(&[record(8, State::Raised)]);
    let opened = |cluster: &mut Cluster| {
        cluster.take(|output| match output {
            Output::Tell(Event::Opened { after, .. }) => Some(*after),
            _ => None,
        })
    };
    cluster.now += SECOND;
    cluster.raise(9);
    cluster.now += 2 * SECOND;
    cluster.log(vec![Change::Record(resource(), Record { modified: 102, ..record(9, State::Open) })]);
    assert_eq!(opened(&mut cluster), [3 * SECOND]);
    cluster.log(vec![Change::Record(resource(), Record { modified: 103, ..record(9, State::Open) })]);
    assert_eq!(opened(&mut cluster), Vec::<std::time::Duration>::new(), "it was open before");
}

#[test]
fn a_mark_is_departed_if_it_was_issued_in_this_era_and_nobody_stands_for_it() {
    let issued = Record { issued: true, ..record(floor(1) + 7, State::Open) };
    let departed = |record: Record, standing: Option<u64>| {
        let (records, members) = (vec![(resource(), record)], vec![(ME, Member::new(100))]);
        let snapshot = Snapshot { era: 1, records, members, ..Snapshot::default() };
        let replica = Replica::join(Time::ZERO, Time::ZERO, ME, Some(TIMING), snapshot).0;
        replica.departed(|name, value| *name == resource() && Some(value) == standing)
    };
    assert_eq!(departed(issued, None), [resource()]);
    assert_eq!(departed(issued, Some(8)), [resource()]);
    assert_eq!(departed(issued, Some(7)), []);
    assert_eq!(departed(Record { vacant: true, ..issued }, None), []);
    assert_eq!(departed(Record { issued: false, ..issued }, None), []);
    assert_eq!(departed(Record { token: 7, ..issued }, None), [], "of an older era");
    assert_eq!(departed(Record { token: 0, ..issued }, None), []);
}
