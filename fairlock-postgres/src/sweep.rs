//! Deletes the rows of locks that nobody has used for a day. Any living client does it, now and then.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::net::{Failure, Statement};
use crate::step::Store;

const EVERY: Duration = Duration::from_secs(600);
const DELETE: &str = "delete from fairlock.lock where name in (select name from fairlock.lock where dead_at <= fairlock.micros() \
                      order by name limit 100 for update skip locked)";

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
        if is_due && let Err(failure) = store.sweep() {
            log::debug!(target: "fairlock::net", "rows of unused locks were not deleted: {failure:?}");
        }
    }
}

impl Store {
    /// Deletes a hundred such rows at most. A row that is in use is skipped.
    pub(crate) fn sweep(&self) -> Result<(), Failure> {
        let deadline = self.pool.deadline();
        let flight = [
            Statement::new("begin isolation level read committed", []),
            Statement::new(DELETE, []),
            Statement::new("commit", []),
        ];
        self.pool.lend(deadline, |con| con.flight(&flight, deadline)).map(|_| ())
    }
}
