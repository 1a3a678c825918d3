//! From the lines of one resource to its terms: who led when, by which token, and what ended it.
//!
//! Lines come in the order of the journal, perhaps twice. What is gathered is one row for each token, and no more rows
//! than were asked for: a history can be much longer than what should be in memory at once.

use std::collections::BTreeMap;
use std::time::SystemTime;

use super::entry::{EndedBy, Entry, Reign};

/// A leadership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    pub reign: Reign,
    /// None while it lasts, and of one whose end nobody saw.
    pub until: Option<SystemTime>,
    /// None while it lasts.
    pub ended_by: Option<EndedBy>,
}

/// A mark that was raised without an election: by a trusted token or an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raise {
    pub at: SystemTime,
    pub from: u64,
    pub to: u64,
}

/// Which part of a history is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// What reaches into the time from then on.
    pub since: SystemTime,
    /// Only lower tokens: what is older than a part that was read before.
    pub before: Option<u64>,
    /// Terms and raises together.
    pub limit: usize,
}

/// What is known of a resource, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    pub terms: Vec<Term>,
    pub raises: Vec<Raise>,
    /// There may be more, below this token: ask for what is before it.
    pub next: Option<u64>,
}

/// Collects the lines.
pub(super) struct Gathered {
    wanted: Wanted,
    /// The newest, by token.
    rows: BTreeMap<u64, Row>,
    /// The term after these, which was asked for before: by token, and when it began.
    after: Option<(u64, SystemTime)>,
    /// There are older ones.
    more: bool,
}

enum Row {
    Term(Term),
    Raise(Raise),
}

impl Gathered {
    pub(super) fn new(wanted: Wanted) -> Self {
        Self { wanted, rows: BTreeMap::new(), after: None, more: false }
    }

    pub(super) fn take(&mut self, entry: Entry) {
        let Wanted { since, before, limit } = self.wanted;
        let token = entry.token();
        if before.is_some_and(|before| token >= before) {
            return self.pass(&entry);
        }
        let is_below = self.rows.first_key_value().is_some_and(|(lowest, _)| token < *lowest);
        if is_below && self.rows.len() >= limit {
            self.more |= entry.at() >= since;
            return;
        }
        self.add(entry);
        if self.rows.len() > limit
            && let Some((_, row)) = self.rows.pop_first()
        {
            // A term whose end was lost was over when the next began.
            let over = row.over().or_else(|| self.rows.values().find_map(Row::began));
            self.more |= over.is_none_or(|over| over >= since);
        }
    }

    /// Remembers when the term began that came after those that are wanted.
    fn pass(&mut self, entry: &Entry) {
        if let Entry::Won { reign, .. } | Entry::Ended { reign, .. } = entry
            && self.after.is_none_or(|(token, _)| reign.token <= token)
        {
            self.after = Some((reign.token, reign.from));
        }
    }

    /// The raise to the token of a term is part of the term, whichever is read first.
    fn add(&mut self, entry: Entry) {
        let token = entry.token();
        match (entry, self.rows.get(&token)) {
            // The same line again.
            (Entry::Won { .. }, Some(Row::Term(_))) | (Entry::Raised { .. }, Some(_)) => {}
            (Entry::Won { reign, .. }, _) => {
                self.rows.insert(token, Row::Term(Term { reign, until: None, ended_by: None }));
            }
            (Entry::Ended { reign, until, why, .. }, _) => {
                let term = Term { until: Some(until), ended_by: Some(why), reign };
                self.rows.insert(token, Row::Term(term));
            }
            (Entry::Raised { from, to, at, .. }, None) => {
                self.rows.insert(token, Row::Raise(Raise { at, from, to }));
            }
        }
    }

    /// What reaches into the time that was asked for. `leads` is the token of who leads now.
    pub(super) fn told(mut self, leads: Option<u64>) -> History {
        self.close_lost_ends(leads);
        let lowest = self.rows.first_key_value().map(|(token, _)| *token);
        let mut history = History { next: lowest.filter(|_| self.more), ..History::default() };
        for row in self.rows.into_values().filter(|row| row.reaches(self.wanted.since)) {
            match row {
                Row::Term(term) => history.terms.push(term),
                Row::Raise(raise) => history.raises.push(raise),
            }
        }
        history
    }

    /// A term whose end was not written down (a crash, a full disk) and that does not last: it was over when the next
    /// began.
    fn close_lost_ends(&mut self, leads: Option<u64>) {
        let mut next_from = self.after.map(|(_, from)| from);
        for row in self.rows.values_mut().rev() {
            let Row::Term(term) = row else { continue };
            if term.ended_by.is_none() && leads != Some(term.reign.token) {
                term.ended_by = Some(EndedBy::Unknown);
                term.until = next_from;
            }
            next_from = Some(term.reign.from);
        }
    }
}

impl Row {
    fn began(&self) -> Option<SystemTime> {
        match self {
            Self::Term(term) => Some(term.reign.from),
            Self::Raise(_) => None,
        }
    }

    /// When it was over, if that is known.
    fn over(&self) -> Option<SystemTime> {
        match self {
            Self::Term(term) => term.until,
            Self::Raise(raise) => Some(raise.at),
        }
    }

    /// Whether it is of the time from then on. Of a term that has ended nobody knows when, it is its beginning that counts.
    fn reaches(&self, since: SystemTime) -> bool {
        let lasts = matches!(self, Self::Term(Term { ended_by: None, .. }));
        lasts || self.over().or(self.began()).is_some_and(|last| last >= since)
    }
}
