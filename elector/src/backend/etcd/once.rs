//! The run-once ledger: one key per run, changed only while the asking leader's own key lives.
//!
//! The value is a line of JSON: `{"state":"running","holder":…,"token":…}`, or `completed` with `at` (seconds since
//! 1970). What must stay true: a deposed leader changes nothing, what is completed stays so, and a step whose
//! answer got lost can be taken again.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::Core;
use super::client::{CallError, Client};
use super::keys::Keys;
use super::wire::{Compare, PutRequest, RangeRequest, TxnRequest};
use crate::Token;
use crate::backend::{Grant, OnceError, OnceState, OnceStep};

/// What the ledger holds of a key.
enum Entry {
    Completed(OnceState),
    /// Nothing, or a run that has not completed; and when that was written.
    Open {
        changed: i64,
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
    step(&core.client, &core.keys, grant, key, wanted).await.map_err(|error| match error {
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
) -> Result<OnceState, StepError> {
    let ledger_key = keys.once(key);
    loop {
        let changed = match read(client, keys, grant, &ledger_key).await? {
            Entry::Completed(state) => return Ok(state),
            Entry::Open { changed } => changed,
        };
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let (state, value) = match step {
            OnceStep::Begin => (OnceState::Running, running(grant)),
            OnceStep::Complete => (completed_state(grant, at), completed(grant, at)),
        };
        let write =
            TxnRequest::when([leads(keys, grant)?, Compare::changed_at(ledger_key.as_str(), changed)])
                .then(PutRequest::new(ledger_key.as_str(), value.to_string()))
                .or_else(RangeRequest::key(ledger_key.as_str()));
        let answer = client.call(write).await?;
        if answer.succeeded || answer.found(0).first().is_some_and(|kv| is_same(&kv.value, &value)) {
            return Ok(state);
        }
    }
}

/// What the ledger says, to a leader.
async fn read(client: &Client, keys: &Keys, grant: &Grant, ledger_key: &str) -> Result<Entry, StepError> {
    let ask = TxnRequest::when([leads(keys, grant)?])
        .then(RangeRequest::key(ledger_key))
        .then(RangeRequest::key(keys.era()))
        .or_else(RangeRequest::key(keys.era()));
    let answer = client.call(ask).await?;
    let era = super::campaign::read_era(answer.found(1))?;
    if !answer.succeeded || era != grant.token.era() {
        return Err(StepError::Deposed);
    }
    let Some(kv) = answer.found(0).first() else { return Ok(Entry::Open { changed: 0 }) };
    let entry =
        parse(&kv.value).ok_or_else(|| CallError::Refused(format!("{ledger_key} holds no ledger entry")));
    Ok(match entry? {
        OnceState::Running => Entry::Open { changed: kv.mod_revision },
        completed => Entry::Completed(completed),
    })
}

/// None of a lease that etcd cannot have given leads.
fn leads(keys: &Keys, grant: &Grant) -> Result<Compare, StepError> {
    let lease = i64::from_str_radix(&grant.lease, 16).map_err(|_| StepError::Deposed)?;
    Ok(Compare::created_at(keys.candidate(&grant.resource, lease), super::keys::revision(grant.token)))
}

fn running(grant: &Grant) -> Value {
    json!({"state": "running", "holder": grant.holder, "token": grant.token.get()})
}

fn completed(grant: &Grant, at: u64) -> Value {
    json!({"state": "completed", "holder": grant.holder, "token": grant.token.get(), "at": at})
}

fn completed_state(grant: &Grant, at: u64) -> OnceState {
    OnceState::Completed { holder: grant.holder.clone(), token: grant.token, at }
}

/// The write of this very step, sent twice.
fn is_same(found: &[u8], value: &Value) -> bool {
    serde_json::from_slice::<Value>(found).is_ok_and(|found| found == *value)
}

fn parse(value: &[u8]) -> Option<OnceState> {
    let value: Value = serde_json::from_slice(value).ok()?;
    match value.get("state")?.as_str()? {
        "running" => Some(OnceState::Running),
        "completed" => Some(OnceState::Completed {
            holder: value.get("holder")?.as_str()?.to_owned(),
            token: Token::new(value.get("token")?.as_u64()?)?,
            at: value.get("at")?.as_u64()?,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_written_is_read_back() {
        let grant = Grant {
            resource: crate::Resource::parse("jobs").unwrap(),
            holder: "me \"7\"".to_owned(),
            token: Token::new(7).unwrap(),
            lease: "1f".to_owned(),
            ttl: Duration::from_secs(5),
        };
        assert_eq!(parse(running(&grant).to_string().as_bytes()), Some(OnceState::Running));
        let written = completed(&grant, 99).to_string();
        assert_eq!(parse(written.as_bytes()), Some(completed_state(&grant, 99)));
        assert!(is_same(written.as_bytes(), &completed(&grant, 99)));
        assert_eq!(parse(b"{\"state\":\"else\"}"), None);
        assert_eq!(parse(b"yes"), None);
    }
}
