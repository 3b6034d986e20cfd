//! A clock that tests move by hand, one deadline after the other.
//!
//! The clock keeps a list of the threads that are inside this library: each is awake, or asleep until a deadline.
//! Time moves only while all these threads sleep, so a test sees the same order of events in each run.

use std::collections::HashMap;
use std::fmt;
use std::panic::RefUnwindSafe;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::{Signal, Woken};
use crate::logging::log_line;

/// How long (in real time) a test waits for the threads of the program under test before it goes on without them.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// How far the clock moves in all: 200 years. The longest lease can be added to each of its times.
const LAST: Duration = Duration::from_secs(200 * 365 * 24 * 3600);

/// A clock for tests: it stands still until it is moved. 200 years after it was made it stands still for good.
///
/// Give clones of it to the memory backend and to each client:
/// `Client::builder(MemoryBackend::with_clock(clock.clone())).clock(clock.clone())`. With a real server it makes
/// no sense: the server has its own clock.
#[derive(Clone, Default)]
pub struct ManualClock(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<ManualState>,
    /// A thread fell asleep or left, or the driver lets threads run. The driver waits for it, and background threads that are about to begin.
    changed: Condvar,
}

impl RefUnwindSafe for Inner {} // see `Shared`

struct ManualState {
    now: Instant,
    /// The latest time to which the clock moves.
    last: Instant,
    threads: HashMap<ThreadId, Thread>,
    /// Threads of this library that were announced and do not run yet.
    announced: usize,
    /// The test's thread, if it drives.
    driver: Option<ThreadId>,
    /// How many calls the driver is in that let the other threads run.
    resting: usize,
}

impl Default for ManualState {
    fn default() -> ManualState {
        let now = Instant::now();
        let last = now.checked_add(LAST).unwrap_or(now);
        ManualState { now, last, threads: HashMap::new(), announced: 0, driver: None, resting: 0 }
    }
}

/// A thread inside this library.
struct Thread {
    role: Role,
    /// How many calls of this library it is in (an injected delay sleeps inside another call).
    depth: usize,
    asleep: Option<Sleep>,
    /// Its sleep ends, or may end: each thread has a bell of its own, so that a step wakes nobody but the threads that are due.
    bell: Arc<Condvar>,
}

struct Sleep {
    /// The address of the signal, which its sleeper keeps alive.
    signal: usize,
    deadline: Option<Instant>,
}

/// Whether a thread counts for [`ManualClock::wait_for_waiters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Caller,
    Background,
}

/// A thread's part in the time of a [`ManualClock`], which waits for the thread until this is dropped.
#[must_use = "the thread takes part until this is dropped"]
#[derive(Debug)]
pub struct Attendance {
    clock: ManualClock,
    thread: ThreadId,
    bell: Arc<Condvar>,
}

/// The calling thread's part as the driver of a [`ManualClock`], until this is dropped.
#[doc(hidden)]
#[must_use = "the thread drives until this is dropped"]
#[derive(Debug)]
pub struct Driver(ManualClock);

impl ManualClock {
    /// A clock that stands still.
    pub fn new() -> ManualClock {
        ManualClock::default()
    }

    /// The time on this clock.
    pub fn now(&self) -> Instant {
        self.0.state.lock().now
    }

    /// Waits in real time until at least `n` threads of the program sleep on this clock; the library's own threads do not
    /// count. It gives up after 10 s, so that a test fails and does not hang.
    pub fn wait_for_waiters(&self, n: usize) {
        let mut state = self.0.state.lock();
        let rests = self.rest(&mut state);
        self.wait_in_real_time(&mut state, |state| state.waiters() >= n);
        self.drive_on(&mut state, rests);
    }

    /// Moves on deadline by deadline: at each one the threads that sleep until then run, the watchdog too, and the clock goes
    /// on when all sleep again. So holds stay renewed, however far it moves.
    pub fn advance(&self, by: Duration) {
        let mut state = self.0.state.lock();
        let rests = self.rest(&mut state);
        self.settle(&mut state);
        let target = state.after(by);
        while state.next_deadline().is_some_and(|next| next <= target) {
            self.step_up_to(&mut state, target);
        }
        state.now = target;
        self.drive_on(&mut state, rests);
    }

