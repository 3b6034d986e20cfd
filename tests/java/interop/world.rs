//! A server, Redisson in a JVM, and our clients.

use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::admin::LockKind;
use fairlock::settings::Discipline;
use fairlock::{Client, Lock, RedisBackend};
use fairlock_tests::history::{Event, Recorder, What, now_ns};
use fairlock_tests::locks::{lock_of, response_timeout_for};
use fairlock_tests::residue::keys_without_ttl;
use fairlock_tests::{RedisServer, assert_no_residue, eventually, look_until};

use crate::java::{Java, is_old};

/// The limit for anything immediate, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(10);
/// How late a timed event may be, while other JVMs start. Who finds out by a lease of 30 s or by a heartbeat of a client that `hears` is
/// far later.
pub(crate) const SLACK: Duration = Duration::from_secs(2);
/// A lease that does not end during a test.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// Our places' time to live.
pub(crate) const PLACE_TTL: Duration = Duration::from_millis(1500);
/// How long our waiter needs to find out by itself: a third of its place's time (promise P6), and some seconds for
/// a busy machine. The other possible cause, a lease of 30 s, is far longer.
pub(crate) const FOUND_OUT: Duration = Duration::from_millis(3500);
/// How long Java waits for a lock that it does not get, in milliseconds. That is far longer than a new JVM takes to subscribe: a wait of
/// 3.16.8 that ends earlier leaves its channel subscribed.
pub(crate) const FAILED_WAIT: u64 = 1000;

/// The kinds of locks that both sides have.
pub(crate) const KINDS: [LockKind; 2] = [LockKind::Fair, LockKind::Plain];

/// The kind's name in the protocol.
pub(crate) fn word(kind: LockKind) -> &'static str {
    match kind {
        LockKind::Fair => "fair",
        LockKind::Plain => "plain",
        shared => panic!("Java has no {shared}"),
    }
}

pub(crate) struct World {
    pub(crate) java: Java,
    pub(crate) server: RedisServer,
    #[expect(dead_code, reason = "held until the drop")]
    turn: Turn,
}

