//! One replica among others: what it acknowledges, when it seals, evicts, renews and fences.

use super::*;

pub(super) const ME: Incarnation = 1;
pub(super) const PEER: Incarnation = 2;
pub(super) const TIMING: Timing = Timing {
    validity: Duration::from_secs(4),
    lock_delay: Duration::from_secs(5),
    drain_timeout: Duration::from_secs(5),
};

/// A replica that joined at revision 100 beside a peer that did at 50, and the log that both see.
pub(super) struct Cluster {
    pub(super) replica: Replica,
    pub(super) now: Time,
    pub(super) revision: Revision,
    pub(super) seq: u64,
    pub(super) outputs: Vec<Output>,
}

impl Cluster {
    pub(super) fn join(records: &[Record]) -> Self {
        Self::join_with(records, vec![])
    }

    pub(super) fn join_with(records: &[Record], tombstones: Vec<(String, Tombstone)>) -> Self {
        let now = Duration::from_secs(1000);
        let snapshot = Snapshot {
            seq: 10,
            watermark: 100,
            era: 0,
            records: records.iter().map(|record| (resource(), *record)).collect(),
            members: vec![(ME, Member::new(100)), (PEER, Member::new(50))],
            tombstones,
            names: None,
        };
        let (replica, outputs) = Replica::join(now, now, ME, Some(TIMING), snapshot);
        Self { replica, now, revision: 100, seq: 10, outputs }
    }

    pub(super) fn step(&mut self, input: Input) -> &mut Self {
        self.outputs.extend(self.replica.step(self.now, input));
        self
    }

    /// One revision that counts.
    pub(super) fn log(&mut self, changes: Vec<Change>) -> Revision {
        self.revision += 1;
        self.seq += 1;
        let (revision, seq) = (self.revision, Some(self.seq));
        self.step(Input::Applied(Applied { revision, seq, changes }));
        revision
    }

    /// One revision that does not count.
    pub(super) fn log_aside(&mut self, changes: Vec<Change>) {
        self.revision += 1;
        let revision = self.revision;
        self.step(Input::Applied(Applied { revision, seq: None, changes }));
    }

    pub(super) fn raise(&mut self, token: u64) -> Revision {
        let record = Record { token, modified: self.revision + 1, state: State::Raised, ..Record::default() };
        self.log(vec![Change::Record(resource(), record)])
    }

    pub(super) fn peer_says(&mut self, watermark: Revision, draining: &[Revision]) {
        let member = Member {
            modified: self.revision + 1,
            watermark,
            draining: draining.iter().copied().collect(),
            wait: TIMING.wait(),
            ..Member::new(50)
        };
        self.log_aside(vec![Change::Member(PEER, member)]);
    }

    /// Time passes, with a tick whenever one is due and every renewal accepted at once.
    pub(super) fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        let mut wakes = 0;
        while let Some(at) = self.replica.wake_at().filter(|at| *at <= end) {
            wakes += 1;
            assert!(wakes < 10_000, "every tick asks for the next one at once");
            self.now = self.now.max(at);
            let outputs = self.replica.step(self.now, Input::Tick);
            let renewals = outputs.iter().filter(|output| matches!(output, Output::Renew { .. })).count();
            self.outputs.extend(outputs);
            for _ in 0..renewals {
                let sent = self.now;
                self.step(Input::Renewed { sent, answer: Answer::Accepted });
            }
        }
        self.now = end;
    }

    /// Which of the outputs so far are about this, and forgets all.
    pub(super) fn take<T>(&mut self, about: impl Fn(&Output) -> Option<T>) -> Vec<T> {
        std::mem::take(&mut self.outputs).iter().filter_map(about).collect()
    }

    pub(super) fn seals(&mut self) -> Vec<u64> {
        self.take(|output| match output {
            Output::Propose(proposal) if proposal.record.state == State::Open => Some(proposal.record.token),
            _ => None,
        })
    }

    pub(super) fn evicts(&mut self) -> Vec<Incarnation> {
        self.take(|output| match output {
            Output::Evict { member, .. } => Some(*member),
            _ => None,
        })
    }

    pub(super) fn is_fenced(&mut self) -> Option<Fenced> {
        self.take(|output| match output {
            Output::Fence(why) => Some(*why),
            _ => None,
        })
        .pop()
    }
}

