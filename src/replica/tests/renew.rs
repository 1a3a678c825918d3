//! How long this member may pass requests, and when it speaks up.

use super::cluster::{Cluster, TIMING};
use super::*;

#[test]
fn validity_counts_from_before_a_renewal_was_sent_and_its_end_is_final() {
    let mut cluster = Cluster::join(&[]);
    let joined = cluster.now;
    cluster.take(|_| Some(()));
    cluster.now += SECOND;
    let sent = cluster.now;
    cluster.now += 2 * SECOND;
    cluster.step(Input::Renewed { sent, answer: Answer::Accepted });
    let valid = |output: &Output| match output {
        Output::Valid { until } => Some(*until),
        _ => None,
    };
    assert_eq!(cluster.take(valid), [joined + SECOND + TIMING.validity]);
    cluster.now = joined + SECOND + TIMING.validity;
    cluster.step(Input::Renewed { sent: joined + 3 * SECOND, answer: Answer::Accepted });
    assert_eq!(cluster.is_fenced(), Some(Fenced::Expired), "the answer came too late");
    cluster.step(Input::Tick).step(want(9));
    assert!(cluster.outputs.is_empty(), "nothing follows");
}

#[test]
fn without_an_answer_the_validity_of_the_join_runs_out() {
    let mut cluster = Cluster::join(&[]);
    let until = cluster.now + TIMING.validity;
    assert_eq!(cluster.outputs, [Output::Valid { until }]);
    cluster.now = until - Duration::from_nanos(1);
    cluster.step(Input::Tick);
    assert_eq!(cluster.is_fenced(), None);
    cluster.now = until;
    cluster.step(Input::Tick);
    assert_eq!(cluster.is_fenced(), Some(Fenced::Expired));
}

#[test]
fn an_idle_replica_renews_four_times_in_its_validity() {
    let mut cluster = Cluster::join(&[]);
    for _ in 0..10 {
        cluster.pass(SECOND);
        cluster.peer_says(100, &[]);
    }
    let renewals = cluster.take(|output| matches!(output, Output::Renew { .. }).then_some(())).len();
    assert_eq!(renewals, 10);
}

#[test]
fn the_times_of_a_cluster_follow_from_its_validity() {
    let millis = |span: Duration| span.as_millis();
    assert_eq!(millis(TIMING.suspect_after()), 2_000);
    assert_eq!(millis(TIMING.silent_after()), 8_000);
    assert_eq!(millis(TIMING.round()), 250);
    assert_eq!(millis(TIMING.wait()), 4_000 + 40 + 50 + 5_000, "W + D, and W is 1.01 V and a bit");
}

#[test]
fn progress_is_told_at_once_but_not_more_often_than_every_20_ms() {
    let mut cluster = Cluster::join(&[]);
    cluster.pass(SECOND / 2);
    cluster.raise(8);
    let sent = cluster.now;
    assert_eq!(cluster.replica.wake_at(), Some(sent));
    cluster.step(Input::Tick).step(Input::Renewed { sent, answer: Answer::Accepted });
    cluster.now += Duration::from_millis(5);
    cluster.raise(9);
    assert_eq!(cluster.replica.wake_at(), Some(sent + Duration::from_millis(20)));
}

#[test]
fn progress_waits_for_the_regular_renewal_when_six_have_no_answer() {
    let mut cluster = Cluster::join(&[]);
    let renewals = |cluster: &mut Cluster| {
        cluster.take(|output| matches!(output, Output::Renew { .. }).then_some(())).len()
    };
    for token in 1..=10 {
        cluster.now += Duration::from_millis(20);
        cluster.raise(token);
        cluster.step(Input::Tick);
    }
    assert_eq!(renewals(&mut cluster), 6);
    let sent = cluster.now;
    cluster.step(Input::Renewed { sent, answer: Answer::Lost }).step(Input::Tick);
    assert_eq!(renewals(&mut cluster), 1, "one is answered, if only by silence");
}

#[test]
fn answers_in_the_wrong_order_and_lost_ones_take_no_validity_away() {
    let mut cluster = Cluster::join(&[]);
    let joined = cluster.now;
    cluster.take(|_| Some(()));
    cluster.now += 3 * SECOND;
    let valid = |output: &Output| match output {
        Output::Valid { until } => Some(*until),
        _ => None,
    };
    for (after, answer) in [(2, Answer::Accepted), (1, Answer::Accepted), (0, Answer::Lost)] {
        cluster.step(Input::Renewed { sent: joined + after * SECOND, answer });
    }
    let until = joined + 2 * SECOND + TIMING.validity;
    assert_eq!(cluster.take(valid), [until, until]);
}

#[test]
fn new_times_are_told_at_once_and_count_from_the_next_renewal() {
    let mut cluster = Cluster::join(&[]);
    cluster.pass(SECOND / 2);
    cluster.take(|_| Some(()));
    let sent = cluster.now;
    let longer = Timing { validity: 2 * TIMING.validity, ..TIMING };
    cluster.replica.retime(longer, sent);
    cluster.step(Input::Tick);
    assert!(matches!(cluster.outputs[..], [Output::Renew { .. }]), "{:?}", cluster.outputs);
    cluster.step(Input::Renewed { sent, answer: Answer::Accepted });
    assert_eq!(cluster.outputs.last(), Some(&Output::Valid { until: sent + longer.validity }));
}

#[test]
fn a_process_that_is_alone_has_no_times_to_change() {
    let mut bench = Bench::join(&[], vec![]);
    bench.replica.retime(TIMING, bench.now);
    assert_eq!(bench.replica.wake_at(), None);
}
