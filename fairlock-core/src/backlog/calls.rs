//! Calls of tasks that need an answer of the server at once, such as a look at a lock, for the threads that make them. A call may
//! block for as long as the server is silent: the calls that grant and release locks don't wait for it.

use std::collections::VecDeque;
use std::time::Instant;

use parking_lot::Mutex;

use crate::timers::{CALL_THREADS, Timers};

pub(crate) type Call = Box<dyn FnOnce() + Send>;

/// The calls that no thread has in hand, in their order.
#[derive(Default)]
pub(crate) struct Calls(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    left: VecDeque<Call>,
    /// Which threads take a call before they sleep.
    awake: [bool; CALL_THREADS],
}

impl Calls {
    /// The first thread runs, and has a call if another thread is wanted: what is added here is taken.
    pub(crate) fn add(&self, call: Call, timers: &Timers, now: Instant) {
        let mut inner = self.0.lock();
        inner.left.push_back(call);
        let Some(thread) = inner.awake.iter().position(|is_awake| !is_awake) else { return };
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
        let next = inner.left.pop_front();
        inner.awake[thread] = next.is_some();
        next
    }

    pub(crate) fn take_all(&self) -> VecDeque<Call> {
        std::mem::take(&mut self.0.lock().left)
    }
}