/// Most tests mostly wait and run in parallel; some need the machine for themselves.
#[expect(dead_code, reason = "held until the drop")]
enum Turn {
    Beside(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

static TURN: RwLock<()> = RwLock::new(());

impl World {
    pub(crate) fn new() -> World {
        World::with_watchdog(LONG)
    }

    /// `watchdog` is the lease of Java's holds.
    pub(crate) fn with_watchdog(watchdog: Duration) -> World {
        // A failed test has poisoned it, which must not fail the others.
        World::in_turn(watchdog, Turn::Beside(TURN.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// No other test runs as long as this lives: for measurements, and for tests that need the whole machine.
    pub(crate) fn alone() -> World {
        World::in_turn(LONG, Turn::Alone(TURN.write().unwrap_or_else(PoisonError::into_inner)))
    }

    fn in_turn(watchdog: Duration, turn: Turn) -> World {
        let server = RedisServer::start();
        World { java: Java::start(&server, watchdog), server, turn }
    }

    /// Our client with the long lease, as in another process.
    pub(crate) fn client(&self) -> Client {
        self.client_with(Discipline::Redisson, LONG)
    }

    pub(crate) fn client_with(&self, discipline: Discipline, lease: Duration) -> Client {
        self.build(discipline, lease, PLACE_TTL)
    }

    /// One that finds out by itself after 10 s only.
    pub(crate) fn client_that_hears(&self) -> Client {
        self.build(Discipline::Redisson, LONG, LONG)
    }

    fn build(&self, discipline: Discipline, lease: Duration, place_ttl: Duration) -> Client {
        let backend = RedisBackend::builder(&self.server.url()).discipline(discipline);
        let backend = backend.response_timeout(response_timeout_for(lease)).connect().unwrap();
        Client::builder(backend).lease(lease).place_ttl(place_ttl).build().unwrap()
    }

    /// A handle in a new client.
    pub(crate) fn lock(&self, kind: LockKind, name: &str) -> Lock {
        lock_of(&self.client(), kind, name)
    }

    /// The same with another lease.
    pub(crate) fn lock_with(&self, kind: LockKind, name: &str, lease: Duration) -> Lock {
        lock_of(&self.client_with(Discipline::Redisson, lease), kind, name)
    }

    /// The same that hears of its turn, or looks when a lease ends.
    pub(crate) fn lock_that_hears(&self, kind: LockKind, name: &str) -> Lock {
        lock_of(&self.client_that_hears(), kind, name)
    }

    /// Helps a fair Java waiter that must find out by itself that a lease has ended. A waiter of 3.16.8 that asks a
    /// millisecond too early gets a negative time and sleeps for ever, even among Java clients alone. Then a waiter
    /// of fairlock goes behind it, whose heartbeat wakes it. Returns that waiter, and how late Java's may be.
    pub(crate) fn help_java(&self, kind: LockKind, name: &str) -> (Option<Doing<u64>>, Duration) {
        if !is_old() || kind == LockKind::Plain {
            return (None, SLACK);
        }
        self.until_waiting(kind, name, 1);
        (Some(wait_for_turn(&self.lock(kind, name))), FOUND_OUT)
    }

    /// The members of the shared queue.
    pub(crate) fn queue(&self, name: &str) -> Vec<String> {
        self.server.query(&["LRANGE", &queue(name), "0", "-1"])
    }

    /// The time after which a place counts as dead, in milliseconds since 1970.
    pub(crate) fn score(&self, name: &str, owner: &str) -> Option<i64> {
        let score: Option<f64> = self.server.query(&["ZSCORE", &timeouts(name), owner]);
        score.map(|score| score as i64)
    }

    /// Waits until `n` wait: in the queue of a fair lock, or on the channel of a plain one, where all waiters of one
    /// client count as one.
    #[track_caller]
    pub(crate) fn until_waiting(&self, kind: LockKind, name: &str, n: usize) {
        eventually("they wait", || match kind {
            LockKind::Fair => self.queue(name).len() == n,
            _ => {
                let channel = format!("redisson_lock__channel:{{{name}}}");
                let (_, listeners): (String, usize) = self.server.query(&["PUBSUB", "NUMSUB", &channel]);
                listeners == n
            }
        });
    }

    /// The queue is empty: both of its keys are gone.
    #[track_caller]
    pub(crate) fn assert_no_queue(&self, name: &str) {
        let times = || self.server.query::<Vec<String>>(&["ZRANGE", &timeouts(name), "0", "-1"]);
        // A wait returns on time, and its place is withdrawn in the background.
        let gone = look_until(SOON, || (self.queue(name).is_empty() && times().is_empty()).then_some(()));
        assert!(gone.is_some(), "still in the queue: {:?} {:?}", self.queue(name), times());
    }

    /// Nothing is left of any lock of either side: no key without a TTL, and no subscription.
    fn assert_nothing_left(&self) {
        // Redisson deletes its latch after the unlock has returned; the latch also has a TTL.
        assert_no_residue(&self.server, &["redisson_unlock_latch:*"]);
        assert_eq!(keys_without_ttl(&self.server), Vec::<String>::new());
        // Both sides unsubscribe in the background.
        let channels =
            || self.server.query::<Vec<String>>(&["PUBSUB", "CHANNELS", "redisson_lock__channel*"]);
        let gone = look_until(SOON, || channels().is_empty().then_some(()));
        assert!(gone.is_some(), "still subscribed: {:?}", channels());
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.assert_nothing_left();
        }
    }
}

pub(crate) fn queue(name: &str) -> String {
    format!("redisson_lock_queue:{{{name}}}")
}

pub(crate) fn timeouts(name: &str) -> String {
    format!("redisson_lock_timeout:{{{name}}}")
}

/// Work of another thread in this process.
pub(crate) struct Doing<T>(Receiver<T>);

/// Runs it in a new thread, which is a new owner. A failed test does not wait for it.
pub(crate) fn in_thread<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Doing<T> {
    let (sender, done) = channel();
    thread::spawn(move || sender.send(f()));
    Doing(done)
}

impl<T> Doing<T> {
    #[track_caller]
    pub(crate) fn wait(&self, bound: Duration) -> T {
        self.0.recv_timeout(bound).unwrap_or_else(|e| panic!("another thread, within {bound:?}: {e}"))
    }

    #[track_caller]
    pub(crate) fn soon(&self) -> T {
        self.wait(SOON)
    }

    pub(crate) fn is_quiet(&self) -> bool {
        matches!(self.0.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty))
    }
}

/// Our waiter in a new thread. It releases the lock at once and returns the time of the grant.
pub(crate) fn wait_for_turn(lock: &Lock) -> Doing<u64> {
    let lock = lock.clone();
    in_thread(move || {
        let guard = lock.lock().unwrap();
        let got = now_ns();
        guard.unlock().unwrap();
        got
    })
}

/// The same as Java's `work`: takes turns until both the time and the number are reached.
pub(crate) fn work(lock: &Lock, who: &str, time: Duration, at_least: u64, history: &Path) -> u64 {
    let start = Instant::now();
    work_while(lock, who, history, |turns| turns < at_least || start.elapsed() < time)
}

/// Takes turns while `go_on` agrees; its argument is their number.
pub(crate) fn work_while(lock: &Lock, who: &str, history: &Path, go_on: impl Fn(u64) -> bool) -> u64 {
    let (recorder, mut turns) = (Recorder::open(history).unwrap(), 0);
    while go_on(turns) {
        recorder.ask(who, lock.name(), None);
        let guard = lock.lock().unwrap();
        recorder.granted(who, lock.name(), guard.token().get());
        recorder.release(who, lock.name());
        guard.unlock().unwrap();
        turns += 1;
    }
    turns
}

/// The time from each release to the next grant. If the grantee's request failed in between, it counts from that
/// failure: the request had not seen the lock before.
pub(crate) fn gaps(events: &[Event]) -> Vec<Duration> {
    let (mut released, mut failed, mut gaps) = (None, HashMap::new(), Vec::new());
    for event in events {
        match event.what {
            What::Release => released = Some(event.at),
            What::Failed => drop(failed.insert(&event.who, event.at)),
            What::Granted { .. } => gaps.extend(released.take().map(|at| {
                let looked = failed.get(&event.who).copied().unwrap_or(at);
                since(at.max(looked), event.at)
            })),
            _ => {}
        }
    }
    gaps
}

/// The time between two values of [`now_ns`]; zero if they are in the other order.
pub(crate) fn since(earlier: u64, later: u64) -> Duration {
    Duration::from_nanos(later.saturating_sub(earlier))
}
