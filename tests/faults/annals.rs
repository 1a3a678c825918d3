//! The faults of a run: what befell whom, from when to when. Kept by the nemesis, read by everybody else.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Clock;
use crate::plan::Kind;

#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    pub(crate) victim: String,
    pub(crate) began: Duration,
    /// None while it goes on.
    pub(crate) ended: Option<Duration>,
}

pub(crate) struct Annals {
    pub(crate) clock: Clock,
    pub(crate) faults: Vec<Fault>,
    /// Planned, but not carried out, with the reason.
    pub(crate) skipped: BTreeMap<String, usize>,
}

impl Annals {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, faults: Vec::new(), skipped: BTreeMap::new() }
    }

    pub(crate) fn begins(&mut self, kind: Kind, victim: String) -> usize {
        self.faults.push(Fault { kind, victim, began: self.clock.now(), ended: None });
        self.faults.len() - 1
    }

    pub(crate) fn ends(&mut self, number: usize) {
        self.faults[number].ended = Some(self.clock.now());
    }

    pub(crate) fn skips(&mut self, why: String) {
        *self.skipped.entry(why).or_default() += 1;
    }

    pub(crate) fn by_kind(&self) -> BTreeMap<String, usize> {
        let mut kinds = BTreeMap::new();
        for fault in &self.faults {
            *kinds.entry(fault.kind.to_string()).or_default() += 1;
        }
        kinds
    }

    pub(crate) fn under_way(&self) -> usize {
        self.faults.iter().filter(|fault| fault.ended.is_none()).count()
    }

    /// When something was wrong, or may have been: from each fault's begin until so long after its end.
    pub(crate) fn windows(&self, recovery: Duration) -> Vec<(Duration, Duration)> {
        let end = |fault: &Fault| fault.ended.map_or(Duration::MAX, |ended| ended + recovery);
        self.faults.iter().map(|fault| (fault.began, end(fault))).collect()
    }
}
