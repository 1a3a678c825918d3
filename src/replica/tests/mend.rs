//! Marks that somebody has deleted, lowered or overwritten by hand are put back, at once but not in a storm.

use super::cluster::{Cluster, ME, PEER};
use super::*;

fn proposals(cluster: &mut Cluster) -> Vec<(Revision, u64, State)> {
    cluster.take(|output| match output {
        Output::Propose(Proposal { seen, record, .. }) => Some((*seen, record.token, record.state)),
        _ => None,
    })
}

fn closes(cluster: &mut Cluster) -> usize {
    cluster.take(|output| matches!(output, Output::Close { .. }).then_some(())).len()
}

fn lost() -> Change {
    Change::Lost(resource())
}

fn refused(seen: Revision, modified: Revision) -> Input {
    Input::Refused { resource: resource(), seen, modified }
}

fn garbage() -> Record {
    Record { modified: 101, frozen: true, unreadable: true, ..Record::default() }
}

#[test]
fn a_mark_that_was_deleted_is_put_back_and_sealed_anew() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    cluster.take(|_| None::<()>);
    cluster.log_aside(vec![lost()]);
    assert_eq!(cluster.replica.record(&resource()).token, 7);
    cluster.pass(SECOND);
    assert_eq!(proposals(&mut cluster), [(0, 7, State::Raised)], "where there is nothing now");
    let raise = cluster.raise(7);
    assert_eq!(closes(&mut cluster), 1);
    cluster.step(drained());
    cluster.peer_says(raise, &[]);
    cluster.pass(SECOND);
    assert_eq!(proposals(&mut cluster), [(raise, 7, State::Open)]);
    cluster.log(vec![Change::Record(resource(), Record { modified: raise + 2, ..record(7, State::Open) })]);
    assert!(cluster.replica.work.is_empty());
}

#[test]
fn its_gate_stays_as_it_is_until_then() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    cluster.take(|_| None::<()>);
    cluster.log_aside(vec![lost()]);
    assert_eq!(closes(&mut cluster), 0);
}

#[test]
fn a_raise_that_waits_is_not_sealed_where_there_is_nothing() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    let raise = cluster.raise(8);
    cluster.log_aside(vec![lost()]);
    cluster.step(drained());
    cluster.peer_says(raise, &[]);
    cluster.pass(SECOND);
    let proposed = proposals(&mut cluster);
    assert!(
        !proposed.is_empty() && proposed.iter().all(|next| *next == (0, 8, State::Raised)),
        "{proposed:?}"
    );
    assert_eq!(cluster.replica.raising(), 0, "nobody is evicted for a raise that is not there");
}

#[test]
fn a_higher_token_raises_what_is_missing() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    cluster.log_aside(vec![lost()]);
    cluster.take(|_| None::<()>);
    cluster.step(want(9));
    assert_eq!(proposals(&mut cluster), [(0, 9, State::Raised)]);
}

#[test]
fn a_loss_that_only_a_refusal_shows_is_mended_without_a_storm() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    cluster.step(want(8));
    assert_eq!(proposals(&mut cluster), [(10, 8, State::Raised)]);
    cluster.step(refused(10, 0));
    assert_eq!(proposals(&mut cluster), [], "every refusal is a revision, so there is a pause");
    cluster.pass(SECOND);
    assert_eq!(proposals(&mut cluster), [(0, 8, State::Raised)]);
}

#[test]
fn a_store_that_went_back_is_not_stormed_either() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    cluster.step(want(8));
    cluster.take(|_| None::<()>);
    cluster.step(refused(10, 5));
    assert_eq!(proposals(&mut cluster), []);
    cluster.pass(SECOND);
    assert_eq!(proposals(&mut cluster), [(10, 8, State::Raised)]);
}

#[test]
fn what_cannot_be_read_is_overwritten_with_what_is_known_and_never_taken_for_no_mark() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    cluster.take(|_| None::<()>);
    cluster.log_aside(vec![Change::Record(resource(), garbage())]);
    assert_eq!(cluster.replica.record(&resource()).token, 7);
    cluster.step(want(3));
    cluster.pass(SECOND);
    assert_eq!(proposals(&mut cluster), [(101, 7, State::Raised)]);
}

#[test]
fn what_cannot_be_read_and_was_never_known_stays_shut() {
    let mut cluster = Cluster::join(&[garbage()]);
    let frozen = |output: &Output| matches!(output, Output::Close { shut: Shut::Frozen, .. }).then_some(());
    assert_eq!(cluster.take(frozen).len(), 1);
    cluster.step(want(3)).step(Input::Freeze { resource: resource(), frozen: false });
    cluster.step(Input::Block { resource: resource() });
    cluster.pass(SECOND);
    assert_eq!(proposals(&mut cluster), []);
    assert!(cluster.replica.work.is_empty());
    let mended = Record { modified: 102, ..record(7, State::Raised) };
    cluster.log(vec![Change::Record(resource(), mended)]);
    assert_eq!(cluster.replica.record(&resource()), mended, "an operator has said what it is");
}

#[test]
fn a_listing_that_cannot_be_read_does_not_lower_a_mark() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    cluster.take(|_| None::<()>);
    let members = vec![(ME, Member::new(100)), (PEER, Member::new(50))];
    let records = vec![(resource(), garbage())];
    cluster.step(Input::Listed(Snapshot {
        seq: 10,
        watermark: 100,
        members,
        records,
        ..Snapshot::default()
    }));
    assert_eq!(cluster.replica.record(&resource()).token, 7);
    cluster.pass(SECOND);
    assert_eq!(proposals(&mut cluster), [(101, 7, State::Raised)]);
}

