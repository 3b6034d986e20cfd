//! Heartbeats: all holds that stand in columns by one statement, the rest lock by lock.
//!
//! A holder hands nothing on, so its renewal needs no more than its columns, also where the lock has a line. A row that
//! another transaction has locked is skipped, so that it does not delay the others: that is a step of another client, or the
//! program's own transaction with `still_held`. Then, and for a hold that was not found, the lock is asked alone, which waits for the
//! row for a while and tells lost holds from those that can't be asked about. The locks that are asked alone share the time that
//! there is, so that rows which stay locked leave each of the others its turn.
//!
//! A hold whose row stays locked by `still_held` is not renewed: nothing can be written there. Its guard says lost when the lease
//! is over by its clock, although no other owner gets the lock before that transaction ends. It must: the transaction may end at any
//! moment, and the client can't see when.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use fairlock_core::LockName;
use fairlock_core::backend::{BackendError, Hold, Renew, Renewal};
use fairlock_line::{lock_of, renew_by_lock};

use crate::net::{BYTEA, Failure, INT8, Row, Statement, TEXT, Value};
use crate::row::{LONGEST, is_text, micros};
use crate::step::Store;

/// How many holds one statement renews.
const MOST: usize = 200;

const RENEW: &str = "\
    with asked as (
      select * from unnest($1::bytea[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
        with ordinality as a(name, owner, request, token, holds, lease, at)
    ), mine as materialized (
      select l.name, a.holds, a.lease, a.at from asked a join fairlock.lock l
        on l.name = a.name and l.h_owner = a.owner and l.h_request = a.request and l.h_token = a.token
        order by l.name for update of l skip locked
    ), clocked as materialized (
      select mine.*, fairlock.micros() as now from mine
    )
    update fairlock.lock l
      set rev = l.rev + 1, h_count = c.holds, h_ends = greatest(l.h_ends, c.now + c.lease),
        dead_at = greatest(l.dead_at, c.now + c.lease + 86400000000)
      from clocked c where l.name = c.name and l.h_ends > c.now returning c.at";

impl Store {
    /// The answers to the items, in their order.
    pub(crate) fn renew(&self, items: &[Renew<'_>]) -> Vec<Result<Renewal, BackendError>> {
        let deadline = self.pool.deadline();
        let mut renewed = vec![false; items.len()];
        let holds: Vec<_> = items.iter().enumerate().filter_map(in_columns).collect();
        for part in holds.chunks(MOST) {
            match self.renew_columns(part, deadline) {
                Ok(done) => done.into_iter().for_each(|at| renewed[at] = true),
                Err(failure) => {
                    let error = BackendError::from(failure);
                    let answer = |done| if done { Ok(Renewal::Renewed) } else { Err(error.clone()) };
                    return renewed.into_iter().map(answer).collect();
                }
            }
        }
        let left = || (0..items.len()).filter(|at| !renewed[*at]);
        let others: Vec<_> = left().map(|at| items[at]).collect();
        let mut answers = renewed.iter().map(|_| Ok(Renewal::Renewed)).collect::<Vec<_>>();
        for (at, answer) in left().zip(self.renew_rest(&others, deadline)) {
            answers[at] = answer;
        }
        answers
    }

    fn renew_rest(&self, items: &[Renew<'_>], deadline: Instant) -> Vec<Result<Renewal, BackendError>> {
        let names: HashSet<_> = items.iter().map(|item| &lock_of(item).name).collect();
        let mut to_ask = u32::try_from(names.len()).unwrap_or(u32::MAX);
        renew_by_lock(items, |lock: &LockName, items| {
            // Half of its share is for the wait, the rest for the step.
            let time = deadline.saturating_duration_since(Instant::now());
            let wait = Some(time / to_ask.saturating_mul(2).max(1));
            to_ask = to_ask.saturating_sub(1);
            match self.step(wait, lock, deadline, |entry, turn| entry.renew(turn, items)) {
                Ok(all) => all.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error); items.len()],
            }
        })
    }

    /// Which of these were renewed, by their numbers.
    fn renew_columns(&self, items: &[Item<'_>], deadline: Instant) -> Result<Vec<usize>, Failure> {
        let values = [
            Value::array(BYTEA, items.iter().map(|(_, hold, ..)| hold.lock.name.as_str().as_bytes())),
            Value::array(TEXT, items.iter().map(|(_, hold, ..)| hold.owner.as_str())),
            Value::array(INT8, items.iter().map(|(_, hold, ..)| hold.request.get().cast_signed())),
            Value::array(INT8, items.iter().map(|(_, hold, ..)| hold.token.get().cast_signed())),
            Value::array(INT8, items.iter().map(|(_, _, holds, _)| i64::from(holds.cast_signed()))),
            Value::array(INT8, items.iter().map(|(.., lease)| micros(*lease).min(LONGEST))),
        ];
        let rows = self.pool.ask_committed(Statement::new(RENEW, values), deadline)?;
        let number = |row: &Row| {
            let at = usize::try_from(row.number(0)? - 1).map_err(|_| Failure::senseless())?;
            items.get(at).map(|(at, ..)| *at).ok_or_else(Failure::senseless)
        };
        rows.iter().map(number).collect()
    }
}

/// A hold, with its number among the items, its hold count and its lease.
type Item<'a> = (usize, Hold<'a>, u32, Duration);

/// None for what can't stand in columns.
fn in_columns<'a>((at, item): (usize, &Renew<'a>)) -> Option<Item<'a>> {
    match *item {
        Renew::Hold { hold, holds, lease } if is_text(hold.owner, "") => Some((at, hold, holds, lease)),
        _ => None,
    }
}
