use super::*;

const SECOND: Time = Duration::from_secs(1);

fn resource() -> Resource {
    Resource::parse("ledger").unwrap()
}

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

fn record(number: u64, state: State) -> Record {
    Record { token: number, modified: 10, state, ..Record::default() }
}

fn want(number: u64) -> Input {
    want_with(number, None)
}

fn want_with(number: u64, block: Option<bool>) -> Input {
    Input::Want(Want { resource: resource(), token: token(number), block, proof: None, patient: false })
}

/// The process before this one, gone for certain after `wait`.
fn predecessor(wait: Duration) -> Tombstone {
    Tombstone { modified: 100, wait, ..Tombstone::default() }
}

fn drained() -> Input {
    Input::Drained { resource: resource() }
}

/// The store committed this at this revision.
fn applied(revision: Revision, record: Record) -> Input {
    let changes = vec![Change::Record(resource(), Record { modified: revision, ..record })];
    Input::Applied(Applied { revision, seq: Some(revision), changes })
}

/// A replica with a store that commits everything, and a gate that drains when the test says so.
struct Bench {
    replica: Replica,
    revision: Revision,
    now: Time,
    /// (mark, open) as the outputs left the gate.
    gate: (u64, bool),
    proposed: Vec<Proposal>,
    told: Vec<Event>,
}

impl Bench {
    fn join(records: &[Record], tombstones: Vec<Tombstone>) -> Self {
        let records: Vec<_> = records.iter().map(|record| (resource(), *record)).collect();
        let tombstones = tombstones.into_iter().map(|tombstone| ("before".to_owned(), tombstone)).collect();
        let snapshot = Snapshot { seq: 100, watermark: 100, records, tombstones, ..Snapshot::default() };
        let (replica, outputs) = Replica::join(Time::ZERO, Time::ZERO, 1, None, snapshot);
        let mut bench = Self {
            replica,
            revision: 100,
            now: Time::ZERO,
            gate: (0, false),
            proposed: vec![],
            told: vec![],
        };
        bench.take(outputs);
        bench
    }

    fn step(&mut self, input: Input) -> &mut Self {
        let outputs = self.replica.step(self.now, input);
        self.take(outputs);
        self
    }

    fn take(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Propose(proposal) => self.proposed.push(proposal),
                Output::Close { mark, .. } => self.gate = (mark, false),
                Output::Open { .. } => self.gate.1 = true,
                Output::Tell(event) => self.told.push(event),
                Output::Settle { .. } => {}
                other => panic!("a single process has no use for {other:?}"),
            }
        }
    }

    /// The store commits what was proposed.
    fn commit(&mut self) -> &mut Self {
        let proposal = self.proposed.pop().expect("something was proposed");
        assert!(self.proposed.is_empty(), "one proposal per resource at a time");
        self.revision += 1;
        let record = Record { modified: self.revision, ..proposal.record };
        self.step(applied(self.revision, record))
    }

    fn is_idle(&self) -> bool {
        self.proposed.is_empty()
    }
}

#[test]
fn a_raise_is_committed_then_drained_then_opened() {
    let mut bench = Bench::join(&[record(7, State::Open)], vec![]);
    assert_eq!(bench.gate, (7, true));
    bench.step(want(8));
    assert_eq!(bench.gate, (7, true), "nothing closes before the raise is durable");
    bench.commit();
    assert_eq!(bench.gate, (8, false));
    assert!(bench.is_idle(), "nothing is sealed before the drain");
    bench.step(drained()).commit();
    assert_eq!(bench.gate, (8, true));
    assert_eq!(bench.told.len(), 2, "raised, opened: {:?}", bench.told);
    assert!(bench.replica.work.is_empty());
}

#[test]
fn a_token_at_or_below_the_mark_raises_nothing() {
    let mut bench = Bench::join(&[record(7, State::Open)], vec![]);
    bench.step(want(7)).step(want(6));
    assert!(bench.is_idle());
}

