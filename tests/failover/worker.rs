//! The worker process: it holds, waits or polls, and records what it believes, until it is told to rest.
//!
//! ```text
//! failover worker SETTING URL HISTORY LOCK PROBE holder|waiter|poller
//! failover worker SETTING URL HISTORY LOCK -     crowd:THREADS
//! ```
//!
//! It says `ready`, and begins at the first line. A `waiter` and a `poller` take the lock PROBE in turns, whose grants show when
//! the servers can lock, and say `warm` after the first one. At the line `ask` they ask for LOCK, again and again: the waiter
//! with a limit, the poller without a wait; each holds for a moment. A `holder` asks at the line `ask`, says `held`, and keeps
//! its hold until it is lost or over; then it asks again. At `rest` each ends its turn and says `resting`. A `crowd` is in
//! `crowd.rs`.
//!
//! A belief is recorded before each of the writes that a real holder would make: the time is read first, then the guard is
//! asked. So the holder was certain of the lock at each recorded time.

use std::error::Error;
use std::io::BufRead;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Lock, LockGuard, TryLock};
use fairlock_tests::history::{Recorder, What, now_ns};
use fairlock_tests::look_until;
use fairlock_tests::worker::{say, say_and_wait};

use crate::crowd;
use crate::setting::{BOUND, LEASE, OF_FAULTS, Setting};

pub(crate) type Failure = Box<dyn Error>;

/// How long a waiter waits for its turn.
const WAIT: Duration = Duration::from_millis(700);
/// How long a turn lasts, unless it is the holder's.
const TURN: Duration = Duration::from_millis(20);
/// Between two looks at the guard, and between two calls.
const PAUSE: Duration = Duration::from_millis(5);
/// After an error: the servers are gone for a moment.
const AFTER_ERROR: Duration = Duration::from_millis(20);

/// The part of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Holder,
    Waiter,
    Poller,
}

/// Runs until it was told to rest, or its input ends.
pub(crate) fn work(words: &[&str]) -> Result<(), Failure> {
    let [setting, url, history, lock, probe, part] = words[..] else {
        return Err("see the top of worker.rs".into());
    };
    let setting = Setting::parse(setting).ok_or("no such setting")?;
    let part = match part {
        "holder" => Part::Holder,
        "waiter" => Part::Waiter,
        "poller" => Part::Poller,
        crowd => {
            let threads = crowd.strip_prefix("crowd:").ok_or("no such part")?.parse()?;
            return crowd::wait(setting, url, Path::new(history), lock, threads);
        }
    };
    // On a busy machine an answer may take longer than the time-out.
    let client =
        look_until(BOUND, || setting.client(url, OF_FAULTS).ok()).ok_or("the servers do not answer")?;
    let recorder = Recorder::open(Path::new(history))?;
    let [lock, probe] = [client.fair_lock(lock)?, client.fair_lock(probe)?];
    say_and_wait("ready")?;
    let rests = AtomicBool::new(false);
    let (tell, told) = channel();
    thread::scope(|scope| -> Result<(), Failure> {
        let turns = Turns { recorder: &recorder, rests: &rests };
        let mut working = Vec::new();
        match part {
            Part::Holder => working.push(scope.spawn(move || turns.hold(&lock, &told))),
            _ => {
                working.push(scope.spawn(move || turns.take(&lock, part, &told)));
                working.push(scope.spawn(move || turns.probe(&probe)));
            }
        }
        for line in std::io::stdin().lock().lines() {
            match line?.as_str() {
                "ask" => tell.send(())?,
                _ => break,
            }
        }
        rests.store(true, Ordering::Release);
        drop(tell);
        for thread in working {
            thread.join().map_err(|_| "a worker thread panicked")?;
        }
        say("resting")
    })
}

/// The turns of one thread.
#[derive(Clone, Copy)]
struct Turns<'a> {
    recorder: &'a Recorder,
    rests: &'a AtomicBool,
}

impl Turns<'_> {
    fn is_over(self) -> bool {
        self.rests.load(Ordering::Acquire)
    }

    fn hold(self, lock: &Lock, told: &Receiver<()>) {
        if told.recv().is_err() {
            return;
        }
        let mut has_said = false;
        while !self.is_over() {
            if let Some(guard) = self.ask(lock, "holder", WAIT) {
                if !has_said {
                    has_said = say("held").is_ok();
                }
                self.keep(lock, "holder", guard, Duration::MAX);
            }
        }
    }

    fn take(self, lock: &Lock, part: Part, told: &Receiver<()>) {
        if told.recv().is_err() {
            return;
        }
        let (who, wait) = match part {
            Part::Poller => ("poller", Duration::ZERO),
            _ => ("waiter", WAIT),
        };
        while !self.is_over() {
            if let Some(guard) = self.ask(lock, who, wait) {
                self.keep(lock, who, guard, TURN);
            }
            thread::sleep(PAUSE); // lets the others in
        }
    }

    fn probe(self, probe: &Lock) {
        let mut is_warm = false;
        while !self.is_over() {
            if let Some(guard) = self.ask(probe, "probe", LEASE) {
                self.keep(probe, "probe", guard, Duration::ZERO);
                if !is_warm {
                    is_warm = say("warm").is_ok();
                }
            }
            thread::sleep(PAUSE);
        }
    }

    fn ask(self, lock: &Lock, who: &str, wait: Duration) -> Option<LockGuard> {
        self.recorder.ask(who, lock.name(), Some(wait));
        let asked = if wait.is_zero() { lock.try_lock() } else { lock.try_lock_for(wait) };
        match asked {
            Ok(TryLock::Granted(guard)) => Some(guard),
            Ok(TryLock::Busy) => {
                self.recorder.failed(who, lock.name());
                None
            }
            Err(_) => {
                self.recorder.unknown(who, lock.name());
                thread::sleep(AFTER_ERROR);
                None
            }
        }
    }

    /// Keeps the hold for so long, unless it is lost or the run is over, and releases it.
    fn keep(self, lock: &Lock, who: &str, guard: LockGuard, time: Duration) {
        let Some(first) = look(&guard) else {
            // It ended before the call returned: there was no belief.
            self.recorder.unknown(who, lock.name());
            return;
        };
        self.recorder.note(first, who, What::Granted { token: guard.token().get() }, lock.name());
        let (started, mut last) = (Instant::now(), first);
        while started.elapsed() < time && !self.is_over() {
            thread::sleep(PAUSE.min(time)); // the work
            match look(&guard) {
                Some(at) => {
                    last = at;
                    self.recorder.note(at, who, What::Valid { until: at }, lock.name());
                }
                None => {
                    self.recorder.note(last, who, What::Lost, lock.name());
                    return;
                }
            }
        }
        self.recorder.note(last, who, What::Release, lock.name());
        match guard.unlock() {
            Ok(()) => self.recorder.released(who, lock.name()),
            Err(_) => self.recorder.unknown(who, lock.name()),
        }
    }
}

/// A time at which the holder is certain of the lock; none if it is lost.
fn look(guard: &LockGuard) -> Option<u64> {
    let now = now_ns();
    (!guard.is_lost() && !guard.valid_for().is_zero()).then_some(now)
}