    /// Moves to the next deadline, but by no more than `at_most`, and returns the new time. As in [`advance`](Self::advance) all
    /// threads sleep before the clock moves and when this call returns: a test can inspect its world at each event.
    pub fn step(&self, at_most: Duration) -> Instant {
        let mut state = self.0.state.lock();
        let rests = self.rest(&mut state);
        self.settle(&mut state);
        let limit = state.after(at_most);
        self.step_up_to(&mut state, limit);
        self.drive_on(&mut state, rests);
        state.now
    }

    /// Has the calling thread drive: until the result is dropped, no other thread that sleeps on this clock wakes while the calling
    /// thread runs, but only while the calling thread moves the clock or sleeps on it. So nothing of the library runs between two calls
    /// of a test. While the thread waits for anything else, such as a channel, those threads do not run.
    #[doc(hidden)]
    pub fn drive_here(&self) -> Driver {
        self.0.state.lock().driver = Some(thread::current().id());
        Driver(self.clone())
    }

    /// Has the clock wait for the calling thread, as it does for threads inside this library: until the result is dropped the
    /// clock does not move while this thread is awake, so what the thread does between two calls takes no time. The thread
    /// must sleep on this clock only, in a call of this library or by [`Clock::sleep`](super::Clock::sleep): while it waits
    /// for anything else, such as a channel, the clock waits for it.
    pub fn attend_here(&self) -> Attendance {
        self.attend(Role::Caller)
    }

    /// Moves in one step, as if the whole process had stood still meanwhile: leases that are shorter expire. `Duration::MAX` moves to
    /// the last time of the clock.
    pub fn jump(&self, by: Duration) {
        let mut state = self.0.state.lock();
        let rests = self.rest(&mut state);
        self.settle(&mut state);
        state.now = state.after(by);
        self.wake_the_due(&mut state);
        self.settle(&mut state);
        self.drive_on(&mut state, rests);
    }

    pub(super) fn is(&self, other: &ManualClock) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(super) fn attend(&self, role: Role) -> Attendance {
        let id = thread::current().id();
        let mut state = self.0.state.lock();
        if role == Role::Background {
            state.announced = state.announced.saturating_sub(1);
        }
        let thread = state.threads.entry(id).or_insert_with(|| Thread {
            role,
            depth: 0,
            asleep: None,
            bell: Arc::default(),
        });
        thread.depth += 1;
        let bell = Arc::clone(&thread.bell);
        // A thread of the library begins when the driver rests.
        while role == Role::Background && state.is_held() {
            self.0.changed.wait(&mut state);
        }
        Attendance { clock: self.clone(), thread: id, bell }
    }

    pub(super) fn announce(&self) {
        self.0.state.lock().announced += 1;
    }

    pub(super) fn raise(&self, signal: &Signal, raise: impl FnOnce()) {
        let mut state = self.0.state.lock();
        raise();
        let address = address_of(signal);
        state.wake(|sleep| sleep.signal == address);
    }

    /// `give_up_at`: in real time, for a clock that does not move.
    pub(super) fn wait(
        &self,
        signal: &Signal,
        raised: impl Fn() -> bool,
        deadline: Option<Instant>,
        give_up_at: Option<Instant>,
    ) -> Woken {
        let attendance = self.attend(Role::Caller);
        let mut state = self.0.state.lock();
        let rests = self.rest(&mut state);
        loop {
            let is_due = deadline.is_some_and(|deadline| deadline <= state.now);
            let woken = if raised() { Some(Woken::Raised) } else { is_due.then_some(Woken::TimeOut) };
            // After every wake-up, also a needless one: `ManualState::wake` marks this thread as awake only if it has to run.
            if let Some(woken) = woken {
                if !state.is_held() {
                    self.drive_on(&mut state, rests);
                    return leave(state, attendance, woken);
                }
            } else if let Some(thread) = state.threads.get_mut(&attendance.thread)
                && thread.asleep.replace(Sleep { signal: address_of(signal), deadline }).is_none()
            {
                // Only when it falls asleep: two sleepers that woke each other at every check would never rest.
                self.0.changed.notify_all();
            }
            match give_up_at {
                None => attendance.bell.wait(&mut state),
                Some(at) => {
                    if attendance.bell.wait_until(&mut state, at).timed_out() && !raised() {
                        self.drive_on(&mut state, rests);
                        return leave(state, attendance, Woken::TimeOut);
                    }
                }
            }
        }
    }

