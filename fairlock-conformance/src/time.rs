//! Time of a store that has a clock of its own: the clients have a manual clock, and both go on together.
//!
//! The store's time goes on in one of two ways: its server's wall clock stands still and is moved by the test, or all ends that the store
//! keeps are set back by as much.

use super::forward::*;
use fairlock_core::ManualClock;

/// How far the store is ahead of its clients at most, while time passes: less than the margin of a lease of [`LEASE`](crate::LEASE).
const STEP: Duration = Duration::from_millis(250);

/// A connection to a store with a clock of its own, for a client with a manual one: [`ClientBuilder::build`] refuses the two otherwise.
///
/// [`ClientBuilder::build`]: fairlock_core::ClientBuilder::build
pub struct Moved {
    inner: Arc<dyn Backend>,
}

impl Moved {
    /// The backend, whose store's time passes by [`pass_beside`].
    #[expect(clippy::new_ret_no_self, reason = "what a harness returns")]
    pub fn new(backend: impl Backend) -> Arc<dyn Backend> {
        Arc::new(Moved { inner: Arc::new(backend) })
    }
}

impl Backend for Moved {
    crate::forward_to_inner! {
        acquire release adopt renew withdraw force_release inspect subscribe reconnects supports
        response_timeout attempt_ttl keeps_place_by_owner longest_lease
    }

    fn take_hold(&self, hold: &Hold<'_>) -> Answer<ForceReleased> {
        self.inner.take_hold(hold)
    }

    fn keeps_only(&self) -> &'static str {
        self.inner.keeps_only()
    }
}

/// Lets time pass for the clients of this clock and for their store, of which `age` lets so much more time pass. The store is ahead by
/// 250 ms at most, and by nothing at the end.
pub fn pass_beside(clock: &ManualClock, time: Duration, mut age: impl FnMut(Duration)) {
    let end = clock.now() + time;
    while clock.now() < end {
        let step = STEP.min(end - clock.now());
        age(step);
        clock.advance(step);
    }
}
