//! The conformance suite on a real Redis, each case on a server of its own: the fair lock of discipline `Redisson`,
//! and the plain lock.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fairlock::backend::Backend;
use fairlock::{Clock, Discipline, LockKind, RedisBackend};
use fairlock_core::conformance::{Harness, Promise};
use fairlock_tests::{RedisServer, assert_no_residue};

/// A server, and what runs on it.
struct OnRedis {
    server: RedisServer,
}

impl OnRedis {
    fn start() -> OnRedis {
        OnRedis { server: RedisServer::start() }
    }

    /// A connection of its own for each client, as in another process.
    fn backend(&self) -> Arc<dyn Backend> {
        let builder = RedisBackend::builder(&self.server.url()).discipline(Discipline::Redisson);
        Arc::new(builder.connect().unwrap())
    }

    fn lose_hold(&self, name: &str) {
        self.server.query::<()>(&["DEL", name]);
    }
}

macro_rules! harness {
    ($name:ident, $kind:expr, $promises:expr) => {
        struct $name(OnRedis);

        impl Harness for $name {
            fn new() -> Self {
                $name(OnRedis::start())
            }

            fn kind(&self) -> LockKind {
                $kind
            }

            fn backend(&self) -> Arc<dyn Backend> {
                self.0.backend()
            }

            fn clock(&self) -> Clock {
                Clock::system()
            }

            fn pass(&self, time: Duration) {
                thread::sleep(time);
            }

            fn lose_hold(&self, name: &str) {
                self.0.lose_hold(name);
            }

            fn promises(&self, promise: Promise) -> bool {
                $promises(promise)
            }

            fn assert_nothing_is_left(&self, _name: &str) {
                assert_no_residue(&self.0.server, &[]);
            }
        }
    };
}

harness!(Fair, LockKind::Fair, |promise| promise == Promise::Order);
harness!(Plain, LockKind::Plain, |_| false);

mod redisson_fair {
    fairlock_core::conformance_tests!(super::Fair);
}

mod plain {
    fairlock_core::conformance_tests!(super::Plain);
}
