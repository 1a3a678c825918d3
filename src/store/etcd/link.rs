//! The way to etcd: every answer is judged by what is remembered of it before it counts.

use std::sync::Arc;

use highgate_etcd::keys::Keys;
use highgate_etcd::{CallError, Client, Listing, Outcome, Range, Txn};

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
    pub(super) async fn txn(&self, request: Txn) -> Result<Outcome, Trouble> {
        Ok(self.ask(request).await?.0)
    }

    /// The answer, and what was known when it was asked.
    pub(super) async fn ask(&self, request: Txn) -> Result<(Outcome, Asked), Trouble> {
        let asked = self.memory.asking();
        let answer = self.client.txn(request).await?;
        self.memory.judge(answer.header, asked)?;
        Ok((answer, asked))
    }

    pub(super) async fn range(&self, request: Range) -> Result<Listing, Trouble> {
        let asked = self.memory.asking();
        let answer = self.client.range(request).await?;
        self.memory.judge(answer.header, asked)?;
        Ok(answer)
    }
}
