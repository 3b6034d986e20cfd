//! A backend that counts its calls, and a logger that keeps its lines.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, ForceReleased, Hold, LockId, LockState, Place, Released, Renew,
    Renewal, Subscription, WakeSink, Withdrawn,
};
use fairlock_core::{Client, ClientBuilder, ClientId, Clock, Driver, Guard, ManualClock, Owner, Request};
use fairlock_memory::{Faults, MemoryBackend, Operation};
use log::{LevelFilter, Log, Metadata, Record};

pub(crate) const S: Duration = Duration::from_secs(1);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Answers<A> = Vec<Result<A, BackendError>>;

/// A memory backend that counts its calls.
#[derive(Clone)]
pub(crate) struct Counting {
    pub(crate) store: MemoryBackend,
    calls: Arc<Mutex<HashMap<&'static str, u32>>>,
}

impl Counting {
    fn count(&self, call: Operation) -> &MemoryBackend {
        let name = match call {
            Operation::Acquire => "acquire",
            Operation::Release => "release",
            Operation::Renew => "renew",
            Operation::Withdraw => "withdraw",
            _ => "other",
        };
        *locked(&self.calls).entry(name).or_default() += 1;
        &self.store
    }

    pub(crate) fn calls(&self, name: &'static str) -> u32 {
        locked(&self.calls).get(name).copied().unwrap_or(0)
    }
}

impl Backend for Counting {
    fn release(&self, holds: &[Hold<'_>]) -> Answers<Released> {
        self.count(Operation::Release).release(holds)
    }

    fn renew(&self, client: ClientId, items: &[Renew<'_>]) -> Vec<Result<Renewal, BackendError>> {
        self.count(Operation::Renew).renew(client, items)
    }

    fn withdraw(&self, places: &[Place<'_>]) -> Answers<Withdrawn> {
        self.count(Operation::Withdraw).withdraw(places)
    }

    fn acquire(&self, asks: &[Acquire<'_>]) -> Answers<Acquired> {
        self.count(Operation::Acquire).acquire(asks)
    }

    fn force_release(&self, lock: &LockId) -> Result<ForceReleased, BackendError> {
        self.count(Operation::ForceRelease).force_release(lock)
    }

    fn inspect(&self, lock: &LockId, part: Range<u64>) -> Result<LockState, BackendError> {
        self.count(Operation::Inspect).inspect(lock, part)
    }

    fn subscribe(&self, client: ClientId, sink: Arc<dyn WakeSink>) -> Result<Subscription, BackendError> {
        self.count(Operation::Subscribe).subscribe(client, sink)
    }
}

/// A store on its own clock.
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) backend: Counting,
    /// The watchdogs of earlier tests that are stuck on their clocks.
    watchdogs_before: usize,
    /// No thread of a client runs beside the test.
    drives: Option<Driver>,
    _alone: MutexGuard<'static, ()>,
}

impl World {
    /// One test at a time: they share the log.
    pub(crate) fn new() -> World {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = locked(&ALONE);
        keep_the_log();
        let clock = ManualClock::new();
        let store = MemoryBackend::with_clock(clock.clone());
        World {
            backend: Counting { store, calls: Arc::default() },
            drives: Some(clock.drive_here()),
            clock,
            watchdogs_before: watchdogs(),
            _alone: alone,
        }
    }

    pub(crate) fn builder(&self) -> ClientBuilder {
        Client::builder(self.backend.clone()).clock(self.clock.clone())
    }

    /// A client with the default settings.
    pub(crate) fn client(&self) -> Client {
        self.builder().build().unwrap()
    }

    /// The server no longer answers this client, and sends it no wake-ups.
    pub(crate) fn cut_off(&self, client: &Client) {
        self.faults().cut_off(client.id());
    }

    /// Each line in the log takes this long.
    pub(crate) fn slow_logger(&self, time: Duration) {
        *locked(&SLOW_LOGGER) = Some((self.clock.clone().into(), time));
    }

    pub(crate) fn faults(&self) -> Faults {
        self.backend.store.faults()
    }

    pub(crate) fn bring_back(&self, client: &Client) {
        self.faults().bring_back(client.id());
    }
}

/// Waits until the test's clients have ended, as a rule at once. Else the last lines of their watchdogs might come into the
/// next test's log.
impl Drop for World {
    fn drop(&mut self) {
        self.drives = None;
        let until = Instant::now() + 2 * S;
        while watchdogs() > self.watchdogs_before && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn watchdogs() -> usize {
    threads_of_name("fairlock-dog")
}

/// How many threads of this process have that name. Linux names its threads; elsewhere 0.
pub(crate) fn threads_of_name(name: &str) -> usize {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let names = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    names.filter(|other| other.trim_end() == name).count()
}

/// A new owner of the client has the lock.
pub(crate) fn hold(client: &Client, name: &str) -> Guard<Owner> {
    client.fair_lock(name).unwrap().owned_by(&client.new_owner()).unwrap().lock().unwrap()
}

/// A new owner of the client asks for the lock.
pub(crate) fn ask(client: &Client, name: &str) -> Request<Owner> {
    client.fair_lock(name).unwrap().owned_by(&client.new_owner()).unwrap().request().unwrap()
}

/// How long a line takes, by the test's clock.
static SLOW_LOGGER: Mutex<Option<(Clock, Duration)>> = Mutex::new(None);

static LOGGER_PANICS: AtomicBool = AtomicBool::new(false);

/// As a logger does that writes to a closed pipe.
pub(crate) struct LoggerPanics;

impl LoggerPanics {
    pub(crate) fn from_here() -> LoggerPanics {
        LOGGER_PANICS.store(true, Ordering::SeqCst);
        log::set_max_level(LevelFilter::Trace);
        LoggerPanics
    }
}

impl Drop for LoggerPanics {
    fn drop(&mut self) {
        log::set_max_level(LevelFilter::Warn);
        LOGGER_PANICS.store(false, Ordering::SeqCst);
    }
}

/// Keeps warnings and errors.
struct Kept(Mutex<Vec<String>>);

static KEPT: Kept = Kept(Mutex::new(Vec::new()));

impl Log for Kept {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("fairlock::")
    }

    fn log(&self, record: &Record<'_>) {
        if LOGGER_PANICS.load(Ordering::SeqCst) {
            panic!("planned: the logger");
        }
        locked(&self.0).push(format!("{}: {}", record.target(), record.args()));
        let slow = locked(&SLOW_LOGGER).clone();
        if let Some((clock, time)) = slow {
            clock.sleep(time);
        }
    }

    fn flush(&self) {}
}

fn keep_the_log() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&KEPT).unwrap();
        log::set_max_level(LevelFilter::Warn);
    });
    locked(&KEPT.0).clear();
    *locked(&SLOW_LOGGER) = None;
}

/// The lines since the test began, or since the last call.
pub(crate) fn said() -> Vec<String> {
    std::mem::take(&mut *locked(&KEPT.0))
}
