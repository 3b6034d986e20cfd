//! A process that takes locks. Tests count its turns, cut its connections and kill it.
//!
//! ```text
//! lock_worker turns DISCIPLINE URL LOCK TURNS HOLD_MS LEASE_MS PLACE_MS LIMIT_MS HISTORY
//! lock_worker hold  DISCIPLINE URL LOCK LEASE_MS
//! lock_worker wait  DISCIPLINE URL LOCK THREADS PLACE_MS
//! lock_worker try   DISCIPLINE URL LOCK WAIT_MS
//! lock_worker queue URL LOCK THREAD_WAIT_MS
//! lock_worker kinds URL LEASE_MS
//! lock_worker permits DIR LOCK PERMITS WANTED
//! ```
//!
//! It connects, says `ready` and waits for a line. DISCIPLINE is `hand_off`, `redisson` or, with `turns` only, `plain`;
//! `postgres` is the store on PostgreSQL, `file` the store in the directory URL.
//! - `turns` takes TURNS turns, by `lock` or, if LIMIT_MS is not 0, by timed waits. It writes events to the file
//!   HISTORY under its client id, then prints the totals.
//! - `hold` takes the lock, says `held`, waits for a line, unlocks and says `unlocked`.
//! - `try` waits for the lock for at most WAIT_MS and says `got` or `no lock`.
//! - `queue` waits for a lock of discipline `Redisson`. Without heartbeats it counts as alive for THREAD_WAIT_MS. It
//!   says `got`.
//! - `kinds`, on PostgreSQL, holds the fair lock `fair`, reads `table`, has one of two permits of `pool`, and `lock_all` of `a` and
//!   `b`. It says `held`, waits for a line, gives all back and says `unlocked`.
//! - `permits`, on files, takes that many of the permits, and says `got`.
//! - `wait` starts THREADS threads that wait without limit. It says `waiting` when all are in the queue.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use fairlock::backend::Backend;
use fairlock::settings::Discipline;
use fairlock::{Client, FileBackend, Guard, Lock, PostgresBackend, RedisBackend, TryLock};
use fairlock_tests::history::{Recorder, Recording, What, now_ns};
use fairlock_tests::locks::response_timeout_for;
use fairlock_tests::worker::{say, say_and_wait};

type Failure = Box<dyn Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["turns", discipline, url, lock, turns, hold, lease, place, limit, history] => {
            let (lease, place, history) = (millis(lease)?, millis(place)?, Path::new(history));
            let client = match discipline {
                "postgres" => recorded(postgres_at(url, lease)?, lease, place, history)?,
                "file" => recorded(FileBackend::open(url)?, lease, place, history)?,
                _ => recorded(redis_at(discipline, url, lease)?, lease, place, history)?,
            };
            let lock =
                if discipline == "plain" { client.plain_lock(lock)? } else { client.fair_lock(lock)? };
            let limit = Some(millis(limit)?).filter(|limit| !limit.is_zero());
            let turns_of = Turns {
                lock: &lock,
                who: client.id().to_string(),
                hold: millis(hold)?,
                recorder: Recorder::open(history)?,
                side: Counter::open(url)?,
                outcomes: Outcomes::default(),
            };
            turns_of.take(&client, turns.parse()?, limit)
        }
        ["hold", discipline, url, lock, lease] => {
            hold(&connect(discipline, url, millis(lease)?, Duration::from_secs(5))?, lock)
        }
        ["wait", discipline, url, lock, threads, place] => {
            let client = connect(discipline, url, Duration::from_secs(30), millis(place)?)?;
            wait(&client, lock, threads.parse()?)
        }
        ["try", discipline, url, lock, wait] => {
            let client = connect(discipline, url, Duration::from_secs(30), Duration::from_secs(5))?;
            try_for(&client, lock, millis(wait)?)
        }
        ["kinds", url, lease] => kinds(&connect("postgres", url, millis(lease)?, Duration::from_secs(5))?),
        ["permits", dir, lock, permits, wanted] => {
            let client = connect("file", dir, Duration::from_secs(30), Duration::from_secs(5))?;
            let permits = client.semaphore(lock, permits.parse()?)?;
            say_and_wait("ready")?;
            let _guard = permits.acquire_many(wanted.parse()?)?;
            say_and_wait("got")
        }
        ["queue", url, lock, thread_wait] => queue(url, lock, millis(thread_wait)?),
        _ => Err("see the top of lock_worker.rs".into()),
    }
}

fn millis(text: &str) -> Result<Duration, Failure> {
    Ok(Duration::from_millis(text.parse()?))
}

