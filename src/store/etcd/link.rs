//! The way to etcd: every answer is judged by what is remembered of it before it counts.

use std::sync::Arc;

use highgate_elector::backend::etcd::client::{CallError, Client};
use highgate_elector::backend::etcd::keys::Keys;
use highgate_elector::backend::etcd::wire::{RangeRequest, RangeResponse, TxnRequest, TxnResponse};

use super::memory::{Asked, Memory, Verdict, WentBack};

/// Cheap to clone.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) keys: Arc<Keys>,
    pub(super) memory: Arc<Memory>,
}

/// Why there is no answer that counts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Trouble {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    WentBack(#[from] WentBack),
    #[error("the question was asked before the era began that this replica has accepted")]
    Outdated,
}

impl From<Verdict> for Trouble {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::WentBack(went_back) => Self::WentBack(went_back),
            Verdict::Outdated => Self::Outdated,
        }
    }
}

impl Link {
    pub(super) async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Trouble> {
        Ok(self.ask(request).await?.0)
    }

    /// The answer, and what was known when it was asked.
    pub(super) async fn ask(&self, request: TxnRequest) -> Result<(TxnResponse, Asked), Trouble> {
        let asked = self.memory.asking();
        let answer = self.client.call(request).await?;
        self.memory.judge(answer.header.as_ref(), asked)?;
        Ok((answer, asked))
    }

    pub(super) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Trouble> {
        let asked = self.memory.asking();
        let answer = self.client.call(request).await?;
        self.memory.judge(answer.header.as_ref(), asked)?;
        Ok(answer)
    }
}
