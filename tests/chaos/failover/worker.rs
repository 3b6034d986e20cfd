//! The worker process: it holds, waits or polls, and records what it believes, until it is told to rest.
//!
//! ```text
//! failover worker SETTING URL HISTORY HELD LOCK SECOND-LOCK PROBE holder|second|waiter|poller
//! ```
//!
//! It says `ready`, and begins at the first line. A `waiter` and a `poller` take the lock PROBE in turns, whose grants show when
//! the servers can lock, and say `warm` after the first one. At the line `ask` they ask for what `held.rs` says, again and again: the
//! waiter with a limit, the poller without a wait; each holds for a moment. A `holder` asks at the line `ask`, says `held` and its
//! owner's id, and keeps its hold until it is lost or over; then it asks again. So does a `second` holder, but each of its holds has
//! an end. At `rest` each ends its turn and says `resting`.
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

use fairlock::Client;
use fairlock_tests::history::{Recorder, What, now_ns};
use fairlock_tests::look_until;
use fairlock_tests::word::{variant, word};
use fairlock_tests::worker::{say, say_and_wait};

use crate::held::{Guard, Handle, Held, Part};
use crate::setting::{BOUND, LEASE, Setting};

pub(crate) type Failure = Box<dyn Error>;

/// How long a waiter waits for its turn.
const WAIT: Duration = Duration::from_millis(700);
/// How long a turn of a waiter or a poller lasts.
const TURN: Duration = Duration::from_millis(20);
/// How long a hold of the second holder lasts: it is renewed once, and in a long grace claimed, released, and asked for again.
const SECONDS_TURN: Duration = Duration::from_millis(LEASE.as_millis() as u64 / 2);
/// Between two looks at the guard, and between two calls.
const PAUSE: Duration = Duration::from_millis(5);
/// After an error: the servers are gone for a moment.
const AFTER_ERROR: Duration = Duration::from_millis(20);

/// Runs until it was told to rest, or its input ends.
pub(crate) fn work(words: &[&str]) -> Result<(), Failure> {
    let [setting, url, history, held, lock, second, probe, part] = words[..] else {
        return Err("see the top of worker.rs".into());
    };
    let setting = Setting::parse(setting).ok_or("no such setting")?;
    let held = variant(&Held::ALL, held).ok_or("nothing of that name is held")?;
    let part = variant(&Part::ALL, part).ok_or("no such part")?;
    // On a busy machine an answer may take longer than the time-out.
    let client = look_until(BOUND, || setting.client(url).ok()).ok_or("the servers do not answer")?;
    let recorder = Recorder::open(Path::new(history))?;
    let handle = held.handle(&client, part, [lock, second])?;
    let probe = Held::Fair.handle(&client, Part::Waiter, [probe, ""])?;
    say_and_wait("ready")?;
    let rests = AtomicBool::new(false);
    let (tell, told) = channel();
    thread::scope(|scope| -> Result<(), Failure> {
        let turns = Turns { recorder: &recorder, rests: &rests };
        let mut working = Vec::new();
        match part {
            Part::Holder | Part::Second => {
                let client = client.clone();
                working.push(scope.spawn(move || turns.hold(&client, &handle, part, &told)));
            }
            Part::Waiter | Part::Poller => {
                working.push(scope.spawn(move || turns.take(&handle, part, &told)));
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

    fn hold(self, client: &Client, handle: &Handle, part: Part, told: &Receiver<()>) {
        if told.recv().is_err() {
            return;
        }
        let (who, time) = (word(&part), if part == Part::Second { SECONDS_TURN } else { Duration::MAX });
        let mut has_said = false;
        while !self.is_over() {
            if let Some(guard) = self.ask(handle, &who, WAIT) {
                if let Some(held) = client.held().first().filter(|_| !has_said) {
                    has_said = say(&format!("held {}", held.owner)).is_ok();
                }
                self.keep(handle, &who, guard, time);
            }
        }
    }

    fn take(self, handle: &Handle, part: Part, told: &Receiver<()>) {
        if told.recv().is_err() {
            return;
        }
        let (who, wait) = (word(&part), if part == Part::Poller { Duration::ZERO } else { WAIT });
        while !self.is_over() {
            if let Some(guard) = self.ask(handle, &who, wait) {
                self.keep(handle, &who, guard, TURN);
            }
            thread::sleep(PAUSE); // lets the others in
        }
    }

    fn probe(self, probe: &Handle) {
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

    fn ask(self, handle: &Handle, who: &str, wait: Duration) -> Option<Guard> {
        for name in &handle.names {
            self.recorder.ask(who, name, Some(wait));
            if handle.units > 1 {
                self.recorder.note(now_ns(), who, What::Wants { units: handle.units }, name);
            }
        }
        match handle.ask(wait) {
            Ok(Some(guard)) => Some(guard),
            Ok(None) => {
                handle.names.iter().for_each(|name| self.recorder.failed(who, name));
                None
            }
            Err(_) => {
                handle.names.iter().for_each(|name| self.recorder.unknown(who, name));
                thread::sleep(AFTER_ERROR);
                None
            }
        }
    }

    /// Keeps the hold for this time, unless it is lost or the run is over, and releases it.
    fn keep(self, handle: &Handle, who: &str, guard: Guard, time: Duration) {
        let note = |at, what| handle.names.iter().for_each(|name| self.recorder.note(at, who, what, name));
        let Some(first) = guard.look() else {
            // It ended before the call returned: there was no belief.
            handle.names.iter().for_each(|name| self.recorder.unknown(who, name));
            return;
        };
        for name in &handle.names {
            self.recorder.note(first, who, What::Granted { token: guard.token(name) }, name);
            self.recorder.note(first, who, What::Valid { until: first }, name);
        }
        let (started, mut last) = (Instant::now(), first);
        while started.elapsed() < time && !self.is_over() {
            thread::sleep(PAUSE.min(time)); // the work
            match guard.look() {
                Some(at) => {
                    last = at;
                    note(at, What::Valid { until: at });
                }
                None => {
                    note(last, What::Lost);
                    return;
                }
            }
        }
        note(last, What::Release);
        let is_released = guard.unlock().is_ok();
        for name in &handle.names {
            match is_released {
                true => self.recorder.released(who, name),
                false => self.recorder.unknown(who, name),
            }
        }
    }
}
