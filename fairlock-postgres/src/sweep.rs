//! Deletes the rows of locks that nobody has used for a day. Any living client does it, now and then, as it renews or releases: one
//! whose holds are short renews nothing.

use std::time::{Duration, Instant};

use fairlock_core::backend::log_safely;

use crate::net::{Failure, Statement};
use crate::step::Store;

pub(crate) const EVERY: Duration = Duration::from_secs(600);
/// The pause when there was more to delete: a program with a lock for each order makes thousands of rows in ten minutes.
const SOON: Duration = Duration::from_secs(1);
const MOST: usize = 100;
const DELETE: &str = "delete from fairlock.lock where name in (select name from fairlock.lock where dead_at <= fairlock.micros() \
                      order by name limit 100 for update skip locked) returning 1";

impl Store {
    /// Sweeps if it is time. A failure does not matter: another client sweeps, or this one later.
    pub(crate) fn sweep_if_due(&self) {
        let now = Instant::now();
        let mut next = self.next_sweep.lock();
        if now < *next {
            return;
        }
        *next = now + EVERY;
        drop(next);
        match self.sweep() {
            Ok(deleted) if deleted < MOST => {}
            Ok(_) => *self.next_sweep.lock() = now + SOON,
            Err(failure) => {
                log_safely(
                    || log::debug!(target: "fairlock::net", "rows of unused locks were not deleted: {failure:?}"),
                );
            }
        }
    }

    /// Deletes a hundred such rows at most. A row that is in use is skipped. How many were deleted.
    pub(crate) fn sweep(&self) -> Result<usize, Failure> {
        Ok(self.pool.ask_committed(Statement::new(DELETE, []), self.pool.deadline())?.len())
    }
}
