//! Discipline `Redisson` key by key and field by field, as its documents describe it: the worked example, each
//! numbered step of the acquire and release scripts, and re-ordering of the queue.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use fairlock::backend::{
    Acquire, Acquired, Backend, Hold, LockId, Place, Released, RequestId, Wait, Withdrawn,
};
use fairlock::{Client, Discipline, FencingToken, LockKind, LockName, OwnerId, RedisBackend, RedisBuilder};
use fairlock_tests::{RedisServer, assert_no_residue, eventually};
use redis::{Connection, PubSub};

const QUEUE: &str = "redisson_lock_queue:{myLock}";
const TIMEOUTS: &str = "redisson_lock_timeout:{myLock}";
const MINUTES: i64 = 60_000;
const LEASE: Duration = Duration::from_secs(30);

/// How far two readings of the server's clock, with scripts between them, may be apart, in milliseconds.
const NEAR: i64 = 250;

/// A server with one lock, and owners that are just names: they neither listen nor renew.
struct World {
    server: RedisServer,
    backend: RedisBackend,
    lock: LockId,
}

impl World {
    fn new() -> World {
        World::with(|builder| builder)
    }

    fn with(settings: impl FnOnce(RedisBuilder) -> RedisBuilder) -> World {
        let server = RedisServer::start();
        let builder = RedisBackend::builder(&server.url()).discipline(Discipline::Redisson);
        let backend = settings(builder).connect().unwrap();
        World { server, backend, lock: LockId::new(LockName::new("myLock").unwrap(), LockKind::Fair) }
    }

    fn ask_for(&self, owner: &str, wait: Wait) -> Acquired {
        let owner = OwnerId::new(owner);
        let mut place = Place::new(&self.lock, &owner, RequestId::new(1));
        place.wait = wait;
        self.backend.acquire(&Acquire::new(place, LEASE)).unwrap()
    }

    fn ask(&self, owner: &str) -> Acquired {
        self.ask_for(owner, Wait::Forever)
    }

    fn take(&self, owner: &str) -> FencingToken {
        match self.ask(owner) {
            Acquired::Granted { token, .. } => token,
            other => panic!("{owner}: {other:?}"),
        }
    }

    fn release(&self, owner: &str, token: FencingToken) -> Released {
        let owner = OwnerId::new(owner);
        self.backend.release(&Hold::new(&self.lock, &owner, RequestId::new(1), token)).unwrap()
    }

    fn withdraw(&self, owner: &str) -> Withdrawn {
        let owner = OwnerId::new(owner);
        self.backend.withdraw(&Place::new(&self.lock, &owner, RequestId::new(1))).unwrap()
    }

    fn queue(&self) -> Vec<String> {
        self.server.query(&["LRANGE", QUEUE, "0", "-1"])
    }

    fn scores(&self) -> Vec<(String, i64)> {
        let raw: Vec<String> = self.server.query(&["ZRANGE", TIMEOUTS, "0", "-1", "WITHSCORES"]);
        raw.chunks(2).map(|pair| (pair[0].clone(), pair[1].parse().unwrap())).collect()
    }

    fn score(&self, owner: &str) -> i64 {
        self.scores().into_iter().find(|(who, _)| who == owner).expect(owner).1
    }

    fn holder(&self) -> Vec<String> {
        self.server.query(&["HGETALL", "myLock"])
    }

    fn lease_left(&self, millis: i64) {
        self.server.query::<i64>(&["PEXPIRE", "myLock", &millis.to_string()]);
    }

    fn set_score(&self, owner: &str, score: i64) {
        self.server.query::<i64>(&["ZADD", TIMEOUTS, &score.to_string(), owner]);
    }
}

/// A subscription to these channels.
fn listen<'a>(con: &'a mut Connection, channels: &[&str]) -> PubSub<'a> {
    let mut ear = con.as_pubsub();
    ear.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    ear.subscribe(channels).unwrap();
    ear
}

