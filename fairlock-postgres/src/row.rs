//! One lock as a row of the table: its only hold in columns, all else as bytes; what is decided about the row, as it was seen or guessed;
//! and the statements that write the row if it is so: see `sql/swap.sql`.
//!
//! `state` is empty while the hold in the columns is all that is known of the lock.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use fairlock_core::backend::RequestId;
use fairlock_core::{FencingToken, LockName, OwnerId};
use fairlock_rules::{GrantedHold, LockEntry, Moment, Presence, StoreContext, WakeUp};

use crate::clients::key_of;
use crate::combiner::Question;
use crate::net::statement::{BYTEA, CHANGED, Encoding, INSERT, INT8, READ_ROW, SWAP, Value};
use crate::net::{Failure, Row, Statement};
use crate::store::Store;

/// The column with the keys of the clients at the head of the queue that were present when they asked, in the order of the queue.
/// Other waiters never count as gone: a client may poll, or not listen yet.
const HEADS: usize = 8;
/// A column that is never null in a row.
pub(crate) const STATE: usize = 9;
/// The clock, and until when nothing is granted.
const NOW: usize = 10;
const GRACE_ENDS: usize = 11;
/// The first column after these.
pub(crate) const AFTER: usize = 12;

/// A revision that no row has.
pub(crate) const NEVER: i64 = -1;

/// What `read.sql` reads behind these columns, in this order.
const GONE: usize = AFTER;
const HAS_STANDBY: usize = AFTER + 1;
const REV: usize = AFTER + 2;
const WAS_LOCKED: usize = AFTER + 3;

/// In place of a revision: the lock is free; it is free, or there is no row; the row is only read.
const FREE: i64 = NEVER;
const NEW: i64 = NEVER - 1;
const READ: i64 = NEVER - 2;

/// A step that has waited for a row at least so long says that nobody could be heard meanwhile. A shorter wait was for another step.
const DEAF: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(crate) struct Swap {
    rev: i64,
    /// The time of the decision, and until when it may have an effect.
    now: i64,
    until: i64,
    /// None: under the row lock it does not matter who has gone meanwhile.
    gone: Option<Vec<i64>>,
    was_locked: bool,
    grace_ends: i64,
    late: i64,
    row: LockRow,
    /// Whether the commit may wait for a standby.
    pub(crate) has_standby: bool,
    pub(crate) wake_ups: Vec<WakeUp>,
    /// The setting and its value that tell messages that the swap was done.
    pub(crate) tag: Option<[String; 2]>,
    /// Whether its insert or its update has written the row.
    pub(crate) is_done: bool,
}

/// The time of a decision.
pub(crate) struct Clock {
    pub(crate) now: Moment,
    /// By how much that is too early, at most.
    pub(crate) late: Duration,
    /// What is known of a wait for the row lock, which the step has: since when it has waited, and whether others have locked the row
    /// since it was written.
    pub(crate) waited: Option<(Moment, bool)>,
}

/// What has become of a swap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Outcome {
    Done,
    /// The row was another one, or there is none, or the time was not right.
    Missed,
    /// The row is that of the decision, and others have locked it.
    Locked,
}

impl Swap {
    pub(crate) fn read() -> Swap {
        Swap { rev: READ, ..Swap::default() }
    }

    /// Decides the questions about a row that was seen, or about a free lock. None if an answer may be read, and nothing is to be written.
    pub(crate) fn decide(
        store: &Store,
        lock: &LockName,
        questions: &mut [Question],
        row: Option<&Row>,
        Clock { now, late, waited }: Clock,
    ) -> Result<Option<Swap>, Failure> {
        let Loaded { mut entry, last, .. } = row.map_or_else(|| Ok(Loaded::default()), Loaded::read)?;
        let numbers = |at| row.map_or(Ok(Vec::new()), |row| row.numbers(at));
        let flag = |at| row.map_or(Ok(false), |row| row.flag(at));
        let (heads, gone): (HashSet<_>, _) = (numbers(HEADS)?.into_iter().collect(), numbers(GONE)?);
        let (has_waited_since, was_locked) = waited.unwrap_or((now, flag(WAS_LOCKED)?));
        // While others had the row locked nobody could be heard: that time makes no waiter absent.
        let mut since = store.recent.blocked_since(lock, has_waited_since);
        if was_locked && entry.silent_for(now) >= store.pool.wait() {
            since = Duration::ZERO; // all the time, it may be
        }
        if now.saturating_sub(since) >= DEAF {
            entry.heard_nobody_since(since, now);
        }
        let clients = &store.clients;
        let presence = |owner: &OwnerId| {
            let client = owner.client();
            Presence::if_listening(clients.is_present(client).is_some() || !gone.contains(&key_of(client)))
        };
        let shows_itself =
            |client: &str, key| clients.is_present(client).unwrap_or_else(|| heads.contains(&key));
        let mut store_context = StoreContext::after(last);
        let mut context = store_context.operation(lock, now, &presence);
        let (mut is_written, mut left) = (waited.is_some(), Duration::MAX);
        for question in questions {
            is_written |= question.decide(&mut entry, &mut context, late) || !question.command.may_be_read();
            left = left.min(question.deadline().saturating_duration_since(Instant::now()));
        }
        let wake_ups = store_context.take_wake_ups();
        let written = LockRow::of(entry, store_context.last_number(), store.pool.encoding(), shows_itself);
        if written.is_as_loaded(row)? && wake_ups.is_empty() && !is_written {
            return Ok(None);
        }
        let guess = if store.recent.row(lock).is_some() { FREE } else { NEW };
        Ok(Some(Swap {
            rev: row.map_or(Ok(guess), |row| row.number(REV))?,
            now: micros(now),
            until: micros(now.saturating_add(left)),
            gone: waited.is_none().then_some(gone),
            was_locked: was_locked || waited.is_some(),
            grace_ends: row.map_or(Ok(0), |row| row.number(GRACE_ENDS))?.max(micros(now)),
            late: written.late_end(row, late)?,
            row: written,
            has_standby: flag(HAS_STANDBY)?,
            wake_ups,
            ..Swap::default()
        }))
    }

