//! What the callers of a client share with the thread that listens for the client: how far that thread is, and which requests wait.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use fairlock_core::backend::{Place, RequestId};
use fairlock_core::{LockName, OwnerId};
use parking_lot::{Condvar, Mutex};

/// For how long a client goes on hearing when none of its requests waits. Short in tests, so that they see the end, yet longer than a busy
/// machine stands still: a case about messages to a holder has its client wait once before.
const LINGERS: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 30 });

/// How far the thread is: see `wake_ups`.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// There is no thread.
    #[default]
    Silent,
    Starting,
    Hearing,
    Broken,
    Polling,
    Over,
}

/// A request that waits, as its backend knows it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Waiting {
    pub(crate) lock: LockName,
    pub(crate) owner: OwnerId,
    pub(crate) request: RequestId,
}

#[derive(Default)]
pub(crate) struct Link {
    state: Mutex<LinkState>,
    changed: Condvar,
}

#[derive(Default)]
struct LinkState {
    phase: Phase,
    /// The number of the listening connection: one more with each connection.
    session: u64,
    /// Whether other processes see the client's presence by that connection.
    is_present: bool,
    /// Whether a grant of a request that waits may have gone unheard.
    has_missed: bool,
    waiting: HashMap<Waiting, Known>,
    /// When the last request was known to wait; none before the first.
    waited_at: Option<Instant>,
}

/// What is known of a waiting request.
struct Known {
    /// When the place ends if no heartbeat comes.
    until: Instant,
    /// The revision of the row in which a poll has not found its grant. A grant may stand in the row before the request is known to
    /// wait, so this is not known by lock.
    seen: i64,
}

impl Waiting {
    pub(crate) fn of(place: &Place<'_>) -> Waiting {
        let Place { lock, owner, request, .. } = *place;
        Waiting { lock: lock.name.clone(), owner: owner.clone(), request }
    }
}

impl Link {
    /// The connection that hears now, if one does.
    pub(crate) fn session(&self) -> Option<u64> {
        let state = self.state.lock();
        (state.phase == Phase::Hearing).then_some(state.session)
    }

    pub(crate) fn is_present(&self) -> bool {
        let state = self.state.lock();
        state.phase == Phase::Hearing && state.is_present
    }

    /// The request waits. Starts the thread if there is none, and waits until the thread has started. Returns the connection that
    /// gets messages from now on. None if there is no such connection yet: later the thread sends `Gap`, or polls.
    pub(crate) fn waits(
        &self,
        place: &Place<'_>,
        until: Instant,
        start: impl FnOnce() -> bool,
    ) -> Option<u64> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let known = state.waiting.entry(Waiting::of(place)).or_insert(Known { until: now, seen: -1 });
        known.until = now.checked_add(place.ttl).unwrap_or(now);
        state.waited_at = Some(now);
        if state.phase == Phase::Silent {
            state.phase = Phase::Starting;
            if !start() {
                state.phase = Phase::Silent;
            }
        }
        while state.phase == Phase::Starting {
            if self.changed.wait_until(&mut state, until).timed_out() {
                state.has_missed = true;
                break;
            }
        }
        (state.phase == Phase::Hearing).then_some(state.session)
    }

    /// The request waits no longer. Returns whether it was known to wait.
    pub(crate) fn waits_no_longer(&self, waiting: &Waiting) -> bool {
        self.state.lock().waiting.remove(waiting).is_some()
    }

    /// The requests that wait, each with the revision that was seen of its lock.
    pub(crate) fn waiting(&self) -> Vec<(Waiting, i64)> {
        self.state.lock().waiting.iter().map(|(one, known)| (one.clone(), known.seen)).collect()
    }

    /// The request waits in this revision of the row.
    pub(crate) fn saw(&self, waiting: &Waiting, rev: i64) {
        if let Some(known) = self.state.lock().waiting.get_mut(waiting) {
            known.seen = rev;
        }
    }

    /// Moves to another state, unless the link is over. Returns whether it has moved.
    pub(crate) fn set(&self, next: Phase) -> bool {
        let mut state = self.state.lock();
        if state.phase == Phase::Over {
            return false;
        }
        state.phase = next;
        state.has_missed |= next == Phase::Broken;
        self.changed.notify_all();
        true
    }

    /// The thread hears by a new connection. Returns whether messages may have been missed; none if the link is over.
    pub(crate) fn hears(&self, is_present: bool) -> Option<bool> {
        let mut state = self.state.lock();
        if state.phase == Phase::Over {
            return None;
        }
        state.has_missed |= state.phase == Phase::Polling; // what came between the last look and here
        (state.phase, state.is_present) = (Phase::Hearing, is_present);
        state.session += 1;
        self.changed.notify_all();
        Some(std::mem::take(&mut state.has_missed))
    }

    /// The connection that hears shows by now that the client is there.
    pub(crate) fn set_present(&self) {
        self.state.lock().is_present = true;
    }

    /// Whether the thread has to end, which must do nothing more here: it is over, or nothing has waited for a while. In the latter
    /// case the next request that waits starts another thread.
    pub(crate) fn has_to_end(&self) -> bool {
        let (mut state, now) = (self.state.lock(), Instant::now());
        state.waiting.retain(|_, known| now < known.until);
        if !state.waiting.is_empty() {
            state.waited_at = Some(now);
        }
        let has_lingered = state.waited_at.is_none_or(|at| now.duration_since(at) >= LINGERS);
        if state.phase != Phase::Over && has_lingered {
            state.phase = Phase::Silent;
            state.has_missed = false;
            return true;
        }
        state.phase == Phase::Over
    }

    /// Waits for this time; ends at once when the link is over.
    pub(crate) fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        while state.phase != Phase::Over && !self.changed.wait_until(&mut state, until).timed_out() {}
    }
}

#[cfg(test)]
mod tests {
    use fairlock_tests::eventually;

    use super::*;
    use crate::test_values::lock;

    /// The request of an owner, with a place that is over at once.
    fn waits(link: &Link) -> Option<u64> {
        let (lock, owner) = (lock("x"), OwnerId::new("a:1"));
        let mut place = Place::new(&lock, &owner, RequestId::new(1));
        place.ttl = Duration::ZERO;
        link.waits(&place, Instant::now(), || true)
    }

    #[test]
    fn a_caller_that_gave_up_on_the_thread_is_owed_a_gap() {
        let link = Link::default();
        assert_eq!(waits(&link), None);
        assert_eq!(link.hears(true), Some(true));
        let first = waits(&link);
        assert_eq!(link.hears(true), Some(false));
        assert!(first.is_some() && link.session() != first, "another connection hears");
    }

    #[test]
    fn a_request_whose_place_is_over_keeps_no_thread() {
        let link = Link::default();
        waits(&link);
        eventually("the thread ends", || link.has_to_end());
    }
}
