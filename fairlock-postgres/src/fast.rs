//! The fast parts: a free lock is taken, and a hold of a lock without a line released, by one statement in one round trip. What is
//! not so plain changes nothing here and is the general part's: `step`.
//!
//! Each is a transaction for itself. They do what the general part would do to the same row, number by number:
//!
//! | the row | `acquire` by a new request for one unit | `release` |
//! | --- | --- | --- |
//! | `state` is empty, and the hold is over, or there is none | grants | general part |
//! | `state` is empty, and this hold lasts | general part: it may be a repeat | ends the hold |
//! | `state` is not empty: a line, or what it remembers | general part | general part |
//! | another transaction has it locked | waits, or general part | waits, or general part |
//! | there is none | general part | general part |
//!
//! Interleavings that are closed here:
//!
//! - **A waiter joins between the look at the row and the write**: an attempt that does not wait locks the row as it looks at it, and
//!   the write finds it by its place in the table, where a version that is newer than the statement's snapshot is not found. One that
//!   has waited gets the newest version, and the server looks at all conditions again. Under REPEATABLE READ, which a role may have as
//!   its default, both are an error. Then nothing was done, and the general part, which names its level, goes on. So this one need not.
//! - **The row is locked**, maybe for long, by the program's own transaction: the only attempt of a call waits for it, as the general
//!   part does, until `lock_timeout` or the call's deadline, and then says so. One of several does not wait, so that no lock delays
//!   another; nor does one behind a pooler, whose session has no limit for the wait.
//! - **The row was only locked, and not written, while an attempt waited**: it is not looked at again. Nobody has had the lock meanwhile,
//!   so a hold that has ended by then is released all the same. The clock of an `acquire` is that of before the wait. So its lease
//!   ends sooner, and still no sooner than its client believes, which counts from before it asked.
//! - **The attempt arrives late**, after its repeat was answered and the hold released, or its client has gone while it waited in the
//!   server, which does not end that wait: each `acquire` has an end by the server's clock, and the clock is looked at before the wait
//!   and after it. The end is shortly after the call's own, and earlier than `attempt_ttl`. A release names its hold.
//! - **The statement is carried out and its answer lost**: the repeat finds a hold, so the general part answers it. A release that is
//!   repeated finds none.
//! - **The clock was set forward**: attempts seem late, the general part does them, and its answer tells the time.

use std::slice;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use fairlock_core::FencingToken;
use fairlock_core::backend::{Acquire, Acquired, BackendError, Hold, Released};

use crate::net::pool::{IDLE, warnings};
use crate::net::{Connection, Failure, Row, Statement};
use crate::owned;
use crate::row::{LONGEST, is_text, micros, moment};
use crate::step::Store;

/// Each statement in two ways: one passes over a row that is locked, and looks whether the server has crashed, and a quicker one waits for
/// it, in a session that has begun since.
type Ways = LazyLock<[String; 2]>;

/// The numbers are those of `Turn::next_number`, the times those of `LockRow`.
static ACQUIRE: Ways = LazyLock::new(|| {
    let clock = "(select fairlock.micros() as now offset 0) c";
    let is_free = "name = $1 and state = '' and (h_ends is null or h_ends <= now) and now <= $6";
    let free = format!(
        "select ctid as at, now from fairlock.lock l, {clock} where {is_free} and fairlock.grace_ends() <= now"
    );
    let skipping = (
        format!("({free} for update of l skip locked) c where l.ctid = c.at"),
        format!(", {}", warnings(true)),
    );
    // The row may be had after the attempt's end: then the division fails, and the statement does nothing.
    let in_time = ", 1 / (clock_timestamp() <= to_timestamp($6::float8 / 1000000))::int".to_owned();
    [skipping, (format!("{clock} where {is_free}"), in_time)].map(|(from, then)| {
        format!(
            "update fairlock.lock l set rev = rev + 1, last = greatest(last + 1, least(now, 4503599627370496)), \
             dead_at = greatest(now + $4, last + 1) + 86400000000, h_owner = $2, h_request = $3, \
             h_token = greatest(last + 1, least(now, 4503599627370496)), h_count = 1, h_since = now, h_ends = now + $4, h_label = $5 \
             from {from} returning h_token, now{then}"
        )
    })
});

static RELEASE: Ways = LazyLock::new(|| {
    let is_held = "name = $1 and state = '' and h_owner = $2 and h_request = $3 and h_token = $4 and h_ends > fairlock.micros()";
    let skipping = format!("ctid = (select ctid from fairlock.lock where {is_held} for update skip locked)");
    let skipping = (skipping.as_str(), format!(", {}", warnings(true)));
    [skipping, (is_held, String::new())].map(|(which, then)| {
        format!(
            "update fairlock.lock set rev = rev + 1, dead_at = last + 86400000000, h_owner = null, h_request = null, h_token = null, \
             h_count = null, h_since = null, h_ends = null, h_label = null where {which} returning 1{then}"
        )
    })
});

/// How much longer than its call waits an attempt may begin what it asks for: the clock was read some time ago.
const MARGIN: Duration = Duration::from_millis(500);
const _: () = assert!(MARGIN.as_millis() < IDLE.as_millis());

/// In both ways.
type Attempt = [Statement; 2];

