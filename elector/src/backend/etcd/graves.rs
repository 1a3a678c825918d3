//! Gateways that were evicted and may still forward, as an elector sees them. Pure.
//!
//! Where gateways serve, they wait for these before they open a mark. Where none serves any more, only the winner is
//! left to wait: an evicted gateway forwards until its validity has ended, and what it has sent may take its lock-delay
//! to land. What must stay true: a tombstone is waited for from when an answer that shows it was received, never from
//! when it was asked for; and one that was forgotten and comes back is waited for anew.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use highgate_etcd::KeyValue;
use highgate_etcd::fence::TombstoneValue;

/// The longest validity and lock-delay that a gateway can be configured to have. A tombstone that says more was not
/// written by one, and nobody could lead for as long as it says.
const LONGEST_VALIDITY: Duration = Duration::from_secs(60);
const LONGEST_LOCK_DELAY: Duration = Duration::from_secs(86_400);

/// What a gateway is taken to need whose tombstone cannot be read: the longest validity, and the usual lock-delay.
const UNKNOWN: Duration = wait(LONGEST_VALIDITY, Duration::from_secs(5));

/// A tombstone, `t/<incarnation>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grave {
    pub key: Vec<u8>,
    /// The revision that wrote it: one that is written again is another one.
    pub changed: i64,
    /// How long after it was first seen its gateway may still have something under way.
    pub wait: Duration,
}

/// Since when each tombstone is known to this process.
#[derive(Debug, Default)]
pub struct Graves {
    first_seen: HashMap<(Vec<u8>, i64), Instant>,
}

impl Grave {
    /// Of a gateway with this validity and lock-delay.
    pub fn new(key: Vec<u8>, changed: i64, validity: Duration, lock_delay: Duration) -> Self {
        let wait = wait(validity.min(LONGEST_VALIDITY), lock_delay.min(LONGEST_LOCK_DELAY));
        Self { key, changed, wait }
    }

    pub(super) fn read(kv: &KeyValue) -> Self {
        let (key, changed) = (kv.key.clone(), kv.mod_revision);
        match TombstoneValue::decode(&kv.value) {
            Some(value) => Self::new(key, changed, value.validity, value.lock_delay),
            None => Self { key, changed, wait: UNKNOWN },
        }
    }
}

/// The gateway's clock may be a little slow; that is the share on top of its validity.
const fn wait(validity: Duration, lock_delay: Duration) -> Duration {
    let millis = validity.as_millis() + validity.as_millis() / 100 + 50 + lock_delay.as_millis();
    Duration::from_millis(millis as u64)
}

impl Graves {
    /// Whether the gateway of one of these may still forward. They are all that there are, in an answer that was
    /// received at `now`.
    pub fn may_forward(&mut self, now: Instant, found: &[Grave]) -> bool {
        let id = |grave: &Grave| (grave.key.clone(), grave.changed);
        self.first_seen.retain(|known, _| found.iter().any(|grave| id(grave) == *known));
        let mut any = false;
        for grave in found {
            let seen = *self.first_seen.entry(id(grave)).or_insert(now);
            any |= now.saturating_duration_since(seen) < grave.wait;
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kv(name: &str, changed: i64, value: &[u8]) -> KeyValue {
        KeyValue { key: name.into(), value: value.to_vec(), mod_revision: changed, ..KeyValue::default() }
    }

    fn value(validity: Duration, lock_delay: Duration) -> Vec<u8> {
        TombstoneValue { created: 3, watermark: 9, draining: Vec::new(), validity, lock_delay }.encode()
    }

    #[test]
    fn a_tombstone_is_waited_for_from_when_it_was_first_seen() {
        let four = Duration::from_secs(4);
        let grave = Grave::read(&kv("/p/t/a", 7, &value(four, Duration::from_secs(5))));
        assert_eq!(grave.wait, Duration::from_millis(4000 + 40 + 50 + 5000));
        let (mut graves, began, found) = (Graves::default(), Instant::now(), [grave.clone()]);
        assert!(!graves.may_forward(began, &[]), "nobody was evicted");
        assert!(graves.may_forward(began, &found));
        assert!(graves.may_forward(began + grave.wait - Duration::from_millis(1), &found));
        assert!(!graves.may_forward(began + grave.wait, &found));
        let again = [Grave { changed: 8, ..grave.clone() }];
        assert!(graves.may_forward(began + grave.wait, &again), "evicted once more");
        assert!(graves.may_forward(began + grave.wait, &found), "the first was not there for a while");
    }

    #[test]
    fn what_was_not_written_by_a_gateway_does_not_hold_everybody_up_for_ever() {
        let forever = Duration::from_millis(u64::MAX);
        let absurd = Grave::read(&kv("/p/t/a", 7, &value(forever, forever)));
        assert_eq!(absurd.wait, wait(LONGEST_VALIDITY, LONGEST_LOCK_DELAY));
        assert_eq!(Grave::read(&kv("/p/t/a", 7, b"?")).wait, UNKNOWN);
    }
}