#[track_caller]
fn assert_near(left: i64, right: i64) {
    assert!((left - right).abs() <= NEAR, "{left} and {right} are {} ms apart", left - right);
}

#[test]
fn the_worked_example_has_the_documented_keys() {
    let _alone = fairlock_tests::Alone::here();
    let world = World::new();
    world.take("UUID1:ThreadID1");
    world.lease_left(20_000);
    let ten_o_clock = world.server.time_ms();
    assert!(matches!(world.ask("UUID2:ThreadID2"), Acquired::Queued { rank: 0, .. }));
    assert!(matches!(world.ask("UUID3:ThreadID3"), Acquired::Queued { rank: 1, .. }));

    assert_eq!(world.holder(), ["UUID1:ThreadID1", "1"]);
    let left: i64 = world.server.query(&["PTTL", "myLock"]);
    assert!(left > 19_000 && left <= 20_000);
    assert_eq!(world.queue(), ["UUID2:ThreadID2", "UUID3:ThreadID3"]);
    let (first, second) = (world.score("UUID2:ThreadID2"), world.score("UUID3:ThreadID3"));
    assert_near(first, ten_o_clock + 20_000 + 5 * MINUTES); // 10:05:20
    assert_near(second, first + 5 * MINUTES); // five minutes after the one before
    assert_eq!(world.scores().len(), 2);

    // 10:00:15, with five seconds of the lease left: asking again moves nothing.
    world.lease_left(5_000);
    let Acquired::Queued { rank: 0, recheck_in, .. } = world.ask("UUID2:ThreadID2") else { panic!() };
    assert!(recheck_in > Duration::from_millis(4_000) && recheck_in <= Duration::from_millis(5_001));
    assert_eq!((world.score("UUID2:ThreadID2"), world.score("UUID3:ThreadID3")), (first, second));
    assert_eq!(world.queue().len(), 2);
}

#[test]
fn with_the_rule_of_3_8_1_asking_again_moves_the_time() {
    let _alone = fairlock_tests::Alone::here();
    let world = World::with(|builder| builder.refresh_on_retry(true));
    world.take("UUID1:ThreadID1");
    world.lease_left(20_000);
    let start = world.server.time_ms();
    world.ask("UUID2:ThreadID2");
    assert_near(world.score("UUID2:ThreadID2"), start + 25_000); // its wait is five seconds
    world.lease_left(30_000); // the holder has renewed
    world.ask("UUID2:ThreadID2");
    assert_near(world.score("UUID2:ThreadID2"), start + 35_000);
    assert_eq!(world.queue(), ["UUID2:ThreadID2"]);
}

#[test]
fn acquire_step_1_removes_overdue_waiters() {
    let _alone = fairlock_tests::Alone::here();
    let world = World::new();
    let token = world.take("a:1");
    for owner in ["b:2", "c:3", "d:4"] {
        world.ask(owner);
    }
    world.set_score("b:2", world.server.time_ms() - 1);
    world.set_score("c:3", world.server.time_ms() - 1);
    world.ask("e:5");
    assert_eq!(world.queue(), ["d:4", "e:5"]);
    // Waiters behind a live head stay, however old: only the head can be removed.
    world.set_score("e:5", world.server.time_ms() - 1);
    world.ask("f:6");
    assert_eq!(world.queue(), ["d:4", "e:5", "f:6"]);
    assert_eq!(world.release("a:1", token), Released::Released);
}

