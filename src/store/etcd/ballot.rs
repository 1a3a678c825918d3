//! The election API over etcd: every candidate has an etcd lease of its own, so any replica can renew it, and it
//! ends with its holder, not with the gateway it came through.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use highgate_elector::backend::etcd::keys;
use highgate_elector::backend::etcd::wire::{
    Compare, DeleteRangeRequest, KeyValue, LeaseKeepAliveRequest, LeaseRevokeRequest, RangeRequest,
    TxnRequest,
};
use highgate_elector::{Resource, Token};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::campaign::{Stand, campaign};
use super::driver::{Driver, Stage};
use super::link::{Link, Trouble};
use super::queues::Head;
use super::values::{number, revision};
use crate::elections::{Ended, Event, Lease};
use crate::events::Notice;
use crate::replica::Revision;
use crate::store::elections::{CampaignError, Election, Leader, Order};

/// How long the end waits for candidates to be withdrawn.
const WITHDRAW_LIMIT: Duration = Duration::from_secs(1);

/// Candidates that came through this gateway and do not lead yet.
#[derive(Default)]
pub(super) struct Campaigns {
    by_lease: HashMap<Lease, Running>,
    /// Who waits for its turn, by resource.
    turns: HashMap<Resource, Vec<Waiting>>,
}

struct Running {
    stand: Arc<Stand>,
    task: AbortHandle,
}

/// A candidate in line, and how it hears that it is first: with the token. Dropped: look again later.
pub(super) struct Waiting {
    pub(super) created: Revision,
    pub(super) tell: oneshot::Sender<Turned>,
}

/// What became of a place in line.
pub(super) enum Turned {
    First(Token),
    Gone,
}

impl Driver {
    pub(super) fn order(&mut self, order: Order) {
        match order {
            Order::Campaign { resource, candidate, campaigner } => {
                let (stand, lease) = (Arc::<Stand>::default(), candidate.lease);
                let running = campaign(
                    self.link.clone(),
                    self.shared.ledger.clone(),
                    self.reports.clone(),
                    (resource, candidate),
                    stand.clone(),
                );
                let task = tokio::spawn(async move {
                    // Whoever waited may be gone: then it has withdrawn, or is about to.
                    let _ = campaigner.send(running.await);
                });
                self.campaigns.by_lease.insert(lease, Running { stand, task: task.abort_handle() });
                self.campaigns.by_lease.retain(|_, running| !running.task.is_finished());
            }
            Order::Withdraw { lease, .. } => {
                if let Some(running) = self.campaigns.by_lease.remove(&lease) {
                    running.task.abort();
                }
                tokio::spawn(revoke(self.link.clone(), lease));
            }
            Order::Leave { lease, reply, .. } => {
                let left = self.campaigns.by_lease.get(&lease).is_some_and(|running| running.stand.leave());
                if left && let Some(running) = self.campaigns.by_lease.remove(&lease) {
                    running.task.abort();
                    tokio::spawn(revoke(self.link.clone(), lease));
                }
                let _ = reply.send(left);
            }
            Order::Renew { resource, lease, reply } => {
                answer(reply, renew(self.link.clone(), resource, lease));
            }
            Order::Resign { resource, lease, reply } => {
                answer(reply, resign(self.link.clone(), resource, lease));
            }
            Order::Evict { resource, reply } => match self.head(&resource) {
                Some(head) => answer(reply, evict(self.link.clone(), self.leader(&head), head)),
                None => self.if_inside(reply, |_| None),
            },
            Order::Show { resource, reply } => {
                let leader = self.head(&resource).and_then(|head| self.leader(&head));
                self.if_inside(reply, |session| Election {
                    leader,
                    waiting: session.queues.waiting(&resource),
                });
            }
            Order::Leaders { resources, reply } => {
                let leader = |resource: &Resource| self.head(resource).and_then(|head| self.leader(&head));
                let leaders = resources.iter().map(leader).collect();
                self.if_inside(reply, |_| leaders);
            }
            Order::Once(question) => self.answer_once(question),
        }
    }

