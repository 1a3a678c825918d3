//! News that an answer has told of and the log does not bring is asked for soon, and again after X; and a log that has left
//! something out, or tells something twice, is noticed.

use super::cluster::{Cluster, ME, PEER, TIMING};
use super::*;

const X: Duration = Duration::from_secs(2);
/// Before it is asked for the first time.
const SOON: Duration = Duration::from_millis(500);

fn resyncs(cluster: &mut Cluster) -> usize {
    cluster.take(|output| (*output == Output::Resync).then_some(())).len()
}

fn exists(counted: Revision, said: Revision) -> Input {
    Input::Exists { counted, said }
}

/// This replica's own word, as the log brings it.
fn echo(cluster: &mut Cluster) {
    let me = Member { modified: cluster.revision + 1, ..Member::new(100) };
    cluster.log_aside(vec![Change::Member(ME, me)]);
}

#[test]
fn a_change_that_does_not_arrive_is_asked_for_soon_and_then_after_x() {
    assert_eq!((X, SOON), (TIMING.validity / 2, TIMING.validity / 8));
    let mut cluster = Cluster::join(&[]);
    cluster.step(exists(101, 0));
    cluster.pass(SOON - Duration::from_millis(1));
    assert_eq!(resyncs(&mut cluster), 0);
    cluster.pass(Duration::from_millis(1));
    assert_eq!(resyncs(&mut cluster), 1, "before the others miss an acknowledgement");
    for _ in 0..2 {
        cluster.pass(X - Duration::from_millis(1));
        assert_eq!(resyncs(&mut cluster), 0, "whatever is done about it has its time");
        cluster.pass(Duration::from_millis(1));
        assert_eq!(resyncs(&mut cluster), 1);
    }
    cluster.step(exists(102, 0));
    cluster.raise(8);
    cluster.pass(SOON);
    assert_eq!(resyncs(&mut cluster), 1, "the log has moved, and the next one is soon again");
}

#[test]
fn a_change_that_arrives_in_time_is_not_read_again() {
    let mut cluster = Cluster::join(&[]);
    cluster.step(exists(100, 100)).step(exists(101, 0));
    cluster.pass(SOON / 2);
    cluster.raise(8);
    cluster.pass(2 * X);
    assert_eq!(resyncs(&mut cluster), 0);
}

#[test]
fn a_log_that_moves_is_slow_and_not_lost() {
    let mut cluster = Cluster::join(&[]);
    cluster.step(exists(103, 0));
    for token in 8..=10 {
        cluster.pass(SOON - Duration::from_millis(1));
        cluster.raise(token);
    }
    cluster.pass(2 * X);
    assert_eq!(resyncs(&mut cluster), 0);
    cluster.step(exists(105, 0));
    cluster.raise(11);
    cluster.pass(SOON);
    assert_eq!(resyncs(&mut cluster), 1, "one of two has come");
}

#[test]
fn asking_again_and_again_does_not_put_it_off() {
    let mut cluster = Cluster::join(&[]);
    for revision in 101..105 {
        cluster.step(exists(revision, 0));
        cluster.pass(SOON / 4);
    }
    assert_eq!(resyncs(&mut cluster), 1);
}

#[test]
fn the_own_word_has_to_come_back_even_where_nothing_counts() {
    let mut cluster = Cluster::join(&[]);
    cluster.step(exists(100, 101));
    echo(&mut cluster);
    cluster.pass(X);
    assert_eq!(resyncs(&mut cluster), 0);
    cluster.step(exists(100, 102));
    cluster.peer_says(100, &[]);
    cluster.pass(X);
    assert_eq!(resyncs(&mut cluster), 1, "what others say is no echo");
}

#[test]
fn what_is_not_in_the_listing_is_not_waited_for_any_longer() {
    let mut cluster = Cluster::join(&[]);
    cluster.step(exists(107, 108));
    cluster.pass(SOON);
    assert_eq!(resyncs(&mut cluster), 1);
    let members = vec![(ME, Member::new(100)), (PEER, Member::new(50))];
    cluster.step(Input::Listed(Snapshot { seq: 11, watermark: 106, members, ..Snapshot::default() }));
    cluster.pass(2 * X);
    assert_eq!(resyncs(&mut cluster), 0);
}