#[test]
fn acquire_step_2_grants_a_free_lock_only_to_the_first() {
    let _alone = fairlock_tests::Alone::here();
    let world = World::new();
    let token = world.take("a:1");
    world.ask("b:2");
    world.ask("c:3");
    let before = world.score("c:3");
    world.release("a:1", token);
    assert!(matches!(world.ask("c:3"), Acquired::Queued { rank: 1, .. }), "the second in line asks first");
    assert!(matches!(world.ask_for("d:4", Wait::No), Acquired::Busy { .. }), "so does a newcomer");
    assert_eq!(world.queue(), ["b:2", "c:3"], "which leaves no trace");
    world.take("b:2");
    assert_eq!(world.queue(), ["c:3"]);
    assert_eq!(world.holder(), ["b:2", "1"]);
    assert_eq!(world.score("c:3"), before - 5 * MINUTES, "waiters behind move up by the winner's wait");
    assert_near(world.server.query(&["PTTL", "myLock"]), 30_000);
}

#[test]
fn acquire_step_3_counts_no_repeat_and_set_hold_count_counts_a_re_entry() {
    let _alone = fairlock_tests::Alone::here();
    let world = World::new();
    let token = world.take("a:1");
    assert_eq!(world.take("a:1"), token);
    assert_eq!(world.holder(), ["a:1", "1"], "a repeat of the same request is not a re-entry");
    let client = Client::new(world.backend.clone()).unwrap();
    let lock = client.fair_lock("other").unwrap();
    let (outer, inner) = (lock.lock().unwrap(), lock.lock().unwrap());
    let count = || world.server.query::<Option<i64>>(&["HGET", "other", outer.owner().as_str()]);
    assert_eq!(count(), Some(2));
    inner.unlock().unwrap();
    assert_eq!(count(), Some(1));
}

#[test]
fn acquire_step_3_takes_over_no_hold_whose_record_is_missing_or_names_another() {
    // As clients name their owners: without the record only that shows a holder.
    const ANNA: &str = "6e3814a1-e847-452b-a982-45baf93a1df2:1";
    let _alone = fairlock_tests::Alone::here();
    let world = World::new();
    let token = world.take(ANNA);
    world.server.query::<i64>(&["HSET", "fairlock_record:{myLock}", "grant", "b:2:7 7 "]);
    assert!(matches!(world.ask_for(ANNA, Wait::No), Acquired::Busy { .. }), "another's");
    world.server.query::<i64>(&["DEL", "fairlock_record:{myLock}"]);
    assert!(matches!(world.ask_for(ANNA, Wait::No), Acquired::Busy { .. }), "none");
    assert!(matches!(world.ask(ANNA), Acquired::Queued { rank: 0, .. }));
    assert_eq!(
        (world.holder(), world.queue()),
        (vec![ANNA.to_owned(), "1".to_owned()], vec![ANNA.to_owned()])
    );
    assert_near(world.server.query(&["PTTL", "myLock"]), 30_000);
    assert_eq!(world.release(ANNA, token), Released::Released, "the token is its own");
    assert!(world.take(ANNA) > token);
}

#[test]
fn acquire_step_4_keeps_the_place_of_a_waiter_in_line() {
    let _alone = fairlock_tests::Alone::here();
    let world = World::new();
    world.take("a:1");
    world.ask("b:2");
    world.ask("c:3");
    let scores = world.scores();
    for _ in 0..3 {
        assert!(matches!(world.ask("c:3"), Acquired::Queued { rank: 1, recheck_in: Duration::MAX, .. }));
    }
    assert_eq!((world.scores(), world.queue()), (scores, vec!["b:2".to_owned(), "c:3".to_owned()]));
}

#[test]
fn acquire_step_5_puts_newcomers_at_the_tail_with_their_own_wait() {
    let _alone = fairlock_tests::Alone::here();
    let world = World::new();
    world.take("a:1");
    world.lease_left(10_000);
    let start = world.server.time_ms();
    for (owner, seconds) in [("b:2", 5), ("c:3", 7)] {
        world.ask_for(owner, Wait::UpTo(Duration::from_secs(seconds)));
    }
    assert_near(world.score("b:2"), start + 15_000);
    assert_near(world.score("c:3"), start + 22_000);
    assert_eq!(world.queue(), ["b:2", "c:3"]);
}

