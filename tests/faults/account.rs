//! The account of a run: what was recorded, and what it comes to.
//!
//! Built once at the end, and from time to time meanwhile. Whatever it counts is in the record of the upstream, in
//! what the writers said, or in the nemesis' annals.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::annals::Fault;
use crate::clock::Clock;
use crate::crew::Heard;
use crate::plan::Kind;
use crate::support::judge::{self, Summary, Violation};
use crate::support::record::Entry;
use crate::support::writer::Outcome;

/// A stop of its gateway that ended so shortly before a write was forwarded may have fallen between its last check
/// and its write, which A3 rules out.
const AFTER_A_STOP: Duration = Duration::from_millis(100);

pub(crate) struct Account {
    pub(crate) clock: Clock,
    pub(crate) entries: Vec<Entry>,
    pub(crate) heard: Heard,
    pub(crate) faults: Vec<Fault>,
    pub(crate) windows: Vec<(Duration, Duration)>,
    pub(crate) violations: Vec<Violation>,
}

/// How the writes of rightful leaders fared while nothing was wrong.
#[derive(Default)]
pub(crate) struct Availability {
    pub(crate) passed: usize,
    pub(crate) asked: usize,
    /// What became of the others.
    pub(crate) others: BTreeMap<String, usize>,
    /// The longest time between two that passed, with the resource and when it began.
    pub(crate) gap: Option<(Duration, String, Duration)>,
}

impl Account {
    pub(crate) fn new(
        clock: Clock,
        entries: Vec<Entry>,
        heard: Heard,
        faults: Vec<Fault>,
        windows: Vec<(Duration, Duration)>,
    ) -> Self {
        let violations = judge::found(&entries, &heard.told);
        Self { clock, entries, heard, faults, windows, violations }
    }

    pub(crate) fn summary(&self) -> Summary {
        judge::summary(&self.entries, &self.heard.told)
    }

    /// How many writes ended in which way.
    pub(crate) fn outcomes(&self) -> BTreeMap<String, usize> {
        let mut outcomes = BTreeMap::new();
        for outcome in self.heard.told.values() {
            *outcomes.entry(named(outcome)).or_default() += 1;
        }
        let untold = self.entries.iter().filter(|entry| !self.heard.told.contains_key(&entry.id)).count();
        if untold > 0 {
            outcomes.insert("writer killed before its answer".to_owned(), untold);
        }
        outcomes
    }

    pub(crate) fn availability(&self) -> Availability {
        let mut found = Availability::default();
        // By resource, when the last one passed, if nothing has been wrong since.
        let mut last: HashMap<&str, Duration> = HashMap::new();
        let mut writes: Vec<_> = self.heard.wrote.iter().filter(|(_, wrote)| wrote.led).collect();
        writes.sort_by_key(|(_, wrote)| wrote.answered);
        for (resource, wrote) in writes {
            let (sent, answered) = (self.clock.of(wrote.sent), self.clock.of(wrote.answered));
            if self.was_disturbed(sent, answered) {
                continue;
            }
            found.asked += 1;
            if !wrote.outcome.passed() {
                *found.others.entry(named(&wrote.outcome)).or_default() += 1;
                continue;
            }
            found.passed += 1;
            let before =
                last.insert(resource, answered).filter(|before| !self.was_disturbed(*before, answered));
            let gap = before.map(|before| answered - before);
            if gap > found.gap.as_ref().map(|(gap, ..)| *gap) {
                found.gap = gap.zip(before).map(|(gap, before)| (gap, resource.clone(), before));
            }
        }
        found
    }

    /// Whether something was wrong in this time, or shortly before.
    fn was_disturbed(&self, from: Duration, to: Duration) -> bool {
        self.windows.iter().any(|(begin, end)| *begin <= to && from <= *end)
    }

    /// When the first violation could be seen.
    pub(crate) fn caught_after(&self) -> Option<Duration> {
        self.violations.iter().filter_map(|violation| violation.at).min().map(|at| self.clock.at(at))
    }

    /// A violation in words, with its time and what is to be known about it.
    pub(crate) fn tell(&self, violation: &Violation) -> String {
        let at =
            violation.at.map_or(String::new(), |at| format!("{:8.3} s ", self.clock.at(at).as_secs_f64()));
        let entry = self.entries.iter().find(|entry| entry.id == violation.id);
        let stop = entry.and_then(|entry| self.stop_before(entry));
        let remark = stop.map_or(String::new(), |length| {
            format!(
                " (just after a stop of its gateway for {:.2} s: if that was longer than the validity that was left, and \
                 fell between its last check and its write, A3 does not hold)",
                length.as_secs_f64()
            )
        });
        format!("{at}{violation}{remark}")
    }

    /// How long its gateway had been stopped, if a write was forwarded when that had just ended.
    fn stop_before(&self, entry: &Entry) -> Option<Duration> {
        let received = self.clock.at(entry.received);
        let stops = self.faults.iter().filter(|fault| fault.kind == Kind::StopGateway);
        let mut stops = stops.filter(|fault| fault.victim == entry.gateway);
        // The end is noted a moment after it.
        let just_ended =
            |fault: &&Fault| fault.ended.is_some_and(|ended| ended.abs_diff(received) <= AFTER_A_STOP);
        stops.find(just_ended).and_then(|fault| Some(fault.ended? - fault.began))
    }
}

impl Availability {
    pub(crate) fn share(&self) -> Option<f64> {
        (self.asked > 0).then(|| 100.0 * self.passed as f64 / self.asked as f64)
    }
}

fn named(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Passed => "passed".to_owned(),
        Outcome::Refused { status, reason } => format!("{status} {reason}"),
        Outcome::NotSent => "no connection".to_owned(),
        Outcome::Unknown(what) => format!("unknown: {what}"),
    }
}
