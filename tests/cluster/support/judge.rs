//! The judge: reads what the upstream recorded and what the writers were told, and says what broke the promise.
//!
//! Per resource, tokens never go down, neither as forwarded nor as they take effect; writes with an effect of two
//! tokens never overlap between their first byte and their answer; a write that passed took effect exactly once, and
//! one that was refused never did.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::time::Instant;

use super::record::Entry;
use super::writer::Outcome;

/// What the promise was tried with. A trial with too little of it shows nothing.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) passed: usize,
    pub(crate) refused: usize,
    pub(crate) not_sent: usize,
    pub(crate) unknown: usize,
    pub(crate) effects: usize,
    /// How often a resource's effects went from one token to the next.
    pub(crate) handovers: usize,
}

impl Summary {
    /// Fails a trial in which too little happened.
    pub(crate) fn is_worth(&self, handovers: usize, passed: usize) -> &Self {
        assert!(self.handovers >= handovers, "fewer than {handovers} handovers show nothing: {self}");
        assert!(self.passed >= passed, "fewer than {passed} writes show nothing: {self}");
        self
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, refused, not_sent, unknown, effects, handovers } = self;
        write!(
            f,
            "{passed} writes passed, {refused} were refused, {not_sent} found nobody, {unknown} are unknown; "
        )?;
        write!(f, "{effects} effects, {handovers} handovers")
    }
}

/// A way in which the promise was broken.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    /// When it could be seen; none of a write that never reached the upstream.
    pub(crate) at: Option<Instant>,
    pub(crate) kind: Kind,
    /// The write without which it would not be one.
    pub(crate) id: String,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A lower token was forwarded after a higher one.
    Forwarded,
    /// A lower token took effect after a higher one.
    TookEffect,
    /// Writes of two tokens were under way at once.
    Overlapped,
    /// A writer was told what is not so.
    Lied,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Every way in which the promise was broken, in words.
pub(crate) fn violations(entries: &[Entry], told: &HashMap<String, Outcome>) -> Vec<String> {
    found(entries, told).iter().map(Violation::to_string).collect()
}

/// Every way in which the promise was broken.
pub(crate) fn found(entries: &[Entry], told: &HashMap<String, Outcome>) -> Vec<Violation> {
    let mut found = Vec::new();
    for entries in by_resource(entries).values() {
        found.extend(falls(entries));
        found.extend(overlaps(entries));
    }
    found.extend(lies(entries, told));
    found
}

pub(crate) fn summary(entries: &[Entry], told: &HashMap<String, Outcome>) -> Summary {
    let count = |is_it: fn(&Outcome) -> bool| told.values().filter(|outcome| is_it(outcome)).count();
    let tokens = |entries: &Vec<&Entry>| {
        let effective = entries.iter().filter(|entry| entry.effect.is_some());
        effective.map(|entry| entry.token).collect::<HashSet<_>>().len()
    };
    Summary {
        passed: count(Outcome::passed),
        refused: count(|outcome| matches!(outcome, Outcome::Refused { .. })),
        not_sent: count(|outcome| *outcome == Outcome::NotSent),
        unknown: count(|outcome| matches!(outcome, Outcome::Unknown(_))),
        effects: entries.iter().filter(|entry| entry.effect.is_some()).count(),
        handovers: by_resource(entries).values().map(|entries| tokens(entries).saturating_sub(1)).sum(),
    }
}

fn by_resource(entries: &[Entry]) -> BTreeMap<&str, Vec<&Entry>> {
    let mut resources: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for entry in entries {
        resources.entry(&entry.resource).or_default().push(entry);
    }
    resources
}

/// Where a lower token came after a higher one.
fn falls(entries: &[&Entry]) -> Vec<Violation> {
    let forwarded = entries.iter().map(|entry| (entry.received, *entry)).collect();
    let effects = entries.iter().filter_map(|entry| Some((entry.effect?, *entry))).collect();
    [falls_among(Kind::Forwarded, forwarded), falls_among(Kind::TookEffect, effects)].concat()
}

fn falls_among(kind: Kind, mut moments: Vec<(Instant, &Entry)>) -> Vec<Violation> {
    let what = if kind == Kind::Forwarded { "was forwarded" } else { "took effect" };
    moments.sort_by_key(|(time, _)| *time);
    let mut highest: Option<&Entry> = None;
    let mut found = Vec::new();
    for (at, entry) in moments {
        match highest {
            Some(higher) if higher.token > entry.token => {
                let text = format!("{} {what} after {}", named(entry), named(higher));
                found.push(Violation { at: Some(at), kind, id: entry.id.clone(), text });
            }
            _ => highest = Some(entry),
        }
    }
    found
}

/// Where writes of two tokens were under way at once.
fn overlaps(entries: &[&Entry]) -> Vec<Violation> {
    let mut effective: Vec<_> = entries.iter().filter_map(|entry| Some((entry, end(entry)?))).collect();
    effective.sort_by_key(|(entry, _)| entry.received);
    // Of each token with a write under way, the one that ends last.
    let mut last: BTreeMap<u64, (&Entry, Instant)> = BTreeMap::new();
    let mut found = Vec::new();
    for (entry, end) in effective {
        last.retain(|_, (_, end)| *end > entry.received);
        for (_, (other, _)) in last.iter().filter(|(token, _)| **token != entry.token) {
            let text = format!("{} was forwarded while {} was under way", named(entry), named(other));
            let (at, id) = (Some(entry.received), entry.id.clone());
            found.push(Violation { at, kind: Kind::Overlapped, id, text });
        }
        let latest = last.entry(entry.token).or_insert((entry, end));
        if end > latest.1 {
            *latest = (entry, end);
        }
    }
    found
}

/// When a write that took effect was over.
fn end(entry: &Entry) -> Option<Instant> {
    let effect = entry.effect?;
    Some(entry.responded.map_or(effect, |responded| responded.max(effect)))
}

/// Where writers were told what is not so.
fn lies(entries: &[Entry], told: &HashMap<String, Outcome>) -> Vec<Violation> {
    let mut effects: HashMap<&str, Vec<Instant>> = HashMap::new();
    for entry in entries {
        effects.entry(&entry.id).or_default().extend(entry.effect);
    }
    // Whoever died before its answer knows as little as one whose answer got lost.
    let untold = Outcome::Unknown("nothing".to_owned());
    let silent = effects.keys().filter(|id| !told.contains_key(**id)).map(|id| (*id, &untold));
    let mut found = Vec::new();
    for (id, outcome) in told.iter().map(|(id, outcome)| (id.as_str(), outcome)).chain(silent) {
        let times = effects.get(id).map(Vec::as_slice).unwrap_or_default();
        let count = times.len();
        let allowed = match outcome {
            Outcome::Passed => count == 1,
            Outcome::Refused { .. } | Outcome::NotSent => count == 0,
            Outcome::Unknown(_) => count <= 1,
        };
        if !allowed {
            let text = format!("write {id} took effect {count} times, but its writer was told {outcome:?}");
            found.push(Violation {
                at: times.iter().max().copied(),
                kind: Kind::Lied,
                id: id.to_owned(),
                text,
            });
        }
    }
    found
}

fn named(entry: &Entry) -> String {
    let Entry { id, resource, token, gateway, .. } = entry;
    format!("write {id} with token {token} for {resource} through {gateway}")
}
