//! When the old names of resources are given up.

use super::cluster::{Cluster, PEER, TIMING};
use super::*;

const NONE: [Revision; 0] = [];

fn announce(cluster: &mut Cluster) -> Revision {
    cluster.log(vec![Change::Names { pending: true }])
}

fn finishes(cluster: &mut Cluster) -> Vec<Revision> {
    cluster.take(|output| match output {
        Output::FinishNames { seen } => Some(*seen),
        _ => None,
    })
}

#[test]
fn a_change_is_finished_when_every_member_has_only_requests_with_the_new_names() {
    let mut cluster = Cluster::join(&[]);
    let revision = announce(&mut cluster);
    cluster.peer_says(revision, &[]);
    assert_eq!(finishes(&mut cluster), NONE, "this member has not said so");
    cluster.step(Input::NamesKnown { revision: revision - 1 });
    assert_eq!(finishes(&mut cluster), NONE, "those are other names");
    cluster.step(Input::NamesKnown { revision });
    assert_eq!(finishes(&mut cluster), [revision]);
    cluster.pass(TIMING.validity);
    assert_eq!(finishes(&mut cluster).len(), 2, "asked for again now and then, until it is so");
    cluster.log(vec![Change::Names { pending: false }]);
    cluster.pass(TIMING.validity);
    assert_eq!(finishes(&mut cluster), NONE);
}

#[test]
fn a_member_that_drains_the_change_or_has_not_heard_of_it_is_waited_for() {
    let mut cluster = Cluster::join(&[]);
    let revision = announce(&mut cluster);
    cluster.step(Input::NamesKnown { revision });
    cluster.peer_says(revision - 1, &[]);
    assert_eq!(finishes(&mut cluster), NONE);
    cluster.peer_says(revision, &[revision]);
    assert_eq!(finishes(&mut cluster), NONE);
    cluster.peer_says(revision, &[]);
    assert_eq!(finishes(&mut cluster), [revision]);
}

#[test]
fn a_member_says_that_it_drains_the_change_until_it_does_not() {
    let mut cluster = Cluster::join(&[]);
    let revision = announce(&mut cluster);
    let drains = |cluster: &mut Cluster| {
        cluster.pass(TIMING.validity / 4);
        let renewals = cluster.take(|output| match output {
            Output::Renew { draining, .. } => Some(draining.clone()),
            _ => None,
        });
        renewals.last().cloned().unwrap()
    };
    assert_eq!(drains(&mut cluster), [revision]);
    cluster.step(Input::NamesKnown { revision });
    assert_eq!(drains(&mut cluster), NONE);
}

#[test]
fn an_evicted_member_is_waited_for_until_nothing_of_it_can_take_effect() {
    let mut cluster = Cluster::join(&[]);
    let revision = announce(&mut cluster);
    cluster.step(Input::NamesKnown { revision });
    let tombstone = Tombstone { created: 50, wait: TIMING.wait(), ..Tombstone::default() };
    let name = format!("{PEER:032x}");
    cluster.log(vec![Change::Gone(PEER), Change::Tombstone(name, tombstone)]);
    cluster.pass(TIMING.wait() - Duration::from_millis(1));
    assert_eq!(finishes(&mut cluster), NONE);
    cluster.pass(TIMING.validity);
    assert_eq!(finishes(&mut cluster).first(), Some(&revision));
}

#[test]
fn a_listing_brings_news_of_a_change_and_of_its_end() {
    let mut cluster = Cluster::join(&[]);
    let listed = |cluster: &Cluster, names| Snapshot {
        seq: cluster.seq,
        watermark: 110,
        members: vec![
            (cluster::ME, Member::new(100)),
            (PEER, Member { modified: 60, watermark: 120, ..Member::new(50) }),
        ],
        names,
        ..Snapshot::default()
    };
    let snapshot = listed(&cluster, Some(105));
    cluster.step(Input::Listed(snapshot));
    assert_eq!(cluster.replica.names_pending(), Some(105));
    cluster.step(Input::NamesKnown { revision: 105 });
    assert_eq!(finishes(&mut cluster), [105]);
    let snapshot = listed(&cluster, None);
    cluster.step(Input::Listed(snapshot));
    assert_eq!(cluster.replica.names_pending(), None);
}
