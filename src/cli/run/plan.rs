//! What `run` does about its command at which time, and why it ended. Pure: events in, signals out.
//!
//! The supervising loop in `work.rs` feeds it. What must stay true: the clock is looked at before anything
//! else, so that an end that is noticed too late counts as a loss of leadership; and the first reason stays.

use rustix::process::Signal;

use super::schedule::{Due, Schedule};
use highgate_elector::Moment;

/// Why the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// By itself.
    Done,
    /// `run` got a signal and passed it on.
    Asked,
    /// Leadership was lost, or could not be renewed in time.
    Lost,
    /// `--max-time` was over.
    OutOfTime,
    /// Nobody would have killed it, had `run` been stopped.
    Unguarded,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Nothing but time.
    Tick,
    /// The lease was renewed.
    Renewed(Moment),
    Lost,
    /// The guardian signalled the command.
    GuardianActed,
    /// The guardian or the command's keeper.
    GuardianGone,
    /// There is a process that signals reach.
    Started,
    Asked(Signal),
    /// The command's own process ended and left others.
    LeftOthers,
}

#[derive(Clone, Debug)]
pub(super) struct Plan {
    schedule: Schedule,
    /// When `--max-time` is over.
    stop_at: Option<Moment>,
    why: Option<Why>,
}

impl Plan {
    pub(super) fn new(schedule: Schedule, stop_at: Option<Moment>) -> Self {
        Self { schedule, stop_at, why: None }
    }

    /// The signals that the group gets now, in this order.
    pub(super) fn step(&mut self, now: Moment, event: Event) -> Vec<Signal> {
        // Before the clock: the lease is valid that long, however late that is noticed.
        if let Event::Renewed(deadline) = event {
            self.schedule.renew(deadline);
        }
        let mut signals: Vec<_> = self.due(now).into_iter().collect();
        if self.stop_at.is_some_and(|at| now >= at) {
            signals.extend(self.end(now, Why::OutOfTime, Signal::TERM));
        }
        signals.extend(match event {
            Event::Tick | Event::Renewed(_) => None,
            Event::Lost => self.end(now, Why::Lost, Signal::TERM),
            // It has sent the signal itself.
            Event::GuardianActed => self.end(now, Why::Lost, Signal::TERM).and(None),
            Event::GuardianGone => self.end(now, Why::Unguarded, Signal::TERM),
            Event::LeftOthers => self.end(now, Why::Done, Signal::TERM),
            // It was told before there was anybody to hear it.
            Event::Started => self.is_ending().then_some(Signal::TERM),
            // Asked again, it passes that on as well: some commands end faster then.
            Event::Asked(signal) if self.is_ending() => Some(signal),
            Event::Asked(signal) => self.end(now, Why::Asked, signal),
        });
        signals
    }

    fn due(&mut self, now: Moment) -> Option<Signal> {
        let due = self.schedule.due(now)?;
        self.why.get_or_insert(Why::Lost);
        Some(match due {
            Due::Terminate => Signal::TERM,
            Due::Kill => Signal::KILL,
        })
    }

    /// Tells the group to end, unless it was told.
    fn end(&mut self, now: Moment, why: Why, signal: Signal) -> Option<Signal> {
        if self.is_ending() {
            return None;
        }
        self.why.get_or_insert(why);
        self.schedule.end(now);
        Some(signal)
    }

    pub(super) fn is_ending(&self) -> bool {
        self.schedule.is_ending()
    }

    pub(super) fn kill_at(&self) -> Moment {
        self.schedule.kill_at()
    }

    /// When to look again at the latest.
    pub(super) fn wake_at(&self) -> Option<Moment> {
        let stop_at = self.stop_at.filter(|_| !self.is_ending());
        self.schedule.wake_at().into_iter().chain(stop_at).min()
    }

