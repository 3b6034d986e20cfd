//! A server, Redisson in a JVM, and clients of ours.

use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, Discipline, Lock, LockKind, RedisBackend};
use fairlock_tests::history::{Event, Recorder, What, now_ns};
use fairlock_tests::locks::lock_of;
use fairlock_tests::residue::keys_without_ttl;
use fairlock_tests::{RedisServer, assert_no_residue, eventually, look_until};

use crate::java::{Java, is_old};

/// The most that a thing takes which needs no time of its own, on a machine with other things to do.
pub(crate) const SOON: Duration = Duration::from_secs(10);
/// How late something may be that has its time.
pub(crate) const SLACK: Duration = Duration::from_millis(250);
/// The lease where nothing is to end by itself.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// How long our places live.
pub(crate) const PLACE_TTL: Duration = Duration::from_millis(1500);
/// A waiter of ours finds out by itself in a third of that (promise P6), and a second for a machine that is busy: what
/// would else tell it, a lease of 30 s, is far from it.
pub(crate) const FOUND_OUT: Duration = Duration::from_millis(1500);
/// How long Java waits in vain, in milliseconds: far longer than a new JVM takes to subscribe, since one of 3.16.8 whose
/// time is over before that leaves its channel subscribed.
pub(crate) const IN_VAIN: u64 = 1000;

/// The two kinds of locks that both sides have.
pub(crate) const KINDS: [LockKind; 2] = [LockKind::Fair, LockKind::Plain];

/// The kind as Java is told it.
pub(crate) fn word(kind: LockKind) -> &'static str {
    match kind {
        LockKind::Fair => "fair",
        LockKind::Plain => "plain",
    }
}

pub(crate) struct World {
    pub(crate) java: Java,
    pub(crate) server: RedisServer,
    #[expect(dead_code, reason = "held until the drop")]
    turn: Turn,
}

