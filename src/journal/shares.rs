//! How much of the journal each resource takes, and how much it may take when room is short.
//!
//! Room is shared as evenly as it can be: a resource that takes no more than its even share loses nothing to others, and
//! what it leaves is shared by those that take more. So a job that flaps all night pushes out its own past only.

use std::collections::HashMap;
use std::hash::BuildHasher as _;

use foldhash::quality::RandomState;

/// Resources are known by a hash of their name: there may be as many as there are lines. Two that shared one would
/// share their room, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key(u64);

#[derive(Debug, Default)]
pub(super) struct Shares {
    takes: HashMap<Key, Taken, RandomState>,
    hasher: RandomState,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    bytes: u64,
    /// No file before this one has a line of the resource.
    first: u64,
}

impl Shares {
    pub(super) fn key(&self, name: &str) -> Key {
        Key(self.hasher.hash_one(name))
    }

    /// A line of the resource was written to the file of this number.
    pub(super) fn add(&mut self, key: Key, part: u64, bytes: u64) {
        let taken = self.takes.entry(key).or_insert(Taken { bytes: 0, first: part });
        taken.bytes += bytes;
        taken.first = taken.first.min(part);
    }

    /// Lines of the resource have gone.
    pub(super) fn lower(&mut self, key: Key, bytes: u64) {
        if let Some(taken) = self.takes.get_mut(&key) {
            taken.bytes = taken.bytes.saturating_sub(bytes);
            if taken.bytes == 0 {
                self.takes.remove(&key);
            }
        }
    }

    /// What the file `from` had of the resource is in `to` now: in its predecessor, or nowhere before its successor.
    pub(super) fn shift(&mut self, key: Key, from: u64, to: u64) {
        if let Some(taken) = self.takes.get_mut(&key).filter(|taken| taken.first == from) {
            taken.first = to;
        }
    }

    pub(super) fn bytes(&self, key: Key) -> u64 {
        self.takes.get(&key).map_or(0, |taken| taken.bytes)
    }

    /// How much each may take so that all together take no more than `room`. No limit, if they take no more anyway.
    pub(super) fn even_share(&self, room: u64) -> u64 {
        let mut sizes: Vec<u64> = self.takes.values().map(|taken| taken.bytes).collect();
        sizes.sort_unstable();
        let mut left = room;
        for (index, size) in sizes.iter().enumerate() {
            let share = left / (sizes.len() - index) as u64;
            if *size > share {
                return share;
            }
            left -= size;
        }
        u64::MAX
    }

    /// The first file with a line of a resource that takes more than this.
    pub(super) fn first_above(&self, share: u64) -> Option<u64> {
        self.takes.values().filter(|taken| taken.bytes > share).map(|taken| taken.first).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn who_takes_little_leaves_the_rest_to_the_others() {
        let mut shares = Shares::default();
        for (name, part, bytes) in [("quiet", 1, 10), ("noisy", 3, 500), ("busy", 2, 60), ("noisy", 4, 500)] {
            shares.add(shares.key(name), part, bytes);
        }
        assert_eq!(shares.even_share(2000), u64::MAX);
        assert_eq!(shares.even_share(170), 100, "70 for the others");
        assert_eq!(shares.even_share(90), 40, "10 for the quiet one, and half of the rest each");
        assert_eq!((shares.first_above(100), shares.first_above(40)), (Some(3), Some(2)));
        let noisy = shares.key("noisy");
        shares.lower(noisy, 950);
        assert_eq!((shares.bytes(noisy), shares.first_above(100)), (50, None));
        shares.lower(noisy, 50);
        assert_eq!(shares.takes.len(), 2);
    }

    proptest! {
        #[test]
        fn all_together_stay_within_the_room_and_use_it(
            sizes in proptest::collection::vec(1_u64..1000, 1..40), room in 0_u64..20_000,
        ) {
            let mut shares = Shares::default();
            for (index, size) in sizes.iter().enumerate() {
                shares.add(Key(index as u64), 1, *size);
            }
            let share = shares.even_share(room);
            let together: u64 = sizes.iter().map(|size| *size.min(&share)).sum();
            prop_assert!(together <= room);
            prop_assert!(share == u64::MAX || together + sizes.len() as u64 > room, "{share}");
        }
    }
}