    /// Why it ended, now that it has.
    pub(super) fn why(&self) -> Why {
        self.why.unwrap_or(Why::Done)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    /// The lease ends at 100, the grace is 5, and there may be a limit.
    fn plan(stop_at: Option<u64>) -> Plan {
        Plan::new(Schedule::new(at(100), Duration::from_secs(5)), stop_at.map(at))
    }

    const NONE: [Signal; 0] = [];

    #[test]
    fn a_command_that_ends_in_time_is_done() {
        let mut plan = plan(None);
        assert_eq!(plan.step(at(10), Event::Tick), NONE);
        assert_eq!((plan.why(), plan.wake_at()), (Why::Done, Some(at(95))));
    }

    #[test]
    fn without_renewals_it_is_told_and_then_killed() {
        let mut plan = plan(None);
        assert_eq!(plan.step(at(94), Event::Renewed(at(110))), NONE);
        assert_eq!(plan.step(at(104), Event::Tick), NONE);
        assert_eq!(plan.step(at(105), Event::Tick), [Signal::TERM]);
        assert_eq!((plan.why(), plan.kill_at()), (Why::Lost, at(110)));
        assert_eq!(plan.step(at(110), Event::Tick), [Signal::KILL]);
        assert_eq!(plan.step(at(111), Event::Tick), NONE);
        assert_eq!(plan.wake_at(), None);
    }

    #[test]
    fn a_renewal_that_is_noticed_late_still_counts() {
        let mut plan = plan(None);
        assert_eq!(plan.step(at(96), Event::Renewed(at(110))), NONE);
        assert!(!plan.is_ending());
    }

    #[test]
    fn a_deposed_leader_has_its_grace_and_no_more() {
        let mut plan = plan(None);
        assert_eq!(plan.step(at(50), Event::Lost), [Signal::TERM]);
        assert_eq!(plan.step(at(51), Event::Lost), NONE);
        assert_eq!(plan.step(at(52), Event::Asked(Signal::INT)), [Signal::INT]);
        assert_eq!(plan.step(at(55), Event::Tick), [Signal::KILL]);
        assert_eq!(plan.why(), Why::Lost);
    }

    #[test]
    fn a_signal_is_passed_on_each_time_and_buys_no_second_grace() {
        let mut plan = plan(None);
        assert_eq!(plan.step(at(10), Event::Asked(Signal::INT)), [Signal::INT]);
        assert_eq!(plan.step(at(14), Event::Asked(Signal::TERM)), [Signal::TERM]);
        assert_eq!(plan.step(at(15), Event::Tick), [Signal::KILL]);
        assert_eq!(plan.why(), Why::Asked);
    }

    #[test]
    fn who_was_told_to_end_before_it_began_is_told_again() {
        let mut plan = plan(None);
        assert_eq!(plan.step(at(9), Event::Started), NONE);
        assert_eq!(plan.step(at(10), Event::Asked(Signal::INT)), [Signal::INT]);
        assert_eq!(plan.step(at(11), Event::Started), [Signal::TERM]);
        assert_eq!(plan.step(at(15), Event::Tick), [Signal::KILL]);
    }

    #[test]
    fn max_time_ends_it_once() {
        let mut plan = plan(Some(30));
        assert_eq!((plan.step(at(29), Event::Tick), plan.wake_at()), (vec![], Some(at(30))));
        assert_eq!(plan.step(at(30), Event::Tick), [Signal::TERM]);
        assert_eq!((plan.step(at(31), Event::Tick), plan.wake_at()), (vec![], Some(at(35))));
        assert_eq!(plan.step(at(35), Event::Tick), [Signal::KILL]);
        assert_eq!(plan.why(), Why::OutOfTime);
    }

    #[test]
    fn an_end_that_is_noticed_after_the_lease_is_a_loss() {
        let mut plan = plan(Some(30));
        assert_eq!(plan.step(at(200), Event::LeftOthers), [Signal::KILL]);
        assert_eq!(plan.why(), Why::Lost);
    }

    #[test]
    fn what_the_guardian_has_done_is_not_done_again() {
        let mut plan = plan(None);
        assert_eq!(plan.step(at(94), Event::GuardianActed), NONE);
        assert_eq!((plan.why(), plan.kill_at()), (Why::Lost, at(99)));
    }

    #[test]
    fn without_a_guardian_there_is_no_work() {
        let mut plan = plan(None);
        assert_eq!(plan.step(at(10), Event::GuardianGone), [Signal::TERM]);
        assert_eq!(plan.why(), Why::Unguarded);
    }

    #[test]
    fn what_a_finished_command_leaves_behind_is_ended_too() {
        let mut plan = plan(None);
        assert_eq!(plan.step(at(10), Event::LeftOthers), [Signal::TERM]);
        assert_eq!(plan.step(at(11), Event::LeftOthers), NONE);
        assert_eq!(plan.step(at(15), Event::LeftOthers), [Signal::KILL]);
        assert_eq!(plan.why(), Why::Done);
    }
}