/// Most tests wait most of the time, and run side by side; some want the machine for themselves.
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
        // A test that failed has poisoned it, which is no reason for the others to fail.
        World::in_turn(watchdog, Turn::Beside(TURN.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// No other test runs as long as it lives: for what is measured, or takes all the machine has.
    pub(crate) fn alone() -> World {
        World::in_turn(LONG, Turn::Alone(TURN.write().unwrap_or_else(PoisonError::into_inner)))
    }

    fn in_turn(watchdog: Duration, turn: Turn) -> World {
        let server = RedisServer::start();
        World { java: Java::start(&server, watchdog), server, turn }
    }

    /// A client of ours with the long lease, as another process would have one.
    pub(crate) fn client(&self) -> Client {
        self.client_with(Discipline::Redisson, LONG)
    }

    pub(crate) fn client_with(&self, discipline: Discipline, lease: Duration) -> Client {
        let backend = RedisBackend::builder(&self.server.url()).discipline(discipline).connect().unwrap();
        Client::builder(backend).lease(lease).place_ttl(PLACE_TTL).build().unwrap()
    }

    /// A handle in a client of its own.
    pub(crate) fn lock(&self, kind: LockKind, name: &str) -> Lock {
        lock_of(&self.client(), kind, name)
    }

    /// The same with another lease.
    pub(crate) fn lock_with(&self, kind: LockKind, name: &str, lease: Duration) -> Lock {
        lock_of(&self.client_with(Discipline::Redisson, lease), kind, name)
    }

    /// For a fair waiter of Java's that has to find out by itself that a lease has ended. One of 3.16.8 that looks a
    /// millisecond too early is told a negative time, and sleeps for ever; Java alone does so too. Then a waiter of ours
    /// stands behind it, whose heartbeat wakes it. Returns that one, and how late Java's waiter may be.
    pub(crate) fn help_java(&self, kind: LockKind, name: &str) -> (Option<Doing<u64>>, Duration) {
        if !is_old() || kind == LockKind::Plain {
            return (None, SLACK);
        }
        self.until_waiting(kind, name, 1);
        (Some(wait_for_turn(&self.lock(kind, name))), FOUND_OUT)
    }

    /// Who stands in the line that both sides share.
    pub(crate) fn line(&self, name: &str) -> Vec<String> {
        self.server.query(&["LRANGE", &queue(name), "0", "-1"])
    }

    /// After which moment a place counts as dead: milliseconds since 1970.
    pub(crate) fn score(&self, name: &str, owner: &str) -> Option<i64> {
        let score: Option<f64> = self.server.query(&["ZSCORE", &timeouts(name), owner]);
        score.map(|score| score as i64)
    }

    /// Waits until so many wait: in the line of a fair lock, or on the channel of a plain one (where all waiters of
    /// one client are one).
    #[track_caller]
    pub(crate) fn until_waiting(&self, kind: LockKind, name: &str, n: usize) {
        eventually(SOON, "they wait", || match kind {
            LockKind::Fair => self.line(name).len() == n,
            LockKind::Plain => {
                let channel = format!("redisson_lock__channel:{{{name}}}");
                let (_, listeners): (String, usize) = self.server.query(&["PUBSUB", "NUMSUB", &channel]);
                listeners == n
            }
        });
    }

    /// Nobody stands in the line: both of its keys are gone.
    #[track_caller]
    pub(crate) fn assert_no_line(&self, name: &str) {
        assert_eq!(self.line(name), Vec::<String>::new());
        assert_eq!(
            self.server.query::<Vec<String>>(&["ZRANGE", &timeouts(name), "0", "-1"]),
            Vec::<String>::new()
        );
    }

    /// Nothing is left of any lock, of either side: no key but with an end, and no subscription.
    #[track_caller]
    pub(crate) fn assert_nothing_left(&self) {
        // Redisson deletes its latch after the unlock has returned; it has a time to live besides.
        assert_no_residue(&self.server, &["redisson_unlock_latch:*"]);
        assert_eq!(keys_without_ttl(&self.server), Vec::<String>::new());
        // Both sides unsubscribe without waiting for it.
        let channels =
            || self.server.query::<Vec<String>>(&["PUBSUB", "CHANNELS", "redisson_lock__channel*"]);
        let gone = look_until(SOON, || channels().is_empty().then_some(()));
        assert!(gone.is_some(), "still subscribed: {:?}", channels());
    }
}

pub(crate) fn queue(name: &str) -> String {
    format!("redisson_lock_queue:{{{name}}}")
}

pub(crate) fn timeouts(name: &str) -> String {
    format!("redisson_lock_timeout:{{{name}}}")
}

/// Something that another thread of this process does.
pub(crate) struct Doing<T>(Receiver<T>);

/// Does it in a thread of its own, which is an owner of its own. A test that has failed does not wait for it.
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

/// A waiter of ours in a thread of its own: it gives the lock back at once, and says when it got it.
pub(crate) fn wait_for_turn(lock: &Lock) -> Doing<u64> {
    let lock = lock.clone();
    in_thread(move || {
        let guard = lock.lock().unwrap();
        let got = now_ns();
        guard.unlock().unwrap();
        got
    })
}

/// What Java's `work` does, in Rust: turns until both the time and the number are reached.
pub(crate) fn work(lock: &Lock, who: &str, time: Duration, at_least: u64, history: &Path) -> u64 {
    let start = Instant::now();
    work_while(lock, who, history, |turns| turns < at_least || start.elapsed() < time)
}

/// Turns while it is said to go on, which is asked with their number.
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

/// From each release to the next grant; if the request of the one who got it had failed in between, from there: it had
/// not looked at the lock before.
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

/// The time between two moments of [`now_ns`]; zero when they are the other way round.
pub(crate) fn since(earlier: u64, later: u64) -> Duration {
    Duration::from_nanos(later.saturating_sub(earlier))
}
