//! One candidate's way to leadership: a lease, a key in line, its turn, the open mark.
//!
//! The winner is told only when its token passes the fence everywhere, so the leader before is refused from that
//! moment. What must stay true: whoever is told leads by etcd's own word, with a lease extended just before: it runs
//! from the answer, for all that the winner knows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use highgate_elector::{Resource, Token};
use highgate_etcd::candidate::CandidateValue;
use highgate_etcd::{CallError, Compare, Delete, Put, Range, Txn};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::ballot::{Turned, Waiting, lease_id};
use super::driver::Report;
use super::endings::saying_why;
use super::link::{Link, Trouble};
use super::revoke::Revoker;
use super::terms::is_of_an_older_era;
use super::values::{number, revision};
use crate::elections::{Candidate, Ended};
use crate::ledger::Ledger;
use crate::replica::Revision;
use crate::store::elections::CampaignError;

/// Before something is tried again that etcd did not answer.
const PAUSE: Duration = Duration::from_millis(200);
/// Holders renew at least so many times within the time of their lease.
const RENEWALS: u32 = 3;
/// How often a lease is extended, to be told of in time, before the win is given up: an etcd that is so slow cannot keep
/// the lease alive either.
const TRIES: usize = 5;
/// How often an open mark is looked for at least, whatever is told of changes.
const LOOK: Duration = Duration::from_secs(1);

/// Whether a candidate still stands in line. It leaves the line or wins, never both; but what it has won it can lose
/// before it is told, and then it stands in line again, unless its time there is over.
#[derive(Default)]
pub(super) struct Stand(AtomicU8);

const IN_LINE: u8 = 0;
const LEFT: u8 = 1;
const WON: u8 = 2;
/// It has won, and does not go back to the line if it loses that.
const OVERDUE: u8 = 3;

impl Stand {
    /// False if it has won: then it is told so, or that it lost that.
    pub(super) fn leave(&self) -> bool {
        self.moves(IN_LINE, LEFT) || (!self.moves(WON, OVERDUE) && self.0.load(Ordering::SeqCst) == LEFT)
    }

    /// False if it has left.
    fn win(&self) -> bool {
        self.moves(IN_LINE, WON) || self.0.load(Ordering::SeqCst) != LEFT
    }

    /// What it had won, if anything, is lost. False: it does not stand in line any more.
    fn lose(&self) -> bool {
        self.moves(WON, IN_LINE) || (!self.moves(OVERDUE, LEFT) && self.0.load(Ordering::SeqCst) == IN_LINE)
    }

