//! Numbers that look random and are a function of a seed: splitmix64.

pub(crate) struct Dice(u64);

impl Dice {
    /// Of one input of a run: neighbouring numbers have nothing in common.
    pub(crate) fn new(seed: u64, number: u64) -> Self {
        let mut outer = Self(seed);
        let start = outer.next();
        let mut inner = Self(start ^ number.wrapping_mul(0xD134_2543_DE82_EF95));
        Self(inner.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Below `limit`; 0 if that is 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).expect("below a usize")
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    pub(crate) fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}
