//! All locks as the text of the file: the last number, then a line for each lock, with its name and its state in hexadecimal.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use fairlock_core::LockName;
use fairlock_rules::LockEntry;

#[derive(Default)]
pub(crate) struct Locks {
    /// The last number used: all locks share one sequence of tickets and tokens, so that tokens grow even after a lock was forgotten.
    pub(crate) last: u64,
    pub(crate) entries: BTreeMap<LockName, LockEntry>,
}

impl fmt::Display for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.last)?;
        for (name, entry) in &self.entries {
            writeln!(f, "{} {}", Hex(name.as_str().as_bytes()), Hex(&entry.encode()))?;
        }
        Ok(())
    }
}

impl FromStr for Locks {
    type Err = String;

    /// The error names the line, or the lock, and the cause.
    fn from_str(text: &str) -> Result<Locks, String> {
        let (last, lines) = text.split_once('\n').unwrap_or_default();
        let last = last.parse().map_err(|_| "it begins with no number".to_owned())?;
        let mut locks = Locks { last, ..Locks::default() };
        for line in lines.lines() {
            let words = line.split_once(' ').and_then(|(name, state)| Some((bytes(name)?, bytes(state)?)));
            let (name, state) = words.ok_or_else(|| format!("a line is `{line}`"))?;
            let name = LockName::new(&String::from_utf8_lossy(&name)).map_err(|error| error.to_string())?;
            let entry = LockEntry::decode(&state).map_err(|error| format!("lock {name}: {error}"))?;
            locks.entries.insert(name, entry);
        }
        Ok(locks)
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let byte = |at| hex.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    (0..hex.len()).step_by(2).map(byte).collect()
}
