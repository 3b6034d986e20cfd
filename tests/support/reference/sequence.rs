//! The growing numbers: tickets and fencing tokens of a lock come from one sequence.

/// The latest number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The next number: `now` (microseconds), or the last number plus one. So it grows even if the clock stands
    /// still or is set back, and even if the sequence was forgotten.
    pub fn next(&mut self, now: u64) -> u64 {
        self.0 = (self.0 + 1).max(now);
        self.0
    }
}
