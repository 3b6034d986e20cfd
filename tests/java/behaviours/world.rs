//! A store, a kind of lock and a clock, over which a test body runs.

use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, Clock, Discipline, Lock, LockKind, ManualClock, MemoryBackend, RedisBackend};
use fairlock_tests::locks::{lock_of, response_timeout_for};
use fairlock_tests::{Alone, RedisServer, assert_no_residue, eventually};

/// The default lease of the clients.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// The limit for anything immediate, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(10);
/// How late a timed event may be.
pub(crate) const SLACK: Duration = Duration::from_millis(250);

/// One store and the kind of its locks.
pub(crate) struct World {
    pub(crate) kind: LockKind,
    store: Store,
    _alone: Alone,
}

enum Store {
    Redis(Box<RedisServer>),
    Memory { clock: ManualClock, store: MemoryBackend },
}

/// A new server for fair locks (discipline `Redisson`), one for plain ones, and the same in memory.
pub(crate) fn worlds() -> impl Iterator<Item = World> {
    let kinds = [LockKind::Fair, LockKind::Plain];
    kinds.into_iter().map(on_redis).chain(kinds.into_iter().map(in_memory))
}

fn on_redis(kind: LockKind) -> World {
    let _alone = Alone::here();
    World { kind, store: Store::Redis(Box::new(RedisServer::start())), _alone }
}

fn in_memory(kind: LockKind) -> World {
    let (_alone, clock) = (Alone::here(), ManualClock::new());
    let store = MemoryBackend::with_clock(clock.clone());
    World { kind, store: Store::Memory { clock, store }, _alone }
}

/// A new backend, as in another process.
pub(crate) fn backend(server: &RedisServer) -> RedisBackend {
    backend_for(server, LEASE)
}

/// The same, for clients with this lease, which may be short.
pub(crate) fn backend_for(server: &RedisServer, lease: Duration) -> RedisBackend {
    let builder = RedisBackend::builder(&server.url()).discipline(Discipline::Redisson);
    builder.response_timeout(response_timeout_for(lease)).connect().unwrap()
}

impl World {
    /// A new client, as in another process.
    pub(crate) fn client(&self) -> Client {
        self.client_with(LEASE)
    }

    pub(crate) fn client_with(&self, lease: Duration) -> Client {
        let builder = match &self.store {
            Store::Redis(server) => Client::builder(backend_for(server, lease)),
            Store::Memory { clock, store } => Client::builder(store.clone()).clock(clock.clone()),
        };
        builder.lease(lease).place_ttl(Duration::from_millis(600)).build().unwrap()
    }

    pub(crate) fn lock_of(&self, client: &Client, name: &str) -> Lock {
        lock_of(client, self.kind, name)
    }

    /// A handle in a new client.
    pub(crate) fn lock(&self, name: &str) -> Lock {
        self.lock_of(&self.client(), name)
    }

    /// The clock of leases and waits.
    pub(crate) fn now(&self) -> Instant {
        match &self.store {
            Store::Redis(_) => Clock::system().now(),
            Store::Memory { clock, .. } => clock.now(),
        }
    }

    /// Lets time pass.
    pub(crate) fn pass(&self, time: Duration) {
        match &self.store {
            Store::Redis(_) => thread::sleep(time),
            Store::Memory { clock, .. } => clock.advance(time),
        }
    }

    /// Lets time pass for waiting threads: real time passes by itself.
    pub(crate) fn time_for_others(&self, time: Duration) {
        if let Store::Memory { clock, .. } = &self.store {
            clock.advance(time);
        }
    }

    /// Waits until `n` threads, each with its own client, wait for the lock.
    pub(crate) fn until_waiting(&self, name: &str, n: usize) {
        match (&self.store, self.kind) {
            (Store::Memory { clock, .. }, _) => clock.wait_for_waiters(n),
            (Store::Redis(server), LockKind::Fair) => {
                let key = format!("redisson_lock_queue:{{{name}}}");
                eventually(SOON, "the waiters are in line", || server.query::<usize>(&["LLEN", &key]) == n);
            }
            (Store::Redis(server), _) => {
                let channel = format!("redisson_lock__channel:{{{name}}}");
                eventually(SOON, "the waiters are subscribed", || {
                    let (_, listeners): (String, usize) = server.query(&["PUBSUB", "NUMSUB", &channel]);
                    listeners == n
                });
            }
        }
    }

    /// The lock has no holder, no waiter and no residue.
    pub(crate) fn assert_no_residue(&self, name: &str) {
        match &self.store {
            Store::Redis(server) => assert_no_residue(server, &[]),
            Store::Memory { .. } => {
                let state = self.lock(name).inspect().unwrap();
                assert!(state.holder().is_none() && state.line.is_empty(), "{state:?}");
            }
        }
    }
}
