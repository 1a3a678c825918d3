//! What the machine shows of itself: to its driver, and to operators.

use super::cluster::{Cluster, ME, PEER, TIMING};
use super::*;

#[test]
fn the_ceiling_is_the_mark_or_what_is_wanted_above_it() {
    let mut bench = Bench::join(&[record(7, State::Open)], vec![]);
    assert_eq!(bench.replica.ceiling(&resource()), 7);
    assert_eq!(bench.replica.ceiling(&Resource::parse("other").unwrap()), 0);
    bench.step(want(9));
    assert_eq!(bench.replica.ceiling(&resource()), 9);
    bench.commit();
    assert_eq!(bench.replica.ceiling(&resource()), 9);
}

#[test]
fn the_backlog_counts_the_resources_with_something_left_to_do() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    assert_eq!((cluster.replica.backlog(), cluster.replica.raising()), (0, 0));
    let other = || Resource::parse("other").unwrap();
    let raised = |modified| Record { modified, ..record(8, State::Raised) };
    cluster.log(vec![Change::Record(resource(), raised(101)), Change::Record(other(), raised(101))]);
    assert_eq!((cluster.replica.backlog(), cluster.replica.raising()), (2, 2));
    let first: Vec<_> = cluster.replica.raises().map(|(at, resource)| (at, resource.clone())).collect();
    assert_eq!(first, [(101, resource()), (101, other())]);

    cluster.log(vec![Change::Record(resource(), Record { token: 9, ..raised(102) })]);
    let second: Vec<_> = cluster.replica.raises().map(|(at, resource)| (at, resource.clone())).collect();
    assert_eq!(second, [(101, other()), (102, resource())], "the oldest first, and each once");
    cluster.log(vec![Change::Record(other(), Record { state: State::Open, ..raised(103) })]);
    assert_eq!((cluster.replica.backlog(), cluster.replica.raising()), (1, 1));
}

#[test]
fn the_era_is_that_of_the_listing_it_joined_with() {
    for era in [0, 1, 5] {
        let snapshot = Snapshot { era, ..Snapshot::default() };
        assert_eq!(Replica::join(Time::ZERO, Time::ZERO, ME, Some(TIMING), snapshot).0.era(), era);
    }
}

#[test]
fn a_raise_shows_whom_it_waits_for_and_for_how_long() {
    let grave = |watermark| Tombstone { created: 50, watermark, wait: 9 * SECOND, ..Tombstone::default() };
    let graves = vec![("done".to_owned(), grave(200)), ("gone".to_owned(), grave(99))];
    let mut cluster = Cluster::join_with(&[record(7, State::Open)], graves);
    let raise = cluster.raise(8);
    let waits_for = |cluster: &Cluster| {
        let record = cluster.replica.record(&resource());
        let (members, tombstones) = cluster.replica.waits_for(cluster.now, &record);
        let members = members.iter().map(|member| member.created).collect::<Vec<_>>();
        (members, tombstones.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(waits_for(&cluster), (vec![100, 50], vec!["gone".to_owned()]));
    cluster.peer_says(raise, &[]);
    assert_eq!(waits_for(&cluster).0, [100], "this replica drains");
    cluster.step(drained());
    cluster.pass(2 * SECOND);
    let graves = cluster.replica.tombstones();
    assert_eq!(graves.keys().collect::<Vec<_>>(), ["done", "gone"]);
    assert_eq!(graves["gone"].left(cluster.now), 7 * SECOND);
    cluster.pass(7 * SECOND);
    assert_eq!(waits_for(&cluster), (vec![], vec![]));
    assert_eq!(cluster.replica.tombstones()["gone"].left(cluster.now + SECOND), Duration::ZERO);
}

#[test]
fn the_member_that_seals_first_is_the_same_to_everybody() {
    // By FNV-1a over the name and the incarnation, computed elsewhere: other versions have to agree.
    let ranks = [
        ("ledger", [4, 3, 0, 2, 1]),
        ("a", [1, 0, 3, 4, 2]),
        ("b", [0, 4, 2, 3, 1]),
        ("jobs/7", [1, 4, 2, 0, 3]),
        ("ledger/acct-7", [4, 0, 2, 1, 3]),
    ];
    let members = || (1..=5).map(|id| (id, Member::new(Revision::try_from(id).unwrap()))).collect();
    for me in 1..=5 {
        let snapshot = Snapshot { members: members(), ..Snapshot::default() };
        let (replica, _) = Replica::join(Time::ZERO, Time::ZERO, me, Some(TIMING), snapshot);
        for (name, ranks) in &ranks {
            let resource = Resource::parse(name).unwrap();
            let mine = usize::try_from(me - 1).unwrap();
            assert_eq!(replica.rank(&resource), ranks[mine], "{me} for {name}");
            let first = ranks.iter().position(|rank| *rank == 0).unwrap() as u64 + 1;
            assert_eq!(replica.sealer(&resource).map(|member| member.created), Some(first), "{name}");
        }
    }
}

#[test]
fn operators_hear_of_members_and_of_every_step_of_a_mark_once() {
    let mut cluster = Cluster::join(&[]);
    let events = |cluster: &mut Cluster| {
        cluster.take(|output| match output {
            Output::Tell(event) => Some(event.clone()),
            _ => None,
        })
    };
    cluster.log(vec![Change::Member(3, Member::new(101))]);
    assert_eq!(events(&mut cluster), [Event::Joined { member: 3 }]);
    cluster.log(vec![Change::Gone(3)]);
    assert_eq!(events(&mut cluster), [Event::Left { member: 3 }]);
    let grave = Change::Tombstone(format!("{PEER:032x}"), Tombstone::default());
    cluster.log(vec![Change::Gone(PEER), grave]);
    assert_eq!(events(&mut cluster), [Event::Evicted { member: PEER }]);

    let mut put = |record: Record| {
        let modified = cluster.revision + 1;
        cluster.log(vec![Change::Record(resource(), Record { modified, ..record })]);
        events(&mut cluster)
    };
    let (resource, raised) = (resource(), record(8, State::Raised));
    assert_eq!(put(raised), [Event::Raised { resource: resource.clone(), from: 0, to: 8 }]);
    let open = Record { settled: 50, block: true, ..record(8, State::Open) };
    let opened = Event::Opened { resource: resource.clone(), mark: 8, after: Duration::ZERO };
    assert_eq!(put(open), [opened], "that a seal settles what is below is no thaw");
    let frozen = Record { frozen: true, ..open };
    assert_eq!(put(frozen), [Event::Frozen { resource: resource.clone(), mark: 8 }]);
    assert_eq!(put(frozen), [], "nothing of it has changed");
    assert_eq!(put(open), [Event::Thawed { resource: resource.clone(), mark: 8 }]);
    let settled = Record { settled: 60, ..open };
    assert_eq!(put(settled), [Event::Thawed { resource, mark: 8 }], "an operator has settled what blocked");
    assert_eq!(put(Record { vacant: true, ..settled }), []);
}
