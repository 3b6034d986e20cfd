//! What is decided about one row, as it was seen or guessed, and the statement that writes the row if it is so: see `sql/swap.sql`.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use fairlock_core::{LockName, OwnerId};
use fairlock_rules::{Moment, Presence, StoreContext, WakeUp};

use crate::net::{Failure, INT8, Row, Statement, Value};
use crate::presence::key_of;
use crate::question::Question;
use crate::row::{AFTER, HEADS, Loaded, LockRow, NEVER, STATE, grace_of, micros};
use crate::sql::SWAP;
use crate::store::Store;

/// What `swap.sql` reads behind the columns of a row, in this order.
const GONE: usize = AFTER;
const HAS_STANDBY: usize = AFTER + 1;
const REV: usize = AFTER + 2;
const IS_DONE: usize = AFTER + 3;
const WAS_LOCKED: usize = AFTER + 4;

/// In place of a revision: the lock is free, or there is no row; only read.
const FREE: i64 = NEVER;
const READ: i64 = NEVER - 1;

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
        let Loaded { mut entry, last, .. } = match row {
            Some(row) => Loaded::read(row)?,
            // A free lock with a greater number is not swapped.
            None => Loaded { last: micros(now).cast_unsigned().saturating_sub(1), ..Loaded::default() },
        };
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
            left = left.min(question.deadline.saturating_duration_since(Instant::now()));
        }
        let wake_ups = store_context.take_wake_ups();
        let written = LockRow::of(entry, store_context.last_number(), store.pool.encoding(), shows_itself);
        let is_as_loaded = row.map_or_else(|| Ok(written.is_unused()), |row| written.is_as_loaded(row))?;
        if is_as_loaded && wake_ups.is_empty() && !is_written {
            return Ok(None);
        }
        Ok(Some(Swap {
            rev: row.map_or(Ok(FREE), |row| row.number(REV))?,
            now: micros(now),
            until: micros(now.saturating_add(left)),
            gone: waited.is_none().then_some(gone),
            was_locked: was_locked || waited.is_some(),
            grace_ends: row.map_or(Ok(0), grace_of)?.max(micros(now)),
            late: written.late_end(row, late)?,
            row: written,
            has_standby: flag(HAS_STANDBY)?,
            wake_ups,
            tag: None,
        }))
    }

    pub(crate) fn statement(&self, lock: &LockName, grace_ends: Option<i64>) -> Statement {
        let tag = |at: usize| self.tag.as_ref().map(|tag| tag[at].as_str()).into();
        let first = [
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
        Statement::new(&SWAP, first.into_iter().chain(self.row.values()).collect::<Vec<_>>())
    }

    /// What has become of the swap, which has returned this row.
    pub(crate) fn outcome(&self, row: &Row) -> Result<Outcome, Failure> {
        if row.maybe_bytes(STATE).is_none() {
            return Ok(Outcome::Missed);
        }
        if row.flag(IS_DONE)? {
            return Ok(Outcome::Done);
        }
        let knows = self.was_locked || row.bytes(STATE)?.is_empty();
        let is_locked = row.number(REV)? == self.rev && row.flag(WAS_LOCKED)? && knows;
        Ok(if is_locked { Outcome::Locked } else { Outcome::Missed })
    }
}