fn connect(discipline: &str, url: &str, lease: Duration, place: Duration) -> Result<Client, Failure> {
    let builder = match discipline {
        "postgres" => Client::builder(postgres_at(url, lease)?),
        "file" => Client::builder(FileBackend::open(url)?),
        _ => Client::builder(redis_at(discipline, url, lease)?),
    };
    Ok(builder.lease(lease).place_ttl(place).build()?)
}

fn recorded(
    backend: impl Backend,
    lease: Duration,
    place: Duration,
    history: &Path,
) -> Result<Client, Failure> {
    let backend = Recording::new(backend, Recorder::open(history)?);
    Ok(Client::builder(backend).lease(lease).place_ttl(place).build()?)
}

fn postgres_at(url: &str, lease: Duration) -> fairlock::Result<PostgresBackend> {
    PostgresBackend::builder(url).response_timeout(response_timeout_for(lease)).connect()
}

fn redis_at(discipline: &str, url: &str, lease: Duration) -> Result<RedisBackend, Failure> {
    let discipline = match discipline {
        "hand_off" | "plain" => Discipline::HandOff,
        "redisson" => Discipline::Redisson,
        _ => return Err("a discipline is hand_off, redisson or plain".into()),
    };
    let backend = RedisBackend::builder(url).discipline(discipline);
    Ok(backend.response_timeout(response_timeout_for(lease)).connect()?)
}

/// The turns of a worker, and the outcomes of its calls.
struct Turns<'a> {
    lock: &'a Lock,
    who: String,
    hold: Duration,
    recorder: Recorder,
    side: Counter,
    outcomes: Outcomes,
}

/// A renewal makes a hold valid for so much longer (ns) at least; two looks at the same hold differ by less.
const RENEWED: u64 = 10_000_000;

/// Now, and until when the holder believes in its hold, if it does. The clock is read first: if this process stands still between the
/// two, it believes for less time, and never for more.
fn belief(guard: &Guard) -> Option<(u64, u64)> {
    let (now, left) = (now_ns(), guard.valid_for());
    let left = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
    (left > 0).then_some((now, now.saturating_add(left)))
}

#[derive(Default)]
struct Outcomes {
    granted: u32,
    failed: u32,
    unknown: u32,
    lost: u32,
}

impl Turns<'_> {
    fn take(mut self, client: &Client, turns: u32, limit: Option<Duration>) -> Result<(), Failure> {
        say_and_wait("ready")?;
        for _ in 0..turns {
            self.recorder.ask(&self.who, self.lock.name(), limit);
            let asked = match limit {
                None => self.lock.lock().map(TryLock::Granted),
                Some(limit) => self.lock.try_lock_for(limit),
            };
            match asked {
                Ok(TryLock::Granted(guard)) => self.work(guard)?,
                Ok(TryLock::Busy(_)) => {
                    self.outcomes.failed += 1;
                    self.recorder.failed(&self.who, self.lock.name());
                }
                Err(error) => self.is_unknown(&error),
            }
        }
        let (Outcomes { granted, failed, unknown, lost }, stats) = (self.outcomes, client.stats());
        // A withdrawal that was not answered in 50 ms is made by the watchdog, and the test may kill this process after its word.
        // What can't be settled, because the server is away, ends by itself.
        let _ = client.shutdown();
        say(&format!(
            "granted {granted} failed {failed} unknown {unknown} lost {lost} polled {} places_lost {}",
            stats.granted_by_polling, stats.places_lost
        ))
    }

    /// The work of one turn, and the unlock. It reads and writes the counter separately: two holders at once would lose
    /// an update.
    fn work(&mut self, guard: Guard) -> Result<(), Failure> {
        let Some((now, mut believed_until)) = belief(&guard) else {
            self.outcomes.lost += 1; // before the call returned: there was no belief
            self.recorder.unknown(&self.who, self.lock.name());
            return Ok(());
        };
        self.outcomes.granted += 1;
        self.recorder.note(now, &self.who, What::Granted { token: guard.token().get() }, self.lock.name());
        // Before the first call: the process may stand still in it, and is killed there, for longer than it believes.
        self.recorder.note(now, &self.who, What::Valid { until: believed_until }, self.lock.name());
        let count = self.side.read()?;
        let started = Instant::now();
        while started.elapsed() < self.hold {
            thread::sleep(Duration::from_millis(1)); // the work
            let Some((now, until)) = belief(&guard) else { break };
            if until > believed_until + RENEWED {
                believed_until = until;
                self.recorder.note(now, &self.who, What::Valid { until }, self.lock.name());
            }
        }
        if !guard.is_lost() {
            self.side.write(count + 1)?;
            // Before the guard is asked: it was certain of the lock then, also if this process stands still next.
            let certain = now_ns();
            if !guard.is_lost() {
                self.recorder.note(certain, &self.who, What::Release, self.lock.name());
                match guard.unlock() {
                    Ok(()) => self.recorder.released(&self.who, self.lock.name()),
                    Err(error) => self.is_unknown(&error),
                }
                return Ok(());
            }
        }
        self.outcomes.lost += 1;
        self.recorder.lost(&self.who, self.lock.name(), believed_until);
        Ok(())
    }

    fn is_unknown(&mut self, error: &fairlock::Error) {
        eprintln!("{}: {error}", self.who);
        self.outcomes.unknown += 1;
        self.recorder.unknown(&self.who, self.lock.name());
    }
}

