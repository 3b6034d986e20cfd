//! Numbers as arguments of scripts.

use std::ops::Range;
use std::time::Duration;

/// Milliseconds, at least one: a lease or a wait of zero would be none.
pub(crate) fn millis(time: Duration) -> String {
    time.as_millis().clamp(1, MOST_MILLIS).to_string()
}

/// Three hundred years: exact in Lua's doubles, and more than any wait lasts.
const MOST_MILLIS: u128 = 10_000_000_000_000;

/// The first rank and the count, both exact in Lua's doubles.
pub(crate) fn rank_and_count(part: &Range<u64>) -> [String; 2] {
    const MOST: u64 = 1 << 50;
    [part.start.min(MOST), part.end.saturating_sub(part.start).min(MOST)].map(|number| number.to_string())
}
