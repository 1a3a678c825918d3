//! What the log has told without a gap, and how it is told again.
//!
//! Reading everything again takes longer than the others wait, if there are many marks: etcd walks all of them to find the
//! few that have changed. So whatever a watch has lost is asked of a fresh watch first, which begins where everything
//! is still known to have arrived. It costs what has changed since, brings whole revisions in order, and the machine goes
//! on acknowledging as it applies them. Only if that brings nothing, or that part of the log is compacted, is everything
//! read again. What must stay true: a fresh watch begins before everything that may have been lost.

use super::driver::{Driver, Stage};
use super::values::{Poll, number};
use crate::replica::Revision;

/// How far the log of a session was told.
#[derive(Default)]
pub(super) struct Told {
    /// No change that counts lies between the watermark and this revision, by etcd's own word.
    complete: Revision,
    /// What an answer has shown: the last change that counts, and the revision at which it was the last.
    shown: (Revision, Revision),
    /// The watermark and the own last word when the log was last told again.
    again_at: Option<(Revision, Revision)>,
    /// Up to this revision candidates are told for a second time.
    until: Revision,
    /// What was told of them since.
    polls: Vec<Poll>,
}

impl Told {
    /// At the revision `at` the last change that counts was the one of `counted`.
    pub(super) fn shows(&mut self, watermark: Revision, (counted, at): (Revision, Revision)) {
        self.complete = self.complete_at(watermark);
        self.shown = (counted, at);
    }

    fn complete_at(&self, watermark: Revision) -> Revision {
        let (counted, at) = self.shown;
        let shown = if counted <= watermark { at } else { 0 };
        self.complete.max(shown).max(watermark)
    }

    /// After which revision the log is to be told again, of which everything up to `seen` was told but for what was lost.
    /// The last change that counts is at `watermark`, and the own word at `heard` is the last that has come back:
    /// what is not counted was lost after that. None: it was told again since, and has not come further.
    pub(super) fn again(&mut self, watermark: Revision, heard: Revision, seen: Revision) -> Option<Revision> {
        if self.again_at.replace((watermark, heard)) == Some((watermark, heard)) {
            return None;
        }
        self.until = self.until.max(seen);
        Some(self.complete_at(watermark).min(heard))
    }

    /// What the elections are to hear of the candidates of a revision. What is told for a second time they hear all at once
    /// at its end: else they would see leaders again that have gone.
    pub(super) fn polls(&mut self, at: Revision, polls: Vec<Poll>) -> Vec<Poll> {
        self.polls.extend(polls);
        if self.is_new(at) { std::mem::take(&mut self.polls) } else { Vec::new() }
    }

    /// Whether the elections have heard of everything up to this revision, once they have heard of it.
    pub(super) fn is_new(&self, at: Revision) -> bool {
        at >= self.until
    }

    /// Everything was read again.
    pub(super) fn everything(&mut self) {
        *self = Self::default();
    }
}

impl Driver {
    /// Something was lost: has the log told again, or, if that does not help, reads everything again.
    pub(super) fn make_up(&mut self, why: &'static str) {
        let Stage::Inside(session) = &mut self.stage else { return };
        if session.listing {
            return;
        }
        let heard = session.replica.members().get(&session.me).map_or(0, |me| me.modified);
        let Some(after) = session.told.again(session.replica.watermark(), heard, session.seen) else {
            return self.list(why);
        };
        tracing::info!(after, why, "the log is told again");
        session.watch.abort();
        // Whether a candidate came since is not known for certain.
        session.seen = session.seen.min(after);
        let number_of_session = session.number;
        let watch = self.watch_from(number_of_session, number(after) + 1);
        let watches = self.watches;
        if let Stage::Inside(session) = &mut self.stage {
            (session.watch, session.watch_number) = (watch, watches);
        }
    }
}

#[cfg(test)]
mod tests {
    use highgate_elector::Resource;

    use super::*;
    use crate::elections::Ended;

    fn poll(name: &str) -> Poll {
        let resource = Resource::parse(name).unwrap();
        Poll::Ends { resource, key: name.into(), why: Ended::Gone }
    }

    #[test]
    fn the_log_is_told_again_from_the_last_change_that_counts() {
        assert_eq!(Told::default().again(100, 120, 130), Some(100));
        assert_eq!(Told::default().again(100, 90, 130), Some(90), "candidates may have been lost since 90");
    }

    #[test]
    fn a_renewal_that_shows_no_newer_change_moves_the_point_on() {
        let mut told = Told::default();
        told.shows(100, (100, 500));
        assert_eq!(told.again(100, 500, 500), Some(500), "nothing that counts lies between 100 and 500");
        told.shows(100, (510, 520));
        assert_eq!(told.again(100, 499, 520), Some(499));
        assert_eq!(told.again(100, 520, 520), Some(500), "something does between 500 and 520");
        assert_eq!(told.again(510, 521, 522), Some(520), "it has come");
        told.shows(510, (530, 540));
        assert_eq!(told.again(510, 541, 541), Some(520));
    }

    #[test]
    fn what_does_not_come_when_it_is_told_again_is_read() {
        let mut told = Told::default();
        assert!(told.again(100, 100, 100).is_some());
        assert_eq!(told.again(100, 100, 100), None);
        assert!(told.again(101, 100, 102).is_some(), "it has come further, and lost something else");
        told.everything();
        assert!(told.again(101, 100, 102).is_some());
    }

    #[test]
    fn candidates_that_are_told_twice_are_heard_of_at_the_end() {
        let mut told = Told::default();
        assert_eq!(told.polls(90, vec![poll("a")]).len(), 1);
        told.again(80, 80, 100);
        assert_eq!(told.polls(90, vec![poll("a")]).len(), 0);
        told.again(81, 80, 90);
        assert_eq!(told.polls(95, vec![poll("b")]).len(), 0, "what was told before a second gap is kept");
        assert_eq!(told.polls(100, vec![]).len(), 2);
        assert_eq!(told.polls(101, vec![poll("c")]).len(), 1);
    }
}
