//! Random choices that follow from a seed.

use std::time::Duration;

use crate::history::now_ns;

/// Dice of one seed.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Zero works like any other seed.
    pub fn new(seed: u64) -> Dice {
        // Neighbouring seeds must give unrelated sequences (splitmix64).
        let mut mixed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Dice((mixed ^ (mixed >> 31)).max(1))
    }

    /// Dice whose seed is printed; FAIRLOCK_TEST_SEED gives one.
    pub fn of_this_test() -> Dice {
        let given = std::env::var("FAIRLOCK_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(now_ns);
        println!("FAIRLOCK_TEST_SEED={seed}");
        Dice::new(seed)
    }

    /// A number less than `n`.
    pub fn roll(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    /// An index below `len`.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.roll(len as u64)).expect("an index")
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    /// A duration in milliseconds from this range.
    pub fn millis(&mut self, range: std::ops::RangeInclusive<u64>) -> Duration {
        Duration::from_millis(range.start() + self.roll(range.end() - range.start() + 1))
    }
}
