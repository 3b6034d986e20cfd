//! Worker processes that take turns on the lock `turns` of any store, and the verdict on what they recorded.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::history::{Event, Recorder, now_ns, parse, read};
use crate::oracle::{check_all, check_tickets};
use crate::{PostgresServer, RedisServer, WorkDir, Worker, eventually};

/// How late a timed event may be, with sixteen processes on a busy machine with two cores.
pub const SLACK: Duration = Duration::from_secs(5);
/// The outage limit of the workers.
const OUTAGE: Duration = Duration::from_secs(10);

/// A server at which workers take turns, and count them.
pub trait Store {
    /// Its address.
    fn address(&self) -> String;
    /// The number that each holder reads and writes.
    fn counter(&self) -> usize;
}

impl Store for RedisServer {
    fn address(&self) -> String {
        self.url()
    }

    fn counter(&self) -> usize {
        self.query::<Option<usize>>(&["GET", "test:counter"]).unwrap_or(0)
    }
}

impl Store for PostgresServer {
    fn address(&self) -> String {
        let table = "create table if not exists test_counter as select 0::bigint as turns";
        self.con().batch_execute(table).expect("a table can be made");
        self.url()
    }

    fn counter(&self) -> usize {
        let row = self.con().query_one("select turns from test_counter", &[]).expect("a row");
        usize::try_from(row.get::<_, i64>(0)).expect("a count")
    }
}

/// The directory `locks`.
impl Store for WorkDir {
    fn address(&self) -> String {
        self.file("locks").to_str().expect("a path of the tests").to_owned()
    }

    fn counter(&self) -> usize {
        fs::read_to_string(self.file("locks/counter")).map_or(0, |count| count.parse().unwrap_or(0))
    }
}

/// What workers do; see `lock_worker.rs`.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// `hand_off`, `redisson`, `plain` or `postgres`.
    pub discipline: &'static str,
    /// How often each takes the lock.
    pub turns: usize,
    /// How long each holds it.
    pub hold_ms: u64,
    /// The lease of each hold.
    pub lease: Duration,
    /// The places' time to live.
    pub place: Duration,
    /// The limit of each wait; none if 0.
    pub limit_ms: u64,
}

impl Habits {
    /// Workers that take the lock so often, with the default times.
    pub const fn new(discipline: &'static str, turns: usize) -> Habits {
        let [lease, place] = [Duration::from_secs(30), Duration::from_secs(5)];
        Habits { discipline, turns, hold_ms: 3, lease, place, limit_ms: 0 }
    }

    /// Workers without end, whose leases and places are short.
    pub const fn endless(discipline: &'static str, time: Duration) -> Habits {
        Habits { lease: time, place: time, ..Habits::new(discipline, 1_000_000) }
    }
}

/// A run of workers at one store.
#[derive(Debug)]
pub struct Turns<'a, S> {
    /// The store.
    pub store: &'a S,
    program: &'static str,
    dir: WorkDir,
    habits: Habits,
}

impl<'a, S: Store> Turns<'a, S> {
    /// `program` is the path of `lock_worker`.
    pub fn new(program: &'static str, store: &'a S, habits: Habits) -> Turns<'a, S> {
        Turns { store, program, dir: WorkDir::new(), habits }
    }

    fn history(&self) -> PathBuf {
        self.dir.file("history")
    }

    /// Starts `n` workers. All are connected before the first one goes.
    pub fn start(&self, n: usize) -> Vec<Worker> {
        let address = self.store.address();
        let mut workers: Vec<Worker> = (0..n).map(|_| self.worker(&address, &self.habits)).collect();
        workers.iter_mut().for_each(Worker::go);
        workers
    }

    /// One worker that waits for its word to go, by this address and with these habits.
    pub fn worker(&self, address: &str, habits: &Habits) -> Worker {
        self.worker_of(self.program, address, habits)
    }

    /// One worker of another version of the program.
    pub fn worker_of(&self, program: &str, address: &str, habits: &Habits) -> Worker {
        self.worker_under(&[], program, address, habits)
    }

    /// The same under a command that starts it, such as strace.
    pub fn worker_under(&self, command: &[&str], program: &str, address: &str, habits: &Habits) -> Worker {
        let Habits { discipline, turns, hold_ms, lease, place, limit_ms } = habits;
        let (lease, place, history) = (lease.as_millis(), place.as_millis(), self.history());
        let history = history.display();
        let words = format!(
            "turns {discipline} {address} turns {turns} {hold_ms} {lease} {place} {limit_ms} {history}"
        );
        let words = [command, &[program], &words.split(' ').collect::<Vec<_>>()].concat();
        Worker::start(words[0], &words[1..])
    }

    /// Waits until so many more turns were taken.
    pub fn until_more(&self, turns: u64) {
        let until = self.store.counter() + usize::try_from(turns).expect("few");
        eventually("the workers go on", || self.store.counter() >= until);
    }

    /// Kills a worker. It held its lock until now, or until its last event: where the system tells that a process has ended, the next
    /// one has the lock before the kill returns.
    pub fn kill(&self, mut worker: Worker) {
        let (pid, now) = (worker.child().id(), now_ns());
        worker.kill();
        let history = fs::read_to_string(self.history()).expect("a history can be read");
        let last =
            history.lines().filter_map(parse).filter(|event| event.pid == pid).map(|event| event.at).max();
        Recorder::open(&self.history()).expect("the history").gone(pid, last.unwrap_or(now).max(now));
    }

    /// What the workers recorded, without violations: waiters were granted the lock within `gap` of its release, and calls were at most
    /// `late` after their bounds.
    pub fn judged(&self, gap: Duration, late: Duration) -> Vec<Event> {
        let events = self.events();
        check_all(&events, gap + SLACK, OUTAGE, late + SLACK).expect("a history without violations");
        events
    }

    /// What the workers recorded.
    pub fn events(&self) -> Vec<Event> {
        read(&self.history()).expect("a history can be read")
    }

    /// Those who stood in the queue got the lock in that order; how many there were.
    pub fn in_order(&self, events: &[Event]) -> usize {
        check_tickets(events, "turns").expect("no grant passes an earlier place")
    }
}
