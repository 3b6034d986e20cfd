//! How many sentinels there are, of which more than half count.
//!
//! Two proofs, for two masters, have to share a sentinel. So a client counts every sentinel that any sentinel has ever named:
//! after `SENTINEL RESET` a sentinel knows no other sentinel for a while, or for as long as it is cut off, and a few reset
//! sentinels would be a majority of themselves.
//!
//! Only a majority of the known sentinels can make the number smaller. If more than half name exactly the same sentinels, and for
//! [`SETTLED`] no answer names others, the named sentinels are all. The others no longer count, until a named sentinel names them
//! again. Any majority before (without stopped sentinels) and any majority after still share a sentinel. (Even if one removed
//! sentinel goes on: n / 2 + 1 of n share a sentinel with n / 2 + 1 of n - 1 among them. If several removed sentinels go on, the
//! sentinels themselves may elect two masters.)

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::report::MasterReport;

/// How long a sentinel may take to hear of the others after a `SENTINEL RESET`: some times the 2 s after which each announces itself.
const SETTLED: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Electorate {
    /// How many sentinels there are: at least as many as are configured, and as any sentinel has told of.
    count: usize,
    /// The sentinels that count, once a majority has made them fewer.
    members: Option<BTreeSet<String>>,
    /// The sentinels that all answers name, and since when they name the same ones. None if an answer does not say which.
    told: Option<(BTreeSet<String>, Instant)>,
}

impl Electorate {
    pub(super) fn new(configured: usize) -> Electorate {
        Electorate { count: configured, ..Electorate::default() }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Whether the answer of this sentinel counts. The number of sentinels that it tells of counts in any case.
    pub(super) fn hear(&mut self, report: &MasterReport, now: Instant) -> bool {
        if self.members.as_ref().is_some_and(|members| !members.contains(&report.id)) {
            return false;
        }
        self.count = self.count.max(report.sentinels);
        let told = self.told.take().filter(|(told, _)| report.told.as_ref() == Some(told));
        self.told = told.or_else(|| Some((report.told.clone()?, now)));
        if report.told.is_some() && self.members.is_some() && self.members != report.told {
            self.members = None;
        }
        true
    }

    /// Called after so many sentinels have answered in a round.
    pub(super) fn settle(&mut self, answered: usize, now: Instant) {
        let Some((told, since)) = &self.told else { return };
        let is_settled = now.saturating_duration_since(*since) >= SETTLED;
        if is_settled && 2 * answered > self.count && told.len() < self.count {
            (self.count, self.members) = (told.len(), Some(told.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