    fn moves(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

/// Queues up and waits until the candidate leads and its token passes.
pub(super) async fn campaign(
    (link, revoker): (Link, Revoker),
    ledger: Arc<Ledger>,
    reports: mpsc::UnboundedSender<Report>,
    (resource, candidate): (Resource, Candidate),
    stand: Arc<Stand>,
) -> Result<Token, CampaignError> {
    let lease = candidate.lease;
    let way = Way { link, ledger, reports, resource, candidate, stand };
    let won = tokio::select! {
        won = way.walk() => won,
        () = way.keep_alive() => unreachable!("it goes on until the candidate is answered"),
    };
    if won.is_err() {
        revoker.revoke(lease);
        // It may have waited at a gate that never got a mark.
        way.ledger.forget_unset(&way.resource);
    }
    won
}

struct Way {
    link: Link,
    ledger: Arc<Ledger>,
    reports: mpsc::UnboundedSender<Report>,
    resource: Resource,
    candidate: Candidate,
    stand: Arc<Stand>,
}

impl Way {
    async fn walk(&self) -> Result<Token, CampaignError> {
        loop {
            let pause = match self.once_around().await {
                Ok(Some(token)) => return Ok(token),
                // The key or its lease is gone, or the mark was raised above it: to the end of the line.
                Ok(None) => PAUSE / 4,
                Err(Trouble::Call(CallError::Refused(detail))) => return Err(CampaignError::Failed(detail)),
                Err(_) => PAUSE,
            };
            if !self.stand.lose() {
                return Err(CampaignError::TooLate);
            }
            sleep(pause).await;
        }
    }

    /// None: it has to queue up again.
    async fn once_around(&self) -> Result<Option<Token>, Trouble> {
        let Some(created) = self.queue_up().await? else { return Ok(None) };
        let Some(token) = self.turn(created).await else { return Ok(None) };
        if !self.stand.win() {
            // Whoever left the line is being forgotten, with this.
            return std::future::pending().await;
        }
        if self.passes(created, token).await && self.confirm(created).await? {
            return Ok(Some(token));
        }
        self.give_up(created).await?;
        Ok(None)
    }

    /// The key, on a lease of its own.
    async fn queue_up(&self) -> Result<Option<Revision>, Trouble> {
        let id = lease_id(self.candidate.lease);
        let seconds = self.candidate.ttl.as_secs_f64().ceil().max(1.0);
        match self.link.client.grant(id, seconds as i64).await {
            Ok(_) | Err(CallError::LeaseExists) => {}
            Err(error) => return Err(error.into()),
        }
        let key = self.key();
        let Candidate { holder, owner, .. } = self.candidate.clone();
        let value = CandidateValue { holder, owner }.encode();
        let put = Put { lease: id, ..Put::new(key.as_str(), value) };
        let enter =
            Txn::when([Compare::created_at(key.as_str(), 0)]).then(put).or_else(Range::key(key.as_str()));
        let answer = match self.link.txn(enter).await {
            Err(Trouble::Call(CallError::LeaseNotFound)) => return Ok(None),
            answer => answer?,
        };
        let found = answer.found(0).first().map(|kv| kv.create_revision);
        let created = if answer.succeeded { Some(answer.revision()) } else { found };
        Ok(created.map(revision))
    }

    /// Until it is first in line; none if it is not in line any more.
    async fn turn(&self, created: Revision) -> Option<Token> {
        loop {
            let (tell, told) = oneshot::channel();
            let waiting = Waiting { created, tell };
            let _ = self.reports.send(Report::AwaitTurn { resource: self.resource.clone(), waiting });
            match told.await {
                Ok(Turned::First(token)) => return Some(token),
                Ok(Turned::Gone) => return None,
                // The replica was fenced, or reads everything again.
                Err(_) => sleep(PAUSE / 2).await,
            }
        }
    }

    /// Until the mark is open at the token; false if it was raised above it.
    async fn passes(&self, created: Revision, token: Token) -> bool {
        let cell = self.ledger.enter(&self.resource);
        loop {
            let changed = cell.changed();
            match cell.mark().cmp(&token.get()) {
                std::cmp::Ordering::Greater => return false,
                std::cmp::Ordering::Equal if cell.is_open() => return true,
                _ => drop(timeout(LOOK, changed).await),
            }
            // Whoever is first in line and waits makes its raise urgent.
            let (tell, _) = oneshot::channel();
            let waiting = Waiting { created, tell };
            let _ = self.reports.send(Report::AwaitTurn { resource: self.resource.clone(), waiting });
            if matches!(self.turn_lost(token).await, Ok(true)) {
                return false;
            }
        }
    }

    /// Whether the key is gone, by etcd's word.
    async fn turn_lost(&self, token: Token) -> Result<bool, Trouble> {
        let answer = self.link.range(Range::key(self.key())).await?;
        Ok(answer.kvs.first().is_none_or(|kv| revision(kv.create_revision) != token.value()))
    }

    /// The key leads in this era, and its lease was extended just before.
    async fn confirm(&self, created: Revision) -> Result<bool, Trouble> {
        let id = lease_id(self.candidate.lease);
        for _ in 0..TRIES {
            let sent = Instant::now();
            let extend = self.link.client.keep_alive(id);
            let (extended, leads) = tokio::join!(extend, self.still_leads(created));
            let ttl = Duration::from_secs(u64::try_from(extended?.ttl).unwrap_or(0));
            if ttl.is_zero() || !leads? {
                return Ok(false);
            }
            if can_be_renewed(ttl, sent.elapsed()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn still_leads(&self, created: Revision) -> Result<bool, Trouble> {
        let compares = Compare::issued(&self.link.keys, &self.resource, self.key(), number(created));
        let still = Txn::when(compares)
            .then(Range::key(self.link.keys.era()))
            .or_else(Range::key(self.link.keys.era()));
        let answer = self.link.txn(still).await?;
        Ok(answer.succeeded && !is_of_an_older_era(created, answer.found(0).first()))
    }

    async fn give_up(&self, created: Revision) -> Result<(), Trouble> {
        let key = self.key();
        let gone =
            Txn::when([Compare::created_at(key.as_str(), number(created))]).then(Delete::key(key.as_str()));
        let gone = saying_why(gone, &self.link.keys, key.as_bytes(), Ended::Overtaken);
        self.link.txn(gone).await.map(drop)
    }

    async fn keep_alive(&self) {
        let id = lease_id(self.candidate.lease);
        let mut rounds = interval((self.candidate.ttl / 3).max(PAUSE));
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            rounds.tick().await;
            // A lease that is gone is found out by its key.
            let _ = self.link.client.keep_alive(id).await;
        }
    }

    fn key(&self) -> String {
        self.link.keys.candidate(&self.resource, lease_id(self.candidate.lease))
    }
}

/// Whether whoever is told now of a lease can renew it in time, if the call that extended it took so long.
///
/// The lease may have been extended as early as the call began. Its holder counts from now, renews after a third of the ttl
/// at the latest, and etcd may take as long for that as it did for this: all that has to fit into the ttl. A stricter rule
/// would give up leaderships that could be kept, again and again; a laxer one would hand out leases that are over before
/// their first renewal. Either way the fence decides what passes.
fn can_be_renewed(ttl: Duration, took: Duration) -> bool {
    took + ttl / RENEWALS + took <= ttl
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_winner_is_told_whenever_its_first_renewal_comes_in_time_from_an_etcd_as_slow() {
        for seconds in [1, 2, 15, 3600] {
            let ttl = Duration::from_secs(seconds);
            for took in (0..=100).map(|percent| ttl * percent / 100) {
                let (extended, told) = (Duration::ZERO, took);
                let renewed = told + ttl / 3 + took;
                assert_eq!(can_be_renewed(ttl, took), renewed <= extended + ttl, "{took:?} of {ttl:?}");
            }
            assert!(can_be_renewed(ttl, ttl / 4), "slower than a fifth, and in time");
        }
    }

    #[test]
    fn a_candidate_leaves_the_line_or_wins_but_never_both() {
        let stand = Stand::default();
        assert!(stand.leave() && !stand.win() && stand.leave());
        let stand = Stand::default();
        assert!(stand.win() && stand.win() && !stand.leave());
    }

    #[test]
    fn a_candidate_that_loses_what_it_had_won_can_leave_the_line_again() {
        let stand = Stand::default();
        assert!(stand.win() && stand.lose() && stand.lose());
        assert!(stand.leave() && !stand.win() && !stand.lose());
    }

    #[test]
    fn a_candidate_whose_time_in_line_is_over_does_not_go_back_there() {
        let stand = Stand::default();
        assert!(stand.win() && !stand.leave() && stand.win(), "it may still be told");
        assert!(!stand.lose() && !stand.win());
    }
}