    /// A replica that is fenced does not know, and says nothing: whoever asked hears that.
    fn if_inside<T>(&self, reply: oneshot::Sender<T>, tell: impl FnOnce(&super::session::Session) -> T) {
        if let Stage::Inside(session) = &self.stage {
            let _ = reply.send(tell(session));
        }
    }

    fn head(&self, resource: &Resource) -> Option<Head> {
        match &self.stage {
            Stage::Inside(session) => session.queues.head(resource),
            Stage::Outside { .. } => None,
        }
    }

    fn leader(&self, head: &Head) -> Option<Leader> {
        let Stage::Inside(session) = &self.stage else { return None };
        let token = keys::token(session.replica.era(), number(head.created))?;
        Some(Leader { holder: head.candidate.holder.clone(), token, ttl: None })
    }

    pub(super) fn tell_of_turn(&self, resource: &Resource, before: Option<&Head>, after: Option<&Head>) {
        let named = |head: &Head| self.leader(head).map(|leader| (leader.holder, leader.token));
        if let Some((holder, token)) = before.and_then(named) {
            let (resource, why) = (resource.clone(), Ended::Gone);
            self.tell(Notice::Election(Event::Ended { resource, holder, token, why }));
        }
        if let Some((holder, token)) = after.and_then(named) {
            self.tell(Notice::Election(Event::Elected { resource: resource.clone(), holder, token }));
        }
    }

    /// A candidate of this gateway has queued up.
    pub(super) fn await_turn(&mut self, resource: Resource, waiting: Waiting) {
        self.campaigns.turns.entry(resource.clone()).or_default().push(waiting);
        self.tell_turns(&resource);
    }

    /// Tells whoever is first, and whoever is not in line any more.
    pub(super) fn tell_turns(&mut self, resource: &Resource) {
        let Some(waiting) = self.campaigns.turns.remove(resource) else { return };
        let Stage::Inside(session) = &self.stage else { return };
        let (head, seen, era) = (session.queues.head(resource), session.seen, session.replica.era());
        let (mut left, mut first) = (Vec::new(), false);
        for waiting in waiting {
            let token = keys::token(era, number(waiting.created));
            match &head {
                Some(head) if head.created == waiting.created => {
                    first = true;
                    // A revision that is no token is out of the question for centuries.
                    let _ = waiting.tell.send(token.map_or(Turned::Gone, Turned::First));
                }
                _ if seen >= waiting.created && !session.queues.has(resource, waiting.created) => {
                    let _ = waiting.tell.send(Turned::Gone);
                }
                _ => left.push(waiting),
            }
        }
        if !left.is_empty() {
            self.campaigns.turns.insert(resource.clone(), left);
        }
        if let Some(head) = head.filter(|_| first) {
            self.want(resource, &head, None, false);
        }
    }

    /// The end of the gateway: whoever waits here waits no longer.
    pub(super) async fn withdraw_candidates(&mut self) {
        let mut leaving = tokio::task::JoinSet::new();
        for (lease, running) in self.campaigns.by_lease.drain() {
            if running.stand.leave() {
                running.task.abort();
                leaving.spawn(revoke(self.link.clone(), lease));
            }
        }
        // What is not heard in time runs out by itself.
        let _ = tokio::time::timeout(WITHDRAW_LIMIT, leaving.join_all()).await;
    }

    /// Everybody looks again: what this replica knows is out of date.
    pub(super) fn forget_turns(&mut self) {
        self.campaigns.turns.clear();
    }
}

/// Answers when etcd has; if it does not, whoever asked sees the reply dropped.
pub(super) fn answer<T: Send + 'static>(
    reply: oneshot::Sender<T>,
    work: impl Future<Output = Result<T, Trouble>> + Send + 'static,
) {
    tokio::spawn(async move {
        match work.await {
            Ok(answer) => drop(reply.send(answer)),
            Err(error) => tracing::warn!(%error, "an election could not be served"),
        }
    });
}

