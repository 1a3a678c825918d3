//! A token bucket for each client in a table of a fixed size. Pure: whoever calls says what time it is.
//!
//! A bucket is kept as what it lacks, which fills up by itself, so a client that is not in the table has a full one. A
//! client has its place among a few; where these are taken, the one that lacks the least makes room. What must stay
//! true: the table never grows, and who has used up a bucket is forgotten only for somebody who lacks as much.

use std::hash::BuildHasher;
use std::time::Duration;

use foldhash::quality::RandomState;

use super::Owner;
use crate::config::RefusalLimits;

const SETS: usize = 4096;
const PLACES: usize = 4;
/// Buckets are counted in thousandths, so that each millisecond brings a whole number.
const ONE: u64 = 1000;

pub(super) struct Buckets {
    per_second: u64,
    size: u64,
    /// Keyed, so that nobody can choose whose place he takes.
    hash: RandomState,
    sets: Box<[[Bucket; PLACES]]>,
}

#[derive(Clone, Copy, Default)]
struct Bucket {
    owner: Option<Owner>,
    /// What it lacked at that time.
    lacking: u64,
    at: u64,
}

impl Buckets {
    pub(super) fn new(limits: RefusalLimits) -> Self {
        Self {
            per_second: limits.per_second.into(),
            size: u64::from(limits.burst) * ONE,
            hash: RandomState::default(),
            sets: vec![[Bucket::default(); PLACES]; SETS].into_boxed_slice(),
        }
    }

    /// Takes one out of the client's bucket. False: it is empty.
    pub(super) fn take(&mut self, owner: Owner, now: Duration) -> bool {
        let now = milliseconds(now);
        let lacking = self.lacking(owner, now);
        if lacking + ONE > self.size {
            return false;
        }
        let per_second = self.per_second;
        let set = self.set(owner);
        let known = set.iter().position(|bucket| bucket.owner == Some(owner));
        let least = || (0..PLACES).min_by_key(|place| set[*place].lacking_at(now, per_second));
        if let Some(place) = known.or_else(least) {
            set[place] = Bucket { owner: Some(owner), lacking: lacking + ONE, at: now };
        }
        true
    }

    /// Whether there is nothing in the client's bucket.
    pub(super) fn is_empty(&mut self, owner: Owner, now: Duration) -> bool {
        self.lacking(owner, milliseconds(now)) + ONE > self.size
    }

    fn lacking(&mut self, owner: Owner, now: u64) -> u64 {
        let per_second = self.per_second;
        let bucket = self.set(owner).iter().find(|bucket| bucket.owner == Some(owner));
        bucket.map_or(0, |bucket| bucket.lacking_at(now, per_second))
    }

    fn set(&mut self, owner: Owner) -> &mut [Bucket; PLACES] {
        let hash = self.hash.hash_one(owner) % SETS as u64;
        &mut self.sets[usize::try_from(hash).unwrap_or_default()]
    }
}

impl Bucket {
    fn lacking_at(&self, now: u64, per_second: u64) -> u64 {
        self.lacking.saturating_sub(now.saturating_sub(self.at).saturating_mul(per_second))
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn owner(network: u64) -> Owner {
        Owner { network, is_ipv4: true }
    }

    fn buckets() -> Buckets {
        Buckets::new(RefusalLimits { per_second: 10, burst: 5 })
    }

    #[test]
    fn a_bucket_has_so_many_at_once_and_fills_up_again() {
        let (mut buckets, start) = (buckets(), Duration::from_secs(9));
        assert!((0..5).all(|_| buckets.take(owner(1), start)));
        assert!(!buckets.take(owner(1), start) && buckets.is_empty(owner(1), start));
        assert!(!buckets.is_empty(owner(2), start), "another's is full");
        let later = start + Duration::from_millis(100);
        assert!(buckets.take(owner(1), later) && !buckets.take(owner(1), later));
        assert!((0..5).all(|_| buckets.take(owner(1), start + Duration::from_secs(3600))));
    }

    #[test]
    fn any_number_of_clients_is_kept_in_the_same_room() {
        let mut buckets = buckets();
        for client in 0..100_000 {
            assert!(buckets.take(owner(client), Duration::ZERO), "it is its first");
        }
        assert_eq!(buckets.sets.len(), SETS);
    }

    #[test]
    fn those_who_lack_little_make_room_before_those_who_lack_much() {
        let mut buckets = buckets();
        while buckets.take(owner(0), Duration::ZERO) {}
        for client in 1..100_000 {
            buckets.take(owner(client), Duration::ZERO);
        }
        assert!(buckets.is_empty(owner(0), Duration::ZERO));
    }

    proptest! {
        /// Whatever happens when, no client gets more than its burst and what has come since.
        #[test]
        fn nobody_gets_more_than_the_rate(steps in proptest::collection::vec((0_u64..3, 0_u64..400), 1..200)) {
            let mut buckets = buckets();
            let (mut now, mut taken) = (0, [0_u64; 3]);
            for (client, pause) in steps {
                now += pause;
                if buckets.take(owner(client), Duration::from_millis(now)) {
                    taken[usize::try_from(client).unwrap()] += 1;
                }
            }
            prop_assert!(taken.iter().all(|count| *count <= 5 + now / 100 + 1));
        }
    }
}
