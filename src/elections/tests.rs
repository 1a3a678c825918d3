use super::*;

const SECOND: Time = Duration::from_secs(1);

fn resource() -> Resource {
    Resource::parse("ledger").unwrap()
}

fn candidate(lease: Lease) -> Candidate {
    Candidate { lease, holder: format!("job-{lease}"), ttl: 3 * SECOND, owner: None }
}

/// Elections over one resource whose mark follows every raise at once, and opens when the test says so.
#[derive(Default)]
struct Stage {
    elections: Elections,
    now: Time,
    mark: u64,
    vacant: bool,
    granted: Vec<(Lease, u64)>,
    ended: Vec<(u64, Ended)>,
    kept: Option<u64>,
}

impl Stage {
    fn take(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Keep { term, .. } => self.kept = term.map(|term| term.token.get()),
                Output::Raise { token, .. } => {
                    assert!(token.get() > self.mark, "a winner's token is above the mark");
                    assert_eq!(self.kept, Some(token.get()), "a token is kept with its raise");
                    (self.mark, self.vacant) = (token.get(), false);
                }
                Output::Vacate { token, .. } => self.vacant |= token.get() == self.mark,
                Output::Grant { lease, token } => self.granted.push((lease, token.get())),
                Output::Exhausted { lease } => self.granted.push((lease, 0)),
                Output::Tell(Event::Ended { token, why, .. }) => self.ended.push((token.get(), why)),
                Output::Tell(Event::Elected { .. }) => {}
            }
        }
    }

    fn campaign(&mut self, lease: Lease) -> &mut Self {
        let outputs = self.elections.campaign(resource(), candidate(lease), self.mark);
        self.take(outputs);
        self
    }

    fn open(&mut self) -> &mut Self {
        let outputs = self.elections.opened(self.now, &resource(), self.mark);
        self.take(outputs);
        self
    }

    fn resign(&mut self, lease: Lease) -> bool {
        let outputs = self.elections.resign(&resource(), lease, &Actor::default(), self.mark);
        let held = outputs.is_ok();
        self.take(outputs.unwrap_or_default());
        held
    }

    fn at(&mut self, now: Time) -> &mut Self {
        self.now = now;
        let mark = self.mark;
        let outputs = self.elections.expire(now, |_| mark);
        self.take(outputs);
        self
    }

    fn renew(&mut self, lease: Lease) -> bool {
        self.elections.renew(self.now, &resource(), lease, &Actor::default()).is_ok()
    }

    fn leads(&self) -> Option<Lease> {
        self.elections.leader("ledger").map(|term| term.candidate.lease)
    }
}

#[test]
fn a_winner_is_told_only_when_its_mark_is_open() {
    let mut stage = Stage::default();
    stage.campaign(1);
    assert_eq!((stage.leads(), stage.mark), (None, 1));
    assert!(!stage.renew(1), "nobody knows of this lease yet");
    stage.open();
    assert_eq!((stage.leads(), stage.granted), (Some(1), vec![(1, 1)]));
}

#[test]
fn waiters_lead_in_the_order_in_which_they_came() {
    let mut stage = Stage::default();
    stage.campaign(1).open().campaign(2).campaign(3);
    assert_eq!(stage.elections.waiting("ledger"), 2);
    assert!(stage.resign(1));
    stage.open();
    assert!(stage.resign(2));
    stage.open();
    assert_eq!(stage.granted, [(1, 1), (2, 2), (3, 3)]);
    assert!(!stage.vacant);
    assert!(stage.resign(3) && stage.vacant, "nobody is left");
}

#[test]
fn a_lease_runs_from_the_grant_and_from_every_renewal() {
    let mut stage = Stage::default();
    stage.campaign(1).at(60 * SECOND).open();
    assert_eq!(stage.elections.wake_at(), Some(63 * SECOND));
    stage.at(62 * SECOND);
    assert!(stage.renew(1));
    stage.at(64 * SECOND);
    assert_eq!(stage.leads(), Some(1));
    stage.campaign(2).at(65 * SECOND).open();
    assert_eq!((stage.leads(), stage.ended.clone()), (Some(2), vec![(1, Ended::Expired)]));
    assert!(!stage.renew(1) && !stage.resign(1), "it is over, whatever it thinks");
}

#[test]
fn a_candidate_that_left_is_passed_over_and_a_winner_that_left_gives_way() {
    let mut stage = Stage::default();
    stage.campaign(1).open().campaign(2).campaign(3);
    let outputs = stage.elections.withdraw(&resource(), 2, stage.mark);
    stage.take(outputs);
    assert!(stage.resign(1));
    let outputs = stage.elections.withdraw(&resource(), 3, stage.mark);
    stage.take(outputs);
    assert!(stage.vacant && stage.leads().is_none());
    assert_eq!(stage.granted, [(1, 1)], "3 was never told");
}