/// As a seal that comes too late: the mark was changed at a revision that the watch does not tell of.
#[test]
fn a_refusal_for_what_does_not_arrive_reads_it_after_x() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    cluster.step(want(8));
    cluster.step(Input::Refused { resource: resource(), seen: 10, modified: 101 });
    let proposals = |output: &Output| matches!(output, Output::Propose(_)).then_some(());
    assert_eq!(cluster.take(proposals).len(), 1, "it is not made again before the news is there");
    cluster.pass(X);
    assert_eq!(resyncs(&mut cluster), 1);
}

/// This replica's own word at this revision, which is its `version`-th.
fn word(cluster: &mut Cluster, revision: Revision, version: u64) {
    let me = Member { modified: revision, version, ..Member::new(100) };
    let changes = vec![Change::Member(ME, me)];
    cluster.step(Input::Applied(Applied { revision, seq: None, changes }));
}

/// Candidates are not counted: if one of these is lost with a word of this replica, the next word shows it.
#[test]
fn a_word_of_its_own_that_the_log_has_left_out_shows_that_something_was_lost() {
    let mut cluster = Cluster::join(&[]);
    word(&mut cluster, 101, 1);
    word(&mut cluster, 102, 2);
    assert_eq!(resyncs(&mut cluster), 0);
    word(&mut cluster, 105, 4);
    assert_eq!(resyncs(&mut cluster), 1);
    assert_eq!(cluster.replica.members()[&ME].version, 2, "it is not taken for heard");
    for (revision, version) in [(101, 1), (102, 2), (103, 3), (105, 4)] {
        word(&mut cluster, revision, version);
    }
    assert_eq!(resyncs(&mut cluster), 0, "told again from before the loss, nothing is missing");
    assert_eq!(cluster.replica.members()[&ME].version, 4);
}

#[test]
fn a_listing_says_which_word_was_the_last() {
    let mut cluster = Cluster::join(&[]);
    word(&mut cluster, 101, 1);
    let me = Member { modified: 110, version: 7, ..Member::new(100) };
    let members = vec![(ME, me), (PEER, Member::new(50))];
    cluster.step(Input::Listed(Snapshot { seq: 11, watermark: 106, members, ..Snapshot::default() }));
    word(&mut cluster, 112, 8);
    assert_eq!(resyncs(&mut cluster), 0);
    word(&mut cluster, 114, 10);
    assert_eq!(resyncs(&mut cluster), 1);
}

/// All but a lost raise is known: only what is new has an effect, and the watermark moves with it.
#[test]
fn a_log_that_is_told_again_brings_what_was_lost_and_nothing_twice() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    let raised = |revision, token| {
        let record = Record { modified: revision, ..record(token, State::Raised) };
        vec![Change::Record(resource(), record)]
    };
    let peer =
        |modified, watermark| vec![Change::Member(PEER, Member { modified, watermark, ..Member::new(50) })];
    let log: [(Revision, Option<u64>, Vec<Change>); 5] = [
        (101, Some(11), raised(101, 8)),
        (102, None, peer(102, 101)),
        (103, Some(12), raised(103, 9)),
        (104, None, peer(104, 103)),
        (105, Some(13), vec![Change::Member(3, Member::new(105))]),
    ];
    let tell = |cluster: &mut Cluster, at: usize| {
        let (revision, seq, changes) = log[at].clone();
        cluster.step(Input::Applied(Applied { revision, seq, changes }));
    };
    for at in [0, 1, 3, 4] {
        tell(&mut cluster, at);
    }
    assert_eq!(resyncs(&mut cluster), 1);
    assert_eq!(cluster.replica.watermark(), 101, "nothing is acknowledged over the gap");
    for at in 0..log.len() {
        tell(&mut cluster, at);
        assert!(cluster.replica.members()[&PEER].modified >= 104, "older words do not overwrite newer ones");
    }
    assert_eq!((cluster.replica.watermark(), cluster.replica.record(&resource()).token), (105, 9));
    let closes = cluster.take(|output| matches!(output, Output::Close { .. }).then_some(()));
    assert_eq!(closes.len(), 1, "the lost raise closes its gate, and the known one does not again");
    assert!(cluster.replica.members().contains_key(&3));
}
