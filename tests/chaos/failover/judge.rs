//! The verdict on a round: overlapping beliefs, how long no lock was granted, and what is wrong under any setting.

use std::time::Duration;

use fairlock_tests::history::Event;
use fairlock_tests::oracle::{Finding, call_bounds, holds, overlaps, tokens};

use crate::setting::{ANSWER, OUTAGE, SLACK};

/// The outcome of a round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) overlaps: Vec<Finding>,
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

/// Judges all events of a round. `probe` is the lock that is free most of the time; the others have this many units. `tokens_grow`: that
/// is promised.
pub(crate) fn judge(events: &[Event], probe: &str, capacity: u32, tokens_grow: bool) -> Verdict {
    let holds = holds(events);
    let findings = if tokens_grow { tokens(&holds, |hold| hold.asked) } else { Vec::new() };
    // A timed wait that ends withdraws its request, which may take two answers.
    let late = call_bounds(events, OUTAGE, SLACK + 2 * ANSWER);
    let probes: Vec<u64> = holds.iter().filter(|hold| hold.lock == probe).map(|hold| hold.from).collect();
    let longest = probes.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(u64::MAX);
    let sentences = |found: Vec<Finding>| found.into_iter().map(|finding| finding.sentence).collect();
    Verdict {
        overlaps: overlaps(&holds, |lock| if lock == probe { 1 } else { capacity }),
        longest_gap: Duration::from_nanos(longest),
        grants: holds.len(),
        findings: sentences(findings),
        late: sentences(late),
        deposed: false,
    }
}
