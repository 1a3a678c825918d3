//! One candidate's way to leadership: a lease, a key in line, its turn, the open mark.
//!
//! The winner is told only when its token passes the fence everywhere, so the leader before is refused from that
//! moment. What must stay true: whoever is told leads by etcd's own word, with a lease extended just before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use highgate_elector::backend::etcd::client::CallError;
use highgate_elector::backend::etcd::wire::{
    Compare, LeaseGrantRequest, LeaseKeepAliveRequest, PutRequest, RangeRequest, TxnRequest,
};
use highgate_elector::{Resource, Token};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::ballot::{Turned, Waiting, is_of_an_older_era, lease_id, revoke};
use super::driver::Report;
use super::link::{Link, Trouble};
use super::values::{number, revision};
use crate::elections::Candidate;
use crate::ledger::Ledger;
use crate::replica::Revision;
use crate::store::elections::CampaignError;

/// Before something is tried again that etcd did not answer.
const PAUSE: Duration = Duration::from_millis(200);
/// How often an open mark is looked for at least, whatever is told of changes.
const LOOK: Duration = Duration::from_secs(1);

/// Whether a candidate still stands in line. It leaves the line or wins, never both.
#[derive(Default)]
pub(super) struct Stand(AtomicU8);

const IN_LINE: u8 = 0;
const LEFT: u8 = 1;
const WON: u8 = 2;

impl Stand {
    /// False if it has won.
    pub(super) fn leave(&self) -> bool {
        self.0.compare_exchange(IN_LINE, LEFT, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// False if it has left.
    fn win(&self) -> bool {
        let won = self.0.compare_exchange(IN_LINE, WON, Ordering::SeqCst, Ordering::SeqCst);
        won.is_ok() || won == Err(WON)
    }
}

/// Queues up and waits until the candidate leads and its token passes.
pub(super) async fn campaign(
    link: Link,
    ledger: Arc<Ledger>,
    reports: mpsc::UnboundedSender<Report>,
    (resource, candidate): (Resource, Candidate),
    stand: Arc<Stand>,
) -> Result<Token, CampaignError> {
    let lease = candidate.lease;
    let way = Way { link: link.clone(), ledger, reports, resource, candidate, stand };
    let won = tokio::select! {
        won = way.walk() => won,
        () = way.keep_alive() => unreachable!("it goes on until the candidate is answered"),
    };
    if won.is_err() {
        revoke(link, lease).await;
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
            match self.once_around().await {
                Ok(Some(token)) => return Ok(token),
                // The key or its lease is gone, or the mark was raised above it: to the end of the line.
                Ok(None) => sleep(PAUSE / 4).await,
                Err(Trouble::Call(CallError::Refused(detail))) => return Err(CampaignError::Failed(detail)),
                Err(_) => sleep(PAUSE).await,
            }
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
        let grant = LeaseGrantRequest { ttl: seconds as i64, id };
        match self.link.client.call(grant).await {
            Ok(_) | Err(CallError::LeaseExists) => {}
            Err(error) => return Err(error.into()),
        }
        let key = self.key();
        let put = PutRequest { lease: id, ..PutRequest::new(key.as_str(), self.candidate.holder.as_str()) };
        let enter = TxnRequest::when([Compare::created_at(key.as_str(), 0)])
            .then(put)
            .or_else(RangeRequest::key(key.as_str()));
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
        let answer = self.link.range(RangeRequest::key(self.key())).await?;
        Ok(answer.kvs.first().is_none_or(|kv| revision(kv.create_revision) != token.value()))
    }

    /// The key leads in this era, and its lease was extended just before.
    async fn confirm(&self, created: Revision) -> Result<bool, Trouble> {
        let id = lease_id(self.candidate.lease);
        let extended = self.link.client.call(LeaseKeepAliveRequest { id }).await?;
        let compares = Compare::issued(&self.link.keys, &self.resource, self.key(), number(created));
        let still = TxnRequest::when(compares)
            .then(RangeRequest::key(self.link.keys.era()))
            .or_else(RangeRequest::key(self.link.keys.era()));
        let answer = self.link.txn(still).await?;
        let stale = is_of_an_older_era(created, answer.found(0).first());
        Ok(extended.ttl > 0 && answer.succeeded && !stale)
    }

    async fn give_up(&self, created: Revision) -> Result<(), Trouble> {
        let key = self.key();
        let gone = TxnRequest::when([Compare::created_at(key.as_str(), number(created))])
            .then(highgate_elector::backend::etcd::wire::DeleteRangeRequest::key(key));
        self.link.txn(gone).await.map(drop)
    }

    async fn keep_alive(&self) {
        let id = lease_id(self.candidate.lease);
        let mut rounds = interval((self.candidate.ttl / 3).max(PAUSE));
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            rounds.tick().await;
            // A lease that is gone is found out by its key.
            let _ = self.link.client.call(LeaseKeepAliveRequest { id }).await;
        }
    }

    fn key(&self) -> String {
        self.link.keys.candidate(&self.resource, lease_id(self.candidate.lease))
    }
}
