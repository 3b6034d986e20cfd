//! The conformance suite, one list for every backend and discipline: in memory with virtual time, and on a real
//! Redis, each case on a new server. After each case nothing may be left: no key, no entry, no thread.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fairlock::backend::Backend;
use fairlock::{Client, Clock, Discipline, Durability, LockKind, ManualClock, MemoryBackend, RedisBackend};
use fairlock_core::conformance::{Harness, LEASE, Promise};
use fairlock_tests::{Alone, RedisServer, assert_no_residue, keys_without_ttl};

/// A store in memory, and the clock that it shares with its clients.
struct Memory<const FAIR: bool> {
    clock: ManualClock,
    store: MemoryBackend,
    _alone: Alone,
}

impl<const FAIR: bool> Harness for Memory<FAIR> {
    fn new() -> Self {
        let (alone, clock) = (Alone::here(), ManualClock::new());
        Memory { store: MemoryBackend::with_clock(clock.clone()), clock, _alone: alone }
    }

    fn kind(&self) -> LockKind {
        if FAIR { LockKind::Fair } else { LockKind::Plain }
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

    fn promises(&self, promise: Promise) -> bool {
        FAIR || promise == Promise::BothKinds
    }

    fn assert_nothing_is_left(&self, name: &str) {
        let client = Client::builder(self.store.clone()).clock(self.clock.clone()).build().unwrap();
        let state = client.fair_lock(name).unwrap().inspect().unwrap();
        assert!(state.holder.is_none() && state.line.is_empty(), "{state:?}");
    }
}

const HAND_OFF: u8 = 0;
const REDISSON: u8 = 1;
const PLAIN: u8 = 2;
/// By hand-off, with `durable`, on a server whose past is known.
const DURABLE: u8 = 3;

/// A server, and locks by one of these rules.
struct Redis<const RULE: u8> {
    server: RedisServer,
    _alone: Alone,
}

impl<const RULE: u8> Redis<RULE> {
    fn connect(&self) -> RedisBackend {
        let builder = RedisBackend::builder(&self.server.url()).response_timeout(LEASE / 2);
        let builder = match RULE {
            HAND_OFF => builder,
            DURABLE => builder.durable(Durability::life()),
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
        if RULE == PLAIN { LockKind::Plain } else { LockKind::Fair }
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
            Promise::BothKinds => RULE != DURABLE,
            Promise::Order => RULE != PLAIN,
            _ => RULE == HAND_OFF || RULE == DURABLE,
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
    fairlock_core::conformance_tests!(super::Memory<true>);
}

mod memory_plain {
    fairlock_core::conformance_tests!(super::Memory<false>);
}

mod hand_off {
    fairlock_core::conformance_tests!(super::Redis<{ super::HAND_OFF }>);
}

mod durable {
    fairlock_core::conformance_tests!(super::Redis<{ super::DURABLE }>);
}

mod redisson_fair {
    fairlock_core::conformance_tests!(super::Redis<{ super::REDISSON }>);
}

mod redis_plain {
    fairlock_core::conformance_tests!(super::Redis<{ super::PLAIN }>);
}