    /// Lets the other threads run if the calling thread drives: whether it does.
    fn rest(&self, state: &mut ManualState) -> bool {
        let drives = state.driver == Some(thread::current().id());
        if drives {
            state.resting += 1;
            self.let_run(state);
        }
        drives
    }

    /// Ends the rest of a thread that drives, when the others sleep.
    fn drive_on(&self, state: &mut MutexGuard<'_, ManualState>, rests: bool) {
        if rests {
            let here = thread::current().id();
            self.wait_in_real_time(state, |state| {
                let mut others = state.threads.iter().filter(|(id, _)| **id != here);
                state.announced == 0 && others.all(|(_, thread)| thread.asleep.is_some())
            });
            state.resting -= 1;
        }
    }

    fn step_up_to(&self, state: &mut MutexGuard<'_, ManualState>, limit: Instant) {
        let next = state.next_deadline().map_or(limit, |next| next.min(limit));
        state.now = state.now.max(next);
        self.wake_the_due(state);
        self.settle(state);
    }

    fn wake_the_due(&self, state: &mut ManualState) {
        let now = state.now;
        state.wake(|sleep| sleep.deadline.is_some_and(|deadline| deadline <= now));
    }

    /// The driver rests or ends: the threads that it held may run.
    fn let_run(&self, state: &ManualState) {
        self.0.changed.notify_all();
        for thread in state.threads.values() {
            thread.bell.notify_one();
        }
    }

    /// Waits until every thread inside the library sleeps.
    fn settle(&self, state: &mut MutexGuard<'_, ManualState>) {
        self.wait_in_real_time(state, |state| {
            state.announced == 0 && state.threads.values().all(|thread| thread.asleep.is_some())
        });
    }

    fn wait_in_real_time(
        &self,
        state: &mut MutexGuard<'_, ManualState>,
        done: impl Fn(&ManualState) -> bool,
    ) {
        let give_up_at = Instant::now() + PATIENCE;
        while !done(state) {
            if self.0.changed.wait_until(state, give_up_at).timed_out() {
                log_line!(error, "fairlock::clock",
                    event = "gave up";
                    "a manual clock waited {PATIENCE:?} for threads that did not come"
                );
                return;
            }
        }
    }
}

impl ManualState {
    /// Marks the threads with such a sleep as awake, and rings their bells.
    fn wake(&mut self, is_over: impl Fn(&Sleep) -> bool) {
        for thread in self.threads.values_mut() {
            if thread.asleep.take_if(|sleep| is_over(sleep)).is_some() {
                thread.bell.notify_one();
            }
        }
    }

    /// Whether the threads that sleep have to sleep on, since the driver runs.
    fn is_held(&self) -> bool {
        self.resting == 0 && self.driver.is_some_and(|driver| driver != thread::current().id())
    }

    /// The time so much later, or the last one.
    fn after(&self, by: Duration) -> Instant {
        self.now.checked_add(by).map_or(self.last, |then| then.min(self.last))
    }

    /// How many threads of the program sleep.
    fn waiters(&self) -> usize {
        let waits = |thread: &&Thread| thread.role == Role::Caller && thread.asleep.is_some();
        self.threads.values().filter(waits).count()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.threads.values().filter_map(|thread| thread.asleep.as_ref()?.deadline).min()
    }
}

/// Ends a wait. The state is unlocked first, since the drop of the attendance locks it.
fn leave(mut state: MutexGuard<'_, ManualState>, attendance: Attendance, woken: Woken) -> Woken {
    if let Some(thread) = state.threads.get_mut(&attendance.thread) {
        thread.asleep = None;
    }
    drop(state);
    drop(attendance);
    woken
}

fn address_of(signal: &Signal) -> usize {
    std::ptr::from_ref(signal).addr()
}

impl Drop for Attendance {
    fn drop(&mut self) {
        let mut state = self.clock.0.state.lock();
        if let Some(thread) = state.threads.get_mut(&self.thread) {
            thread.depth -= 1;
            if thread.depth == 0 {
                state.threads.remove(&self.thread);
            }
        }
        self.clock.0.changed.notify_all();
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let mut state = self.0.0.state.lock();
        state.driver = None;
        self.0.let_run(&state);
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ManualClock")
    }
}

#[cfg(test)]
mod tests;