#[test]
fn a_raise_is_sealed_when_every_member_that_was_there_has_drained() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    let raise = cluster.raise(8);
    cluster.step(drained());
    cluster.log(vec![Change::Member(3, Member::new(raise + 1))]);
    cluster.pass(SECOND);
    assert_eq!(cluster.seals(), [0u64; 0], "the peer has not applied it; who joined later need not");
    cluster.peer_says(raise, &[raise]);
    cluster.pass(SECOND);
    assert_eq!(cluster.seals(), [0u64; 0], "the peer still drains");
    cluster.peer_says(raise, &[]);
    cluster.pass(SECOND);
    assert_eq!(cluster.seals(), [8]);
}

#[test]
fn an_own_request_of_a_lower_token_holds_the_seal_and_is_told_to_the_others() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    let raise = cluster.raise(8);
    cluster.peer_says(raise, &[]);
    let renewals = |output: &Output| match output {
        Output::Renew { watermark, draining } => Some((*watermark, draining.clone())),
        _ => None,
    };
    cluster.pass(Duration::from_millis(100));
    assert_eq!(cluster.take(renewals), [(raise, vec![raise])]);
    cluster.step(drained());
    cluster.pass(Duration::from_millis(100));
    assert_eq!(cluster.take(renewals), [(raise, vec![])], "progress does not wait for the regular renewal");
}

#[test]
fn a_request_of_the_first_token_is_draining_for_every_later_raise() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    cluster.raise(8);
    let second = cluster.raise(9);
    let draining = |cluster: &Cluster| cluster.replica.members()[&ME].draining.clone();
    assert_eq!(draining(&cluster).into_iter().collect::<Vec<_>>(), [second]);
    cluster.step(drained());
    assert!(draining(&cluster).is_empty());
}

#[test]
fn the_watermark_moves_only_with_changes_that_count_and_never_over_a_gap() {
    let mut cluster = Cluster::join(&[]);
    cluster.peer_says(100, &[]);
    assert_eq!(cluster.replica.watermark(), 100, "a renewal is none");
    cluster.seq += 1;
    cluster.raise(8);
    assert_eq!(cluster.replica.watermark(), 100, "something was lost");
    assert_eq!(cluster.take(|output| (*output == Output::Resync).then_some(())).len(), 1);
    assert_eq!(
        cluster.replica.record(&resource()),
        Record::default(),
        "nothing is applied before the listing"
    );
    let raised = Record { modified: 102, ..record(8, State::Raised) };
    let snapshot = Snapshot {
        seq: cluster.seq,
        watermark: 102,
        era: 0,
        records: vec![(resource(), raised)],
        members: vec![(ME, Member::new(100)), (PEER, Member::new(50))],
        tombstones: vec![],
        names: None,
    };
    cluster.step(Input::Listed(snapshot));
    assert_eq!((cluster.replica.watermark(), cluster.replica.record(&resource())), (102, raised));
}

#[test]
fn a_listing_without_this_replica_is_its_end() {
    let mut cluster = Cluster::join(&[]);
    let members = vec![(PEER, Member::new(50))];
    cluster.step(Input::Listed(Snapshot { seq: 12, watermark: 103, members, ..Snapshot::default() }));
    assert_eq!(cluster.is_fenced(), Some(Fenced::Evicted));
}

#[test]
fn an_evicted_member_holds_the_seal_until_it_has_certainly_fenced_and_its_cuts_are_over() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    let raise = cluster.raise(8);
    cluster.step(drained());
    let tombstone =
        Tombstone { created: 50, watermark: raise - 1, wait: TIMING.wait(), ..Tombstone::default() };
    let evicted = [Change::Gone(PEER), Change::Tombstone(format!("{PEER:032x}"), tombstone)];
    cluster.log(evicted.to_vec());
    cluster.pass(TIMING.wait() - Duration::from_millis(1));
    assert_eq!(cluster.seals(), [0u64; 0]);
    cluster.pass(Duration::from_millis(1));
    assert_eq!(cluster.seals(), [8]);
}