impl Store {
    pub(crate) fn acquire_all(
        self: &Arc<Store>,
        asks: &[Acquire<'_>],
    ) -> Vec<Result<Acquired, BackendError>> {
        let deadline = self.pool.deadline();
        let attempts: Vec<_> = asks.iter().map(|ask| self.fast_acquire(ask, deadline)).collect();
        let granted = |ask: &Acquire<'_>, row: &Row| {
            self.recent.heard(moment(row.number(1)?));
            self.clients.waits_no_longer(&ask.place);
            let token = FencingToken::new(row.number(0)?.cast_unsigned());
            Ok(Acquired::Granted { token, lease: ask.lease })
        };
        self.all(asks, &attempts, deadline, granted, |asks| {
            let places: Vec<_> = asks.iter().map(|ask| ask.place).collect();
            let answers = self.ask_and_hear(&places, deadline, |these| {
                let asks = these.iter().map(|at| asks[*at]);
                let answers = self.ask(asks.map(|ask| (&ask.place.lock.name, owned::acquire(ask))), deadline);
                answers.into_iter().map(|answer| answer?).collect()
            });
            for (place, answer) in places.iter().zip(&answers) {
                if let Ok(Acquired::Busy { .. }) = answer {
                    self.recent.is_busy(&place.lock.name); // by a hold alone, so the step does not see it
                }
            }
            answers
        })
    }

    pub(crate) fn release_all(&self, holds: &[Hold<'_>]) -> Vec<Result<Released, BackendError>> {
        let deadline = self.pool.deadline();
        let attempts: Vec<_> = holds.iter().map(|hold| self.fast_release(hold)).collect();
        let released = |_: &Hold<'_>, _: &Row| Ok(Released::Released);
        self.all(holds, &attempts, deadline, released, |holds| {
            self.ask(holds.iter().map(|hold| (&hold.lock.name, owned::release(hold))), deadline)
        })
    }

    /// Makes these attempts in one round trip, each as a transaction for itself. What they leave is asked in steps.
    fn all<Q, A>(
        &self,
        questions: &[Q],
        attempts: &[Option<Attempt>],
        deadline: Instant,
        read: impl Fn(&Q, &Row) -> Result<A, Failure>,
        ask: impl FnOnce(&[&Q]) -> Vec<Result<A, BackendError>>,
    ) -> Vec<Result<A, BackendError>> {
        let made: Vec<_> = attempts.iter().flatten().collect();
        let mut answers = Vec::new();
        if !made.is_empty() {
            let make = |con: &mut Connection| {
                let now = self.recent.server_time(Instant::now()).unwrap_or_default();
                let is_past_grace = con.grace_ends.is_some_and(|ends| moment(ends) <= now);
                let way = usize::from(questions.len() == 1 && is_past_grace);
                let made: Vec<_> = made.iter().map(|attempt| slice::from_ref(&attempt[way])).collect();
                let answers = con.flights(&made, deadline)?;
                let spent = answers.iter().filter_map(|answer| answer.as_ref().err());
                match spent.into_iter().find(|failure| !failure.keeps_connection()) {
                    Some(failure) => Err(failure.clone()),
                    None => Ok(answers),
                }
            };
            match self.pool.lend(deadline, make) {
                Ok(answered) => answers = answered,
                Err(failure) => return vec![failure.into(); questions.len()].into_iter().map(Err).collect(),
            }
        }
        let mut made = answers.into_iter();
        let answer = |(question, attempt): (&Q, &Option<Attempt>)| {
            let answer = attempt.as_ref().and_then(|_| made.next());
            if let Some(Err(failure)) = &answer
                && failure.has_code(&["55P03"])
            {
                return Some(Err(failure.clone().into())); // a step would wait for the row as long once more
            }
            // What else is wrong with an attempt that failed, the step will say.
            let rows = answer.and_then(|rows| rows.ok()?.pop());
            rows.and_then(|rows| read(question, rows.first()?).ok()).map(Ok)
        };
        let mut answers: Vec<_> = questions.iter().zip(attempts).map(answer).collect();
        let left: Vec<_> = (0..answers.len()).filter(|at| answers[*at].is_none()).collect();
        let asked: Vec<_> = left.iter().map(|at| &questions[*at]).collect();
        for (at, answer) in left.into_iter().zip(if asked.is_empty() { Vec::new() } else { ask(&asked) }) {
            // Once an attempt was made, what follows can't say that nothing was sent.
            let is_sent = attempts[at].is_some();
            answers[at] = Some(answer.map_err(|error| if is_sent { error.maybe_sent() } else { error }));
        }
        let missing = || Err(Failure::senseless().into());
        answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect()
    }

    /// The attempt, if it can be one.
    fn fast_acquire(&self, ask: &Acquire<'_>, deadline: Instant) -> Option<Attempt> {
        let (place, lease) = (&ask.place, micros(ask.lease));
        let is_plain = !place.lock.kind.is_shared() && place.takes == 1 && place.ticket == 0;
        let encoding = self.pool.encoding();
        let is_fit = lease <= LONGEST && is_text(place.owner, ask.label, encoding);
        if !is_plain || !is_fit || self.recent.was_busy(&place.lock.name) {
            return None;
        }
        let begin_by = self.recent.server_time(deadline)?.saturating_add(MARGIN);
        let values = [
            place.lock.name.as_str().as_bytes().into(),
            place.owner.as_str().into(),
            place.request.get().cast_signed().into(),
            lease.into(),
            encoding.replaced(ask.label).as_ref().into(),
            micros(begin_by).into(),
        ];
        Some([0, 1].map(|way| Statement::new(&ACQUIRE[way], values.clone())))
    }

    fn fast_release(&self, hold: &Hold<'_>) -> Option<Attempt> {
        if !is_text(hold.owner, "", self.pool.encoding()) || self.recent.was_busy(&hold.lock.name) {
            return None;
        }
        let values = [
            hold.lock.name.as_str().as_bytes().into(),
            hold.owner.as_str().into(),
            hold.request.get().cast_signed().into(),
            hold.token.get().cast_signed().into(),
        ];
        Some([0, 1].map(|way| Statement::new(&RELEASE[way], values.clone())))
    }
}

#[cfg(test)]
mod tests;
