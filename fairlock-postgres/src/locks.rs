//! Lists the locks that are in use.

use std::ops::RangeInclusive;

use fairlock_core::backend::{BackendError, BackendErrorKind, LockId, LockState};
use fairlock_core::{LockKind, LockName};
use fairlock_line::Desk;

use crate::backend::PostgresBackend;
use crate::net::{Row, Statement, Value};
use crate::row::{AFTER, COLUMNS, Loaded};

/// How many rows one call reads.
const PAGE: usize = 500;

impl PostgresBackend {
    /// Lists the locks that are held or waited for, by name, each with its holder and the length of its line
    /// ([`inspect`](fairlock_core::Lock::inspect) reads its waiters). In `pattern` `*` is any text, `?` one character, `[ab]` and
    /// `[a-c]` one of these, `[^ab]` any other, and `\` says that the next character stands for itself.
    ///
    /// It reads all rows of locks in use, 500 in each round trip. The list is not a snapshot. A row that this version can't read
    /// is left out.
    ///
    /// # Errors
    /// `Unavailable` when the server can't be reached; `Denied` without the right to read.
    pub fn locks(&self, pattern: Option<&str>) -> fairlock_core::Result<Vec<(LockName, LockState)>> {
        let pattern = pattern.map(Pattern::read);
        let sql = format!(
            "select {COLUMNS}, l.name from fairlock.lock l where l.name > $1 and (l.state <> '' or l.h_ends > \
             fairlock.micros()) order by l.name limit {PAGE}"
        );
        let (pool, mut found, mut after) = (&self.0.store.pool, Vec::new(), Vec::new());
        loop {
            let (statement, deadline) = ([Statement::new(&sql, [Value::Bytes(&after)])], pool.deadline());
            let rows = pool
                .lend(deadline, |con| con.flight(&statement, deadline))
                .map_err(BackendError::from)?
                .remove(0);
            for row in &rows {
                let name = row.bytes(AFTER).map_err(BackendError::from)?;
                let text = std::str::from_utf8(name).ok().filter(|name| is_wanted(pattern.as_ref(), name));
                if let Some(name) = text.and_then(|name| LockName::new(name).ok())
                    && let Some(state) = state_of(&name, row)?
                {
                    found.push((name, state));
                }
            }
            match rows.last() {
                Some(last) if rows.len() == PAGE => {
                    after = last.bytes(AFTER).map_err(BackendError::from)?.to_vec();
                }
                _ => return Ok(found),
            }
        }
    }
}

fn is_wanted(pattern: Option<&Pattern>, name: &str) -> bool {
    pattern.is_none_or(|pattern| pattern.fits(name))
}

/// None for a lock that is not in use, and for a row that this version can't read.
fn state_of(name: &LockName, row: &Row) -> Result<Option<LockState>, BackendError> {
    let Ok(Loaded { entry, last, now }) = Loaded::read(name, row)? else { return Ok(None) };
    let mut desk = Desk::after(last);
    let turn = desk.turn(name, now, &|_| true);
    // One waiter at least: a look at none of the line does not tell who is absent.
    let look = |kind| entry.inspect(&turn, &LockId::new(name.clone(), kind), 0..1);
    let mut state = match look(LockKind::Fair) {
        Err(error) if error.kind() == BackendErrorKind::Mismatch => look(LockKind::ReadWrite)?,
        state => state?,
    };
    state.line.clear();
    Ok(Some(state).filter(|state| !state.holders.is_empty() || state.waiting() > 0))
}

/// A pattern for names, as Redis has it.
struct Pattern(Vec<Part>);

enum Part {
    Any,
    /// One character: of these, or of all others.
    One(Vec<RangeInclusive<char>>, bool),
}

impl Pattern {
    fn read(text: &str) -> Pattern {
        let (mut parts, mut rest) = (Vec::new(), text.chars());
        while let Some(first) = rest.next() {
            parts.push(match first {
                '*' => Part::Any,
                '?' => Part::One(Vec::new(), false),
                '[' => {
                    let set: Vec<char> = rest.by_ref().take_while(|c| *c != ']').collect();
                    let (is_in, set) = match set.split_first() {
                        Some(('^', others)) => (false, others),
                        _ => (true, &*set),
                    };
                    Part::One(ranges(set), is_in)
                }
                '\\' => one(rest.next().unwrap_or('\\')),
                c => one(c),
            });
        }
        Pattern(parts)
    }

    /// Which parts may come next, after each character: so no pattern takes long.
    fn fits(&self, name: &str) -> bool {
        let parts = &self.0;
        let with_skipped = |mut may: Vec<bool>| {
            for (at, part) in parts.iter().enumerate() {
                may[at + 1] |= may[at] && matches!(part, Part::Any);
            }
            may
        };
        let mut may = vec![false; parts.len() + 1];
        may[0] = true;
        may = with_skipped(may);
        for c in name.chars() {
            let mut next = vec![false; parts.len() + 1];
            for (at, part) in parts.iter().enumerate().filter(|(at, _)| may[*at]) {
                match part {
                    Part::Any => next[at] = true,
                    Part::One(ranges, is_in) => {
                        next[at + 1] |= ranges.iter().any(|range| range.contains(&c)) == *is_in;
                    }
                }
            }
            may = with_skipped(next);
        }
        may[parts.len()]
    }
}

fn one(c: char) -> Part {
    Part::One(vec![c..=c], true)
}

fn ranges(set: &[char]) -> Vec<RangeInclusive<char>> {
    match set {
        [from, '-', to, rest @ ..] => [vec![*from..=*to], ranges(rest)].concat(),
        [c, rest @ ..] => [vec![*c..=*c], ranges(rest)].concat(),
        [] => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_fits_as_in_redis() {
        for (pattern, fits, others) in [
            ("*", &["", "a", "a:b"][..], &[][..]),
            ("orders:*", &["orders:", "orders:7"], &["orders", "my orders:7"]),
            ("*a*b", &["ab", "xaab", "abab"], &["a", "ba", "abc"]),
            ("?é", &["aé", "éé"], &["é", "aaé"]),
            ("x[ab-d]", &["xa", "xc"], &["xe", "x-", "x"]),
            ("[^ab]", &["c"], &["a", "b", "", "cc"]),
            (r"\*[*]", &["**"], &["a*", "*a"]),
        ] {
            let pattern = Pattern::read(pattern);
            assert_eq!(fits.iter().filter(|name| !pattern.fits(name)).count(), 0, "{fits:?}");
            assert_eq!(others.iter().filter(|name| pattern.fits(name)).count(), 0, "{others:?}");
        }
    }
}
