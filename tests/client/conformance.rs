//! The conformance suite, one list for every backend and discipline: in memory with virtual time, also with each lock as bytes, and on a real
//! Redis, each case on a new server. After each case nothing may be left: no key, no entry, no thread.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fairlock::backend::{Backend, LockId};
use fairlock::{Clock, Discipline, Durability, LockKind, LockName, ManualClock, MemoryBackend, RedisBackend};
use fairlock_conformance::{Harness, LEASE, Promise};
use fairlock_tests::{Alone, RedisServer, assert_no_residue, keys_without_ttl};

/// A store in memory, and the clock that it shares with its clients. The cases take fair locks, or those of a semaphore with one permit.
struct InMemory<const PERMIT: bool> {
    clock: ManualClock,
    store: MemoryBackend,
    _alone: Alone,
}

impl<const PERMIT: bool> Harness for InMemory<PERMIT> {
    fn new() -> Self {
        let (alone, clock) = (Alone::here(), ManualClock::new());
        InMemory { store: MemoryBackend::with_clock(clock.clone()), clock, _alone: alone }
    }

    fn kind(&self) -> LockKind {
        if PERMIT { LockKind::Semaphore { permits: 1 } } else { LockKind::Fair }
    }

    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(self.store.clone())
    }

    fn clock(&self) -> Clock {
        self.clock.clone().into()
    }

    fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }

    fn lose_hold(&self, name: &str) {
        self.store.faults().lose_hold(name);
    }

    fn promises(&self, _promise: Promise) -> bool {
        true
    }

    fn assert_nothing_is_left(&self, name: &str) {
        // While it is in use a lock of another kind is an error.
        let lock = LockId::new(LockName::new(name).unwrap(), self.kind());
        let state = self.store.inspect(&lock, 0..1).unwrap();
        assert!(state.holder().is_none() && state.queue.is_empty(), "{state:?}");
    }
}

const HAND_OFF: u8 = 0;
const REDISSON: u8 = 1;
const PLAIN: u8 = 2;
/// By hand-off, with `durable`, on a server whose past is known.
const DURABLE: u8 = 3;
/// A semaphore with one permit.
const PERMIT: u8 = 4;

/// A server, and locks by one of these rules.
struct Redis<const RULE: u8> {
    server: RedisServer,
    _alone: Alone,
}

impl<const RULE: u8> Redis<RULE> {
    fn connect(&self) -> RedisBackend {
        let builder = RedisBackend::builder(&self.server.url()).response_timeout(LEASE / 2);
        let builder = match RULE {
            HAND_OFF | PERMIT => builder,
            DURABLE => builder.durable(Durability::default()),
            _ => builder.discipline(Discipline::Redisson),
        };
        builder.connect().unwrap()
    }
}

impl<const RULE: u8> Harness for Redis<RULE> {
    fn new() -> Self {
        let alone = Alone::here();
        let here = Redis { server: RedisServer::start(), _alone: alone };
        if RULE == DURABLE {
            here.connect().begin_life().unwrap();
        }
        here
    }

    fn kind(&self) -> LockKind {
        match RULE {
            PLAIN => LockKind::Plain,
            PERMIT => LockKind::Semaphore { permits: 1 },
            _ => LockKind::Fair,
        }
    }

    /// Each client gets its own connections, as in another process.
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(self.connect())
    }

    fn clock(&self) -> Clock {
        Clock::system()
    }

    fn pass(&self, time: Duration) {
        thread::sleep(time);
    }

    fn lose_hold(&self, name: &str) {
        self.server.query::<()>(&["DEL", name]);
    }

    fn promises(&self, promise: Promise) -> bool {
        match promise {
            Promise::BothKinds => !matches!(RULE, DURABLE | PERMIT),
            Promise::Order => RULE != PLAIN,
            _ => !matches!(RULE, REDISSON | PLAIN),
        }
    }

    fn assert_nothing_is_left(&self, _name: &str) {
        assert_no_residue(&self.server, &[]);
    }
}

impl<const RULE: u8> Drop for Redis<RULE> {
    fn drop(&mut self) {
        if !thread::panicking() {
            let left = keys_without_ttl(&self.server);
            assert!(left.is_empty(), "without a time to live, after the case: {left:?}");
        }
    }
}

mod memory_fair {
    fairlock_conformance::conformance_tests!(super::InMemory<false>);
}

mod memory_one_permit {
    fairlock_conformance::conformance_tests!(super::InMemory<true>, exclusive);
}

mod hand_off {
    fairlock_conformance::conformance_tests!(super::Redis<{ super::HAND_OFF }>);
}

mod permit {
    fairlock_conformance::conformance_tests!(super::Redis<{ super::PERMIT }>, exclusive);
}

mod durable {
    fairlock_conformance::conformance_tests!(super::Redis<{ super::DURABLE }>);
}

mod redisson_fair {
    fairlock_conformance::conformance_tests!(super::Redis<{ super::REDISSON }>);
}

mod redis_plain {
    fairlock_conformance::conformance_tests!(super::Redis<{ super::PLAIN }>);
}
