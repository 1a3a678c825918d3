//! What a zombie costs others: their latency with it, beside their latency just before.
//!
//! Every round measures three times: without the zombie, with a zombie that writes elsewhere on this machine, and with one
//! that writes to the gateway. The third is held against the second: a zombie's own process takes its turns of a machine's
//! few cores wherever it writes to, and what is judged is the gateway. The first is shown beside them. A machine that is busy
//! for a while is busy in all three, and one round that is not does not decide: what is judged is the median of all rounds.

use std::fmt;
use std::time::Duration;

use crate::parties::Latency;

/// Requests of others may take twice as long.
const MAX_RATIO: f64 = 2.0;
/// What is not counted of a latency. In a debug build a refusal takes so much of a core that whoever is slow has waited for a
/// turn of the scheduler, so that the quick setting tells of gross harm only. A release build is held to the ratio itself:
/// latencies there are smaller than any slack that would be worth giving.
const SLACK: Duration = if cfg!(debug_assertions) { Duration::from_micros(200) } else { Duration::ZERO };
/// The same of the slowest tenth.
const SLACK_OF_SLOWEST: Duration =
    if cfg!(debug_assertions) { Duration::from_millis(4) } else { Duration::ZERO };

/// Three measurements, one after the other.
pub(crate) struct Round {
    pub(crate) calm: Latency,
    /// The zombie wrote elsewhere.
    pub(crate) busy: Latency,
    pub(crate) beside: Latency,
}

#[derive(Default)]
pub(crate) struct Rounds(Vec<Round>);

/// What is held against what.
struct Pair {
    name: &'static str,
    before: fn(&Round) -> Duration,
    beside: fn(&Round) -> Duration,
    slack: Duration,
}

const JUDGED: [Pair; 2] = [
    Pair {
        name: "median",
        before: |round| round.busy.median,
        beside: |round| round.beside.median,
        slack: SLACK,
    },
    Pair {
        name: "slowest tenth",
        before: |round| round.busy.slow,
        beside: |round| round.beside.slow,
        slack: SLACK_OF_SLOWEST,
    },
];

impl Rounds {
    pub(crate) fn add(&mut self, round: Round) {
        self.0.push(round);
    }

    pub(crate) fn judge(&self) -> Result<(), String> {
        for pair in JUDGED {
            let ratio = self.ratio(&pair, pair.slack);
            if ratio > MAX_RATIO {
                return Err(format!(
                    "others took {ratio:.2} times as long by the {}, {:?} not counted; {MAX_RATIO} is the most",
                    pair.name, pair.slack
                ));
            }
        }
        Ok(())
    }

    /// The median of the ratios of all rounds, with so much taken off what was slower.
    fn ratio(&self, pair: &Pair, slack: Duration) -> f64 {
        let ratio = |round: &Round| {
            (pair.beside)(round).saturating_sub(slack).as_secs_f64() / (pair.before)(round).as_secs_f64()
        };
        let mut ratios: Vec<f64> = self.0.iter().map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        ratios[ratios.len() / 2]
    }

    fn middle(&self, of: fn(&Round) -> Duration) -> Duration {
        let mut all: Vec<Duration> = self.0.iter().map(of).collect();
        all.sort();
        all[all.len() / 2]
    }
}

impl fmt::Display for Rounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "requests of others, the middle of {} rounds:", self.0.len())?;
        for pair in JUDGED {
            let (ratio, judged) = (self.ratio(&pair, Duration::ZERO), self.ratio(&pair, pair.slack));
            let (before, beside) = (self.middle(pair.before), self.middle(pair.beside));
            writeln!(
                f,
                "  {}: {before:?} and {beside:?}, {ratio:.2} times; judged as {judged:.2}",
                pair.name
            )?;
        }
        let (median, slow) = (self.middle(|round| round.calm.median), self.middle(|round| round.calm.slow));
        write!(f, "  without any zombie: median {median:?}, slowest tenth {slow:?}")
    }
}
