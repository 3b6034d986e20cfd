//! A later version has written a lock: each operation of this version is refused by name and number, and nothing that is stored changes.
//!
//! The plants are layouts that this version has never seen: what it wrote itself, marked as docs/versions.md says.

use std::fmt::Debug;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use fairlock::admin::{LockKind, LockName};
use fairlock::settings::{Discipline, Durability};
use fairlock::{Client, Error, FileBackend, PostgresBackend, RedisBackend};
use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, BackendErrorKind, Hold, LockId, Place, Released, Renew,
    Renewal, RequestId, Wait, Withdrawn, only,
};
use fairlock_core::{ClientId, FencingToken, OwnerId};
use fairlock_tests::{Alone, PostgresServer, RedisServer, WorkDir};

const LEASE: Duration = Duration::from_secs(30);
/// Short, so that the waiter's heartbeat comes soon.
const PLACE: Duration = Duration::from_millis(600);

/// A store, as a test sees it from outside.
trait Store {
    /// Marks all that is stored as that of the next layout.
    fn plant(&self);
    /// All that is stored.
    fn bytes(&self) -> String;
}

struct OnRedis(RedisServer);

impl Store for OnRedis {
    fn plant(&self) {
        let texts =
            "for _, key in ipairs(redis.call('KEYS', '*')) do if redis.call('TYPE', key).ok == 'hash' then
            local read = redis.call('HGETALL', key)
            for at = 1, #read, 2 do redis.call('HSET', key, read[at], 'v2 ' .. read[at + 1]) end end end";
        self.0.query::<()>(&["EVAL", texts, "0"]);
    }

    fn bytes(&self) -> String {
        let mut keys: Vec<String> = self.0.query(&["KEYS", "*"]);
        keys.sort();
        let of = |key: &String| {
            let ends = self.0.try_query::<i64>(&["PEXPIRETIME", key]).ok(); // came with Redis 7
            format!("{key} {ends:?} {:?}\n", self.0.query::<Vec<u8>>(&["DUMP", key]))
        };
        keys.iter().map(of).collect()
    }
}

/// A database of the server, and what is run there to plant.
struct OnPostgres<'a>(&'a PostgresServer, String, &'static str);

/// With a new revision, as each write has: else an attempt that is under way would write over it.
const STATES: &str =
    r"update fairlock.lock set state = '\x04' || substring(state from 2), rev = rev + 1 where state <> ''";
const TABLES: &str =
    "alter table fairlock.lock rename to lock_2; update fairlock.meta set layout = 2, least_client = 2";

impl Store for OnPostgres<'_> {
    fn plant(&self) {
        self.0.con_to(&self.1).batch_execute(self.2).unwrap();
    }

    fn bytes(&self) -> String {
        let table = if self.2 == TABLES { "lock_2" } else { "lock" };
        let sql = format!("select string_agg(l::text, '|' order by name) from fairlock.{table} l");
        self.0.con_to(&self.1).query_one(&sql, &[]).unwrap().get(0)
    }
}

/// With the place of the byte that is planted in each slot.
struct OnFiles(WorkDir, usize);

impl OnFiles {
    /// The digit of the slot's magic; and the first byte of the state, behind head, boot, last number, and the name of one byte.
    const SLOTS: usize = 7;
    const STATES: usize = 40 + 26 + 1;

    fn file(&self) -> PathBuf {
        self.0.file("locks").join("x.lock")
    }
}

impl Store for OnFiles {
    fn plant(&self) {
        let mut bytes = fs::read(self.file()).unwrap();
        let (slot, other) = bytes.split_at_mut(2048);
        slot[self.1] += if self.1 == Self::STATES { 3 } else { 1 }; // this state has layout 1
        let sum = checksum(slot);
        slot[32..40].copy_from_slice(&sum.to_le_bytes());
        if self.1 == Self::STATES {
            other.fill(0); // it may be the newer one
        }
        fs::write(self.file(), bytes).unwrap();
    }

    fn bytes(&self) -> String {
        format!("{:?}", fs::read(self.file()).unwrap())
    }
}

