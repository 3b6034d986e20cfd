//! Lists the locks that are in use.

use fairlock_core::backend::{BackendError, BackendErrorKind, LockState};
use fairlock_core::{Error, LockName};
use fairlock_rules::{Presence, StoreContext, fits_pattern};

use crate::backend::PostgresBackend;
use crate::net::{Row, Statement};
use crate::row::{AFTER, Loaded};
use crate::sql::LIST;

/// How many rows `list.sql` reads.
const PAGE: usize = 500;

impl PostgresBackend {
    /// Lists the locks that are held or waited for, by name, each with its holder, its first waiter and the number of waiters
    /// ([`inspect`](fairlock_core::Lock::inspect) reads the others). In `pattern` `*` is any text, `?` one character, `[ab]` and
    /// `[a-c]` a character of a list, `[^ab]` any other character; behind `\` a character stands for itself.
    ///
    /// It reads all rows of locks in use, 500 in each round trip. The list is not a snapshot. A damaged row is left out.
    ///
    /// # Errors
    /// `Unsupported` if a newer version of fairlock keeps one of the locks; `Unavailable` when the server can't be reached; `Denied` without
    /// the right to read.
    pub fn locks(&self, pattern: Option<&str>) -> fairlock_core::Result<Vec<(LockName, LockState)>> {
        let (pool, mut found, mut after) = (&self.0.pool, Vec::new(), Vec::new());
        loop {
            let rows = pool.ask(Statement::new(&LIST, [after.as_slice().into()]), pool.deadline())?;
            for row in &rows {
                let text = std::str::from_utf8(row.bytes(AFTER)?).ok();
                let text = text.filter(|name| fits_pattern(pattern.unwrap_or("*"), name));
                if let Some(name) = text.and_then(|name| LockName::new(name).ok())
                    && let Some(state) = state_of(&name, row).map_err(|error| Error::about(&name, error))?
                {
                    found.push((name, state));
                }
            }
            match rows.last() {
                Some(last) if rows.len() == PAGE => after = last.bytes(AFTER)?.to_vec(),
                _ => return Ok(found),
            }
        }
    }
}

/// None for an unused lock, and for a damaged row.
fn state_of(name: &LockName, row: &Row) -> Result<Option<LockState>, BackendError> {
    let Loaded { entry, last, now } = match Loaded::read(row) {
        Err(failure) if failure.kind == BackendErrorKind::Corrupt => return Ok(None),
        loaded => loaded?,
    };
    let mut store_context = StoreContext::after(last);
    let context = store_context.operation(name, now, &|_| Presence::Present);
    Ok(entry.listed(&context, name))
}