#[test]
fn one_resource_has_one_proposal_at_a_time_and_the_highest_want_wins() {
    let mut bench = Bench::join(&[], vec![]);
    bench.step(want(3)).step(want(9)).step(want(5));
    bench.commit();
    assert_eq!(bench.gate, (3, false));
    bench.commit();
    assert_eq!(bench.gate, (9, false), "9 overtakes 3 before 3 was ever open");
    bench.step(drained()).commit();
    assert_eq!(bench.gate, (9, true));
}

#[test]
fn a_guard_of_the_first_token_holds_up_every_later_raise() {
    let mut bench = Bench::join(&[record(7, State::Open)], vec![]);
    bench.step(want(8)).commit().step(want(9)).commit();
    assert!(bench.is_idle(), "7 is still under way");
    bench.step(Input::Tick);
    assert!(bench.is_idle());
    bench.step(drained()).commit();
    assert_eq!(bench.gate, (9, true));
}

#[test]
fn a_refused_proposal_is_made_again_from_what_is_there_now() {
    let mut bench = Bench::join(&[], vec![]);
    bench.step(want(3));
    bench.proposed.clear();
    let theirs = Record { token: 5, modified: 101, state: State::Raised, ..Record::default() };
    bench.step(applied(101, theirs));
    bench.step(Input::Refused { resource: resource(), seen: 0, modified: 101 });
    assert!(bench.is_idle(), "3 is below 5 now");
    bench.step(want(6));
    assert_eq!(bench.proposed.last().map(|proposal| proposal.seen), Some(101));
    bench.proposed.clear();
    bench.step(Input::Refused { resource: resource(), seen: 101, modified: 102 });
    assert!(bench.is_idle(), "what refused it has not arrived yet");
    let theirs = Record { token: 5, modified: 102, frozen: true, ..Record::default() };
    bench.step(applied(102, theirs));
    assert_eq!(bench.proposed.last().map(|proposal| (proposal.seen, proposal.record.token)), Some((102, 6)));
}

#[test]
fn after_an_unclean_start_the_open_mark_passes_and_nothing_seals_until_the_delay_is_over() {
    let tombstone = predecessor(5 * SECOND);
    let mut bench = Bench::join(&[record(7, State::Open)], vec![tombstone]);
    assert_eq!(bench.gate, (7, true));
    bench.step(want(8)).commit().step(drained());
    assert!(bench.is_idle());
    assert_eq!(bench.replica.wake_at(), Some(5 * SECOND));
    bench.now = 5 * SECOND - Duration::from_nanos(1);
    bench.step(Input::Tick);
    assert!(bench.is_idle());
    assert!(bench.replica.inherits_unknowns(bench.now));
    bench.now = 5 * SECOND;
    bench.step(Input::Tick).commit();
    assert_eq!(bench.gate, (8, true));
    assert!(!bench.replica.inherits_unknowns(bench.now));
    assert_eq!(bench.replica.wake_at(), None, "what has passed wakes nobody again");
}

#[test]
fn a_raised_mark_found_at_an_unclean_start_waits_for_the_delay_too() {
    let tombstone = predecessor(SECOND);
    let mut bench = Bench::join(&[record(8, State::Raised)], vec![tombstone]);
    bench.step(drained()).step(Input::Tick);
    assert_eq!((bench.gate, bench.is_idle()), ((8, false), true));
    bench.now = SECOND;
    bench.step(Input::Tick).commit();
    assert_eq!(bench.gate, (8, true));
}

#[test]
fn a_raised_mark_found_at_a_clean_start_opens_at_once() {
    let mut bench = Bench::join(&[record(8, State::Raised)], vec![]);
    bench.commit();
    assert_eq!(bench.gate, (8, true));
}

#[test]
fn a_frozen_resource_can_be_raised_but_opens_only_when_thawed() {
    let mut bench = Bench::join(&[record(7, State::Open)], vec![]);
    bench.step(Input::Freeze { resource: resource(), frozen: true }).commit();
    assert_eq!(bench.gate, (7, false));
    bench.step(want(8)).commit().step(drained()).commit();
    assert_eq!(bench.gate, (8, false));
    bench.step(Input::Freeze { resource: resource(), frozen: false }).commit();
    assert_eq!(bench.gate, (8, true));
}

