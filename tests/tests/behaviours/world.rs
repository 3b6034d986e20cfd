//! A store, a kind of lock and a clock: what one body of a test runs over.

use std::thread;
use std::time::{Duration, Instant};

use fairlock::backend::LockId;
use fairlock::{
    Client, Clock, Discipline, Lock, LockKind, LockName, ManualClock, MemoryBackend, RedisBackend,
};
use fairlock_tests::locks::lock_of;
use fairlock_tests::{RedisServer, assert_no_residue, eventually};

/// The lease of clients that the test says nothing else about.
pub(crate) const LEASE: Duration = Duration::from_millis(900);
/// The most that a thing takes which needs no time of its own, on a machine with other things to do.
pub(crate) const SOON: Duration = Duration::from_secs(10);
/// How late something may be that has its time.
pub(crate) const SLACK: Duration = Duration::from_millis(250);

/// One store and the kind of the locks in it.
pub(crate) struct World {
    pub(crate) kind: LockKind,
    store: Store,
}

enum Store {
    Redis(Box<RedisServer>),
    Memory { clock: ManualClock, store: MemoryBackend },
}

/// A fresh server for fair locks (discipline `Redisson`), one for plain ones, and the same in memory.
pub(crate) fn worlds() -> impl Iterator<Item = World> {
    let kinds = [LockKind::Fair, LockKind::Plain];
    kinds.into_iter().map(on_redis).chain(kinds.into_iter().map(in_memory))
}

pub(crate) fn on_redis(kind: LockKind) -> World {
    World { kind, store: Store::Redis(Box::new(RedisServer::start())) }
}

pub(crate) fn in_memory(kind: LockKind) -> World {
    let clock = ManualClock::new();
    let store = MemoryBackend::with_clock(clock.clone());
    World { kind, store: Store::Memory { clock, store } }
}

/// A way of its own to the server, as another process would have one.
pub(crate) fn backend(server: &RedisServer) -> RedisBackend {
    RedisBackend::builder(&server.url()).discipline(Discipline::Redisson).connect().unwrap()
}

impl World {
    /// A client of its own, as another process would have one.
    pub(crate) fn client(&self) -> Client {
        self.client_with(LEASE)
    }

    pub(crate) fn client_with(&self, lease: Duration) -> Client {
        let builder = match &self.store {
            Store::Redis(server) => Client::builder(backend(server)),
            Store::Memory { clock, store } => Client::builder(store.clone()).clock(clock.clone()),
        };
        builder.lease(lease).place_ttl(Duration::from_millis(600)).build().unwrap()
    }

    pub(crate) fn lock_of(&self, client: &Client, name: &str) -> Lock {
        lock_of(client, self.kind, name)
    }

    /// A handle in a client of its own.
    pub(crate) fn lock(&self, name: &str) -> Lock {
        self.lock_of(&self.client(), name)
    }

    pub(crate) fn id(&self, name: &str) -> LockId {
        LockId::new(LockName::new(name).unwrap(), self.kind)
    }

    /// The time that leases and waits are counted by.
    pub(crate) fn now(&self) -> Instant {
        match &self.store {
            Store::Redis(_) => Clock::system().now(),
            Store::Memory { clock, .. } => clock.now(),
        }
    }

    /// Lets time go by.
    pub(crate) fn pass(&self, time: Duration) {
        match &self.store {
            Store::Redis(_) => thread::sleep(time),
            Store::Memory { clock, .. } => clock.advance(time),
        }
    }

    /// Lets time go by for others who wait for it: real time does so by itself.
    pub(crate) fn time_for_others(&self, time: Duration) {
        if let Store::Memory { clock, .. } = &self.store {
            clock.advance(time);
        }
    }

    /// The hold of the lock is gone, without a word to anybody.
    pub(crate) fn lose_everything(&self, name: &str) {
        match &self.store {
            Store::Redis(server) => server.restart(),
            Store::Memory { store, .. } => store.faults().lose_hold(name),
        }
    }

    /// Waits until `n` threads, each in a client of its own, wait for the lock.
    pub(crate) fn until_waiting(&self, name: &str, n: usize) {
        match (&self.store, self.kind) {
            (Store::Memory { clock, .. }, _) => clock.wait_for_waiters(n),
            (Store::Redis(server), LockKind::Fair) => {
                let key = format!("redisson_lock_queue:{{{name}}}");
                eventually(SOON, "they stand in line", || server.query::<usize>(&["LLEN", &key]) == n);
            }
            (Store::Redis(server), LockKind::Plain) => {
                let channel = format!("redisson_lock__channel:{{{name}}}");
                eventually(SOON, "they listen", || {
                    let (_, listeners): (String, usize) = server.query(&["PUBSUB", "NUMSUB", &channel]);
                    listeners == n
                });
            }
        }
    }

    /// Nobody holds the lock or waits for it any more, and nothing tells that anybody did.
    pub(crate) fn assert_no_residue(&self, name: &str) {
        match &self.store {
            Store::Redis(server) => assert_no_residue(server, &[]),
            Store::Memory { .. } => {
                let state = self.lock(name).inspect().unwrap();
                assert!(state.holder.is_none() && state.line.is_empty(), "{state:?}");
            }
        }
    }
}
