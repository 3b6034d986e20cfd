//! A lock as a row of the table: its only hold in columns, all else as bytes.
//!
//! `state` may be empty only while nothing but that hold is known of the lock: then a fast part may grant and release. A line that
//! is empty may still remember tickets and kicks: as long as the lock is held, that stays.

use std::time::Duration;

use fairlock_core::backend::RequestId;
use fairlock_core::{FencingToken, LockName, OwnerId};
use fairlock_line::{KeptHold, LockEntry, Moment};

use crate::net::{Failure, INT8, Row, Statement, Value};
use crate::presence::key_of;

/// For how long a row stays after its last use: `last` has to, so that tokens grow even if the clock is set back.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// No lease that SQL adds to a time is longer, in microseconds: a thousand years.
pub(crate) const LONGEST: i64 = 31_536_000_000_000_000;

/// What a load reads, in this order.
pub(crate) const COLUMNS: &str = "l.last, l.h_owner, l.h_request, l.h_token, l.h_count, l.h_since, l.h_ends, l.h_label, l.heads, l.state, fairlock.micros(), fairlock.grace_ends()";
/// The column with the keys of those in line that were present when they asked, the first in line first. Other waiters are never taken
/// for gone: a client may poll, or not listen yet.
pub(crate) const HEADS: usize = 8;
/// The clock, and until when nothing is granted.
pub(crate) const NOW: usize = 10;
const GRACE_ENDS: usize = 11;
/// The first column after these.
pub(crate) const AFTER: usize = 12;

const UPDATE: &str = "update fairlock.lock set rev = rev + 1, last = $2, dead_at = $3, h_owner = $4, h_request = $5, h_token = $6, \
                      h_count = $7, h_since = $8, h_ends = $9, h_label = $10, heads = $11, state = $12 where name = $1";

/// What is written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LockRow {
    last: i64,
    dead_at: i64,
    hold: Option<KeptHold>,
    heads: Vec<i64>,
    state: Vec<u8>,
}

/// What was loaded.
pub(crate) struct Loaded {
    pub(crate) entry: LockEntry,
    pub(crate) last: u64,
    pub(crate) now: Moment,
}

impl Loaded {
    /// # Errors
    /// `Broken` for what makes no sense; and `Corrupt` for a state that this version can't read.
    pub(crate) fn read(lock: &LockName, row: &Row) -> Result<Loaded, Failure> {
        let state = row.bytes(9)?;
        let decoded = if state.is_empty() { Ok(LockEntry::default()) } else { LockEntry::decode(state) };
        let mut entry = decoded.map_err(|error| Failure::Corrupt(format!("lock {lock}: {error}")))?;
        if let Some(hold) = hold_of(row)? {
            entry.put_sole_hold(hold);
        }
        entry.grant_nothing_until(moment(row.number(GRACE_ENDS)?));
        Ok(Loaded { entry, last: row.number(0)?.cast_unsigned(), now: moment(row.number(NOW)?) })
    }
}

impl LockRow {
    /// The entry is of no use afterwards. Of each client in line, with its key, it is asked whether it shows that it is there.
    pub(crate) fn of(mut entry: LockEntry, last: u64, shows_itself: impl Fn(&str, i64) -> bool) -> LockRow {
        // Numbers follow the clock: the last one tells when the lock was used last.
        let used_until = entry.over_at().max(Duration::from_micros(last));
        let dead_at = micros(used_until.saturating_add(KEPT));
        let key_if_shown = |owner: &OwnerId| {
            let key = key_of(owner.client());
            shows_itself(owner.client(), key).then_some(key)
        };
        let heads = entry.heads().filter_map(key_if_shown).collect();
        let mut hold = entry.take_sole_hold();
        if let Some(kept) = hold.take_if(|hold| !is_text(&hold.owner, &hold.label)) {
            entry.put_sole_hold(kept);
        }
        let is_unused = hold.is_none() && entry.is_empty();
        let state = if is_unused || entry.is_as_new() { Vec::new() } else { entry.encode() };
        LockRow { last: last.cast_signed(), dead_at, hold, heads, state }
    }

    /// Whether more is known of the lock than a hold.
    pub(crate) fn has_state(&self) -> bool {
        !self.state.is_empty()
    }

    /// Whether the row would be written as it was loaded.
    pub(crate) fn is_as_loaded(&self, row: &Row) -> Result<bool, Failure> {
        Ok(self.last == row.number(0)?
            && self.hold == hold_of(row)?
            && self.heads == row.numbers(HEADS)?
            && self.state == row.bytes(9)?)
    }

    pub(crate) fn update(&self, name: &LockName) -> Statement {
        let hold = self.hold.as_ref();
        let values = [
            name.as_str().as_bytes().into(),
            self.last.into(),
            self.dead_at.into(),
            hold.map(|hold| hold.owner.as_str()).into(),
            hold.map(|hold| hold.request.get().cast_signed()).into(),
            hold.map(|hold| hold.token.get().cast_signed()).into(),
            hold.map(|hold| hold.holds.cast_signed()).into(),
            hold.map(|hold| micros(hold.since)).into(),
            hold.map(|hold| micros(hold.ends)).into(),
            hold.map(|hold| &*hold.label).into(),
            Value::array(INT8, self.heads.iter().copied()),
            self.state.as_slice().into(),
        ];
        Statement::new(UPDATE, values)
    }
}

/// The hold in the columns, if there is one.
fn hold_of(row: &Row) -> Result<Option<KeptHold>, Failure> {
    if row.maybe_bytes(1).is_none() {
        return Ok(None);
    }
    Ok(Some(KeptHold {
        owner: OwnerId::new(row.text(1)?),
        request: RequestId::new(row.number(2)?.cast_unsigned()),
        token: FencingToken::new(row.number(3)?.cast_unsigned()),
        takes: 1,
        holds: row.count(4)?.cast_unsigned(),
        since: moment(row.number(5)?),
        ends: moment(row.number(6)?),
        label: row.text(7)?.into(),
    }))
}

/// PostgreSQL has no NUL in a text. Such a hold stays among the bytes, where still_held does not find it.
pub(crate) fn is_text(owner: &OwnerId, label: &str) -> bool {
    !owner.as_str().contains('\0') && !label.contains('\0')
}

pub(crate) fn moment(micros: i64) -> Moment {
    Duration::from_micros(micros.max(0).cast_unsigned())
}

/// Rounded up, so that no lease gets shorter.
pub(crate) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX)
}