#[test]
fn a_mark_raised_by_other_means_ends_the_term() {
    let mut stage = Stage::default();
    stage.campaign(1).open();
    stage.mark = 50;
    let outputs = stage.elections.raised(&resource(), 50);
    stage.take(outputs);
    assert_eq!((stage.leads(), stage.ended.clone()), (None, vec![(1, Ended::Overtaken)]));
    stage.campaign(2).open();
    assert_eq!(stage.granted.last(), Some(&(2, 51)), "above the mark");
}

#[test]
fn a_winner_overtaken_before_it_was_told_is_elected_anew() {
    let mut stage = Stage::default();
    stage.campaign(1).campaign(2);
    stage.mark = 50;
    let outputs = stage.elections.raised(&resource(), 50);
    stage.take(outputs);
    stage.open();
    assert_eq!((stage.leads(), stage.granted), (Some(1), vec![(1, 51)]));
}

#[test]
fn after_a_restart_leases_start_anew_and_no_token_comes_again() {
    let kept = Term::kept(candidate(1), Token::new(9).unwrap());
    let elections = Elections::restore(SECOND, 9, [(resource(), kept)]);
    let mut stage = Stage { elections, mark: 9, now: SECOND, ..Stage::default() };
    assert!(stage.renew(1));
    stage.campaign(2).at(4 * SECOND).open();
    assert_eq!(stage.granted, [(2, 10)]);
}

#[test]
fn an_evicted_leader_is_gone_at_once() {
    let mut stage = Stage::default();
    stage.campaign(1).open();
    let outputs = stage.elections.evict(&resource(), stage.mark).unwrap();
    stage.take(outputs);
    assert!(stage.vacant && !stage.renew(1));
    assert_eq!(stage.elections.evict(&resource(), stage.mark), None);
}

#[test]
fn above_the_last_token_nobody_can_lead() {
    let mut stage = Stage { mark: Token::MAX, ..Stage::default() };
    stage.campaign(1);
    assert_eq!((stage.leads(), stage.granted), (None, vec![(1, 0)]));
}

#[test]
fn a_winner_that_was_not_told_yet_cannot_be_evicted_or_leave_the_line() {
    let mut stage = Stage::default();
    stage.campaign(1).campaign(2);
    assert_eq!(stage.elections.evict(&resource(), stage.mark), None);
    assert!(!stage.elections.leave(&resource(), 1), "it has won");
    assert!(stage.elections.leave(&resource(), 2));
    stage.open();
    assert_eq!(stage.granted, [(1, 1)]);
}

#[test]
fn one_absurd_mark_does_not_use_up_the_tokens_of_other_resources() {
    let mut stage = Stage { mark: Token::MAX - 1, ..Stage::default() };
    stage.campaign(1).open();
    assert_eq!(stage.granted, [(1, Token::MAX)]);
    let other = Resource::parse("other").unwrap();
    let outputs = stage.elections.campaign(other, candidate(2), 0);
    assert!(matches!(&outputs[1], Output::Raise { token, .. } if token.get() == 1), "{outputs:?}");
}

#[test]
fn a_lease_is_acted_on_only_by_who_has_won_it() {
    let mut stage = Stage::default();
    let owner = Some("spiffe://corp/job-a".to_owned());
    let outputs = stage.elections.campaign(resource(), Candidate { owner, ..candidate(1) }, stage.mark);
    stage.take(outputs);
    stage.open();
    let by = |name: &str| Actor::new(Some(Identity::for_tests(&[name])));
    let (own, other) = (by("spiffe://corp/job-a"), by("spiffe://corp/job-b"));
    let (resource, mark) = (resource(), stage.mark);
    let elections = &mut stage.elections;
    assert_eq!(elections.renew(Time::ZERO, &resource, 1, &other), Err(NotHeld::Anothers));
    assert_eq!(elections.resign(&resource, 1, &other, mark), Err(NotHeld::Anothers));
    assert_eq!(elections.renew(Time::ZERO, &resource, 2, &other), Err(NotHeld::Gone), "no lease that leads");
    assert!(elections.renew(Time::ZERO, &resource, 1, &own).is_ok());
    assert!(elections.resign(&resource, 1, &own, mark).is_ok());
    assert!(other.may_act_for(None), "a lease whose owner nobody knows is its own proof");
}