#[test]
fn release_deletes_the_lock_keeps_the_head_and_notifies_only_it() {
    let _alone = fairlock_tests::Alone::here();
    let world = World::new();
    let token = world.take("a:1");
    world.ask("b:2");
    world.ask("c:3");
    let mut con = world.server.con();
    let mut ear =
        listen(&mut con, &["redisson_lock__channel:{myLock}:b:2", "redisson_lock__channel:{myLock}:c:3"]);
    assert_eq!(world.release("a:1", token), Released::Released);
    let message = ear.get_message().unwrap();
    assert_eq!(message.get_channel_name(), "redisson_lock__channel:{myLock}:b:2");
    assert_eq!(message.get_payload_bytes(), b"0");
    assert!(world.holder().is_empty());
    assert_eq!(world.queue(), ["b:2", "c:3"], "the head removes itself when it acquires");
    // If it withdraws instead, the next one is notified.
    assert_eq!(world.withdraw("b:2"), Withdrawn::Left);
    assert_eq!(ear.get_message().unwrap().get_channel_name(), "redisson_lock__channel:{myLock}:c:3");
}

#[test]
fn release_removes_dead_waiters_and_notifies_the_first_live_one() {
    let _alone = fairlock_tests::Alone::here();
    let world = World::new();
    let token = world.take("a:1");
    world.ask("b:2");
    world.ask("c:3");
    world.set_score("b:2", world.server.time_ms() - 1);
    assert_eq!(world.release("a:1", token), Released::Released);
    assert_eq!(world.queue(), ["c:3"]);
    world.take("c:3");
}

#[test]
fn release_by_a_stranger_is_refused_and_that_of_a_vanished_lock_notifies_the_head() {
    let _alone = fairlock_tests::Alone::here();
    let world = World::new();
    let token = world.take("a:1");
    assert_eq!(world.release("b:2", token), Released::NotHeld);
    assert_eq!(world.holder(), ["a:1", "1"]);
    world.ask("b:2");
    world.server.query::<i64>(&["DEL", "myLock"]);
    let mut con = world.server.con();
    let mut ear = listen(&mut con, &["redisson_lock__channel:{myLock}:b:2"]);
    assert_eq!(world.release("a:1", token), Released::NotHeld);
    assert_eq!(ear.get_message().unwrap().get_payload_bytes(), b"0");
}

#[test]
fn an_overdue_waiter_goes_to_the_tail_when_it_comes_back() {
    let _alone = fairlock_tests::Alone::here();
    let world = World::new();
    let token = world.take("a:1");
    for owner in ["b:2", "c:3", "d:4"] {
        world.ask(owner);
    }
    world.set_score("b:2", world.server.time_ms() - 1);
    assert!(matches!(world.ask("b:2"), Acquired::Queued { rank: 2, .. }));
    assert_eq!(world.queue(), ["c:3", "d:4", "b:2"]);
    world.release("a:1", token);
    world.take("c:3");
}

/// By its rule: the other waiter's time is not over, and it is not Redisson's business whether its process lives.
#[test]
fn a_waiter_whose_time_is_over_is_shown_as_absent_and_not_counted() {
    let world = World::new();
    world.take("holder");
    ["dead", "alive"].into_iter().for_each(|owner| _ = world.ask(owner));
    world.set_score("dead", world.server.time_ms() - 1);
    let state = world.backend.inspect(&world.lock, 0..9).unwrap();
    let absent: Vec<_> =
        state.line.iter().map(|waiter| (waiter.owner.as_str(), waiter.is_absent())).collect();
    assert_eq!(absent, [("dead", true), ("alive", false)]);
    assert_eq!((state.line_length, state.absent, state.waiting()), (2, 1, 1));
    world.server.query::<()>(&["DEL", "myLock"]);
    world.set_score("alive", world.server.time_ms() - 1);
    assert!(world.backend.locks(None).unwrap().is_empty(), "a line of absent waiters alone is none");
}

