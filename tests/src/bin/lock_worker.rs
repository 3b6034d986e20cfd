//! A process that takes locks, for tests that count, cut and kill.
//!
//! ```text
//! lock_worker turns URL LOCK TURNS HOLD_MS HISTORY   takes TURNS turns; events go to the file HISTORY
//! lock_worker hold  URL LOCK LEASE_MS                takes the lock, says `held`, waits for a line, says `unlocked`
//! ```
//!
//! It says `ready` when it is connected and then waits for a line.

use std::error::Error;
use std::io::{BufRead, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use fairlock::{Client, Discipline, Lock, RedisBackend};
use fairlock_tests::history::Recorder;

type Failure = Box<dyn Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["turns", url, lock, turns, hold, history] => {
            take_turns(url, lock, turns.parse()?, Duration::from_millis(hold.parse()?), Path::new(history))
        }
        ["hold", url, lock, lease] => hold(url, lock, Duration::from_millis(lease.parse()?)),
        _ => Err("see the top of lock_worker.rs".into()),
    }
}

fn connect(url: &str, lease: Duration) -> Result<Client, Failure> {
    let backend = RedisBackend::builder(url).discipline(Discipline::Redisson).connect()?;
    Ok(Client::builder(backend).lease(lease).build()?)
}

fn take_turns(url: &str, name: &str, turns: u32, hold: Duration, history: &Path) -> Result<(), Failure> {
    let client = connect(url, Duration::from_secs(30))?;
    let lock = client.fair_lock(name)?;
    let recorder = Recorder::open(history)?;
    let mut side = redis::Client::open(url)?.get_connection()?;
    say_and_wait("ready")?;
    for _ in 0..turns {
        turn(&lock, &recorder, &mut side, hold)?;
    }
    let stats = client.stats();
    say(&format!("polled {} places_lost {}", stats.granted_by_polling, stats.places_lost))
}

/// One turn. The counter is read and written apart: two at once would lose an update.
fn turn(
    lock: &Lock,
    recorder: &Recorder,
    side: &mut redis::Connection,
    hold: Duration,
) -> Result<(), Failure> {
    let who = std::process::id().to_string();
    recorder.ask(&who, lock.name());
    let guard = lock.lock()?;
    recorder.granted(&who, lock.name(), guard.token().get());
    let count: Option<u64> = redis::cmd("GET").arg("test:counter").query(side)?;
    thread::sleep(hold); // the work
    redis::cmd("SET").arg("test:counter").arg(count.unwrap_or(0) + 1).exec(side)?;
    recorder.release(&who, lock.name());
    Ok(guard.unlock()?)
}

fn hold(url: &str, name: &str, lease: Duration) -> Result<(), Failure> {
    let client = connect(url, lease)?;
    let lock = client.fair_lock(name)?;
    say_and_wait("ready")?;
    let guard = lock.lock()?;
    say_and_wait("held")?;
    guard.unlock()?;
    say("unlocked")
}

fn say(word: &str) -> Result<(), Failure> {
    println!("{word}");
    Ok(std::io::stdout().flush()?)
}

/// Says a word and waits until the test says go; the end of the input ends the process.
fn say_and_wait(word: &str) -> Result<(), Failure> {
    say(word)?;
    match std::io::stdin().lock().read_line(&mut String::new())? {
        0 => std::process::exit(0),
        _ => Ok(()),
    }
}