/// What all holders count with, beside the lock: `test:counter`, the only row of the table `test_counter`, or the file `counter`.
enum Counter {
    File(PathBuf),
    Redis(redis::Connection),
    Postgres(postgres::Client),
}

impl Counter {
    fn open(url: &str) -> Result<Counter, Failure> {
        if url.starts_with("postgres") {
            let mut config: postgres::Config = url.parse()?;
            return Ok(Counter::Postgres(config.application_name("side").connect(postgres::NoTls)?));
        }
        if url.starts_with('/') {
            return Ok(Counter::File(Path::new(url).join("counter")));
        }
        let mut side = redis::Client::open(url)?.get_connection()?;
        redis::cmd("CLIENT").arg("SETNAME").arg("side").exec(&mut side)?;
        Ok(Counter::Redis(side))
    }

    fn read(&mut self) -> Result<i64, Failure> {
        Ok(match self {
            Counter::File(path) => {
                std::fs::read_to_string(path).map_or(Ok(0), |count| count.trim().parse())?
            }
            Counter::Redis(con) => {
                redis::cmd("GET").arg("test:counter").query::<Option<i64>>(con)?.unwrap_or(0)
            }
            Counter::Postgres(con) => con.query_one("select turns from test_counter", &[])?.get(0),
        })
    }

    fn write(&mut self, count: i64) -> Result<(), Failure> {
        match self {
            // It may be killed on the way.
            Counter::File(path) => {
                std::fs::write(path.with_extension("next"), count.to_string())?;
                std::fs::rename(path.with_extension("next"), path)?;
            }
            Counter::Redis(con) => redis::cmd("SET").arg("test:counter").arg(count).exec(con)?,
            Counter::Postgres(con) => drop(con.execute("update test_counter set turns = $1", &[&count])?),
        }
        Ok(())
    }
}

fn hold(client: &Client, name: &str) -> Result<(), Failure> {
    let lock = client.fair_lock(name)?;
    say_and_wait("ready")?;
    let guard = lock.lock()?;
    say_and_wait("held")?;
    guard.unlock()?;
    say("unlocked")
}

fn wait(client: &Client, name: &str, threads: usize) -> Result<(), Failure> {
    let lock = client.fair_lock(name)?;
    say_and_wait("ready")?;
    let (in_queue, standing) = channel();
    for _ in 0..threads {
        let (lock, in_queue) = (lock.clone(), in_queue.clone());
        thread::spawn(move || {
            let request = lock.request();
            let _ = in_queue.send(request.is_ok());
            request.and_then(fairlock::waits::Request::wait).map(|guard| guard.leak())
        });
    }
    if standing.iter().take(threads).any(|stands| !stands) {
        return Err("a thread has no place".into());
    }
    say_and_wait("waiting")
}

fn try_for(client: &Client, name: &str, wait: Duration) -> Result<(), Failure> {
    let lock = client.fair_lock(name)?;
    say_and_wait("ready")?;
    let guard = lock.try_lock_for(wait)?.granted();
    say(if guard.is_some() { "got" } else { "no lock" })
}

fn kinds(client: &Client) -> Result<(), Failure> {
    let (fair, table, pool) =
        (client.fair_lock("fair")?, client.rw_lock("table")?, client.semaphore("pool", 2)?);
    say_and_wait("ready")?;
    let (fair, reader, permit) = (fair.lock()?, table.read()?, pool.acquire()?);
    let both = client.lock_all(&["a", "b"])?;
    say_and_wait("held")?;
    both.unlock()?;
    permit.unlock()?;
    reader.unlock()?;
    fair.unlock()?;
    say("unlocked")
}

fn queue(url: &str, name: &str, thread_wait: Duration) -> Result<(), Failure> {
    let backend = RedisBackend::builder(url).discipline(Discipline::Redisson).thread_wait(thread_wait);
    let client = Client::builder(backend.connect()?).place_ttl(Duration::from_millis(1500)).build()?;
    let lock = client.fair_lock(name)?;
    say_and_wait("ready")?;
    drop(lock.lock()?);
    say("got")
}
