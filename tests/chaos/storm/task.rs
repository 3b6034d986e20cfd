//! How an actor waits as a task does: it polls the future, and sleeps on the clock until the waker wakes it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use fairlock::CancelToken;
use fairlock::owner::Owner;
use fairlock::settings::Clock;
use fairlock::waits::TryLockFuture;
use fairlock::{Client, Guard, MemoryBackend};

use crate::world::World;

/// Longer than any storm.
const EVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A lock that nobody gives back. A wait for it is a sleep on the clock that a waker can end.
pub struct Bell {
    client: Client,
    _held: Guard<Owner>,
}

/// Ends one sleep.
struct Ring(CancelToken);

impl Wake for Ring {
    fn wake(self: Arc<Self>) {
        self.0.cancel();
    }
}

impl Bell {
    pub fn new(clock: &Clock) -> Bell {
        let client = Client::builder(MemoryBackend::with_clock(clock.clone())).clock(clock.clone());
        let client = client.lease(EVER).place_ttl(EVER).build().expect("a store in memory");
        let lock = client.fair_lock("bell").expect("a name").owned_by(&client.new_owner());
        let held = lock.expect("its own").lock().expect("it is free");
        Bell { client, _held: held }
    }

    /// Ready after this time.
    pub fn nap(&self, time: Duration) -> TryLockFuture {
        self.client.fair_lock("bell").expect("as before").to_async().try_lock_for(time)
    }

    /// Until it rings, or so long.
    fn sleep(&self, until_it_rings: &CancelToken, at_most: Option<Duration>) {
        let lock = self.client.fair_lock("bell").and_then(|lock| lock.owned_by(&self.client.new_owner()));
        let lock = lock.expect("as before").cancelled_by(until_it_rings);
        match at_most {
            Some(time) => drop(lock.try_lock_for(time)),
            None => drop(lock.lock()),
        }
    }
}

/// Polls until it is ready, at most for this time.
pub fn wait<F: Future + Unpin>(
    world: &World,
    future: &mut F,
    at_most: Option<Duration>,
) -> Option<F::Output> {
    let until = at_most.map(|time| world.now() + time);
    loop {
        let ring = CancelToken::new();
        let waker = Waker::from(Arc::new(Ring(ring.clone())));
        if let Poll::Ready(output) = Pin::new(&mut *future).poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        let left = until.map(|until| until.saturating_sub(world.now()));
        if left == Some(Duration::ZERO) {
            return None;
        }
        world.bell().sleep(&ring, left);
    }
}

/// Until it is ready.
pub fn wait_for<F: Future>(world: &World, future: F) -> F::Output {
    let mut future = Box::pin(future);
    loop {
        if let Some(output) = wait(world, &mut future, None) {
            return output;
        }
    }
}
