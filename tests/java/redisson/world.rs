//! A server with one fair lock, and owners that are just names: they neither listen nor renew, so each request is made by hand.

use std::time::Duration;

use fairlock::backend::{
    Acquire, Acquired, Backend, Hold, LockId, Place, Released, RequestId, Wait, Withdrawn, only,
};
use fairlock::{
    Client, Discipline, FencingToken, Lock, LockKind, LockName, OwnerId, RedisBackend, RedisBuilder,
};
use fairlock_tests::{Alone, RedisServer};
use redis::{Connection, PubSub};

pub(crate) const NAME: &str = "myLock";
pub(crate) const QUEUE: &str = "redisson_lock_queue:{myLock}";
const TIMEOUTS: &str = "redisson_lock_timeout:{myLock}";
pub(crate) const CHANNEL: &str = "redisson_lock__channel:{myLock}";
pub(crate) const LEASE: Duration = Duration::from_secs(30);
/// The limit for anything immediate, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(10);

pub(crate) struct World {
    pub(crate) server: RedisServer,
    pub(crate) backend: RedisBackend,
    pub(crate) lock: LockId,
    /// How long owners wait, unless they say otherwise.
    pub(crate) wait: Wait,
    pub(crate) _alone: Alone,
}

impl World {
    pub(crate) fn new() -> World {
        World::with(|builder| builder)
    }

    pub(crate) fn with(settings: impl FnOnce(RedisBuilder) -> RedisBuilder) -> World {
        let (_alone, server) = (Alone::here(), RedisServer::start());
        let builder = RedisBackend::builder(&server.url()).discipline(Discipline::Redisson);
        let backend = settings(builder).connect().unwrap();
        let lock = LockId::new(LockName::new(NAME).unwrap(), LockKind::Fair);
        World { server, backend, lock, wait: Wait::Forever, _alone }
    }

    /// The lock in a new client, which renews its places every 200 ms.
    pub(crate) fn client(&self) -> Lock {
        let client = Client::builder(self.backend.clone()).place_ttl(Duration::from_millis(600));
        client.build().unwrap().fair_lock(NAME).unwrap()
    }

    pub(crate) fn ask_with(&self, owner: &str, wait: Wait, lease: Duration) -> Acquired {
        let owner = OwnerId::new(owner);
        let mut place = Place::new(&self.lock, &owner, RequestId::new(1));
        place.wait = wait;
        only(self.backend.acquire(&[Acquire::new(place, lease)])).unwrap()
    }

    /// Asks and waits.
    pub(crate) fn ask(&self, owner: &str) -> Acquired {
        self.ask_with(owner, self.wait, LEASE)
    }

    /// The same for these seconds.
    pub(crate) fn ask_for(&self, owner: &str, seconds: u64) {
        let asked = self.ask_with(owner, Wait::UpTo(Duration::from_secs(seconds)), LEASE);
        assert!(matches!(asked, Acquired::Queued { .. }), "{owner}: {asked:?}");
    }

    /// One attempt finds the lock busy.
    #[track_caller]
    pub(crate) fn assert_busy(&self, owner: &str) {
        let asked = self.ask_with(owner, Wait::No, LEASE);
        assert!(matches!(asked, Acquired::Busy { .. }), "{owner}: {asked:?}");
    }

    /// Its rank: it asks, and must wait.
    #[track_caller]
    pub(crate) fn rank(&self, owner: &str) -> u64 {
        match self.ask(owner) {
            Acquired::Queued { rank, .. } => rank,
            other => panic!("{owner}: {other:?}"),
        }
    }

    /// It asks, and gets the lock.
    #[track_caller]
    pub(crate) fn take(&self, owner: &str) -> FencingToken {
        match self.ask(owner) {
            Acquired::Granted { token, .. } => token,
            other => panic!("{owner}: {other:?}"),
        }
    }

    pub(crate) fn release(&self, owner: &str, token: FencingToken) -> Released {
        let owner = OwnerId::new(owner);
        only(self.backend.release(&[Hold::new(&self.lock, &owner, RequestId::new(1), token)])).unwrap()
    }

    #[track_caller]
    pub(crate) fn withdraw(&self, owner: &str) {
        let owner = OwnerId::new(owner);
        let mut place = Place::new(&self.lock, &owner, RequestId::new(1));
        place.wait = self.wait;
        assert_eq!(only(self.backend.withdraw(&[place])).unwrap(), Withdrawn::Left);
    }

    pub(crate) fn queue(&self) -> Vec<String> {
        self.server.query(&["LRANGE", QUEUE, "0", "-1"])
    }

    /// The time of each owner, the earliest first.
    pub(crate) fn scores(&self) -> Vec<(String, i64)> {
        self.server.query(&["ZRANGE", TIMEOUTS, "0", "-1", "WITHSCORES"])
    }

    #[track_caller]
    pub(crate) fn score(&self, owner: &str) -> i64 {
        self.scores().into_iter().find(|(who, _)| who == owner).expect(owner).1
    }

    pub(crate) fn holder(&self) -> Vec<String> {
        self.server.query(&["HGETALL", NAME])
    }

    /// What is left of the lease, in milliseconds.
    pub(crate) fn lease_left(&self) -> i64 {
        self.server.query(&["PTTL", NAME])
    }

    pub(crate) fn set_lease(&self, millis: i64) {
        self.server.query::<i64>(&["PEXPIRE", NAME, &millis.to_string()]);
    }

    /// The waiter's time ends this many milliseconds from now.
    pub(crate) fn set_score(&self, owner: &str, ahead: i64) {
        let score = (self.server.time_ms() + ahead).to_string();
        self.server.query::<i64>(&["ZADD", TIMEOUTS, &score, owner]);
    }
}

/// A subscription to these channels.
pub(crate) fn listen<'a>(con: &'a mut Connection, channels: &[String]) -> PubSub<'a> {
    let mut ear = con.as_pubsub();
    ear.set_read_timeout(Some(SOON)).unwrap();
    ear.subscribe(channels).unwrap();
    ear
}

/// Two readings of the server's clock with scripts between them, in milliseconds.
#[track_caller]
pub(crate) fn assert_near(left: i64, right: i64) {
    assert!((left - right).abs() <= 1000, "{left} and {right} are {} ms apart", left - right);
}
