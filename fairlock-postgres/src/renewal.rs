//! Heartbeats: all holds that stand in columns by one statement, the rest by steps of many locks.
//!
//! A holder hands nothing on, so its renewal needs no more than its columns, also where the lock has a line. A row that another
//! transaction has locked is skipped, so that it does not delay the others: that is a step of another client, or the program's own
//! transaction with `still_held`. Then, and for a hold that was not found, a step asks, which tells lost holds from those that can't
//! be asked about; and a row that this has to pass over is waited for alone.
//!
//! Each part has the time of a call: how many there are depends on the client, and no time left is no outage.
//!
//! A hold whose row stays locked by `still_held` is not renewed: nothing can be written there. Its guard says lost when the lease
//! is over by its clock, although no other owner gets the lock before that transaction ends. It must: the transaction may end at any
//! moment, and the client can't see when.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fairlock_core::LockName;
use fairlock_core::backend::{BackendError, Hold, Renew, Renewal};
use fairlock_line::lock_of;

use crate::net::{BYTEA, Encoding, Failure, INT8, Row, Statement, TEXT, Value};
use crate::owned;
use crate::row::{LONGEST, is_text, micros};
use crate::step::{MOST_LOCKS, Question, Store};

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
    /// The answers to the items, in their order. After a part that the server has not answered at all, no other is asked.
    pub(crate) fn renew(&self, items: &[Renew<'_>]) -> Vec<Result<Renewal, BackendError>> {
        let mut answers: Vec<_> = items.iter().map(|_| None).collect();
        let mut silence = None;
        let encoding = self.pool.encoding();
        let holds: Vec<_> = items.iter().enumerate().filter_map(|item| in_columns(item, encoding)).collect();
        for part in holds.chunks(MOST) {
            match self.renew_columns(part, self.pool.deadline()) {
                Ok(done) => done.into_iter().for_each(|at| answers[at] = Some(Ok(Renewal::Renewed))),
                Err(failure) => silence = Some(BackendError::from(failure)),
            }
            if silence.is_some() {
                break;
            }
        }
        let mut by_lock = BTreeMap::<_, Vec<_>>::new();
        for (at, item) in items.iter().enumerate().filter(|(at, _)| answers[*at].is_none()) {
            by_lock.entry(&lock_of(item).name).or_default().push((at, *item));
        }
        let by_lock: Vec<_> = by_lock.into_iter().collect();
        for part in by_lock.chunks(MOST_LOCKS) {
            if silence.is_some() {
                break;
            }
            let deadline = self.pool.deadline();
            let question = |(lock, items): &(&LockName, Vec<(usize, Renew<'_>)>)| {
                let items: Vec<_> = items.iter().map(|(_, item)| *item).collect();
                Question::new(lock, deadline, owned::renew(&items))
            };
            let (questions, replies): (Vec<_>, Vec<_>) = part.iter().map(question).unzip();
            self.steps(questions, deadline, true);
            let (mut is_heard, mut unheard) = (false, None);
            for ((_, items), reply) in part.iter().zip(replies) {
                let renewals = reply.get();
                is_heard |= renewals.as_ref().err().is_none_or(Failure::is_answer);
                let error = renewals.as_ref().err().map(|failure| BackendError::from(failure.clone()));
                let mut renewals = renewals.unwrap_or_default().into_iter();
                for (at, _) in items {
                    answers[*at] = renewals.next().map(Ok).or_else(|| error.clone().map(Err));
                }
                unheard = error.or(unheard);
            }
            silence = unheard.filter(|_| !is_heard);
        }
        let missing = silence.unwrap_or_else(|| Failure::senseless().into());
        answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(missing.clone()))).collect()
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
        let renew = Statement::new(RENEW, values);
        let rows = self.pool.lend_to(true, deadline, |con| self.pool.committed(con, renew, deadline))?;
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
fn in_columns<'a>((at, item): (usize, &Renew<'a>), encoding: Encoding) -> Option<Item<'a>> {
    match *item {
        Renew::Hold { hold, holds, lease } if is_text(hold.owner, "", encoding) => {
            Some((at, hold, holds, lease))
        }
        _ => None,
    }
}