/// The etcd lease behind a lease of the API. A number that cannot be one is none that exists.
pub(super) fn lease_id(lease: Lease) -> i64 {
    i64::try_from(lease).unwrap_or(i64::MAX)
}

/// As much of a random number as an etcd lease can have.
pub(in crate::store) fn as_lease(random: Lease) -> Lease {
    (random & Lease::from(i64::MAX as u64)).max(1)
}

pub(super) async fn revoke(link: Link, lease: Lease) {
    // What fails runs out by itself.
    let _ = link.client.call(LeaseRevokeRequest { id: lease_id(lease) }).await;
}

/// Extends the lease, then has etcd confirm that its key leads.
async fn renew(link: Link, resource: Resource, lease: Lease) -> Result<Option<Duration>, Trouble> {
    let key = link.keys.candidate(&resource, lease_id(lease));
    let extended = link.client.call(LeaseKeepAliveRequest { id: lease_id(lease) }).await?;
    if extended.ttl <= 0 {
        return Ok(None);
    }
    let ttl = Duration::from_secs(u64::try_from(extended.ttl).unwrap_or(0));
    Ok(leads(&link, &resource, &key).await?.map(|_| ttl))
}

/// A leader as etcd knows it.
pub(super) struct Known {
    created: i64,
    pub(super) token: Token,
    pub(super) holder: String,
}

/// Whether the key leads, by etcd's word. A candidate that is older than the era was given a token of the one
/// before, which is stale.
pub(super) async fn leads(link: &Link, resource: &Resource, key: &str) -> Result<Option<Known>, Trouble> {
    let first = RangeRequest::oldest_below(link.keys.election(resource).as_bytes());
    let ask = TxnRequest::default().then(first).then(RangeRequest::key(link.keys.era()));
    let answer = link.txn(ask).await?;
    let Some(kv) = answer.found(0).first().filter(|kv| kv.key == key.as_bytes()) else { return Ok(None) };
    let era = answer.found(1).first();
    if is_of_an_older_era(revision(kv.create_revision), era) {
        return Ok(None);
    }
    let era = era.and_then(|era| super::values::era(&era.value)).unwrap_or(0);
    let holder = String::from_utf8_lossy(&kv.value).into_owned();
    let token = keys::token(era, kv.create_revision);
    Ok(token.map(|token| Known { created: kv.create_revision, token, holder }))
}

/// Whether a candidate of this revision queued up before the era began.
pub(super) fn is_of_an_older_era(created: Revision, era: Option<&KeyValue>) -> bool {
    era.is_some_and(|era| super::values::era(&era.value) != Some(0) && revision(era.mod_revision) > created)
}

async fn resign(link: Link, resource: Resource, lease: Lease) -> Result<bool, Trouble> {
    let key = link.keys.candidate(&resource, lease_id(lease));
    let Some(Known { created, .. }) = leads(&link, &resource, &key).await? else { return Ok(false) };
    let gone = TxnRequest::when([Compare::created_at(key.as_str(), created)])
        .then(DeleteRangeRequest::key(key.as_str()));
    link.txn(gone).await?;
    tokio::spawn(revoke(link, lease));
    Ok(true)
}

async fn evict(link: Link, leader: Option<Leader>, head: Head) -> Result<Option<Leader>, Trouble> {
    let gone = TxnRequest::when([Compare::created_at(head.candidate.key.clone(), number(head.created))])
        .then(DeleteRangeRequest::key(head.candidate.key));
    link.txn(gone).await?;
    Ok(leader)
}

impl From<Trouble> for CampaignError {
    fn from(trouble: Trouble) -> Self {
        Self::Failed(trouble.to_string())
    }
}
