//! Deletes the rows of locks that nobody has used for a day. Every living client does this now and then, as it renews or releases: a
//! client with short holds renews nothing.
//!
//! A thread (`fairlock-pg-sweep`) looks at a window of the table's pages, deletes the unused rows there, and ends. No caller
//! waits for the thread, and a window costs the server the same however many rows there are. The next window follows after a
//! while: the whole table takes ten minutes, or a second a window if it is large. An index on `dead_at` would find unused rows at
//! once, but end HOT updates; by name these rows are all over the table.
//!
//! | measured, two million rows, PostgreSQL 15 | reads | takes |
//! | --- | --- | --- |
//! | the whole table | 57,000 pages | 0.3 s in memory |
//! | a window of 32 pages, 1,120 rows | 32 pages | 1.4 ms |

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fairlock_core::backend::log_safely;

use crate::net::{Failure, Statement};
use crate::sql::SWEEP;
use crate::store::Store;
use crate::window::EVERY;

/// Sweeps if it is time. A failure does not matter: another client sweeps, or this one later.
pub(crate) fn sweep_if_due(store: &Arc<Store>) {
    let now = Instant::now();
    let mut sweeper = store.sweeper.lock();
    if now < sweeper.next {
        return;
    }
    sweeper.next = now + EVERY;
    drop(sweeper);
    let store = Arc::downgrade(store);
    let in_background = move || {
        let Some(store) = store.upgrade() else { return };
        match sweep(&store) {
            Ok((_, pause)) => store.sweeper.lock().next = Instant::now() + pause,
            Err(failure) => log_safely(|| {
                log::debug!(target: "fairlock::net", "rows of unused locks were not deleted: {failure:?}");
            }),
        }
    };
    // If there is no thread to be had, it is done later.
    let _ = thread::Builder::new().name("fairlock-pg-sweep".to_owned()).spawn(in_background);
}

/// Sweeps the next window. Returns how many rows were deleted, and when the next window is due.
pub(crate) fn sweep(store: &Store) -> Result<(i64, Duration), Failure> {
    let page = store.sweeper.lock().window(); // no lock is held while the server works
    // Once for the whole table, and in no caller's call.
    if page == 0 {
        store.pool.look_again(store.pool.deadline())?;
    }
    let sweep = Statement::new(&SWEEP, [page.cast_signed().into()]);
    let rows = store.pool.ask_committed(sweep, store.pool.deadline())?;
    let row = rows.first().ok_or_else(Failure::senseless)?;
    let pause = store.sweeper.lock().pause(row.number(1)?.cast_unsigned());
    Ok((row.number(0)?, pause))
}