#[test]
fn a_live_waiter_raises_its_time_before_half_of_it_is_gone() {
    let _alone = fairlock_tests::Alone::here();
    let world = World::with(|builder| builder.thread_wait(Duration::from_secs(4)));
    let connect =
        || Client::builder(world.backend.clone()).place_ttl(Duration::from_millis(600)).build().unwrap();
    let (ours, theirs) = (connect(), connect());
    let guard = ours.fair_lock("myLock").unwrap().lock().unwrap();
    let request = theirs.fair_lock("myLock").unwrap().request().unwrap();
    let owner = world.queue().pop().unwrap();
    world.set_score(&owner, world.server.time_ms() + 1_500);
    eventually(Duration::from_secs(5), "a heartbeat raises the time", || {
        world.score(&owner) > world.server.time_ms() + 3_000
    });
    guard.unlock().unwrap();
    request.wait().unwrap().unlock().unwrap();
    assert_eq!(theirs.stats().places_lost, 0);
    assert_no_residue(&world.server, &[]);
}

#[test]
fn moving_up_never_makes_a_live_waiter_overdue() {
    let _alone = fairlock_tests::Alone::here();
    let world = World::new();
    let token = world.take("a:1");
    world.lease_left(100);
    world.ask("b:2"); // with five minutes
    world.lease_left(60_000); // the holder keeps working
    world.ask_for("c:3", Wait::UpTo(Duration::from_secs(10)));
    world.release("a:1", token);
    // b's wait is subtracted from c's time, which was built on it, but c keeps at least one heartbeat.
    world.set_score("c:3", world.server.time_ms() + 5 * MINUTES);
    world.take("b:2");
    assert!(world.score("c:3") >= world.server.time_ms() + 4_000);
}

#[test]
fn the_plain_lock_uses_the_same_hash_and_notifies_one_channel() {
    let _alone = fairlock_tests::Alone::here();
    let world = World::new();
    let client = Client::new(world.backend.clone()).unwrap();
    let mut con = world.server.con();
    let mut ear = listen(&mut con, &["redisson_lock__channel:{myLock}"]);
    let guard = client.plain_lock("myLock").unwrap().lock().unwrap();
    assert_eq!(world.holder(), [guard.owner().as_str(), "1"]);
    assert_near(world.server.query(&["PTTL", "myLock"]), 30_000);
    guard.unlock().unwrap();
    assert_eq!(ear.get_message().unwrap().get_payload_bytes(), b"0");
    assert_no_residue(&world.server, &[]);
}

#[test]
fn the_watchdog_renews_the_lease_in_redis() {
    let _alone = fairlock_tests::Alone::here();
    let lease = Duration::from_secs(4);
    let world = World::with(|builder| builder.response_timeout(lease / 2));
    let client = Client::builder(world.backend.clone()).lease(lease).build().unwrap();
    let guard = client.fair_lock("myLock").unwrap().lock().unwrap();
    let left = || world.server.query::<i64>(&["PTTL", "myLock"]);
    world.lease_left(2_500);
    eventually(Duration::from_secs(5), "the lease is renewed", || left() > 3_000);
    assert!(left() <= 4_000);
    guard.unlock().unwrap();
    assert_eq!(left(), -2);
}

#[test]
fn tokens_grow_on_an_emptied_server() {
    let _alone = fairlock_tests::Alone::here();
    let world = World::new();
    let client = Client::new(world.backend.clone()).unwrap();
    for lock in [client.fair_lock("fair").unwrap(), client.plain_lock("plain").unwrap()] {
        let mut last = None;
        for _ in 0..3 {
            let guard = lock.lock().unwrap();
            assert!(Some(guard.token()) > last, "{:?} after {last:?}", guard.token());
            last = Some(guard.token());
            guard.unlock().unwrap();
            world.server.query::<()>(&["FLUSHALL"]);
        }
    }
}
