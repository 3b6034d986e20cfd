//! What all clones of a backend share: a clock, and the state behind one mutex.

use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Mutex, MutexGuard};

use fairlock_core::Clock;

use crate::plans::Plans;
use crate::store::Store;
use crate::turn::Moment;

pub(crate) struct Shared {
    pub(crate) clock: Clock,
    made: Instant,
    pub(crate) state: Mutex<State>,
}

pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) plans: Plans,
}

impl Shared {
    pub(crate) fn new(clock: Clock) -> Shared {
        // A wall clock before 1970 is no reason to fail: tokens then start low, and still grow.
        let wall: Duration = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let state = State { store: Store::new(wall), plans: Plans::default() };
        Shared { made: clock.now(), clock, state: Mutex::new(state) }
    }

    /// The store's time. Read it with the mutex held, so that it never goes back from one call to the next.
    pub(crate) fn now(&self) -> Moment {
        self.clock.now().saturating_duration_since(self.made)
    }

    /// Operates on the state, releases the mutex, and *then* delivers the wake-ups: a sink is foreign code, and may take a
    /// mutex under which another thread calls this backend.
    pub(crate) fn then_deliver<T>(
        &self,
        mut state: MutexGuard<'_, State>,
        operate: impl FnOnce(&mut State) -> T,
    ) -> T {
        let answer = operate(&mut state);
        let outgoing = state.store.wake_ups.take_outgoing();
        drop(state);
        outgoing.iter().for_each(|wake_up| wake_up.deliver());
        answer
    }
}
