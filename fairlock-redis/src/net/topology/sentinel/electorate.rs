//! How many sentinels there are, of which more than half count.
//!
//! Two proofs, for two masters, have to share a sentinel. So a client counts all of whom any has ever told: after `SENTINEL RESET` a
//! sentinel knows no other for a while, or for as long as it is cut off, and a few of them would be a majority of those that they know.
//!
//! Only a majority of the known ones makes them fewer. When more than half have told of exactly the same sentinels, and for
//! [`SETTLED`] no answer has told of others, these are all that there are, and what the others say no longer counts, until one of
//! these tells of them again. Then any majority of all, without those that were stopped, and any majority of the rest still share one.
//! (If one was removed and goes on, they do so as well: n / 2 + 1 of n, and of n - 1 that are among them. If several go on, the sentinels
//! themselves may elect two masters.)

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::report::MasterReport;

/// How long a sentinel may take to hear of the others after a `SENTINEL RESET`: some times the 2 s after which each announces itself.
const SETTLED: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Electorate {
    /// How many there are: at least as many as are configured, and as any has told of.
    count: usize,
    /// Once a majority has made them fewer, those whose words count.
    members: Option<BTreeSet<String>>,
    /// Of whom all answers have told, and since when they have told of the same ones. None if one does not say which.
    told: Option<(BTreeSet<String>, Instant)>,
}

impl Electorate {
    pub(super) fn new(configured: usize) -> Electorate {
        Electorate { count: configured, ..Electorate::default() }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Whether what this sentinel says counts. Of how many it tells is not forgotten.
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

    /// After so many of them have answered in a round.
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
