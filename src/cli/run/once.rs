//! `--once KEY`: what was completed is not run again.
//!
//! What must stay true: the ledger is asked again as long as this process leads, and never after. A command that
//! was told to end has completed nothing, whatever its exit code.

use std::time::Duration;

use highgate_elector::backend::{BackendError, OnceError};
use highgate_elector::once::{Once, Run};
use highgate_elector::{Leadership, timestamp};
use tokio::time::sleep;

use super::{EXIT_LOST, EXIT_UNAVAILABLE, say};

const RETRY_EVERY: Duration = Duration::from_millis(200);

/// What is to be done about a key.
pub(super) enum Begun {
    Run(Run),
    /// Nothing, and this is the exit code.
    Skip(u8),
}

/// Says in the ledger that this leader is about to run it.
pub(super) async fn begin(leadership: &Leadership, key: &str) -> Begun {
    match persist(async || Once::begin(leadership, key).await).await {
        Ok(Once::Run(run)) => Begun::Run(run),
        Ok(Once::AlreadyCompleted { holder, token, at }) => {
            let at = timestamp::format(at);
            say(&format!("{key} was completed by {holder} with token {token} at {at}; nothing to do"));
            Begun::Skip(0)
        }
        Err(error) => Begun::Skip(failed(key, &error)),
    }
}

/// Says in the ledger that it was run. The exit code if that was not possible.
pub(super) async fn complete(run: &Run) -> Result<(), u8> {
    match persist(async || run.complete().await).await {
        Ok(()) => {
            say(&format!("{} is completed", run.key()));
            Ok(())
        }
        Err(error) => Err(failed(run.key(), &error)),
    }
}

/// Asks until there is an answer; who leads no more is told so without asking.
async fn persist<T>(mut ask: impl AsyncFnMut() -> Result<T, OnceError>) -> Result<T, OnceError> {
    loop {
        match ask().await {
            Err(OnceError::Failed(BackendError::Unavailable { .. })) => sleep(RETRY_EVERY).await,
            answer => return answer,
        }
    }
}

fn failed(key: &str, error: &OnceError) -> u8 {
    say(&format!("{key}: {error}"));
    match error {
        OnceError::Deposed => EXIT_LOST,
        OnceError::Failed(_) => EXIT_UNAVAILABLE,
    }
}
