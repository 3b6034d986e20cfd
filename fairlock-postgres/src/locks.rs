//! Lists the locks that are in use.

use fairlock_core::backend::{BackendError, BackendErrorKind, LockId, LockState};
use fairlock_core::{LockKind, LockName};
use fairlock_rules::StoreContext;

use crate::backend::PostgresBackend;
use crate::net::{Row, Statement};
use crate::row::{AFTER, Loaded};
use crate::sql::LIST;

/// How many rows `list.sql` reads.
const PAGE: usize = 500;

impl PostgresBackend {
    /// Lists the locks that are held or waited for, by name, each with its holder and the number of waiters
    /// ([`inspect`](fairlock_core::Lock::inspect) reads the waiters). In `pattern` `*` is any text, `?` one character, `[ab]` and
    /// `[a-c]` a character of a list, `[^ab]` any other character; behind `\` a character stands for itself.
    ///
    /// It reads all rows of locks in use, 500 in each round trip. The list is not a snapshot. A row that this version can't read
    /// is left out.
    ///
    /// # Errors
    /// `Unavailable` when the server can't be reached; `Denied` without the right to read.
    pub fn locks(&self, pattern: Option<&str>) -> fairlock_core::Result<Vec<(LockName, LockState)>> {
        let pattern: Vec<char> = pattern.unwrap_or("*").chars().collect();
        let (pool, mut found, mut after) = (&self.0.pool, Vec::new(), Vec::new());
        loop {
            let rows = pool.ask(Statement::new(&LIST, [after.as_slice().into()]), pool.deadline())?;
            for row in &rows {
                let text = std::str::from_utf8(row.bytes(AFTER)?).ok();
                let text = text.filter(|name| fits(&pattern, &name.chars().collect::<Vec<_>>()));
                if let Some(name) = text.and_then(|name| LockName::new(name).ok())
                    && let Some(state) = state_of(&name, row)?
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

/// None for an unused lock, and for a row that this version can't read.
fn state_of(name: &LockName, row: &Row) -> Result<Option<LockState>, BackendError> {
    let Loaded { entry, last, now } = match Loaded::read(row) {
        Err(failure) if failure.kind == BackendErrorKind::Corrupt => return Ok(None),
        loaded => loaded?,
    };
    let mut store_context = StoreContext::after(last);
    let context = store_context.operation(name, now, &|_| true);
    // One waiter at least: a look at none of the queue does not tell who is absent.
    let look = |kind| entry.inspect(&context, &LockId::new(name.clone(), kind), 0..1);
    let mut state = match look(LockKind::Fair) {
        Err(error) if error.kind() == BackendErrorKind::Mismatch => look(LockKind::ReadWrite)?,
        state => state?,
    };
    state.queue.clear();
    Ok(Some(state).filter(|state| !state.holders.is_empty() || state.waiting() > 0))
}

/// Whether the name has the form of this pattern.
fn fits(pattern: &[char], name: &[char]) -> bool {
    match (pattern, name) {
        ([], _) => name.is_empty(),
        (['*', rest @ ..], _) => (0..=name.len()).any(|at| fits(rest, &name[at..])),
        (_, []) => false,
        (['?', rest @ ..], [_, name @ ..]) => fits(rest, name),
        (['[', rest @ ..], [c, name @ ..]) => {
            let end = rest.iter().position(|c| *c == ']').unwrap_or(rest.len());
            is_one_of(&rest[..end], *c) && fits(rest.get(end + 1..).unwrap_or_default(), name)
        }
        (['\\', wanted, rest @ ..] | [wanted, rest @ ..], [c, name @ ..]) => wanted == c && fits(rest, name),
    }
}

fn is_one_of(set: &[char], c: char) -> bool {
    match set {
        ['^', others @ ..] => !is_one_of(others, c),
        [from, '-', to, rest @ ..] => (*from..=*to).contains(&c) || is_one_of(rest, c),
        [one, rest @ ..] => *one == c || is_one_of(rest, c),
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_fits_as_in_redis() {
        for (pattern, those, others) in [
            ("*", &["", "a", "a:b"][..], &[][..]),
            ("orders:*", &["orders:", "orders:7"], &["orders", "my orders:7"]),
            ("*a*b", &["ab", "xaab", "abab"], &["a", "ba", "abc"]),
            ("?é", &["aé", "éé"], &["é", "aaé"]),
            ("x[ab-d]", &["xa", "xc"], &["xe", "x-", "x"]),
            ("[^ab]", &["c"], &["a", "b", "", "cc"]),
            (r"\*[*]", &["**"], &["a*", "*a"]),
        ] {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            let does_fit = |name: &&&str| fits(&chars(pattern), &chars(name));
            assert_eq!(those.iter().filter(does_fit).count(), those.len(), "{those:?}");
            assert_eq!(others.iter().filter(does_fit).count(), 0, "{others:?}");
        }
    }
}