#[test]
fn a_member_that_was_brought_back_and_evicted_again_is_waited_for_anew() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    let name = format!("{PEER:032x}");
    let grave = |created| Tombstone { created, wait: TIMING.wait(), ..Tombstone::default() };
    cluster.log(vec![Change::Gone(PEER), Change::Tombstone(name.clone(), grave(50))]);
    cluster.pass(TIMING.wait() - SECOND);
    let back = cluster.revision + 1;
    cluster.log(vec![Change::Member(PEER, Member::new(back))]);
    cluster.raise(8);
    cluster.step(drained());
    cluster.log(vec![Change::Gone(PEER), Change::Tombstone(name, grave(back))]);
    cluster.pass(TIMING.wait() - Duration::from_millis(1));
    assert_eq!(cluster.seals(), [0u64; 0]);
    cluster.pass(Duration::from_millis(1));
    assert_eq!(cluster.seals(), [8]);
}

#[test]
fn an_evicted_member_that_had_acknowledged_the_raise_holds_nothing() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    let raise = cluster.raise(8);
    cluster.step(drained());
    let tombstone = Tombstone { created: 50, watermark: raise, wait: TIMING.wait(), ..Tombstone::default() };
    cluster.log(vec![Change::Gone(PEER), Change::Tombstone(format!("{PEER:032x}"), tombstone)]);
    cluster.pass(Duration::from_millis(300));
    assert_eq!(cluster.seals(), [8]);
}

#[test]
fn a_member_that_leaves_holds_nothing_and_one_that_vanishes_by_hand_is_waited_for() {
    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    cluster.raise(8);
    cluster.step(drained());
    cluster.log(vec![Change::Gone(PEER)]);
    cluster.pass(Duration::from_millis(300));
    assert_eq!(cluster.seals(), [8]);

    let mut cluster = Cluster::join(&[record(7, State::Open)]);
    cluster.raise(8);
    cluster.step(drained());
    cluster.log_aside(vec![Change::Gone(PEER)]);
    let buried = cluster.take(|output| matches!(output, Output::Bury { member: PEER, .. }).then_some(()));
    assert_eq!(buried.len(), 1);
    cluster.pass(SECOND);
    assert_eq!(cluster.seals(), [0u64; 0], "it may still believe in its validity");
}

#[test]
fn a_refused_renewal_an_eviction_and_a_new_era_are_the_end() {
    let fenced = |input: Input| Cluster::join(&[]).step(input).is_fenced();
    let applied = |change| Input::Applied(Applied { revision: 101, seq: Some(11), changes: vec![change] });
    let refused = Input::Renewed { sent: Duration::from_secs(1000), answer: Answer::Refused };
    assert_eq!(fenced(refused), Some(Fenced::Refused));
    assert_eq!(fenced(applied(Change::Gone(ME))), Some(Fenced::Evicted));
    assert_eq!(fenced(applied(Change::Era(1))), Some(Fenced::NewEra));
    assert_eq!(fenced(applied(Change::Era(0))), None);
}

#[test]
fn a_mark_of_an_older_era_is_never_open_and_its_tokens_are_stale() {
    let now = Duration::from_secs(1);
    let snapshot = Snapshot {
        era: 1,
        watermark: 100,
        records: vec![(resource(), record(7, State::Open))],
        members: vec![(ME, Member::new(100))],
        ..Snapshot::default()
    };
    let (mut replica, outputs) = Replica::join(now, now, ME, Some(TIMING), snapshot);
    assert!(!outputs.iter().any(|output| matches!(output, Output::Open { .. })));
    let closed = Output::Close { resource: resource(), mark: floor(1), shut: Shut::Raised };
    assert!(outputs.contains(&closed));
    assert!(replica.step(now, want(8)).is_empty(), "8 is of the old era");
    assert!(!replica.step(now, want(floor(1) + 8)).is_empty());
}

pub(super) fn proposals(output: &Output) -> Option<Proposal> {
    match output {
        Output::Propose(proposal) => Some(proposal.clone()),
        _ => None,
    }
}
