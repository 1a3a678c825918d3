//! Until when requests may pass, and which incarnation of this replica they are counted for.
//!
//! The store's driver begins and extends; whoever sees the end first, usually the warden's thread, fences; every
//! admission asks. Time is CLOCK_BOOTTIME, which counts suspension. What must stay true: a fence is final until
//! the next `begin`, however late an extension comes; and a request that was admitted is counted for the
//! incarnation that was valid when it was.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use highgate_elector::Moment;

/// Incarnations whose requests are counted apart. One that is long over shares its number with a later one,
/// which then waits for both.
const INCARNATIONS: usize = 8;

/// No request passes.
const FENCED: u64 = 0;
/// Requests pass until the process ends.
const ALWAYS: u64 = u64::MAX;

/// The validity of this replica. Shared by the ledger, the driver and the warden.
pub struct Validity {
    /// Nanoseconds of the boot-time clock.
    until: AtomicU64,
    /// Nothing is admitted for so long before the end, so that what was admitted is written in time.
    margin: u64,
    incarnation: AtomicU8,
    in_flight: [AtomicU64; INCARNATIONS],
}

/// The incarnation a request is counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted(u8);

impl Validity {
    /// Of a process that is alone: nobody can take its place.
    pub fn always() -> Self {
        Self::new(ALWAYS, Duration::ZERO)
    }

    /// Of a replica that has not joined yet.
    pub fn fenced(margin: Duration) -> Self {
        Self::new(FENCED, margin)
    }

    fn new(until: u64, margin: Duration) -> Self {
        Self {
            until: AtomicU64::new(until),
            margin: u64::try_from(margin.as_nanos()).unwrap_or(u64::MAX),
            incarnation: AtomicU8::new(0),
            in_flight: Default::default(),
        }
    }

    /// A new incarnation is valid until then. The driver only, after a fence.
    pub fn begin(&self, until: Moment) -> Counted {
        // First the number, then the validity: who sees the validity sees the number.
        let number = self.incarnation.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        self.until.store(until.nanos(), Ordering::SeqCst);
        Counted(number)
    }

    /// Valid for longer. False if it is over: then it stays so.
    pub fn extend(&self, until: Moment) -> bool {
        let now = Moment::now().nanos();
        let longer = |known: u64| (known > now).then(|| known.max(until.nanos()));
        self.until.fetch_update(Ordering::SeqCst, Ordering::SeqCst, longer).is_ok()
    }

    /// Nothing passes from now on. False if that was so.
    pub fn fence(&self) -> bool {
        self.until.swap(FENCED, Ordering::SeqCst) != FENCED
    }

    /// When it ends; none while it is fenced, and of one that does not end.
    pub fn ends(&self) -> Option<Moment> {
        let until = self.until.load(Ordering::SeqCst);
        (until != FENCED && until != ALWAYS).then(|| Moment::from_nanos(until))
    }

    /// Whether requests may pass now.
    pub fn holds(&self) -> bool {
        match self.until.load(Ordering::SeqCst) {
            ALWAYS => true,
            until => Moment::now().nanos().saturating_add(self.margin) < until,
        }
    }

    /// The incarnation that requests are counted for now.
    pub(super) fn incarnation(&self) -> Counted {
        Counted(self.incarnation.load(Ordering::SeqCst))
    }

    /// Counts a request in, if requests may pass and the incarnation is still the one that its gate was looked at
    /// under: a gate that was open before a fence says nothing after it.
    pub(super) fn enter(&self, expected: Counted) -> Option<Counted> {
        self.counter(expected).fetch_add(1, Ordering::SeqCst);
        if self.covers(expected) {
            return Some(expected);
        }
        self.leave(expected);
        None
    }

    /// Whether a request of this incarnation may be written now. Asked before every write to an upstream, and as
    /// strictly as an admission: the margin is the time that a write has to reach the kernel.
    pub fn covers(&self, counted: Counted) -> bool {
        // First the validity, then the number: one that holds for a later incarnation has the later number.
        self.holds() && self.incarnation() == counted
    }

