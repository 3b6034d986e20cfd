//! Calls of tasks that need an answer of the server at once, such as a look at a lock, for the threads that make them. A call may
//! block for as long as the server is silent: the calls that grant and release locks don't wait for it.

use std::collections::VecDeque;
use std::time::Instant;

use parking_lot::Mutex;

use crate::timers::{CALL_THREADS, Timers};

pub(crate) type Call = Box<dyn FnOnce() + Send>;

/// How many of the threads make calls that last, at most: those behind them do not wait for these.
const LASTING: usize = CALL_THREADS / 2;

/// For how long a call may keep its thread while the server does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lasts {
    /// For a few attempts.
    Briefly,
    /// It pauses and repeats, up to the outage limit.
    AsAnOutage,
}

/// The calls that no thread has in hand, in their order.
#[derive(Default)]
pub(crate) struct Calls(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    brief: VecDeque<Call>,
    /// For the first threads only.
    lasting: VecDeque<Call>,
    /// Which threads take a call before they sleep.
    awake: [bool; CALL_THREADS],
}

impl Calls {
    /// The first thread runs, and has a call if another thread is wanted: what is added here is taken.
    pub(crate) fn add(&self, call: Call, lasts: Lasts, timers: &Timers, now: Instant) {
        let mut inner = self.0.lock();
        let (list, threads) = match lasts {
            Lasts::Briefly => (&mut inner.brief, CALL_THREADS),
            Lasts::AsAnOutage => (&mut inner.lasting, LASTING),
        };
        list.push_back(call);
        let Some(thread) = inner.awake[..threads].iter().position(|is_awake| !is_awake) else { return };
        inner.awake[thread] = true;
        drop(inner);
        let sleeper = &timers.calls[thread];
        match timers.start(sleeper) {
            Ok(()) => sleeper.due_by(now),
            Err(_) => self.0.lock().awake[thread] = false,
        }
    }

    /// The next call for this thread; none if the thread may sleep.
    pub(crate) fn next(&self, thread: usize) -> Option<Call> {
        let inner = &mut *self.0.lock();
        let mut next = inner.brief.pop_front();
        if next.is_none() && thread < LASTING {
            next = inner.lasting.pop_front();
        }
        inner.awake[thread] = next.is_some();
        next
    }

    pub(crate) fn take_all(&self) -> VecDeque<Call> {
        let inner = &mut *self.0.lock();
        let mut all = std::mem::take(&mut inner.brief);
        all.append(&mut inner.lasting);
        all
    }
}
