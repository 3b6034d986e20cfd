//! What is wrong with a history, in sentences.

use super::calls::Call;
use super::lock::MS;
use super::{Replay, Rules};

/// Why a step can't be earlier.
#[derive(Clone, Copy, Debug)]
pub(super) enum Because {
    Begins,
    Asks(usize),
    Holds(usize),
    Leased(usize),
    Waits(usize),
    IsKept(usize),
}

impl Replay<'_> {
    pub(super) fn check_limit(&self, index: usize, what: &str, limit: u64) -> Result<(), String> {
        if self.now <= limit {
            return Ok(());
        }
        let because = match self.because {
            Because::Begins => "the history begins".to_owned(),
            Because::Asks(other) => format!("{} asks", self.name(other)),
            Because::Holds(other) => format!("{} releases it", self.name(other)),
            Because::Leased(other) => format!("the lease of {} ends", self.name(other)),
            Because::IsKept(other) => format!("{} still has its place", self.name(other)),
            Because::Waits(other) => format!("{} leaves the queue", self.name(other)),
        };
        let (name, now) = (self.name(index), self.now);
        Err(format!("{name} {what} at {limit} ns, which can't be before {now} ns, when {because}"))
    }

    /// Not by the rules `Line`, where a lease that was handed over with a place may end later than here.
    pub(super) fn check_belief(&mut self, holder: usize, believed: Option<u64>) -> Result<(), String> {
        if self.rules == Rules::Queue {
            return Ok(());
        }
        let ends = self.lock.lease_end();
        match believed.filter(|believed| believed / MS > ends) {
            None => Ok(()),
            Some(believed) => {
                let (name, ends) = (self.name(holder), ends * MS);
                Err(format!(
                    "{name} believed in its hold until {believed} ns, and its lease ended at {ends} ns"
                ))
            }
        }
    }

    pub(super) fn out_of_turn(&self, index: usize, first: usize) -> String {
        format!("{} got the lock while {} was first in the queue", self.name(index), self.name(first))
    }

    pub(super) fn name(&self, index: usize) -> String {
        let Call { name, granted, .. } = &self.calls[index];
        granted.map_or(name.clone(), |(_, token)| format!("{name} (token {token})"))
    }
}
