//! `highgate backend init`: an operator's word that nobody has used a prefix before.
//!
//! A gateway that finds no era cannot know that. etcd may have been set up anew, or restored from a backup that is
//! older than the first use, and gateways of the etcd before may still believe in their validity; neither etcd's
//! revision nor its identity tells, since those of an etcd that was set up anew are those of a new one. So a
//! gateway begins the first era with a tombstone, and nothing opens for W + D. Whoever says here that nobody came
//! before begins it without one.

use highgate_etcd::keys::Keys;
use highgate_etcd::url::EtcdUrl;
use highgate_etcd::{CallError, Client, Compare, OpenError, Put, Range, Txn};

use super::endings;
use super::values::era;

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// The first era has begun, and nobody has to be waited for.
    Begun,
    /// An era had begun before; nothing was changed.
    AlreadyBegun { era: u64 },
}

/// Why a prefix could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error("cannot use the etcd endpoints or certificates")]
    Open(#[from] OpenError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(
        "gateways have used {0}: there are marks, members or tombstones below it, but no era. Somebody has deleted it; \
         start a gateway and run `highgate era bump`"
    )]
    InUse(String),
}

/// Begins the first era of a prefix that no gateway has used.
pub async fn prepare(url: &EtcdUrl) -> Result<Prepared, PrepareError> {
    let (client, keys) = (Client::open(url)?, Keys::new(&url.prefix));
    let answer = client.txn(begin(&keys)).await?;
    if answer.succeeded {
        return Ok(Prepared::Begun);
    }
    match answer.found(0).first().and_then(|kv| era(&kv.value)) {
        Some(era) => Ok(Prepared::AlreadyBegun { era }),
        None => Err(PrepareError::InUse(url.prefix.clone())),
    }
}

/// Candidates and the run-once ledger are no gateways'.
fn begin(keys: &Keys) -> Txn {
    let absent = |key: String| Compare::created_at(key, 0);
    let nothing_below = |prefix: String| Compare::created_at(prefix, 0).of_all_below();
    Txn::when([
        absent(keys.era()),
        absent(keys.seq()),
        absent(keys.names()),
        nothing_below(keys.fences()),
        nothing_below(keys.members()),
        nothing_below(keys.tombstones()),
        nothing_below(endings::below(keys)),
    ])
    .then(Put::new(keys.era(), "0"))
    .then(Put::new(keys.seq(), ""))
    .or_else(Range::key(keys.era()))
}