    /// Whether this incarnation has ended, so that what it still has under way is to be cut.
    pub fn is_over(&self, counted: Counted) -> bool {
        let until = self.until.load(Ordering::SeqCst);
        self.incarnation() != counted || (until != ALWAYS && Moment::now().nanos() >= until)
    }

    pub(super) fn leave(&self, counted: Counted) {
        self.counter(counted).fetch_sub(1, Ordering::SeqCst);
    }

    /// Requests of one incarnation that have not certainly ended.
    pub fn in_flight_of(&self, counted: Counted) -> u64 {
        self.counter(counted).load(Ordering::SeqCst)
    }

    /// Requests of all incarnations.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.iter().map(|count| count.load(Ordering::SeqCst)).sum()
    }

    fn counter(&self, counted: Counted) -> &AtomicU64 {
        &self.in_flight[usize::from(counted.0) % INCARNATIONS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARGIN: Duration = Duration::from_millis(50);

    fn enter(validity: &Validity) -> Option<Counted> {
        validity.enter(validity.incarnation())
    }

    fn soon(millis: u64) -> Moment {
        Moment::now() + Duration::from_millis(millis)
    }

    #[test]
    fn nothing_is_admitted_before_the_join_nor_within_the_margin_of_the_end() {
        let validity = Validity::fenced(MARGIN);
        assert!(enter(&validity).is_none());
        validity.begin(soon(40));
        assert!(enter(&validity).is_none(), "what is admitted now may be written too late");
        assert!(validity.extend(soon(60_000)));
        assert!(enter(&validity).is_some());
        assert_eq!(validity.in_flight(), 1);
    }

    #[test]
    fn a_fence_is_final_for_its_incarnation() {
        let validity = Validity::fenced(MARGIN);
        validity.begin(soon(60_000));
        assert!(validity.fence() && !validity.fence());
        assert!(!validity.extend(soon(60_000)), "a late answer does not bring it back");
        assert!(enter(&validity).is_none());
    }

    #[test]
    fn an_end_that_has_passed_is_not_extended_although_nobody_fenced_yet() {
        let validity = Validity::fenced(MARGIN);
        validity.begin(Moment::now());
        assert!(!validity.extend(soon(60_000)));
    }

    #[test]
    fn requests_are_counted_for_the_incarnation_that_admitted_them() {
        let validity = Validity::fenced(MARGIN);
        let first = validity.begin(soon(60_000));
        let request = enter(&validity).unwrap();
        validity.fence();
        let second = validity.begin(soon(60_000));
        let _later = enter(&validity).unwrap();
        assert_eq!((validity.in_flight_of(first), validity.in_flight_of(second)), (1, 1));
        validity.leave(request);
        assert_eq!((validity.in_flight_of(first), validity.in_flight_of(second)), (0, 1));
    }

    #[test]
    fn a_gate_that_was_seen_open_before_a_fence_admits_nothing_after_it() {
        let validity = Validity::fenced(MARGIN);
        validity.begin(soon(60_000));
        let seen = validity.incarnation();
        validity.fence();
        validity.begin(soon(60_000));
        assert!(validity.enter(seen).is_none(), "it was open for an incarnation that is over");
        assert_eq!(validity.in_flight(), 0);
    }

    #[test]
    fn a_request_is_covered_up_to_the_margin_and_cut_at_the_end() {
        let validity = Validity::fenced(MARGIN);
        let first = validity.begin(soon(60_000));
        assert!(validity.covers(first) && !validity.is_over(first));
        validity.fence();
        assert!(!validity.covers(first) && validity.is_over(first));
        let second = validity.begin(soon(40));
        assert!(!validity.covers(second), "a write may still be on its way to the kernel at the end");
        assert!(!validity.is_over(second), "a renewal may still come");
        assert!(validity.extend(soon(60_000)) && validity.covers(second));
        assert!(!validity.covers(first) && validity.is_over(first), "what is over stays so");
    }

    #[test]
    fn a_process_that_is_alone_is_always_valid() {
        let validity = Validity::always();
        let alone = validity.incarnation();
        assert!(validity.covers(alone) && !validity.is_over(alone));
        assert!(validity.holds() && validity.ends().is_none());
        assert!(enter(&validity).is_some());
    }
}