    /// Whether it has an insert, and an update.
    pub(crate) fn writes(&self) -> [bool; 2] {
        [self.rev == NEW, self.rev != READ]
    }

    /// The insert, the update, and the read. A flight has all of its inserts first, then all updates, then all reads: where statements have
    /// no name, a text is parsed once for all swaps.
    pub(crate) fn statements(&self, lock: &LockName, grace_ends: Option<i64>) -> [Option<Statement>; 3] {
        let tag = |at: usize| self.tag.as_ref().map(|tag| tag[at].as_str()).into();
        let update: [Value; 11] = [
            lock.as_str().as_bytes().into(),
            self.rev.into(),
            self.now.into(),
            self.until.into(),
            self.gone.as_ref().map(|gone| Value::array(INT8, gone.iter().copied())).into(),
            self.was_locked.into(),
            grace_ends.into(),
            self.grace_ends.into(),
            tag(0),
            tag(1),
            self.late.into(),
        ];
        let some = |which: &[usize]| which.iter().map(|at| update[*at].clone()).collect::<Vec<_>>();
        let written = |first: Vec<Value>| first.into_iter().chain(self.row.values()).collect::<Vec<_>>();
        let [is_new, is_written] = self.writes();
        let read = Statement::new(&READ_ROW, some(&[0, 6]));
        let insert = is_new.then(|| Statement::new(&INSERT, written(some(&[0, 2, 3, 6, 7, 10]))));
        let update = is_written.then(|| Statement::new(&SWAP, written(update.into())));
        [insert, update, Some(read)]
    }

    /// What has become of the swap, behind which this row was read.
    pub(crate) fn outcome(&self, row: &Row) -> Result<Outcome, Failure> {
        if self.is_done {
            return Ok(Outcome::Done);
        }
        if row.maybe_bytes(STATE).is_none() {
            return Ok(Outcome::Missed);
        }
        let knows = self.was_locked || row.bytes(STATE)?.is_empty();
        let is_locked = row.number(REV)? == self.rev && row.flag(WAS_LOCKED)? && knows;
        Ok(if is_locked { Outcome::Locked } else { Outcome::Missed })
    }
}

/// The columns to write.
#[derive(Default)]
struct LockRow {
    last: i64,
    dead_at: i64,
    hold: Option<GrantedHold>,
    heads: Vec<i64>,
    state: Vec<u8>,
}

/// What was loaded: the columns that `sql/read.sql` and the statements in `sql/look` begin with.
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
        let mut entry = decoded.map_err(Failure::by_rules)?;
        if let Some(hold) = hold_of(row)? {
            entry.put_sole_hold(hold, last).map_err(Failure::by_rules)?;
        }
        entry.grant_nothing_until(moment(row.number(GRACE_ENDS)?));
        Ok(Loaded { entry, last, now: moment(row.number(NOW)?) })
    }
}

impl LockRow {
    /// The row to write; the entry can't be used afterwards. `shows_itself` is asked about each client in the queue, by its key.
    fn of(
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
        let state = if entry.is_empty() { Vec::new() } else { entry.encode() };
        LockRow { last: last.cast_signed(), dead_at, hold, heads, state }
    }

    /// Whether the row would be written as it was loaded. An unused lock needs no row.
    fn is_as_loaded(&self, row: Option<&Row>) -> Result<bool, Failure> {
        let Some(row) = row else { return Ok(self.hold.is_none() && self.state.is_empty()) };
        Ok(self.last == row.number(0)?
            && self.hold == hold_of(row)?
            && self.heads == row.numbers(HEADS)?
            && self.state == row.bytes(STATE)?)
    }

    /// By how much the end of the hold may be taken back, at most so much, without an earlier end than in this row.
    fn late_end(&self, row: Option<&Row>, late: Duration) -> Result<i64, Failure> {
        let former = row.map_or(Ok(None), hold_of)?;
        let Some(hold) = &self.hold else { return Ok(0) };
        let former =
            former.filter(|former| former.token == hold.token).map_or(Duration::ZERO, |former| former.ends);
        Ok(micros(late.min(hold.ends.saturating_sub(former))))
    }

    /// The columns, as the swap has them.
    fn values(&self) -> [Value; 11] {
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
fn is_text(owner: &OwnerId, label: &str, encoding: Encoding) -> bool {
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
