//! A lock as a row of the table: its only hold in columns, all else as bytes.
//!
//! `state` is empty while the hold in the columns is all that is known of the lock.

use std::collections::HashSet;
use std::time::Duration;

use fairlock_core::backend::RequestId;
use fairlock_core::{FencingToken, OwnerId};
use fairlock_rules::{GrantedHold, LockEntry, Moment};

use crate::net::{BYTEA, Encoding, Failure, INT8, Row, Statement, Value};
use crate::presence::key_of;
use crate::sql::CHANGED;

/// The column with the keys of the clients at the head of the queue that were present when they asked, in the order of the queue.
/// Other waiters never count as gone: a client may poll, or not listen yet.
pub(crate) const HEADS: usize = 8;
/// A column that is never null in a row.
pub(crate) const STATE: usize = 9;
/// The clock, and until when nothing is granted.
const NOW: usize = 10;
const GRACE_ENDS: usize = 11;
/// The first column after these.
pub(crate) const AFTER: usize = 12;

/// A revision that no row has.
pub(crate) const NEVER: i64 = -1;

/// The columns to write.
#[derive(Default)]
pub(crate) struct LockRow {
    last: i64,
    dead_at: i64,
    hold: Option<GrantedHold>,
    heads: Vec<i64>,
    state: Vec<u8>,
}

/// What was loaded: the columns that `sql/swap.sql` and the statements in `sql/look` begin with.
#[derive(Default)]
pub(crate) struct Loaded {
    pub(crate) entry: LockEntry,
    pub(crate) last: u64,
    pub(crate) now: Moment,
}

impl Loaded {
    /// # Errors
    /// `Unavailable` for what makes no sense; `Corrupt` for a damaged state; `Unsupported` for the state of a later version.
    pub(crate) fn read(row: &Row) -> Result<Loaded, Failure> {
        let (state, last) = (row.bytes(STATE)?, row.number(0)?.cast_unsigned());
        let decoded =
            if state.is_empty() { Ok(LockEntry::default()) } else { LockEntry::decode(state, last) };
        let mut entry = decoded.map_err(Failure::unreadable)?;
        if let Some(hold) = hold_of(row)? {
            entry.put_sole_hold(hold, last).map_err(Failure::unreadable)?;
        }
        entry.grant_nothing_until(moment(row.number(GRACE_ENDS)?));
        Ok(Loaded { entry, last, now: moment(row.number(NOW)?) })
    }
}

impl LockRow {
    /// The row to write; the entry can't be used afterwards. `shows_itself` is asked about each client in the queue, by its key.
    pub(crate) fn of(
        mut entry: LockEntry,
        last: u64,
        encoding: Encoding,
        shows_itself: impl Fn(&str, i64) -> bool,
    ) -> LockRow {
        let dead_at = micros(entry.forget_at(last));
        let key_if_shown = |owner: &OwnerId| {
            let key = key_of(owner.client());
            shows_itself(owner.client(), key).then_some(key)
        };
        // Each client once: many waiters at the head may be workers of one process.
        let mut keys = HashSet::new();
        let heads = entry.heads().filter_map(key_if_shown).filter(|key| keys.insert(*key)).collect();
        let mut hold = entry.take_sole_hold_if(|hold| is_text(&hold.owner, &hold.label, encoding));
        if let Some(hold) = &mut hold {
            hold.label = encoding.replaced(&hold.label).into();
        }
        let is_unused = hold.is_none() && entry.is_empty();
        let state = if is_unused || entry.is_as_new() { Vec::new() } else { entry.encode() };
        LockRow { last: last.cast_signed(), dead_at, hold, heads, state }
    }

    /// Whether the row would be written as it was loaded.
    pub(crate) fn is_as_loaded(&self, row: &Row) -> Result<bool, Failure> {
        Ok(self.last == row.number(0)?
            && self.hold == hold_of(row)?
            && self.heads == row.numbers(HEADS)?
            && self.state == row.bytes(STATE)?)
    }

