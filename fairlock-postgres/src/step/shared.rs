//! Steps that threads share: what several threads of this process ask about one lock at the same time is decided after one load, and
//! written by one commit. So a hand-over among threads is one step, of two round trips: the former holder asks again, and the next one
//! releases.
//!
//! | the step | another thread that asks for the same lock, or releases it |
//! | --- | --- |
//! | loads | joins it, and waits for its answer; unless the step's call may end later than its own |
//! | has decided, and commits | makes a step for itself, which waits for the row |
//!
//! Interleavings that are closed here:
//!
//! - **The server's clock was read before a thread joined**: what it asks is decided in the past, by no more than the step has lasted
//!   by then. So each time that it names is longer by this, and each that it is told shorter: no lease and no place ends sooner than
//!   its client believes, which counts from when it asked.
//! - **The step fails**: all that have joined it fail, too, and core repeats each for itself.
//! - **The thread of the step stands still**: those that have joined wait no longer than their calls last. What they ask is done by
//!   the end of the step's call and [`IDLE`](crate::net::pool::IDLE), or never: no later than they themselves would have done it.
//! - **Who has joined is granted the lock in the same step**, by a release: its message may come before its answer, as from another
//!   step.

use std::collections::HashMap;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use fairlock_core::LockName;
use fairlock_core::backend::{Acquire, Acquired, BackendError, Hold, Place, Released};
use fairlock_line::{LockEntry, Turn, WakeUp};
use parking_lot::Mutex;

use super::Store;
use crate::answer::Answer;
use crate::net::Failure;

const FAILED: &str = "the step of another thread failed";

/// The steps that can be joined, by their locks: when the call of each ends, and what was asked.
pub(crate) type Loading = Mutex<HashMap<LockName, (Instant, Vec<Question>)>>;

/// Decides, at most this long after the load has begun. Whether the answer is a promise, and who tells it.
type Question = Box<dyn FnOnce(&mut LockEntry, &mut Turn<'_>, Duration) -> (bool, Tell) + Send>;

/// Tells the answer, or why the step failed.
type Tell = Box<dyn FnOnce(Result<(), Failure>) + Send>;

/// Tells who asks that the step has failed before it decided: nothing of the question was sent.
struct Undecided<T>(Option<SyncSender<Result<T, Failure>>>);

impl<T> Undecided<T> {
    fn decides(mut self) -> Option<SyncSender<Result<T, Failure>>> {
        self.0.take()
    }
}

impl<T> Drop for Undecided<T> {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            _ = tell.send(Err(Failure::broken(FAILED).unsent()));
        }
    }
}

/// Who else learns of a step.
pub(crate) struct Joined<'a> {
    /// While it can be joined.
    open: Option<(&'a Loading, &'a LockName)>,
    decided: Vec<Tell>,
    /// The messages to clients of this process.
    pub(crate) local: Vec<WakeUp>,
}

impl<'a> Joined<'a> {
    /// A step that can be joined from now on, if there is no other on this lock.
    pub(crate) fn new(loading: Option<&'a Loading>, lock: &'a LockName, deadline: Instant) -> Joined<'a> {
        let is_new = |loading: &&Loading| {
            let mut all = loading.lock();
            let is_new = !all.contains_key(lock);
            all.entry(lock.clone()).or_insert_with(|| (deadline, Vec::new()));
            is_new
        };
        let open = loading.filter(is_new).map(|loading| (loading, lock));
        Joined { open, decided: Vec::new(), local: Vec::new() }
    }

    fn close(&mut self) -> Vec<Question> {
        let step = self.open.take().and_then(|(loading, lock)| loading.lock().remove(lock));
        step.map(|(_, questions)| questions).unwrap_or_default()
    }

    /// From here on the step can't be joined. Whether an answer is a promise.
    pub(crate) fn decide(&mut self, mut decide: impl FnMut(Question) -> (bool, Tell)) -> bool {
        let mut is_promise = false;
        for question in self.close() {
            let (promises, tell) = decide(question);
            is_promise |= promises;
            self.decided.push(tell);
        }
        is_promise
    }

    /// The step has come to this.
    pub(crate) fn tell(&mut self, done: Result<(), &Failure>) {
        self.decided.drain(..).for_each(|tell| tell(done.map_err(Clone::clone)));
    }
}

/// If the step failed before.
impl Drop for Joined<'_> {
    fn drop(&mut self) {
        self.close();
    }
}

impl Store {
    /// A step, or what is asked joins that of another thread.
    fn share<T: Answer + Send + 'static>(
        &self,
        lock: &LockName,
        deadline: Instant,
        decide: impl FnOnce(&mut LockEntry, &mut Turn<'_>, Duration) -> T + Send + 'static,
    ) -> Result<T, BackendError> {
        let mut loading = self.loading.lock();
        let Some((_, questions)) = loading.get_mut(lock).filter(|(ends, _)| *ends <= deadline) else {
            drop(loading);
            return self.step(None, lock, deadline, |entry, turn| decide(entry, turn, Duration::ZERO));
        };
        let (tell, answer) = sync_channel(1);
        let undecided = Undecided(Some(tell));
        questions.push(Box::new(move |entry, turn, late| {
            let tell = undecided.decides();
            let decided = decide(entry, turn, late);
            let promises = decided.is_promise();
            (promises, Box::new(move |done| _ = tell.map(|tell| tell.send(done.map(|()| decided)))))
        }));
        drop(loading);
        let answer = answer.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        Ok(answer.map_err(|_| Failure::broken(FAILED))??)
    }

    pub(crate) fn acquire(&self, ask: &Acquire<'_>, deadline: Instant) -> Result<Acquired, BackendError> {
        let Acquire { place, lease, label, .. } = *ask;
        let Place { lock, owner, request, wait, ttl, ticket, takes, .. } = place;
        let (lock, owner, label) = (lock.clone(), owner.clone(), label.to_owned());
        self.share(&place.lock.name, deadline, move |entry, turn, late| {
            let mut place = Place::new(&lock, &owner, request);
            (place.wait, place.ticket, place.takes) = (wait, ticket, takes);
            place.ttl = ttl.saturating_add(late);
            let mut ask = Acquire::new(place, lease.saturating_add(late));
            ask.label = &label;
            let mut acquired = entry.acquire(turn, &ask)?;
            let (Acquired::Granted { lease: time, .. }
            | Acquired::Queued { recheck_in: time, .. }
            | Acquired::Busy { recheck_in: time }) = &mut acquired;
            *time = time.saturating_sub(late);
            Ok(acquired)
        })?
    }

    pub(crate) fn release(&self, hold: &Hold<'_>, deadline: Instant) -> Result<Released, BackendError> {
        let Hold { lock, owner, request, token, .. } = *hold;
        let (lock, owner) = (lock.clone(), owner.clone());
        self.share(&hold.lock.name, deadline, move |entry, turn, _| {
            entry.release(turn, &Hold::new(&lock, &owner, request, token))
        })
    }
}

#[cfg(test)]
mod tests;