/// Of a slot with a content that fits: of its generation, its place and its length, and then of its words.
fn checksum(slot: &[u8]) -> u64 {
    let length = usize::from(u16::from_le_bytes([slot[24], slot[25]]));
    let words =
        |bytes: &[u8]| [0, 8, 16, 24].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()));
    let mixed = |lane: u64, word: u64| (lane ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    let mut lanes = words(&[&slot[8..32], &[0; 8]].concat());
    let content = [&slot[40..40 + length], &[0; 32]].concat();
    for block in content[..(length / 32 + 1) * 32].chunks(32) {
        lanes.iter_mut().zip(words(block)).for_each(|(lane, word)| *lane = mixed(*lane, word));
    }
    lanes.into_iter().fold(0, mixed)
}

fn is_refused(error: &BackendError) -> bool {
    error.kind() == BackendErrorKind::Unsupported && error.message().contains("layout")
}

#[track_caller]
fn assert_refused<T: Debug>(what: &str, answer: Result<T, BackendError>) {
    assert!(answer.as_ref().is_err_and(is_refused), "{what}: {answer:?}");
}

/// Ann holds the lock, Bob stands in the queue, and a client waits. Then a later version has written all of it.
fn each_operation_is_refused<B: Backend + Clone>(
    store: &impl Store,
    backend: &B,
    kind: LockKind,
    list: fn(&B) -> fairlock::Result<()>,
) {
    let lock = LockId::new(LockName::new("x").unwrap(), kind);
    let [ann, bob, eve] = [1, 2, 3].map(|number| OwnerId::new(&format!("{}:{number}", ClientId::random())));
    let place = |owner| {
        let mut place = Place::new(&lock, owner, RequestId::new(7));
        (place.wait, place.units, place.ttl) = (Wait::Forever, kind.capacity(), LEASE);
        place
    };
    let ask = |place| only(backend.acquire(&[Acquire::new(place, LEASE)]));
    let Acquired::Granted { token, .. } = ask(place(&ann)).unwrap() else { panic!("it is free") };
    let Acquired::Queued { ticket, .. } = ask(place(&bob)).unwrap() else { panic!("it is held") };
    let client = Client::builder(backend.clone()).place_ttl(PLACE).outage_limit(PLACE * 4).build().unwrap();
    let waiting = client.lock_of("x", kind).unwrap().request().unwrap();

    store.plant();
    let before = store.bytes();
    let mut hold = Hold::new(&lock, &ann, RequestId::new(7), token);
    hold.units = kind.capacity();
    let (mut in_queue, mut once) = (place(&bob), place(&eve));
    (in_queue.ticket, once.wait) = (ticket, Wait::No);
    assert_refused("try", ask(once));
    assert_refused("lock", ask(place(&eve)));
    assert_refused("repeat", ask(place(&ann)));
    assert_refused("wait on", ask(in_queue));
    let renewed = backend.renew(ClientId::random(), &[Renew::Hold { hold, holds: 1, lease: LEASE }]);
    assert_refused("renew a hold", only(renewed));
    let renewed = backend.renew(ClientId::random(), &[Renew::Place { place: in_queue, lease: LEASE }]);
    assert_refused("renew a place", only(renewed));
    assert_refused("release", only(backend.release(&[hold])));
    assert_refused("adopt", backend.adopt(&hold, &OwnerId::new("b:1"), LEASE));
    assert_refused("withdraw", only(backend.withdraw(&[in_queue])));
    assert_refused("force_unlock", backend.force_release(&lock));
    assert_refused("take a hold", backend.take_hold(&hold));
    assert_refused("inspect", backend.inspect(&lock, 0..10));
    assert!(matches!(list(backend), Err(Error::Unsupported { .. })), "ls: {:?}", list(backend));
    let error = waiting.wait().unwrap_err();
    let named = error.lock_name().map(LockName::as_str);
    assert!(matches!(error, Error::Unsupported { .. }) && named == Some("x"), "{error}");
    assert!(error.to_string().contains("use a newer"), "{error}");
    assert_eq!(store.bytes(), before);
}

const KINDS: [LockKind; 2] = [LockKind::Fair, LockKind::Semaphore { permits: 2 }];

#[test]
fn on_redis_a_later_layout_is_refused_and_left_alone() {
    let _alone = Alone::here();
    for kind in KINDS {
        let store = OnRedis(RedisServer::start());
        let backend = RedisBackend::connect(&store.0.url()).unwrap();
        each_operation_is_refused(&store, &backend, kind, |backend| backend.locks(None).map(drop));
        let redisson =
            RedisBackend::builder(&store.0.url()).discipline(Discipline::Redisson).connect().unwrap();
        java_or_plain_is_refused(&store, &redisson);
        java_or_plain_is_refused(&store, &backend);
    }
}

