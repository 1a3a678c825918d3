//! What an operator has to know of requests that were let through: one line at once, and for those that are alike one
//! line a second.
//!
//! The fence and the end of a flight say so here. What must stay true: every one is in a metric, whether or not it has a
//! line of its own.

use std::sync::Arc;

use highgate_elector::Resource;

use super::log::{FIXED, written};
use crate::fold::{Allowance, Fold, Period, Told};

/// Room for a few kinds at a time: routes that wait for an upstream have few reasons to.
const ALLOWANCE: Allowance = Allowance { steady: 2 * 1024, burst: 4 * 1024 };

/// Warnings are alike if all of this is the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Warning {
    /// A forward ended, and nobody knows whether it took effect.
    OutcomeUnknown { route: Arc<str>, resource: Resource, token: u64, why: &'static str },
    /// A route that only audits let a request without a token through.
    TokenMissing { route: Arc<str>, resource: Resource },
}

/// Warnings that were not told yet.
pub(super) struct Warnings(Fold<Warning, Warning>);

impl Warnings {
    pub(super) fn new() -> Self {
        Self(Fold::new(ALLOWANCE))
    }

    pub(super) fn note(&mut self, warning: Warning) {
        let size = warning.size();
        if self.0.note(warning.clone(), size, || warning.clone()) == Told::Now {
            warning.write(1);
        }
    }

    /// Tells what came again since the last time.
    pub(super) fn tell_repeated(&mut self) {
        let Period { repeated, beyond } = self.0.end_period();
        for (warning, count) in repeated {
            warning.write(count);
        }
        if beyond > 0 {
            tracing::warn!(
                count = beyond,
                "more kinds of unknown outcomes and of requests without a token in a second than are told apart"
            );
        }
    }
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

    #[test]
    fn warnings_that_are_alike_share_lines_and_all_are_counted() {
        let log = Captured::default();
        log.capture(|| {
            let mut warnings = Warnings::new();
            for _ in 0..20_000 {
                warnings.note(unknown("ledger"));
                warnings.note(Warning::TokenMissing {
                    route: Arc::from("r"),
                    resource: Resource::parse("a").unwrap(),
                });
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
        let most = ALLOWANCE.burst + seconds * (ALLOWANCE.steady + FIXED);
        assert!(text.len() <= most, "{} bytes in {seconds} s, not {most}", text.len());
        assert!(text.contains("than are told apart count="), "{text}");
    }
}