#[test]
fn freezing_a_raised_resource_does_not_lose_its_drain() {
    let mut bench = Bench::join(&[record(7, State::Open)], vec![]);
    bench.step(want(8)).commit();
    bench.step(Input::Freeze { resource: resource(), frozen: true }).commit();
    bench.step(Input::Freeze { resource: resource(), frozen: false }).commit();
    assert!(bench.is_idle(), "7 is still under way");
    bench.step(drained()).commit();
    assert_eq!(bench.gate, (8, true));
}

#[test]
fn a_blocking_resource_waits_for_an_operator_after_an_unclean_start() {
    let blocking = Record { block: true, ..record(7, State::Open) };
    let tombstone = predecessor(SECOND);
    let mut bench = Bench::join(&[blocking], vec![tombstone]);
    bench.now = 9 * SECOND;
    bench.step(want(8)).commit().step(drained()).step(Input::Tick);
    assert!(bench.is_idle());
    assert!(bench.replica.inherits_unknowns(bench.now));
    bench.step(Input::Freeze { resource: resource(), frozen: false }).commit().step(drained()).commit();
    assert_eq!(bench.gate, (8, true));
    assert!(!bench.replica.inherits_unknowns(bench.now), "settled is settled");
}

#[test]
fn a_drain_reported_late_does_not_count_for_a_later_close() {
    let mut bench = Bench::join(&[record(7, State::Open)], vec![]);
    bench.step(drained()).step(want(8)).commit();
    assert!(bench.is_idle(), "the early report was about nothing");
}

#[test]
fn a_departed_leader_leaves_its_mark_vacant_until_the_next() {
    let mut bench = Bench::join(&[record(7, State::Open)], vec![]);
    bench.step(Input::Vacate { resource: resource(), token: token(6) });
    assert!(bench.is_idle(), "6 is not the mark");
    bench.step(Input::Vacate { resource: resource(), token: token(7) }).commit();
    assert_eq!(bench.gate, (7, false));
    bench.step(drained()).step(Input::Tick);
    assert!(bench.is_idle() && bench.replica.work.is_empty(), "nothing opens by itself");
    bench.step(want(8)).commit().step(drained()).commit();
    assert_eq!(bench.gate, (8, true));
}

#[test]
fn a_successor_that_comes_first_makes_vacating_needless() {
    let mut bench = Bench::join(&[record(7, State::Open)], vec![]);
    bench.step(want(8)).step(Input::Vacate { resource: resource(), token: token(7) });
    bench.commit();
    assert!(bench.is_idle());
    bench.step(drained()).commit();
    assert_eq!(bench.gate, (8, true));
}

#[test]
fn vacating_a_token_that_is_not_the_mark_yet_is_not_forgotten() {
    let mut bench = Bench::join(&[record(7, State::Open)], vec![]);
    bench.step(want(8)).step(want(9)).step(Input::Vacate { resource: resource(), token: token(9) });
    bench.commit().commit();
    assert_eq!(bench.gate, (9, false));
    bench.commit().step(drained());
    while !bench.is_idle() {
        bench.commit();
    }
    assert_eq!(bench.gate, (9, false), "nobody holds 9");
}

#[test]
fn a_raise_by_a_route_that_does_not_block_keeps_what_blocks_below() {
    let blocking = Record { block: true, ..record(7, State::Open) };
    let mut bench = Bench::join(&[blocking], vec![]);
    bench.step(want_with(8, Some(false))).commit();
    assert!(bench.replica.record(&resource()).block, "7 may have left something that blocks");
    bench.step(drained()).commit();
    assert!(!bench.replica.record(&resource()).block);
}

mod cluster;
mod digest;
mod evict;
mod listing;
mod mend;
mod names;
mod news;
mod raise;
mod record;
mod renew;
mod seal;
mod view;
