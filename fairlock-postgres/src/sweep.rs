//! Deletes the rows of locks that nobody has used for a day. Any living client does it, now and then, as it renews or releases: one
//! whose holds are short renews nothing.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::net::{Failure, Statement};
use crate::step::Store;

const EVERY: Duration = Duration::from_secs(600);
/// The pause when there was more to delete: a program with a lock for each order makes thousands of rows in ten minutes.
const SOON: Duration = Duration::from_secs(1);
const MOST: usize = 100;
const DELETE: &str = "delete from fairlock.lock where name in (select name from fairlock.lock where dead_at <= fairlock.micros() \
                      order by name limit 100 for update skip locked) returning 1";

/// When this process sweeps next.
pub(crate) struct Sweep(Mutex<Instant>);

impl Sweep {
    pub(crate) fn new() -> Sweep {
        Sweep(Mutex::new(Instant::now() + EVERY))
    }

    /// Sweeps if it is time. A failure does not matter: another client sweeps, or this one later.
    pub(crate) fn sweep_if_due(&self, store: &Store) {
        let now = Instant::now();
        let mut next = self.0.lock();
        let is_due = now >= *next;
        if is_due {
            *next = now + EVERY;
        }
        drop(next);
        if !is_due {
            return;
        }
        match store.sweep() {
            Ok(deleted) if deleted < MOST => {}
            Ok(_) => *self.0.lock() = now + SOON,
            Err(failure) => {
                log::debug!(target: "fairlock::net", "rows of unused locks were not deleted: {failure:?}");
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn is_due_in(&self) -> Duration {
        self.0.lock().saturating_duration_since(Instant::now())
    }

    #[cfg(test)]
    pub(crate) fn make_due(&self) {
        *self.0.lock() = Instant::now();
    }
}

impl Store {
    /// Deletes a hundred such rows at most. A row that is in use is skipped. How many were deleted.
    pub(crate) fn sweep(&self) -> Result<usize, Failure> {
        let deadline = self.pool.deadline();
        let flight = [
            Statement::new("begin isolation level read committed", []),
            Statement::new(DELETE, []),
            Statement::new("commit", []),
        ];
        let answers = self.pool.lend(deadline, |con| con.flight(&flight, deadline))?;
        Ok(answers.get(1).map_or(0, Vec::len))
    }
}
