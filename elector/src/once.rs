//! The run-once ledger: work of a period is done once, whoever leads.
//!
//! A key names a job and its period, like `daily-report/2026-02-28`, and belongs to the resource that is led: two
//! resources may use one key without knowing of each other. The ledger is in the backend and fenced by
//! the leadership: who was deposed can neither begin nor complete. A leader that finds what a dead one has begun
//! takes it over, so the work may run more than once until it is completed once: make it repeatable.

use std::sync::Arc;
use std::time::SystemTime;

use crate::Token;
use crate::backend::{OnceError, OnceState, OnceStep};
use crate::heartbeat::Renewer;
use crate::leadership::Leadership;
use crate::leadership::term::Term;

/// What is to be done about a key.
#[derive(Debug)]
pub enum Once {
    /// Do it, then [`Run::complete`].
    Run(Run),
    /// It was done: by whom, with which token, and when, by the clock of who did it.
    AlreadyCompleted { holder: String, token: Token, at: SystemTime },
}

/// A run of the work of one key. Dropped without [`Run::complete`], the next leader does it again.
pub struct Run {
    key: String,
    term: Arc<Term>,
    renewer: Renewer,
}

impl Once {
    /// Notes that this leader is about to do it, unless it was done.
    pub async fn begin(leadership: &Leadership, key: &str) -> Result<Self, OnceError> {
        let run = Run {
            key: key.to_owned(),
            term: leadership.term().clone(),
            renewer: leadership.renewer().clone(),
        };
        match run.step(OnceStep::Begin).await? {
            OnceState::Running => Ok(Self::Run(run)),
            OnceState::Completed { holder, token, at } => Ok(Self::AlreadyCompleted { holder, token, at }),
        }
    }
}

impl Run {
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Notes that it is done. After [`OnceError::Failed`] nobody knows whether that was noted: try again.
    pub async fn complete(&self) -> Result<(), OnceError> {
        self.step(OnceStep::Complete).await.map(|_| ())
    }

    async fn step(&self, step: OnceStep) -> Result<OnceState, OnceError> {
        self.term.check().map_err(|_| OnceError::Deposed)?;
        let (renewer, term, key) = (self.renewer.clone(), self.term.clone(), self.key.clone());
        let errand = self.renewer.spawn(async move { renewer.backend().once(&term.grant, &key, step).await });
        errand.outcome().await.unwrap_or(Err(OnceError::Deposed))
    }
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run").field("key", &self.key).field("token", &self.term.grant.token).finish()
    }
}
