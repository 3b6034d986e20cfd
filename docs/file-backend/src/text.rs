//! The state and the wake-ups as text.

use std::collections::BTreeMap;
use std::fmt;
use std::str::{FromStr, Split};
use std::time::Duration;

use fairlock_core::backend::RequestId;
use fairlock_core::{FencingToken, LockKind, OwnerId};

use crate::entry::Kept;
use crate::table::{Table, WakeUp};

impl Table {
    /// The inverse of `to_string`; `None` if the text is no table.
    pub(crate) fn parse(text: &str, now: Duration) -> Option<Table> {
        let mut table = Table { now, last: 0, locks: BTreeMap::new(), wake_ups: Vec::new() };
        let mut lines = text.lines();
        table.last = lines.next().map_or(Some(0), |last| last.parse().ok())?;
        for line in lines {
            let mut fields = Fields(line.split(' '));
            let what = fields.0.next()?;
            let entry = table.locks.entry(fields.text()?).or_default();
            let kept = Kept {
                kind: fields.kind()?,
                takes: fields.number()?,
                owner: OwnerId::new(&fields.text()?),
                request: RequestId::new(fields.number()?),
                number: fields.number()?,
                holds: fields.number()?,
                ends: fields.number()?,
                lease: fields.number()?,
                label: fields.text()?,
            };
            match what {
                "hold" => entry.holders.push(kept),
                "place" => entry.line.push(kept),
                _ => return None,
            }
        }
        Some(table)
    }
}

impl fmt::Display for Table {
    /// The last number, then a line per hold and place; places in the order of the line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.last)?;
        for (lock, entry) in &self.locks {
            let holders = entry.holders.iter().map(|kept| ("hold", kept));
            for (what, kept) in holders.chain(entry.line.iter().map(|kept| ("place", kept))) {
                let (lock, owner, label) = (Hex(lock), Hex(kept.owner.as_str()), Hex(&kept.label));
                let Kept { kind, takes, request, number, holds, ends, lease, .. } = kept;
                let units = if kind.is_shared() { kind.capacity() } else { 0 };
                let request = request.get();
                write!(f, "{what} {lock} {units} {takes} {owner} {request} ")?;
                writeln!(f, "{number} {holds} {ends} {lease} {label}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for WakeUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let request = self.granted.map_or("-".to_owned(), |request| request.get().to_string());
        write!(f, "{} {} {request} {}", Hex(&self.lock), Hex(self.owner.as_str()), self.token.get())
    }
}

impl WakeUp {
    pub(crate) fn parse(text: &str) -> Option<WakeUp> {
        let mut fields = Fields(text.split(' '));
        let (lock, owner) = (fields.text()?, OwnerId::new(&fields.text()?));
        let granted = match fields.0.next()? {
            "-" => None,
            request => Some(RequestId::new(request.parse().ok()?)),
        };
        Some(WakeUp { lock, owner, granted, token: FencingToken::new(fields.number()?) })
    }
}

/// The words of a line.
struct Fields<'a>(Split<'a, char>);

impl Fields<'_> {
    fn number<T: FromStr>(&mut self) -> Option<T> {
        self.0.next()?.parse().ok()
    }

    /// How many units a lock has tells its kind; 0 for one holder at a time, whether fair or plain.
    fn kind(&mut self) -> Option<LockKind> {
        Some(match self.number()? {
            0 => LockKind::Fair,
            u32::MAX => LockKind::ReadWrite,
            permits => LockKind::Semaphore { permits },
        })
    }

    fn text(&mut self) -> Option<String> {
        let hex = self.0.next()?;
        let byte = |at| hex.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let bytes: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(byte).collect();
        String::from_utf8(bytes?).ok()
    }
}

/// Any text as one word: lock names may contain spaces and newlines.
struct Hex<'a>(&'a str);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.bytes().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
