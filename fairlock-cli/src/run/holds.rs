//! The holds that a program runs under: one, or those of several locks, which are taken and given back together.

use std::time::{Duration, Instant};

use fairlock::crossbeam_channel::Receiver;
use fairlock::{Lost, OwnedGuard, Result};

/// In the order in which they were granted.
#[derive(Debug, Default)]
pub(super) struct Holds(Vec<(OwnedGuard, Instant)>);

impl Holds {
    pub(super) fn add(&mut self, guard: OwnedGuard) {
        self.0.push((guard, Instant::now()));
    }

    pub(super) fn guards(&self) -> impl Iterator<Item = &OwnedGuard> {
        self.0.iter().map(|(guard, _)| guard)
    }

    /// For how long the first of them is held.
    pub(super) fn held_for(&self) -> Duration {
        self.0.first().map_or(Duration::ZERO, |(_, since)| since.elapsed())
    }

    /// How long all of them are certain.
    pub(super) fn valid_for(&self) -> Duration {
        self.guards().map(OwnedGuard::valid_for).min().unwrap_or(Duration::ZERO)
    }

    /// Renews all, and returns how long they are certain.
    ///
    /// # Errors
    /// That of the first that was not renewed.
    pub(super) fn renew(&self) -> Result<Duration> {
        self.guards().try_for_each(|guard| guard.renew().map(drop))?;
        Ok(self.valid_for())
    }

    /// Has the server keep each until this long after its grant, the last that was granted first.
    ///
    /// # Errors
    /// The first. It goes on with the others.
    pub(super) fn keep_for(self, at_least: Duration) -> Result<()> {
        let kept = self.0.into_iter().rev().map(|(guard, _)| guard.keep_for(at_least));
        kept.fold(Ok(()), Result::and)
    }

    /// Whether one of them is lost. What is told as lost may also be a grant that ended before this process took it.
    pub(super) fn are_lost(&self) -> bool {
        self.guards().any(OwnedGuard::is_lost)
    }

    /// A channel for the loss of each.
    pub(super) fn losses(&self) -> Vec<Receiver<Lost>> {
        self.guards().map(|guard| guard.lost().clone()).collect()
    }
}
