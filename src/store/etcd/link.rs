//! The way to etcd: every answer is judged by what is remembered of it before it counts.

use std::sync::Arc;

use highgate_elector::backend::etcd::client::{CallError, Client};
use highgate_elector::backend::etcd::keys::Keys;
use highgate_elector::backend::etcd::wire::{RangeRequest, RangeResponse, TxnRequest, TxnResponse};

use super::memory::{Memory, WentBack};

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
}

impl Link {
    pub(super) async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Trouble> {
        let before = self.memory.revision();
        let answer = self.client.call(request).await?;
        self.memory.judge(answer.header.as_ref(), before)?;
        Ok(answer)
    }

    pub(super) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Trouble> {
        let before = self.memory.revision();
        let answer = self.client.call(request).await?;
        self.memory.judge(answer.header.as_ref(), before)?;
        Ok(answer)
    }
}
