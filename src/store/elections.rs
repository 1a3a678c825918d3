//! The way to the store's elections: campaign, renew, resign, evict, and the run-once ledger.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use highgate_elector::{Resource, Token};
use tokio::sync::oneshot;

use super::once::Question;
use super::{Command, Store, etcd};
use crate::elections::{Actor, Candidate, Lease, NotHeld};

/// One campaign. A client may name a lease that an earlier campaign of its own has, so the lease does not tell them apart.
pub(super) type CampaignId = u128;

/// What the driver is asked.
pub(super) enum Order {
    Campaign {
        resource: Resource,
        candidate: Candidate,
        campaigner: Campaigner,
        id: CampaignId,
    },
    Withdraw {
        resource: Resource,
        lease: Lease,
        id: CampaignId,
    },
    Leave {
        resource: Resource,
        lease: Lease,
        id: CampaignId,
        reply: oneshot::Sender<bool>,
    },
    Renew {
        resource: Resource,
        lease: Lease,
        actor: Actor,
        reply: oneshot::Sender<Result<Leader, NotHeld>>,
    },
    Resign {
        resource: Resource,
        lease: Lease,
        actor: Actor,
        reply: oneshot::Sender<Result<(), NotHeld>>,
    },
    /// Whoever leads, or only the leader with this token.
    Evict {
        resource: Resource,
        token: Option<u64>,
        reply: oneshot::Sender<Option<Leader>>,
    },
    Show {
        resource: Resource,
        reply: oneshot::Sender<Election>,
    },
    Leaders {
        resources: Vec<Resource>,
        reply: oneshot::Sender<Vec<Option<Leader>>>,
    },
    Once(Question),
}

/// Who waits for the outcome of a candidacy.
pub(super) type Campaigner = oneshot::Sender<Result<Token, CampaignError>>;

/// Who leads, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    pub holder: String,
    pub token: Token,
    /// None where the store does not say.
    pub ttl: Option<Duration>,
    /// The identity that it campaigned with, where that is known.
    pub owner: Option<String>,
}

/// An election as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    pub leader: Option<Leader>,
    pub waiting: usize,
}

/// Why a candidate will never lead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CampaignError {
    #[error("the mark is the highest token there is, so nobody can be issued a higher one")]
    Exhausted,
    #[error("the candidate had won, lost that before it was told, and its time in line is over")]
    TooLate,
    #[error("the store refused the candidate: {0}")]
    Failed(String),
    #[error(transparent)]
    Stopped(#[from] StoreStopped),
}

/// The store has stopped, or nobody knows what it would say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store has stopped or does not answer")]
pub struct StoreStopped;

/// A candidacy. Completes with the token when it leads; dropped before, it is withdrawn.
pub struct Campaign {
    store: Store,
    resource: Resource,
    lease: Lease,
    id: CampaignId,
    outcome: oneshot::Receiver<Result<Token, CampaignError>>,
    decided: bool,
}

impl Store {
    /// A name for a lease that nobody can guess, as this store can have it.
    pub fn fresh_lease(&self) -> Lease {
        let lease = uuid::Uuid::new_v4().as_u128();
        if self.proves() { etcd::as_lease(lease) } else { lease }
    }

    /// Queues up for a resource. First come, first served.
    pub fn campaign(&self, resource: Resource, candidate: Candidate) -> Campaign {
        let (campaigner, outcome) = oneshot::channel();
        let lease = candidate.lease;
        let id = uuid::Uuid::new_v4().as_u128();
        self.order(Order::Campaign { resource: resource.clone(), candidate, campaigner, id });
        Campaign { store: self.clone(), resource, lease, id, outcome, decided: false }
    }

    /// The leadership on this lease, and how long the lease is good for now.
    pub async fn renew(
        &self,
        resource: Resource,
        lease: Lease,
        actor: Actor,
    ) -> Result<Result<Leader, NotHeld>, StoreStopped> {
        self.ask(|reply| Order::Renew { resource, lease, actor, reply }).await
    }

    /// Gives a leadership up.
    pub async fn resign(
        &self,
        resource: Resource,
        lease: Lease,
        actor: Actor,
    ) -> Result<Result<(), NotHeld>, StoreStopped> {
        self.ask(|reply| Order::Resign { resource, lease, actor, reply }).await
    }

    /// Deposes whoever leads, or only the leader with this token, and says who it was.
    pub async fn evict(
        &self,
        resource: Resource,
        token: Option<u64>,
    ) -> Result<Option<Leader>, StoreStopped> {
        self.ask(|reply| Order::Evict { resource, token, reply }).await
    }

    pub async fn election(&self, resource: Resource) -> Result<Election, StoreStopped> {
        self.ask(|reply| Order::Show { resource, reply }).await
    }

    /// Who leads each of these.
    pub async fn leaders(&self, resources: Vec<Resource>) -> Result<Vec<Option<Leader>>, StoreStopped> {
        self.ask(|reply| Order::Leaders { resources, reply }).await
    }

    pub(super) async fn ask<T>(
        &self,
        order: impl FnOnce(oneshot::Sender<T>) -> Order,
    ) -> Result<T, StoreStopped> {
        let (reply, answer) = oneshot::channel();
        self.order(order(reply));
        answer.await.map_err(|_| StoreStopped)
    }

    pub(super) fn order(&self, order: Order) {
        // Without a driver the answer's sender goes with the order, and that is the answer.
        self.inbox.send(Command::Election(order));
    }
}

impl Campaign {
    /// Leaves the line. False if it is past it: it has won, and will be told; or, where that can be lost before, that it
    /// is [`CampaignError::TooLate`] to go back to the line.
    pub async fn leave(&mut self) -> bool {
        let (resource, lease, id) = (self.resource.clone(), self.lease, self.id);
        // A store that has stopped says so to whoever waits on.
        let left = self.store.ask(|reply| Order::Leave { resource, lease, id, reply }).await.unwrap_or(false);
        self.decided |= left;
        left
    }
}

impl Future for Campaign {
    type Output = Result<Token, CampaignError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(Pin::new(&mut self.outcome).poll(cx));
        self.decided = true;
        Poll::Ready(outcome.unwrap_or(Err(StoreStopped.into())))
    }
}

impl Drop for Campaign {
    fn drop(&mut self) {
        if !self.decided {
            let (resource, lease, id) = (self.resource.clone(), self.lease, self.id);
            self.store.order(Order::Withdraw { resource, lease, id });
        }
    }
}