#[test]
fn what_an_operator_said_of_a_mark_is_put_back_with_it() {
    let frozen = Record { frozen: true, block: true, settled: 5, issued: true, ..record(7, State::Open) };
    let mut cluster = Cluster::join(&[frozen]);
    cluster.take(|_| None::<()>);
    cluster.log_aside(vec![lost()]);
    cluster.pass(SECOND);
    let records = |output: &Output| match output {
        Output::Propose(proposal) => Some(proposal.record),
        _ => None,
    };
    let back = Record { state: State::Raised, block_next: true, modified: 0, ..frozen };
    assert_eq!(cluster.take(records), [back]);
}

/// A raise by somebody who joined, or looked, when the mark was not there.
fn raise_without_memory(cluster: &mut Cluster, token: u64) -> Revision {
    let modified = cluster.revision + 1;
    let record = Record { modified, settled: modified - 1, ..record(token, State::Raised) };
    cluster.log(vec![Change::Record(resource(), record)])
}

fn shut_by_operators() -> Record {
    Record { frozen: true, block: true, settled: 5, ..record(7, State::Open) }
}

fn draining(cluster: &Cluster) -> Vec<Revision> {
    cluster.replica.members()[&ME].draining.iter().copied().collect()
}

#[test]
fn a_raise_over_a_lost_mark_does_not_undo_what_was_said_of_it() {
    let mut cluster = Cluster::join(&[shut_by_operators()]);
    cluster.take(|_| None::<()>);
    cluster.log_aside(vec![lost()]);
    let raise = raise_without_memory(&mut cluster, 9);
    let record = cluster.replica.record(&resource());
    assert_eq!((record.token, record.frozen, record.block, record.settled), (9, true, true, 5));
    let settled = |output: &Output| matches!(output, Output::Settle { .. }).then_some(());
    assert_eq!(cluster.take(settled).len(), 0, "nobody has settled what is unknown");
    cluster.step(drained());
    assert_eq!(draining(&cluster), [raise], "nobody seals it before it is known what was said");
    cluster.pass(SECOND);
    let proposed = cluster.take(super::cluster::proposals);
    assert_eq!(proposed.len(), 1);
    assert_eq!((proposed[0].seen, proposed[0].record.state), (raise, State::Raised));
    let back = Record { modified: cluster.revision + 1, ..proposed[0].record };
    assert!(back.frozen && back.block && back.settled == 5);
    cluster.log(vec![Change::Record(resource(), back)]);
    cluster.step(drained());
    assert_eq!(draining(&cluster), [0u64; 0], "now it may be sealed");
    assert_eq!(cluster.replica.record(&resource()), back);
}

#[test]
fn a_seal_that_was_on_its_way_does_not_undo_it_either() {
    let mut cluster = Cluster::join(&[shut_by_operators()]);
    cluster.log_aside(vec![lost()]);
    raise_without_memory(&mut cluster, 9);
    let modified = cluster.revision + 1;
    let sealed = Record { modified, settled: modified - 1, ..record(9, State::Open) };
    cluster.log(vec![Change::Record(resource(), sealed)]);
    cluster.take(|_| None::<()>);
    cluster.pass(SECOND);
    let proposed = cluster.take(super::cluster::proposals);
    let back = Record { state: State::Raised, ..proposed[0].record };
    assert_eq!((proposed[0].seen, proposed[0].record), (modified, back));
    assert!(back.frozen && back.block && back.settled == 5);
}

#[test]
fn a_raise_by_who_knows_the_lost_mark_is_taken_as_it_is() {
    let mut cluster = Cluster::join(&[shut_by_operators()]);
    cluster.log_aside(vec![lost()]);
    let modified = cluster.revision + 1;
    let raised = Record { modified, token: 9, state: State::Raised, ..shut_by_operators() };
    cluster.take(|_| None::<()>);
    cluster.log(vec![Change::Record(resource(), raised)]);
    assert_eq!(cluster.replica.record(&resource()), raised, "its route may have another policy");
    cluster.pass(SECOND);
    assert_eq!(proposals(&mut cluster), []);
}

/// The proposal is refused because the mark is gone; that it was thawed before that comes with the log.
#[test]
fn what_the_log_brings_from_before_the_loss_is_no_raise_over_it() {
    let mut cluster = Cluster::join(&[shut_by_operators()]);
    cluster.step(want(8));
    cluster.step(Input::Exists { counted: 103, said: 0 });
    cluster.step(refused(10, 0));
    let thawed = Record { modified: 101, frozen: false, settled: 100, ..shut_by_operators() };
    cluster.log(vec![Change::Record(resource(), thawed)]);
    assert_eq!(cluster.replica.record(&resource()), thawed);
}

#[test]
fn a_mark_that_was_lowered_is_put_back_and_its_gate_stays_as_it_is() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    cluster.take(|_| None::<()>);
    let lower = Record { modified: 101, ..record(3, State::Open) };
    cluster.log_aside(vec![Change::Record(resource(), lower)]);
    let gates = |output: &Output| matches!(output, Output::Close { .. } | Output::Open { .. }).then_some(());
    assert_eq!(cluster.take(gates).len(), 0);
    assert_eq!(cluster.replica.record(&resource()).token, 7);
    cluster.pass(SECOND);
    assert_eq!(proposals(&mut cluster), [(101, 7, State::Raised)]);
    cluster.raise(7);
    assert!(cluster.replica.work[&resource()].mend.is_none());
}

/// By who joined when the mark was not there, and so counted.
#[test]
fn a_raise_below_a_lost_mark_is_overwritten() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    cluster.log_aside(vec![lost()]);
    let raise = raise_without_memory(&mut cluster, 3);
    cluster.step(want(5));
    cluster.take(|_| None::<()>);
    cluster.pass(SECOND);
    assert_eq!(proposals(&mut cluster), [(raise, 7, State::Raised)]);
}
