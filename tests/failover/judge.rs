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
    /// The grants of both locks.
    pub(crate) grants: usize,
    /// Tokens that did not grow, calls that did not end in time.
    pub(crate) findings: Vec<String>,
}

/// Judges all events of a round. `probe` is the lock that is free most of the time.
pub(crate) fn judge(events: &[Event], probe: &str) -> Verdict {
    let beliefs = beliefs(events);
    let mut findings = tokens_that_did_not_grow(&beliefs);
    // A timed wait that ends withdraws its request, which may take two answers.
    if let Err(late) = check_call_bounds(events, OF_FAULTS.outage, SLACK + 2 * ANSWER) {
        findings.extend(late.0);
    }
    let probes: Vec<u64> =
        beliefs.iter().filter(|belief| belief.lock == probe).map(|belief| belief.from).collect();
    let longest = probes.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(u64::MAX);
    let longest_gap = Duration::from_nanos(longest);
    Verdict { overlaps: overlaps(&beliefs), longest_gap, grants: beliefs.len(), findings }
}