/// As a plain lock, and by the other discipline: what needs the lock is refused, and what looks for an own hold finds none.
fn java_or_plain_is_refused(store: &OnRedis, backend: &RedisBackend) {
    let before = store.bytes();
    for kind in [LockKind::Fair, LockKind::Plain].into_iter().filter(|kind| backend.supports(*kind)) {
        let (lock, ann) = (LockId::new(LockName::new("x").unwrap(), kind), OwnerId::new("ann:1"));
        let place = Place::new(&lock, &ann, RequestId::new(7));
        let hold = Hold::new(&lock, &ann, RequestId::new(7), FencingToken::new(1));
        assert_refused("try", only(backend.acquire(&[Acquire::new(place, LEASE)])));
        assert_refused("force_unlock", backend.force_release(&lock));
        assert_refused("inspect", backend.inspect(&lock, 0..10));
        let _ = (backend.release(&[hold]), backend.withdraw(&[place]));
        let _ = backend.adopt(&hold, &OwnerId::new("b:1"), LEASE);
        backend.renew(ClientId::random(), &[Renew::Hold { hold, holds: 1, lease: LEASE }]);
    }
    assert!(matches!(backend.locks(None), Err(Error::Unsupported { .. })));
    assert_eq!(store.bytes(), before);
}

/// A lock that is free has a record alone, whose numbers have to grow on.
#[test]
fn on_redis_a_record_of_a_later_layout_is_refused() {
    let _alone = Alone::here();
    let store = OnRedis(RedisServer::start());
    let backend = RedisBackend::connect(&store.0.url()).unwrap();
    let client = Client::new(backend).unwrap();
    client.fair_lock("x").unwrap().lock().unwrap().unlock().unwrap();
    store.plant();
    let before = store.bytes();
    let refused = [client.fair_lock("x").unwrap().try_lock(), client.plain_lock("x").unwrap().try_lock()];
    assert!(refused.iter().all(|answer| matches!(answer, Err(Error::Unsupported { .. }))), "{refused:?}");
    let permit = client.semaphore("x", 2).unwrap().try_acquire();
    assert!(matches!(permit, Err(Error::Unsupported { .. })), "{permit:?}");
    assert_eq!(store.bytes(), before);
}

/// What Java reads stays as it is, whatever the version: only the record beside it can be of a later layout.
#[test]
fn on_redis_a_record_beside_a_lock_of_java_is_refused() {
    let _alone = Alone::here();
    let store = OnRedis(RedisServer::start());
    let backend = RedisBackend::builder(&store.0.url()).discipline(Discipline::Redisson).connect().unwrap();
    let (lock, [ann, bob]) = (
        LockId::new(LockName::new("x").unwrap(), LockKind::Fair),
        [1, 2].map(|number| OwnerId::new(&format!("{}:{number}", ClientId::random()))),
    );
    let [holder, mut waiter] = [&ann, &bob].map(|owner| Place::new(&lock, owner, RequestId::new(7)));
    waiter.wait = Wait::Forever;
    let ask = |place| only(backend.acquire(&[Acquire::new(place, LEASE)]));
    let Ok(Acquired::Granted { token, .. }) = ask(holder) else { panic!("it is free") };
    assert!(matches!(ask(waiter), Ok(Acquired::Queued { .. })));
    for field in ["grant", "last"] {
        let text: String = store.0.query(&["HGET", "fairlock_record:{x}", field]);
        store.0.query::<()>(&["HSET", "fairlock_record:{x}", field, &format!("v2 {text}")]);
    }
    let before = store.bytes();
    assert_refused("try", ask(Place::new(&lock, &ann, RequestId::new(8))));
    assert_refused("wait on", ask(waiter));
    let renewed = backend.renew(ClientId::random(), &[Renew::Place { place: waiter, lease: LEASE }]);
    assert_refused("renew a place", only(renewed));
    assert_refused("force_unlock", backend.force_release(&lock));
    assert_refused("inspect", backend.inspect(&lock, 0..10));
    // A hold that the record may not name counts as lost, and the lock is free when the lease ends.
    let hold = Hold::new(&lock, &ann, RequestId::new(7), token);
    let renewed = backend.renew(ClientId::random(), &[Renew::Hold { hold, holds: 1, lease: LEASE }]);
    assert!(matches!(only(renewed), Ok(Renewal::Lost)));
    assert!(matches!(only(backend.release(&[hold])), Ok(Released::NotHeld)));
    assert_eq!(store.bytes(), before);
    // A place is Java's alone.
    assert!(matches!(only(backend.withdraw(&[waiter])), Ok(Withdrawn::Left)));
    assert_eq!(store.bytes().lines().filter(|line| before.contains(line)).count(), 2, "lock and record");
}

