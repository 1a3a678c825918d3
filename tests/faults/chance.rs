//! Chance that can be had again: the same seed draws the same numbers. Not for secrets.

use std::time::Duration;

pub(crate) struct Chance(u64);

impl Chance {
    /// A sequence of its own for one purpose, which others do not disturb.
    pub(crate) fn of(seed: u64, purpose: &str) -> Self {
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Self(purpose.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, mix))
    }

    /// splitmix64: small, and good enough to choose faults with.
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.number() % limit as u64) as usize
    }

    pub(crate) fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    pub(crate) fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let share = (self.number() >> 11) as f64 / (1_u64 << 53) as f64;
        least + most.saturating_sub(least).mul_f64(share)
    }

    /// As many short ones as long ones: from least to twice that as likely as from half of most to most.
    pub(crate) fn spread(&mut self, least: Duration, most: Duration) -> Duration {
        let share = (self.number() >> 11) as f64 / (1_u64 << 53) as f64;
        least.mul_f64((most.as_secs_f64() / least.as_secs_f64()).powf(share))
    }

    /// One of these, each as likely as its number says.
    pub(crate) fn weighted<T: Copy>(&mut self, choices: &[(usize, T)]) -> T {
        let mut left = self.below(choices.iter().map(|(weight, _)| weight).sum());
        for (weight, choice) in choices {
            match left.checked_sub(*weight) {
                Some(rest) => left = rest,
                None => return *choice,
            }
        }
        unreachable!("what is left is less than all weights together")
    }
}
