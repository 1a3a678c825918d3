//! Time in ticks, two for each half of a validity: one when it begins, and one shortly before it ends, when everything
//! that was held back for a moment is due. What the protocol waits for fits them exactly, so that no rounding hides a wait that is too short.

use std::time::Duration;

use highgate::replica::{Time, Timing};

/// Half a validity.
pub(crate) const HALF: Duration = Duration::from_secs(1);
const MOST_OF_IT: Duration = Duration::from_millis(900);

/// W + D is four halves to the millisecond, and what was cut may take effect in the half of the cut and the next.
pub(crate) const TIMING: Timing = Timing {
    validity: Duration::from_secs(2),
    lock_delay: Duration::from_millis(1930),
    drain_timeout: Duration::ZERO,
};

pub(crate) fn at(tick: u8) -> Time {
    HALF * u32::from(tick / 2) + MOST_OF_IT * u32::from(tick % 2)
}
