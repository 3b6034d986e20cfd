//! The numbers that only grow: tickets and fencing tokens of one lock come from one sequence.

use super::Millis;

/// The latest number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The next number: the time in microseconds, or one more than the last. So it grows also when the clock stands still
    /// or is set back, and also when the sequence was forgotten.
    pub fn next(&mut self, now: Millis) -> u64 {
        self.0 = (self.0 + 1).max(now * 1000);
        self.0
    }
}
