//! A process that harms itself. Tests watch what becomes of its lock.
//!
//! ```text
//! fault_worker look        URL LOCK LEASE_MS
//! fault_worker end         URL LOCK LEASE_MS exit|abort|panic|static|thread|main
//! fault_worker descriptors URL LOCK LEASE_MS
//! fault_worker signals     URL LOCK LEASE_MS TURNS
//! ```
//!
//! It connects, says `ready` and waits for a line. Then it takes the lock, says `held` and waits for another line.
//! - `look` says `lost` or `valid`. After another line it unlocks and says `unlocked` or `refused`.
//! - `end` ends the process in the given way. `static` keeps the guard in a static. `thread` and `main` keep it in a
//!   thread-local of a thread that ends, or of the main thread; the client is dropped first.
//! - `descriptors` uses up all file descriptors. It says what a new client says and, after another line, `lost` or
//!   `valid`.
//! - `signals` installs a handler for SIGUSR1. Four threads take TURNS turns each. It says `granted <number>` and the
//!   handler's count.

use std::cell::RefCell;
use std::error::Error;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use fairlock::{Client, Discipline, Lock, LockGuard, OwnedGuard, RedisBackend};
use fairlock_tests::locks::response_timeout_for;
use fairlock_tests::worker::{say, say_and_wait};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

type Failure = Box<dyn Error>;

/// Never dropped.
static KEPT: OnceLock<OwnedGuard> = OnceLock::new();

thread_local! {
    /// Dropped when the thread ends.
    static GUARD: RefCell<Option<LockGuard>> = const { RefCell::new(None) };
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [mode, url, name, lease, rest @ ..] = &words[..] else { return Err("see the top".into()) };
    let client = connect(url, millis(lease)?)?;
    let lock = client.fair_lock(name)?;
    match (*mode, rest) {
        ("look", []) => look(&lock),
        ("end", [how]) => end(client, lock, how),
        ("descriptors", []) => descriptors(&lock, url),
        ("signals", [turns]) => signals(&client, name, turns.parse()?),
        _ => Err("see the top of fault_worker.rs".into()),
    }
}

fn millis(text: &str) -> Result<Duration, Failure> {
    Ok(Duration::from_millis(text.parse()?))
}

fn connect(url: &str, lease: Duration) -> Result<Client, Failure> {
    let backend = RedisBackend::builder(url).discipline(Discipline::HandOff);
    let backend = backend.response_timeout(response_timeout_for(lease)).connect()?;
    Ok(Client::builder(backend).lease(lease).place_ttl(Duration::from_secs(2)).build()?)
}

fn state(guard: &LockGuard) -> &'static str {
    if guard.is_lost() { "lost" } else { "valid" }
}

fn look(lock: &Lock) -> Result<(), Failure> {
    say_and_wait("ready")?;
    let guard = lock.lock()?;
    say_and_wait("held")?;
    say_and_wait(state(&guard))?;
    say(if guard.unlock().is_ok() { "unlocked" } else { "refused" })
}

fn end(client: Client, lock: Lock, how: &str) -> Result<(), Failure> {
    say_and_wait("ready")?;
    match how {
        "static" => {
            let kept = KEPT.set(lock.owned_by(&client.new_owner())?.lock()?);
            drop((client, lock));
            say_and_wait("held")?;
            kept.map_err(|_| "the static is already set".into())
        }
        "thread" => thread::spawn(move || {
            let held = keep(&lock);
            drop((client, lock));
            held.and_then(|()| say_and_wait("held")).is_ok()
        })
        .join()
        .map(drop)
        .map_err(|_| "the thread panicked".into()),
        "main" => {
            keep(&lock)?;
            drop((client, lock));
            say_and_wait("held")
        }
        _ => {
            let guard = lock.lock()?;
            say_and_wait("held")?;
            match how {
                "exit" => std::process::exit(0),
                "abort" => std::process::abort(),
                // What `panic = "abort"` does: no guard is dropped.
                _ => {
                    std::panic::set_hook(Box::new(|_| std::process::abort()));
                    panic!("on purpose, with {guard:?}")
                }
            }
        }
    }
}

fn keep(lock: &Lock) -> Result<(), Failure> {
    let guard = lock.lock()?;
    GUARD.with_borrow_mut(|kept| *kept = Some(guard));
    Ok(())
}

fn descriptors(lock: &Lock, url: &str) -> Result<(), Failure> {
    say_and_wait("ready")?;
    let guard = lock.lock()?;
    say_and_wait("held")?;
    // Opening this many files leaves none for the client.
    let next = u64::try_from(std::fs::File::open("/dev/null")?.as_raw_fd())?;
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(next), maximum: limit.maximum })?;
    match connect(url, Duration::from_secs(30)) {
        Ok(_) => say_and_wait("connected")?,
        Err(error) => say_and_wait(&error.to_string())?,
    }
    say_and_wait(state(&guard))?;
    Ok(guard.unlock()?)
}

fn signals(client: &Client, name: &str, turns: usize) -> Result<(), Failure> {
    let counted = Arc::new(AtomicUsize::new(0));
    signal_hook::flag::register_usize(signal_hook::consts::SIGUSR1, Arc::clone(&counted), 1)?;
    say_and_wait("ready")?;
    say_and_wait("held")?;
    let granted = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| -> fairlock::Result<usize> {
                    let lock = client.fair_lock(name)?;
                    for _ in 0..turns {
                        lock.lock()?.unlock()?;
                    }
                    Ok(turns)
                })
            })
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked"));
        ended.map(|granted| Ok(granted??)).sum::<Result<usize, Failure>>()
    })?;
    say(&format!("granted {granted} interrupted {}", counted.load(Ordering::Relaxed)))
}
