//! Writers: each write has a name of its own, and what its writer was told is kept for the judge.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::client::{Ask, Response, post};
use super::exchange::{Failure, exchange, exchange_slowly};
use super::gateway::Door;

/// What a writer knows of its write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// The upstream's own 2xx.
    Passed,
    /// Refused by the gateway, which says that nothing was forwarded.
    Refused { status: u16, reason: String },
    /// Nobody took the connection.
    NotSent,
    /// The answer was lost, or says that the outcome is unknown.
    Unknown(String),
}

/// All writes and what their writers were told.
#[derive(Default)]
pub(crate) struct Answers {
    /// Before the number of every write: different in every process that writes.
    prefix: String,
    next: AtomicU64,
    told: Mutex<HashMap<String, Outcome>>,
}

/// A write that is about to be sent: `gateway.write("ledger", 7).held("slow").begin()`.
pub(crate) struct Write {
    door: Arc<Door>,
    answers: Arc<Answers>,
    id: String,
    ask: Ask,
    /// How long its last byte is held back.
    upload: Duration,
    patience: Duration,
}

/// A write under way.
pub(crate) struct Begun(JoinHandle<Outcome>);

impl Answers {
    pub(crate) fn of(process: &str) -> Self {
        Self { prefix: format!("{process}-"), ..Self::default() }
    }

    pub(crate) fn told(&self) -> HashMap<String, Outcome> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn keep(&self, id: String, outcome: Outcome) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(id, outcome);
    }
}

impl Write {
    pub(crate) fn new(door: Arc<Door>, answers: Arc<Answers>, resource: &str, token: u64) -> Self {
        let id = format!("{}{}", answers.prefix, answers.next.fetch_add(1, Ordering::Relaxed));
        let ask = post("/").resource(resource).token(token).header("X-Request", &id);
        let ask = ask.header("Connection", "close").body("x");
        Self { door, answers, id, ask, upload: Duration::ZERO, patience: super::PATIENCE }
    }

    /// No other write has this.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Takes effect only once the test releases this name.
    pub(crate) fn held(mut self, name: &str) -> Self {
        self.ask = self.ask.header("X-Held", name);
        self
    }

    /// Takes effect after so long.
    pub(crate) fn delayed(mut self, delay: Duration) -> Self {
        self.ask = self.ask.header("X-Delay-Ms", &delay.as_millis().to_string());
        self
    }

    /// Has the upstream do something out of the ordinary with it, as this header says.
    pub(crate) fn asking_for(mut self, header: &str, value: &str) -> Self {
        self.ask = self.ask.header(header, value);
        self
    }

    /// Is so many bytes long.
    pub(crate) fn of_size(mut self, bytes: usize) -> Self {
        self.ask = self.ask.body(vec![b'x'; bytes]);
        self
    }

    /// Its last byte is sent only after so long.
    pub(crate) fn uploaded_over(mut self, time: Duration) -> Self {
        self.upload = time;
        self
    }

    /// Its answer is awaited for no longer than this.
    pub(crate) fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    pub(crate) fn send(self) -> Outcome {
        let answer = exchange_slowly(self.door.data(), &self.ask, self.patience, self.upload);
        let outcome = match answer {
            Ok(response) => outcome(&response),
            Err(Failure::NotSent(_)) => Outcome::NotSent,
            Err(Failure::Broken(error)) => Outcome::Unknown(error.to_string()),
        };
        self.answers.keep(self.id, outcome.clone());
        outcome
    }

    /// Sends it from a thread of its own.
    pub(crate) fn begin(self) -> Begun {
        Begun(thread::spawn(|| self.send()))
    }

    /// What the gateway says against it, whole. The write is kept like any other.
    pub(crate) fn refusal(self) -> Response {
        let response = exchange(self.door.data(), &self.ask, self.patience).expect("an answer");
        self.answers.keep(self.id, outcome(&response));
        assert!(response.reason().is_some(), "not refused: {response:?}");
        response
    }
}

fn outcome(response: &Response) -> Outcome {
    let reason = response.reason().map(str::to_owned);
    match (response.status, reason, response.header("x-fencing-outcome")) {
        (200..300, None, _) => Outcome::Passed,
        (status, Some(reason), None | Some("not-sent")) => Outcome::Refused { status, reason },
        (status, _, _) => Outcome::Unknown(format!("{status}")),
    }
}

impl Outcome {
    pub(crate) fn passed(&self) -> bool {
        *self == Self::Passed
    }

    pub(crate) fn is_refused(&self, status: u16, reason: &str) -> bool {
        *self == Self::Refused { status, reason: reason.to_owned() }
    }

    pub(crate) fn has_status(&self, status: u16) -> bool {
        matches!(self, Self::Refused { status: told, .. } if *told == status)
    }
}

impl Begun {
    pub(crate) fn is_answered(&self) -> bool {
        self.0.is_finished()
    }

    pub(crate) fn answer(self) -> Outcome {
        self.0.join().expect("an answer")
    }
}
