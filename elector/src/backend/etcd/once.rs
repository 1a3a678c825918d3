//! The run-once ledger: one key per run, changed only while the asking leader's own key lives.
//!
//! The value is a line of JSON: `{"state":"running","holder":…,"token":…,"at":…}`, or `completed`. What must stay true: a deposed leader changes nothing, nor one of an era before, what is completed stays so, and a step whose
//! answer got lost can be taken again.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use highgate_etcd::keys::{Keys, revision};
use highgate_etcd::{CallError, Client, Compare, Put, Range, Txn};
use serde_json::{Value, json};

use super::Core;
use crate::backend::{Grant, OnceError, OnceState, OnceStep};
use crate::{Token, timestamp};

/// An entry of the ledger, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Else somebody is running it, or was when it was deposed.
    pub completed: bool,
    pub holder: String,
    pub token: Token,
    /// By the clock of the holder, in whole milliseconds.
    pub at: SystemTime,
}

impl Entry {
    /// None of a value that the ledger does not write.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(value).ok()?;
        let completed = match value.get("state")?.as_str()? {
            "running" => false,
            "completed" => true,
            _ => return None,
        };
        Some(Self {
            completed,
            holder: value.get("holder")?.as_str()?.to_owned(),
            token: Token::new(value.get("token")?.as_u64()?)?,
            at: timestamp::parse(value.get("at")?.as_str()?)?,
        })
    }

    fn of(grant: &Grant, step: OnceStep) -> Self {
        let (holder, token) = (grant.holder.clone(), grant.token);
        Self { completed: step == OnceStep::Complete, holder, token, at: now() }
    }

    fn write(&self) -> String {
        let state = if self.completed { "completed" } else { "running" };
        let (holder, token, at) = (&self.holder, self.token.get(), timestamp::format(self.at));
        json!({ "state": state, "holder": holder, "token": token, "at": at }).to_string()
    }

    fn into_state(self) -> OnceState {
        match self {
            Self { completed: false, .. } => OnceState::Running,
            Self { holder, token, at, .. } => OnceState::Completed { holder, token, at },
        }
    }
}

/// What the ledger holds of a key.
enum Found {
    Completed(Entry),
    /// Nothing, or a run that has not completed; when that was written, and when the era was that it was read in.
    Open {
        changed: i64,
        era_changed: i64,
    },
}

/// Why a step was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// The grant does not lead any more.
    #[error("the leadership is over")]
    Deposed,
    #[error(transparent)]
    Failed(#[from] CallError),
}

pub(super) async fn once(
    core: &Core,
    grant: &Grant,
    key: &str,
    wanted: OnceStep,
) -> Result<OnceState, OnceError> {
    let entry = step(&core.client, &core.keys, grant, key, wanted).await;
    entry.map(Entry::into_state).map_err(|error| match error {
        StepError::Deposed => OnceError::Deposed,
        StepError::Failed(error) => OnceError::Failed(core.fail(&error)),
    })
}

/// A step of whoever holds the grant. The gateway takes it for jobs that lead through it.
pub async fn step(
    client: &Client,
    keys: &Keys,
    grant: &Grant,
    key: &str,
    step: OnceStep,
) -> Result<Entry, StepError> {
    let ledger_key = keys.once(&grant.resource, key);
    loop {
        let (changed, era_changed) = match read(client, keys, grant, &ledger_key).await? {
            Found::Completed(entry) => return Ok(entry),
            Found::Open { changed, era_changed } => (changed, era_changed),
        };
        let entry = Entry::of(grant, step);
        // The key of a leader may outlive its era; what it leads by does not.
        let as_read = [
            leads(keys, grant)?,
            Compare::changed_at(ledger_key.as_str(), changed),
            Compare::changed_at(keys.era(), era_changed),
        ];
        let write = Txn::when(as_read)
            .then(Put::new(ledger_key.as_str(), entry.write()))
            .or_else(Range::key(ledger_key.as_str()));
        let answer = client.txn(write).await?;
        // The write of this very step, sent twice, finds itself.
        let found = answer.found(0).first().and_then(|kv| Entry::parse(&kv.value));
        if answer.succeeded || found.as_ref() == Some(&entry) {
            return Ok(entry);
        }
    }
}

/// What the ledger says, to a leader.
async fn read(client: &Client, keys: &Keys, grant: &Grant, ledger_key: &str) -> Result<Found, StepError> {
    let ask = Txn::when([leads(keys, grant)?])
        .then(Range::key(ledger_key))
        .then(Range::key(keys.era()))
        .or_else(Range::key(keys.era()));
    let answer = client.txn(ask).await?;
    let era = super::campaign::read_era(answer.found(1))?;
    if !answer.succeeded || era != grant.token.era() {
        return Err(StepError::Deposed);
    }
    let era_changed = answer.found(1).first().map_or(0, |kv| kv.mod_revision);
    let Some(kv) = answer.found(0).first() else { return Ok(Found::Open { changed: 0, era_changed }) };
    let entry = Entry::parse(&kv.value)
        .ok_or_else(|| CallError::Refused(format!("{ledger_key} holds no ledger entry")))?;
    Ok(match entry.completed {
        true => Found::Completed(entry),
        false => Found::Open { changed: kv.mod_revision, era_changed },
    })
}

/// None of a lease that etcd cannot have given leads.
fn leads(keys: &Keys, grant: &Grant) -> Result<Compare, StepError> {
    let lease = i64::from_str_radix(&grant.lease, 16).map_err(|_| StepError::Deposed)?;
    Ok(Compare::created_at(keys.candidate(&grant.resource, lease), revision(grant.token)))
}

/// The wall clock in the milliseconds that are written, so that what is read back is the same.
fn now() -> SystemTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UNIX_EPOCH + Duration::new(since.as_secs(), since.subsec_millis() * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let grant = Grant {
            resource: crate::Resource::parse("jobs").unwrap(),
            holder: "me \"7\"".to_owned(),
            token: Token::new(7).unwrap(),
            lease: "1f".to_owned(),
            ttl: Duration::from_secs(5),
            signed_token: None,
        };
        for (step, completed) in [(OnceStep::Begin, false), (OnceStep::Complete, true)] {
            let entry = Entry::of(&grant, step);
            assert_eq!(entry.completed, completed);
            assert_eq!(Entry::parse(entry.write().as_bytes()), Some(entry));
        }
        assert_eq!(Entry::parse(b"{\"state\":\"else\"}"), None);
        assert_eq!(Entry::parse(b"yes"), None);
    }
}
