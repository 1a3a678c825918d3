//! The wait for leadership, telling what it waits for.
//!
//! What must stay true: a backend that never answered is given up on after a while, because the likely reason is
//! a wrong address; one that has answered once is waited for, however long it is away.

use std::time::{Duration, Instant};

use highgate_elector::{Builder, CampaignError, Leadership, Resource, Waiting};
use rustix::process::Signal;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::asks::Asks;
use super::metrics::Metrics;
use super::say;

/// How long a backend may be unavailable before its first answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a campaign ends.
pub(super) enum Outcome {
    Leads(Box<Leadership>),
    /// Nobody wants it any more.
    Asked(Signal),
    Unavailable(String),
    Failed(anyhow::Error),
}

/// What is waited for, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Leader(String),
    Backend(String),
}

/// Campaigns until it leads.
pub(super) async fn campaign(
    builder: Builder,
    resource: &Resource,
    metrics: &Metrics,
    asks: &mut Asks,
) -> Outcome {
    let (tell, mut told) = unbounded_channel();
    let builder = builder.on_wait(move |waiting| {
        // Nobody listens once the campaign has ended.
        let _ = tell.send(State::from(waiting));
    });
    let elector = match metrics.build(builder) {
        Ok(elector) => elector,
        Err(error) => return Outcome::Failed(error.into()),
    };
    say(&format!("campaigning for {resource} as {}", elector.holder()));
    tokio::select! {
        biased;
        signal = asks.next() => Outcome::Asked(signal),
        led = elector.campaign() => match led {
            Ok(leadership) => Outcome::Leads(Box::new(leadership)),
            Err(CampaignError::Refused(error)) => Outcome::Unavailable(error.to_string()),
            Err(error) => Outcome::Failed(error.into()),
        },
        error = tell_all(&mut told) => Outcome::Unavailable(error),
    }
}

/// Says what is waited for. Returns when the backend is to be given up on, with what it failed with.
async fn tell_all(states: &mut UnboundedReceiver<State>) -> String {
    let mut wait = Wait::default();
    while let Some(state) = states.recv().await {
        if wait.is_news(&state) {
            say(&state.words());
        }
        if let Some(error) = wait.note(Instant::now(), state) {
            return error;
        }
    }
    std::future::pending().await
}

/// What a wait has seen.
#[derive(Default)]
struct Wait {
    has_answered: bool,
    failing_since: Option<Instant>,
    last: Option<State>,
}

impl Wait {
    /// Of failures in a row, only the first.
    fn is_news(&self, state: &State) -> bool {
        match (&self.last, state) {
            (Some(State::Backend(_)), State::Backend(_)) => false,
            (last, state) => last.as_ref() != Some(state),
        }
    }

    /// The failure of a backend that has never answered, once it has failed for too long.
    fn note(&mut self, now: Instant, state: State) -> Option<String> {
        self.last = Some(state.clone());
        let State::Backend(error) = state else {
            self.has_answered = true;
            return None;
        };
        let since = *self.failing_since.get_or_insert(now);
        (!self.has_answered && now.duration_since(since) >= PATIENCE).then_some(error)
    }
}

impl State {
    fn words(&self) -> String {
        match self {
            Self::Leader(leader) => format!("waiting: {leader} leads"),
            Self::Backend(error) => format!("waiting: {error}; trying again"),
        }
    }
}

impl From<&Waiting> for State {
    fn from(waiting: &Waiting) -> Self {
        match waiting {
            Waiting::Leader(leader) => Self::Leader(leader.to_string()),
            Waiting::Backend { error, .. } => Self::Backend(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leader(name: &str) -> State {
        State::Leader(name.to_owned())
    }

    fn away() -> State {
        State::Backend("it is away".to_owned())
    }

    /// What is said about these states, each a second after the one before; the error, if it gives up.
    fn said(states: impl IntoIterator<Item = State>) -> (Vec<String>, Option<String>) {
        let (mut wait, mut now, mut lines) = (Wait::default(), Instant::now(), Vec::new());
        for state in states {
            if wait.is_news(&state) {
                lines.push(state.words());
            }
            if let Some(error) = wait.note(now, state) {
                return (lines, Some(error));
            }
            now += Duration::from_secs(1);
        }
        (lines, None)
    }

    #[test]
    fn each_leader_is_told_once() {
        let (lines, error) = said([leader("a"), leader("a"), leader("b"), leader("a")]);
        assert_eq!(lines, ["waiting: a leads", "waiting: b leads", "waiting: a leads"]);
        assert_eq!(error, None);
    }

    #[test]
    fn a_backend_that_never_answers_is_given_up_on() {
        let (lines, error) = said(vec![away(); 6]);
        assert_eq!(lines, ["waiting: it is away; trying again"]);
        assert_eq!(error.as_deref(), Some("it is away"));
        assert_eq!(said(vec![away(); 5]).1, None);
    }

    #[test]
    fn a_backend_that_has_answered_is_waited_for() {
        let (lines, error) = said([leader("a")].into_iter().chain(vec![away(); 20]).chain([leader("a")]));
        assert_eq!(lines, ["waiting: a leads", "waiting: it is away; trying again", "waiting: a leads"]);
        assert_eq!(error, None);
    }
}