    /// Whether a lock without a row would have this row.
    pub(crate) fn is_unused(&self) -> bool {
        self.hold.is_none() && self.state.is_empty()
    }

    /// By how much the end of the hold may be taken back, at most so much, without an earlier end than in this row.
    pub(crate) fn late_end(&self, row: Option<&Row>, late: Duration) -> Result<i64, Failure> {
        let former = row.map_or(Ok(None), hold_of)?;
        let Some(hold) = &self.hold else { return Ok(0) };
        let former =
            former.filter(|former| former.token == hold.token).map_or(Duration::ZERO, |former| former.ends);
        Ok(micros(late.min(hold.ends.saturating_sub(former))))
    }

    /// The columns, as the swap has them.
    pub(crate) fn values(&self) -> [Value; 11] {
        let hold = self.hold.as_ref();
        let number = |number: fn(&GrantedHold) -> i64| hold.map(number).into();
        let text = |text: fn(&GrantedHold) -> &str| hold.map(text).into();
        [
            self.last.into(),
            self.dead_at.into(),
            text(|hold| hold.owner.as_str()),
            number(|hold| hold.request.get().cast_signed()),
            number(|hold| hold.token.get().cast_signed()),
            number(|hold| i64::from(hold.holds.cast_signed())),
            number(|hold| micros(hold.since)),
            number(|hold| micros(hold.ends)),
            text(|hold| &hold.label),
            Value::array(INT8, self.heads.iter().copied()),
            self.state.as_slice().into(),
        ]
    }
}

/// The server's clock when the row was read.
pub(crate) fn clock_of(row: &Row) -> Result<Moment, Failure> {
    Ok(moment(row.number(NOW)?))
}

/// Until when nothing is granted, as the row was read.
pub(crate) fn grace_of(row: &Row) -> Result<i64, Failure> {
    row.number(GRACE_ENDS)
}

/// Reads the rows of these locks that have another revision than this.
pub(crate) fn changed<'a>(rows: impl IntoIterator<Item = (&'a [u8], i64)>) -> Statement {
    let (names, revs): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
    Statement::new(&CHANGED, [Value::array(BYTEA, names.into_iter()), Value::array(INT8, revs.into_iter())])
}

/// The hold in the columns, if there is one.
pub(crate) fn hold_of(row: &Row) -> Result<Option<GrantedHold>, Failure> {
    if row.maybe_bytes(1).is_none() {
        return Ok(None);
    }
    Ok(Some(GrantedHold {
        owner: OwnerId::new(row.text(1)?),
        request: RequestId::new(row.number(2)?.cast_unsigned()),
        token: FencingToken::new(row.number(3)?.cast_unsigned()),
        units: 1,
        holds: row.count(4)?.cast_unsigned(),
        since: moment(row.number(5)?),
        ends: moment(row.number(6)?),
        label: row.text(7)?.into(),
    }))
}

/// PostgreSQL has no NUL in a text, and an owner must be found again unchanged. A hold that can't stand in the columns stays among the
/// bytes, where `still_held` does not find it. A label is for people: characters that the database can't hold are replaced.
pub(crate) fn is_text(owner: &OwnerId, label: &str, encoding: Encoding) -> bool {
    encoding.holds(owner.as_str()) && !label.contains('\0')
}

pub(crate) fn moment(micros: i64) -> Moment {
    Duration::from_micros(micros.max(0).cast_unsigned())
}

/// Rounded up, so that no lease gets shorter.
pub(crate) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lease gets no shorter; and what a text can't hold stays among the bytes.
    #[test]
    fn times_are_rounded_up_and_texts_have_no_nul() {
        assert_eq!([0, 1, 1000, 1001].map(|nanos| micros(Duration::from_nanos(nanos))), [0, 1, 1, 2]);
        let is_text = |owner: &str, label| is_text(&OwnerId::new(owner), label, Encoding::default());
        assert_eq!(
            [("a:1", "b"), ("a:1", "b\0"), ("a\0:1", "b")].map(|(owner, label)| is_text(owner, label)),
            [true, false, false]
        );
    }
}
