//! The election API over etcd: every candidate has an etcd lease of its own, so any replica can renew it, and it
//! ends with its holder, not with the gateway it came through.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use highgate_elector::{Resource, Token};
use highgate_etcd::keys;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::campaign::{Stand, campaign};
use super::driver::{Driver, Stage};
use super::link::Trouble;
use super::queues::Head;
use super::revoke::Revoker;
use super::terms::{Held, evict, renew, resign};
use super::values::number;
use crate::elections::{Ended, Event, Lease, Standing};
use crate::events::Notice;
use crate::replica::Revision;
use crate::store::elections::{CampaignError, CampaignId, Election, Leader, Order};

/// How long the end waits for candidates to be withdrawn.
const WITHDRAW_LIMIT: Duration = Duration::from_secs(1);

/// Candidates that came through this gateway and do not lead yet.
pub(super) struct Campaigns {
    by_lease: HashMap<(Resource, Lease), Running>,
    /// Takes back what those have left behind who do not want to lead any more.
    revoker: Revoker,
    /// Who waits for its turn, by resource.
    turns: HashMap<Resource, Vec<Waiting>>,
}

struct Running {
    id: CampaignId,
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

impl Campaigns {
    pub(super) fn new(revoker: Revoker) -> Self {
        Self { by_lease: HashMap::new(), revoker, turns: HashMap::new() }
    }
}

impl Driver {
    pub(super) fn order(&mut self, order: Order) {
        self.expect_end(&order);
        match order {
            Order::Campaign { resource, candidate, mut campaigner, id } => {
                let stand = Arc::<Stand>::default();
                let key = (resource.clone(), candidate.lease);
                let running = campaign(
                    (self.link.clone(), self.campaigns.revoker.clone()),
                    self.shared.ledger.clone(),
                    self.reports.clone(),
                    (resource, candidate),
                    stand.clone(),
                );
                let task = tokio::spawn(async move {
                    tokio::select! {
                        outcome = running => drop(campaigner.send(outcome)),
                        // Whoever waited is gone: it has withdrawn, or is about to.
                        () = campaigner.closed() => {}
                    }
                });
                let running = Running { id, stand, task: task.abort_handle() };
                if let Some(before) = self.campaigns.by_lease.insert(key, running) {
                    // The same candidate has come again, by another connection: its place in line is this one's now.
                    before.task.abort();
                }
                self.campaigns.by_lease.retain(|_, running| !running.task.is_finished());
            }
            Order::Withdraw { resource, lease, id } => {
                let key = (resource, lease);
                if self.campaigns.by_lease.get(&key).is_some_and(|running| running.id != id) {
                    return;
                }
                if let Some(running) = self.campaigns.by_lease.remove(&key) {
                    running.task.abort();
                }
                self.campaigns.revoker.revoke(lease);
            }
            Order::Leave { resource, lease, id, reply } => {
                let key = (resource, lease);
                let own = self.campaigns.by_lease.get(&key).filter(|running| running.id == id);
                let left = own.is_some_and(|running| running.stand.leave());
                if left && let Some(running) = self.campaigns.by_lease.remove(&key) {
                    running.task.abort();
                    self.campaigns.revoker.revoke(lease);
                }
                let _ = reply.send(left);
            }
            Order::Renew { resource, lease, actor, reply } => {
                let held = Held { resource, lease, actor };
                answer(reply, renew(self.link.clone(), self.campaigns.revoker.clone(), held));
            }
            Order::Resign { resource, lease, actor, reply } => {
                let held = Held { resource, lease, actor };
                answer(reply, resign(self.link.clone(), self.campaigns.revoker.clone(), held));
            }
            Order::Evict { resource, token, reply } => {
                let is_meant = |head: &Head| match (token, self.leader(head)) {
                    (Some(token), leader) => leader.is_some_and(|leader| leader.token.get() == token),
                    (None, _) => true,
                };
                match self.head(&resource).filter(is_meant) {
                    Some(head) => answer(reply, evict(self.link.clone(), self.leader(&head), head)),
                    None => self.if_inside(reply, |_| None),
                }
            }
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
        let (holder, owner) = (head.candidate.holder.clone(), head.candidate.owner.clone());
        Some(Leader { holder, token, ttl: None, owner })
    }

    pub(super) fn tell_of_turn(
        &self,
        resource: &Resource,
        before: Option<(&Head, Ended)>,
        after: Option<&Head>,
    ) {
        let named = |head: &Head| self.leader(head).map(|leader| (leader.holder, leader.token));
        if let Some((head, why)) = before
            && let Some((holder, token)) = named(head)
        {
            let resource = resource.clone();
            self.tell(Notice::Election(Event::Ended { resource, holder, token, why }));
        }
        if let Some((holder, token)) = after.and_then(named) {
            self.tell(Notice::Election(Event::Elected { resource: resource.clone(), holder, token }));
        }
    }

    /// Whoever resigns or is evicted, through any gateway, has that said with it. So if nothing is said when a candidate
    /// goes that came or was renewed through this gateway, its lease has run out.
    fn expect_end(&mut self, order: &Order) {
        let Stage::Inside(session) = &mut self.stage else { return };
        let (resource, lease) = match order {
            Order::Campaign { resource, candidate, .. } => (resource, candidate.lease),
            Order::Renew { resource, lease, .. } => (resource, *lease),
            _ => return,
        };
        let key = self.link.keys.candidate(resource, lease_id(lease));
        session.queues.expect(key.into_bytes(), Ended::Expired);
    }

    /// After a join or a gap: everybody who leads now, whoever was missed included.
    pub(super) fn tell_who_stands(&self) {
        let Stage::Inside(session) = &self.stage else { return };
        let standing = |(resource, head): (Resource, Head)| {
            let leader = self.leader(&head).map(|leader| (leader.holder, leader.token));
            Standing { leader, waiting: session.queues.waiting(&resource), resource }
        };
        self.tell(Notice::Standing(session.queues.heads().into_iter().map(standing).collect()));
    }

    /// A candidate of this gateway has queued up.
    pub(super) fn await_turn(&mut self, resource: Resource, waiting: Waiting) {
        self.campaigns.turns.entry(resource.clone()).or_default().push(waiting);
        self.tell_turns(&resource);
    }

    /// After the leader of the resource was told of, so that whoever hears of its end knows who waited for it then.
    fn tell_of_line(&self, resource: &Resource) {
        let Stage::Inside(session) = &self.stage else { return };
        let waiting = session.queues.waiting(resource);
        self.tell(Notice::Line { resource: resource.clone(), waiting });
    }

    /// Tells whoever is first, and whoever is not in line any more.
    pub(super) fn tell_turns(&mut self, resource: &Resource) {
        self.tell_of_line(resource);
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
        for (lease, running) in self.campaigns.by_lease.drain() {
            if running.stand.leave() {
                running.task.abort();
                self.campaigns.revoker.revoke(lease.1);
            }
        }
        // What is not heard in time runs out by itself.
        let _ = tokio::time::timeout(WITHDRAW_LIMIT, self.campaigns.revoker.done()).await;
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

impl From<Trouble> for CampaignError {
    fn from(trouble: Trouble) -> Self {
        Self::Failed(trouble.to_string())
    }
}