/// A renewal of many holds is one script: only the hold at fault is refused.
#[test]
fn on_redis_holds_of_this_layout_are_renewed_beside_others() {
    let _alone = Alone::here();
    let store = OnRedis(RedisServer::start());
    let backend = RedisBackend::connect(&store.0.url()).unwrap();
    let ann = OwnerId::new(&format!("{}:1", ClientId::random()));
    let locks = ["later", "same"].map(|name| LockId::new(LockName::new(name).unwrap(), LockKind::Fair));
    let holds = locks.each_ref().map(|lock| {
        let place = Place::new(lock, &ann, RequestId::new(7));
        let Ok(Acquired::Granted { token, .. }) = only(backend.acquire(&[Acquire::new(place, LEASE)])) else {
            panic!("free")
        };
        let hold = Hold::new(lock, &ann, RequestId::new(7), token);
        if lock.name.as_str() == "later" {
            store.plant();
        }
        Renew::Hold { hold, holds: 1, lease: LEASE }
    });
    let answers = backend.renew(ClientId::random(), &holds);
    assert!(answers[0].is_err() && answers[1].is_ok(), "{answers:?}");
}

#[test]
fn on_redis_a_life_of_a_later_layout_is_refused() {
    let _alone = Alone::here();
    let store = OnRedis(RedisServer::start());
    let durable = || RedisBackend::builder(&store.0.url()).durable(Durability::default()).connect().unwrap();
    durable().begin_life().unwrap();
    store.0.query::<()>(&["HSET", "fairlock_life", "replid", "v2 anything"]);
    let before = store.bytes();
    let client = Client::builder(durable()).lease(Duration::from_secs(5)).build().unwrap();
    let answer = client.fair_lock("x").unwrap().try_lock();
    assert!(matches!(answer, Err(Error::Unsupported { .. })), "{answer:?}");
    assert!(durable().begin_life().is_err());
    assert_eq!(store.bytes(), before);
}

#[test]
fn on_postgres_a_later_layout_is_refused_and_left_alone() {
    let _alone = Alone::here();
    let server = PostgresServer::start();
    for plant in [STATES, TABLES] {
        for kind in KINDS {
            let url = server.new_database();
            let store = OnPostgres(&server, url.rsplit('/').next().unwrap().to_owned(), plant);
            let backend = PostgresBackend::connect(&url).unwrap();
            each_operation_is_refused(&store, &backend, kind, |backend| backend.locks(None).map(drop));
            if plant == TABLES {
                let refused = PostgresBackend::connect(&url);
                assert!(matches!(refused, Err(Error::Unsupported { lock: None, .. })), "{refused:?}");
            }
        }
    }
}

#[test]
fn on_files_a_later_layout_is_refused_and_left_alone() {
    let _alone = Alone::here();
    for at in [OnFiles::SLOTS, OnFiles::STATES] {
        for kind in KINDS {
            let store = OnFiles(WorkDir::new(), at);
            let backend = FileBackend::open(store.0.file("locks")).unwrap();
            each_operation_is_refused(&store, &backend, kind, |backend| backend.locks(None).map(drop));
        }
    }
}

/// The only word about a free lock is one that this version can't read. The waiter asks at its next heartbeat.
#[test]
fn a_message_of_a_later_layout_says_nothing_and_costs_nothing() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let client =
        || Client::builder(RedisBackend::connect(&server.url()).unwrap()).place_ttl(PLACE).build().unwrap();
    let (holder, waiter) = (client(), client());
    let held = holder.fair_lock("x").unwrap().lock().unwrap();
    let mut waiting = waiter.fair_lock("x").unwrap().request().unwrap();
    server.query::<()>(&["DEL", "x"]);
    let told: usize =
        server.query(&["PUBLISH", &format!("fairlock:{}", waiter.id()), "v2 granted everything x"]);
    assert_eq!((told, held.is_lost()), (1, false));
    let guard = waiting.wait_for(LEASE / 2).unwrap().granted().expect("before the lease of the holder ends");
    assert!(guard.token() > held.token());
}
