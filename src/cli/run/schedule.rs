//! When a process group has to be signalled so that it is dead before the lease can expire. Pure.
//!
//! `run` keeps one, and its guardian keeps another that lags a little, so that the guardian acts only where
//! `run` did not. What must stay true: SIGKILL is due at the deadline at the latest, whatever else happened.

use std::time::Duration;

use highgate_elector::Moment;

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Terminate,
    Kill,
}

#[derive(Clone, Debug)]
pub(super) struct Schedule {
    /// When the group has to be dead.
    deadline: Moment,
    /// How long the group has between SIGTERM and SIGKILL.
    grace: Duration,
    /// How long after its time SIGTERM is due.
    lag: Duration,
    /// When SIGKILL follows; set once the group was told to end.
    kill_at: Option<Moment>,
    killed: bool,
}

impl Schedule {
    pub(super) fn new(deadline: Moment, grace: Duration) -> Self {
        Self { deadline, grace, lag: Duration::ZERO, kill_at: None, killed: false }
    }

    /// For the one who acts second.
    pub(super) fn lagging(self, lag: Duration) -> Self {
        Self { lag, ..self }
    }

    /// The lease was renewed. An answer that comes out of order takes nothing back.
    pub(super) fn renew(&mut self, deadline: Moment) -> bool {
        let later = deadline > self.deadline;
        self.deadline = self.deadline.max(deadline);
        later
    }

    /// The group was told to end just now, by whomever. Being told again buys it no time.
    pub(super) fn end(&mut self, now: Moment) {
        self.kill_by(now + self.grace);
    }

    /// The group was told to end, and is to be killed at this time.
    pub(super) fn kill_by(&mut self, at: Moment) {
        self.kill_at = Some(self.kill_at.map_or(at, |before| before.min(at)));
    }

    /// What has become due; each once.
    pub(super) fn due(&mut self, now: Moment) -> Option<Due> {
        if self.killed {
            return None;
        }
        if now >= self.kill_at() {
            self.killed = true;
            return Some(Due::Kill);
        }
        if !self.is_ending() && now >= self.terminate_at() {
            self.end(now);
            return Some(Due::Terminate);
        }
        None
    }

    /// Whether there is time to start anything.
    pub(super) fn has_time(&self, now: Moment) -> bool {
        !self.is_ending() && now < self.terminate_at()
    }

    pub(super) fn is_ending(&self) -> bool {
        self.kill_at.is_some() || self.killed
    }

    pub(super) fn kill_at(&self) -> Moment {
        self.kill_at.map_or(self.deadline, |at| at.min(self.deadline))
    }

    /// When to look again; never once all is done.
    pub(super) fn wake_at(&self) -> Option<Moment> {
        match (self.killed, self.kill_at) {
            (true, _) => None,
            (false, Some(_)) => Some(self.kill_at()),
            (false, None) => Some(self.terminate_at()),
        }
    }

    fn terminate_at(&self) -> Moment {
        (self.deadline.before(self.grace) + self.lag).min(self.deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    fn schedule() -> Schedule {
        Schedule::new(at(100), Duration::from_secs(5))
    }

    #[test]
    fn a_lease_that_is_not_renewed_ends_the_group_in_two_steps() {
        let mut schedule = schedule();
        assert!(schedule.has_time(at(94)));
        assert_eq!((schedule.due(at(94)), schedule.wake_at()), (None, Some(at(95))));
        assert!(!schedule.has_time(at(95)));
        assert_eq!((schedule.due(at(95)), schedule.wake_at()), (Some(Due::Terminate), Some(at(100))));
        assert_eq!(schedule.due(at(99)), None);
        assert_eq!((schedule.due(at(100)), schedule.wake_at()), (Some(Due::Kill), None));
        assert_eq!(schedule.due(at(101)), None);
    }

    #[test]
    fn a_renewal_moves_both_steps_and_an_old_one_moves_nothing() {
        let mut schedule = schedule();
        assert!(schedule.renew(at(110)));
        assert!(!schedule.renew(at(105)));
        assert_eq!((schedule.due(at(104)), schedule.wake_at()), (None, Some(at(105))));
    }

    #[test]
    fn who_sleeps_past_both_steps_kills_at_once() {
        let mut schedule = schedule();
        assert_eq!(schedule.due(at(200)), Some(Due::Kill));
        assert!(schedule.is_ending() && !schedule.has_time(at(0)));
    }

    #[test]
    fn a_group_that_is_told_to_end_has_its_grace_but_never_past_the_deadline() {
        let mut schedule = schedule();
        schedule.end(at(50));
        assert_eq!((schedule.due(at(54)), schedule.kill_at()), (None, at(55)));
        schedule.end(at(53));
        assert_eq!(schedule.due(at(55)), Some(Due::Kill), "the second word bought no time");

        let mut late = Schedule::new(at(100), Duration::from_secs(5));
        late.end(at(98));
        assert_eq!((late.due(at(99)), late.due(at(100))), (None, Some(Due::Kill)));
    }

    #[test]
    fn the_second_in_line_lags_with_its_warning_but_not_with_its_kill() {
        let mut schedule = schedule().lagging(Duration::from_secs(1));
        assert_eq!((schedule.due(at(95)), schedule.wake_at()), (None, Some(at(96))));
        assert_eq!(schedule.due(at(96)), Some(Due::Terminate));
        assert_eq!(schedule.due(at(100)), Some(Due::Kill));
    }

    #[test]
    fn without_grace_there_is_only_the_kill() {
        let mut schedule = Schedule::new(at(100), Duration::ZERO).lagging(Duration::from_secs(1));
        assert_eq!((schedule.due(at(99)), schedule.wake_at()), (None, Some(at(100))));
        assert_eq!(schedule.due(at(100)), Some(Due::Kill));
    }
}
