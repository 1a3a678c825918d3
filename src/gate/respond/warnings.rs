//! What an operator has to know of requests that were let through: one line at once, and for those that are alike one
//! line a second.
//!
//! The fence and the end of a flight say so here. What must stay true: every one is in a metric, whether or not it has a
//! line of its own; and clients that name a resource anew with each request on an auditing route take no line from an
//! unknown outcome, so each of the two has an allowance to itself.

use std::sync::Arc;

use highgate_elector::Resource;

use super::log::{FIXED, written};
use crate::fold::{Allowance, Fold, Period, Told};

/// Room for a few kinds at a time: routes that wait for an upstream have few reasons to.
const UNKNOWN_OUTCOMES: Allowance = Allowance { steady: 2 * 1024, burst: 4 * 1024 };
/// Room for the longest resource name now and then.
const MISSING_TOKENS: Allowance = Allowance { steady: 1024, burst: 2 * 1024 };

/// Warnings are alike if all of this is the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Warning {
    /// A forward ended, and nobody knows whether it took effect.
    OutcomeUnknown { route: Arc<str>, resource: Resource, token: u64, why: &'static str },
    /// A route that only audits let a request without a token through.
    TokenMissing { route: Arc<str>, resource: Resource },
}

/// Warnings that were not told yet.
pub(super) struct Warnings {
    unknown_outcomes: Fold<Warning, Warning>,
    missing_tokens: Fold<Warning, Warning>,
}

impl Warnings {
    pub(super) fn new() -> Self {
        Self { unknown_outcomes: Fold::new(UNKNOWN_OUTCOMES), missing_tokens: Fold::new(MISSING_TOKENS) }
    }

    pub(super) fn note(&mut self, warning: Warning) {
        let size = warning.size();
        let fold = match &warning {
            Warning::OutcomeUnknown { .. } => &mut self.unknown_outcomes,
            Warning::TokenMissing { .. } => &mut self.missing_tokens,
        };
        if fold.note(warning.clone(), size, || warning.clone()) == Told::Now {
            warning.write(1);
        }
    }

    /// Tells what came again since the last time.
    pub(super) fn tell_repeated(&mut self) {
        if let beyond @ 1.. = tell(&mut self.unknown_outcomes) {
            tracing::warn!(count = beyond, "more kinds of unknown outcomes in a second than are told apart");
        }
        if let beyond @ 1.. = tell(&mut self.missing_tokens) {
            tracing::warn!(
                count = beyond,
                "more kinds of requests without a token in a second than are told apart"
            );
        }
    }
}

/// How many have no line of their own.
fn tell(fold: &mut Fold<Warning, Warning>) -> u64 {
    let Period { repeated, beyond } = fold.end_period();
    for (warning, count) in repeated {
        warning.write(count);
    }
    beyond
}

impl Warning {
    fn size(&self) -> usize {
        let (route, resource, why) = match self {
            Self::OutcomeUnknown { route, resource, why, .. } => (route, resource, *why),
            Self::TokenMissing { route, resource } => (route, resource, ""),
        };
        FIXED + written(route) + written(resource.as_str()) + written(why)
    }

    fn write(&self, count: u64) {
        match self {
            Self::OutcomeUnknown { route, resource, token, why } => {
                tracing::warn!(%route, %resource, token, why, count, "outcome unknown");
            }
            Self::TokenMissing { route, resource } => {
                tracing::warn!(%route, %resource, count, "a fenced request without a token was let through");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::captured::Captured;

    fn unknown(resource: &str) -> Warning {
        let resource = Resource::parse(resource).unwrap();
        Warning::OutcomeUnknown { route: Arc::from("r"), resource, token: 7, why: "it was cut" }
    }

    fn token_missing(resource: &str) -> Warning {
        Warning::TokenMissing { route: Arc::from("r"), resource: Resource::parse(resource).unwrap() }
    }

    #[test]
    fn warnings_that_are_alike_share_lines_and_all_are_counted() {
        let log = Captured::default();
        log.capture(|| {
            let mut warnings = Warnings::new();
            for _ in 0..20_000 {
                warnings.note(unknown("ledger"));
                warnings.note(token_missing("a"));
            }
            warnings.tell_repeated();
        });
        let text = log.text();
        assert_eq!(text.lines().count(), 4, "{text}");
        for line in
            ["why=\"it was cut\" count=1\n", "why=\"it was cut\" count=19999\n", "resource=a count=1\n"]
        {
            assert!(text.contains(line), "{line:?} is not in {text}");
        }
        assert!(text.contains("without a token was let through route=r resource=a count=19999\n"), "{text}");
    }

    #[test]
    fn unknown_outcomes_of_many_resources_have_no_more_bytes_than_are_allowed() {
        let log = Captured::default();
        let seconds = 20;
        log.capture(|| {
            let mut warnings = Warnings::new();
            for second in 0..seconds {
                (0..3000).for_each(|number| {
                    warnings.note(unknown(&format!("{second}/{number}{}", "x".repeat(400))));
                });
                warnings.tell_repeated();
            }
        });
        let text = log.text();
        let most = UNKNOWN_OUTCOMES.burst + seconds * (UNKNOWN_OUTCOMES.steady + FIXED);
        assert!(text.len() <= most, "{} bytes in {seconds} s, not {most}", text.len());
        assert!(text.contains("than are told apart count="), "{text}");
    }

    #[test]
    fn requests_without_a_token_that_name_many_resources_take_no_line_from_an_unknown_outcome() {
        let log = Captured::default();
        log.capture(|| {
            let mut warnings = Warnings::new();
            for second in 0..5 {
                (0..3000).for_each(|number| warnings.note(token_missing(&format!("{second}/{number}"))));
                warnings.note(unknown(&format!("ledger/{second}")));
                warnings.tell_repeated();
            }
        });
        let text = log.text();
        for second in 0..5 {
            let line = format!("outcome unknown route=r resource=ledger/{second} ");
            assert!(text.contains(&line), "{line:?} is not in {text}");
        }
        assert!(text.contains("more kinds of requests without a token"), "{text}");
        assert!(!text.contains("more kinds of unknown outcomes"), "{text}");
    }
}
