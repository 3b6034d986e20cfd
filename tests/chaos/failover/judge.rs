//! The verdict on a round: overlapping beliefs, how long no lock was granted, and what is wrong under any setting.

use std::time::Duration;

use fairlock_tests::beliefs::{Overlap, beliefs, overlaps, tokens_that_did_not_grow};
use fairlock_tests::history::{Event, check_call_bounds};

use crate::setting::{ANSWER, OF_FAULTS, SLACK};

/// The outcome of a round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) overlaps: Vec<Overlap>,
    /// The longest time between two grants of the probe.
    pub(crate) longest_gap: Duration,
    /// The grants of all locks.
    pub(crate) grants: usize,
    /// Tokens that did not grow.
    pub(crate) findings: Vec<String>,
    /// Calls that did not end in time: findings as well, unless the machine stood still.
    pub(crate) late: Vec<String>,
    /// A master was replaced more often than the fault demands: one that was alive.
    pub(crate) deposed: bool,
}

/// Judges all events of a round. `probe` is the lock that is free most of the time; the others have so many units. `tokens_grow`: that
/// is promised.
pub(crate) fn judge(events: &[Event], probe: &str, capacity: u32, tokens_grow: bool) -> Verdict {
    let beliefs = beliefs(events);
    let findings = if tokens_grow { tokens_that_did_not_grow(&beliefs) } else { Vec::new() };
    // A timed wait that ends withdraws its request, which may take two answers.
    let late = check_call_bounds(events, OF_FAULTS.outage, SLACK + 2 * ANSWER);
    let late = late.err().map(|late| late.0).unwrap_or_default();
    let probes: Vec<u64> =
        beliefs.iter().filter(|belief| belief.lock == probe).map(|belief| belief.from).collect();
    let longest = probes.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(u64::MAX);
    let longest_gap = Duration::from_nanos(longest);
    Verdict {
        overlaps: overlaps(&beliefs, |lock| if lock == probe { 1 } else { capacity }),
        longest_gap,
        grants: beliefs.len(),
        findings,
        late,
        deposed: false,
    }
}
