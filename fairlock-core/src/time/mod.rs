//! Time as core sees it: a clock that tests can move by hand, the signal on which threads sleep, where a task leaves its waker, how a
//! wait is cancelled, and the pauses after failures.

mod manual;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

pub use manual::{Attendance, Driver, ManualClock};

use manual::PATIENCE;

use crate::ids::random;
use crate::logging::{LineLimit, log_line};

/// Where time comes from: the system's monotonic clock, or a [`ManualClock`].
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<ManualClock>);

impl Clock {
    /// The system's monotonic clock. (On Linux it stands still while the machine is suspended.)
    pub fn system() -> Clock {
        Clock(None)
    }

    /// The time now.
    pub fn now(&self) -> Instant {
        self.0.as_ref().map_or_else(Instant::now, ManualClock::now)
    }

    /// Sleeps; with a manual clock, until a test has moved it that far.
    pub fn sleep(&self, time: Duration) {
        let signal = Signal::new(self);
        signal.wait(signal.generation(), self.now().checked_add(time));
    }

    /// The calling thread is inside this library until the result is dropped: a manual clock waits for it before it moves
    /// on.
    pub(crate) fn attend(&self) -> Option<Attendance> {
        self.manual().map(|clock| clock.attend(manual::Role::Caller))
    }

    /// Like [`attend`](Self::attend), for a thread of this library, which does not count as a waiter.
    pub(crate) fn attend_in_background(&self) -> Option<Attendance> {
        self.manual().map(|clock| clock.attend(manual::Role::Background))
    }

    /// A thread of this library is about to be started: a manual clock does not move on before it runs.
    pub(crate) fn announce_background(&self) {
        if let Some(clock) = self.manual() {
            clock.announce();
        }
    }

    /// Whether both are one clock.
    pub(crate) fn is(&self, other: &Clock) -> bool {
        match (self.manual(), other.manual()) {
            (Some(one), Some(other)) => one.is(other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }

    /// The manual clock, if it is one.
    pub fn manual(&self) -> Option<&ManualClock> {
        self.0.as_ref()
    }
}

impl From<ManualClock> for Clock {
    fn from(clock: ManualClock) -> Clock {
        Clock(Some(clock))
    }
}

/// For how long [`Signal::watch`] watches: about the time that it takes to wake a thread that sleeps in the kernel.
pub(crate) const MOMENT: Duration = Duration::from_micros(20);

/// Counts how often it was raised. A waiter reads [`generation`](Self::generation), *then* checks the state that it waits for, then
/// waits for the generation to change. So a raise between the check and the wait is not missed, and one raise wakes all waiters.
#[derive(Debug)]
pub(crate) struct Signal {
    clock: Clock,
    generation: AtomicU64,
    /// The threads that sleep or are about to; counted under the mutex.
    sleepers: AtomicUsize,
    falling_asleep: Mutex<()>,
    changed: Condvar,
}

/// What a [`CancelToken`](crate::CancelToken) wakes.
pub(crate) trait Raise: Send + Sync {
    fn raise(&self);
}

/// Why [`Signal::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    Raised,
    TimeOut,
}

impl Signal {
    pub(crate) fn new(clock: &Clock) -> Signal {
        Signal {
            clock: clock.clone(),
            generation: AtomicU64::new(0),
            sleepers: AtomicUsize::new(0),
            falling_asleep: Mutex::new(()),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    pub(crate) fn raise(&self) {
        match self.clock.manual() {
            // The clock marks the sleepers as awake in the same step: it can't move on between the raise and the moment when the
            // sleepers run.
            Some(clock) => clock.raise(self, || self.count()),
            None => {
                self.count();
                // Here the generation is written before the sleepers are read; in the wait it is the other way round (all of it
                // `SeqCst`). So either this thread sees the sleeper, or the sleeper sees the new generation and does not sleep.
                if self.sleepers.load(Ordering::SeqCst) > 0 {
                    // The sleeper may be between its check of the generation and its sleep: then it holds the mutex.
                    drop(self.falling_asleep.lock());
                    self.changed.notify_all();
                }
            }
        }
    }

    /// Sleeps until the signal is raised for the first time after `seen`, or until `deadline`.
    pub(crate) fn wait(&self, seen: u64, deadline: Option<Instant>) -> Woken {
        match self.clock.manual() {
            Some(clock) => clock.wait(self, || self.generation() != seen, deadline, None),
            None => self.wait_on_system_clock(seen, deadline),
        }
    }

    /// As [`wait`](Self::wait), but on a manual clock that does not move it ends after 10 s of real time: at the end of a
    /// client the waiting thread may be the one that would move the clock.
    pub(crate) fn wait_at_the_end(&self, seen: u64, deadline: Instant) -> Woken {
        match self.clock.manual() {
            Some(clock) => {
                let give_up_at = Some(Instant::now() + PATIENCE);
                clock.wait(self, || self.generation() != seen, Some(deadline), give_up_at)
            }
            None => self.wait_on_system_clock(seen, Some(deadline)),
        }
    }

    /// Waits a [`MOMENT`] for a raise after `seen` without going to sleep: two threads that take turns would otherwise pay for
    /// a wake-up at each turn. Another thread that needs this core gets it.
    pub(crate) fn watch(&self, seen: u64) {
        if self.clock.manual().is_some() {
            return;
        }
        let until = Instant::now() + MOMENT;
        while self.generation() == seen && Instant::now() < until {
            thread::yield_now();
        }
    }

    fn count(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    fn wait_on_system_clock(&self, seen: u64, deadline: Option<Instant>) -> Woken {
        let mut falling_asleep = self.falling_asleep.lock();
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let mut woken = Woken::Raised;
        while self.generation() == seen {
            match deadline {
                None => self.changed.wait(&mut falling_asleep),
                Some(deadline) => {
                    let timed_out = self.changed.wait_until(&mut falling_asleep, deadline).timed_out();
                    if timed_out && self.generation() == seen {
                        woken = Woken::TimeOut;
                        break;
                    }
                }
            }
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        woken
    }
}

/// The lines about wakers that panic.
static PANICKED: LineLimit = LineLimit::new();

/// The waker of the task that waits for a state.
///
/// A poll registers its waker, *then* looks at the state. A thread that changes the state sets the flag under the state's mutex,
/// by [`is_due`](Self::is_due), and takes the waker once that mutex is free, by [`wake_if_due`](Self::wake_if_due). If a poll
/// misses the change, its waker was registered before the flag was set, so the waker is woken. If several threads change the
/// state, one of them finds the flag: the woken task then sees all changes.
///
/// Wakers are the executor's code: they are cloned, woken and dropped without any mutex of this library.
#[derive(Debug, Default)]
pub(crate) struct TaskSlot {
    /// Something that the task waits for has happened. Other news, such as a heartbeat, wakes no task.
    due: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl TaskSlot {
    /// Has this waker woken, in place of that of an earlier poll: another task may have made it.
    pub(crate) fn register(&self, waker: &Waker) {
        if !self.knows(waker) {
            let former = self.replace(Some(waker.clone()));
            drop(former);
        }
    }

    /// The future is ready, or gone: its task must not be kept alive by what it holds. The caller drops the waker when all else is
    /// done, since that may panic.
    #[must_use]
    pub(crate) fn take(&self) -> Option<Waker> {
        self.replace(None)
    }

    /// Under the mutex of the state that was changed.
    pub(crate) fn is_due(&self) {
        self.due.store(true, Ordering::Release);
    }

    /// Not under a mutex.
    pub(crate) fn wake_if_due(&self) {
        if self.take_due() {
            self.wake();
        }
    }

    /// Wakes the task, whatever has happened: at once, or at the end of [`wake_afterwards`]. Not under a mutex.
    pub(crate) fn wake(&self) {
        if let Some(waker) = self.take().and_then(keep_for_later) {
            wake(waker);
        }
    }

    fn knows(&self, waker: &Waker) -> bool {
        self.waker.lock().as_ref().is_some_and(|known| known.will_wake(waker))
    }

    fn replace(&self, waker: Option<Waker>) -> Option<Waker> {
        std::mem::replace(&mut *self.waker.lock(), waker)
    }

    /// The load alone where nothing is due, as for most raises.
    fn take_due(&self) -> bool {
        self.due.load(Ordering::Acquire) && self.due.swap(false, Ordering::AcqRel)
    }
}

/// A panic goes no further: this thread has other claims to serve.
pub(crate) fn wake(waker: Waker) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
        if let Some(count) = PANICKED.count(1, Instant::now()) {
            log_line!(error, "fairlock::wake",
                event = "waker panicked", count = count;
                "the waker of a task panicked ({count} since the last line)"
            );
        }
        std::mem::forget(panic); // its drop may panic as well
    }
}

/// What a thread is to wake when its outermost [`wake_afterwards`] or [`collect_wakers`] ends.
struct Later {
    /// Whether the thread is inside one of them.
    is_inside: bool,
    wakers: VecDeque<Waker>,
}

thread_local! {
    static LATER: RefCell<Later> = const { RefCell::new(Later { is_inside: false, wakers: VecDeque::new() }) };
}

/// Runs `act`, and wakes the tasks that it has decided when it is over, also by a panic.
///
/// An executor may poll a task in its waker. The task may release its lock, and wake the next task, which is polled there as
/// well: a thousand waiters would be polled inside each other's releases. Here the wakers run in turn, at the end of the
/// outermost call, and on its thread for as long as such tasks wake each other.
pub(crate) fn wake_afterwards<T>(act: impl FnOnce() -> T) -> T {
    collect_wakers(act, |wakers| wakers.into_iter().for_each(wake))
}

/// Runs `act`, and passes on the wakers of the tasks that `act` has decided, when `act` is over, also by a panic. A waker may decide further
/// tasks: their wakers are passed on, too, until there are none.
pub(crate) fn collect_wakers<T>(act: impl FnOnce() -> T, pass_on: impl Fn(VecDeque<Waker>)) -> T {
    struct Outermost<P: Fn(VecDeque<Waker>)>(P);

    impl<P: Fn(VecDeque<Waker>)> Drop for Outermost<P> {
        fn drop(&mut self) {
            loop {
                // The list is not borrowed while a waker runs, which may add to it.
                let wakers = LATER.with_borrow_mut(|later| std::mem::take(&mut later.wakers));
                if wakers.is_empty() {
                    return LATER.with_borrow_mut(|later| later.is_inside = false);
                }
                (self.0)(wakers);
            }
        }
    }

    // Where a thread ends there may be no list any more: then wakers run at once.
    let was_inside = LATER.try_with(|later| std::mem::replace(&mut later.borrow_mut().is_inside, true));
    let _outermost = was_inside.is_ok_and(|was_inside| !was_inside).then(|| Outermost(pass_on)); // not `then_some`: that would drop one
    act()
}

/// Returns the waker if it is to be woken now.
fn keep_for_later(waker: Waker) -> Option<Waker> {
    let mut waker = Some(waker);
    let _ = LATER.try_with(|later| {
        let mut later = later.borrow_mut();
        if later.is_inside {
            later.wakers.extend(waker.take());
        }
    });
    waker
}

/// Ends the waits of every handle from [`Lock::cancelled_by`](crate::Lock::cancelled_by). Clones are one and the same.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<Inner>);

impl CancelToken {
    /// Makes one that is not cancelled.
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// Ends all waits, those under way and all later ones, with [`Error::Cancelled`](crate::Error::Cancelled).
    pub fn cancel(&self) {
        // The flag first: a wait that begins to listen after the list was taken reads the flag afterwards.
        self.0.cancelled.store(true, Ordering::SeqCst);
        let listeners = std::mem::take(&mut *self.0.listeners.lock());
        listeners.iter().filter_map(Weak::upgrade).for_each(|listener| listener.raise());
    }

    /// Whether [`cancel`](Self::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::SeqCst)
    }

    /// Raises the listener's signal at `cancel`, until the result is dropped.
    pub(crate) fn listen(&self, listener: &Arc<impl Raise + 'static>) -> Listening {
        let listener: Weak<dyn Raise> = Arc::downgrade(listener) as _;
        self.0.listeners.lock().push(Weak::clone(&listener));
        Listening { cancel: self.clone(), listener }
    }
}

#[derive(Debug, Default)]
struct Inner {
    cancelled: AtomicBool,
    listeners: Mutex<Vec<Weak<dyn Raise>>>,
}

impl RefUnwindSafe for Inner {} // see `Shared`

pub(crate) struct Listening {
    cancel: CancelToken,
    listener: Weak<dyn Raise>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut listeners = self.cancel.0.listeners.lock();
        if let Some(at) = listeners.iter().position(|other| other.ptr_eq(&self.listener)) {
            listeners.swap_remove(at);
        }
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(50);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The pause after this many failures in a row: between half of the full pause and all of it, so that clients do not retry in step.
/// There is none after the first: that usually means only that an idle connection was closed. After the second it is 50 ms, and
/// doubles to 1 s. For a backend: before it connects again.
pub fn pause(failures: u32) -> Duration {
    pause_up_to(failures, LONGEST_PAUSE)
}

/// The pause before a repeat, with another longest pause.
fn pause_up_to(failures: u32, longest: Duration) -> Duration {
    if failures <= 1 {
        return Duration::ZERO;
    }
    let full = FIRST_PAUSE.saturating_mul(1 << (failures - 2).min(10)).min(longest);
    full / 2 + (full / 2).mul_f64((random() >> 11) as f64 / (1_u64 << 53) as f64)
}

/// When unanswered requests of one kind are repeated: all of a client's together, after a pause that grows with each failure. Ten
/// thousand holds that the server does not renew are one call after each pause, not one each.
#[derive(Debug, Default)]
pub(crate) struct Retries(Mutex<Failures>);

#[derive(Clone, Copy, Debug, Default)]
struct Failures {
    /// How many attempts in a row had a failure.
    in_a_row: u32,
    /// Nothing is repeated before then.
    not_before: Option<Instant>,
}

/// What a failure changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterFailure {
    /// The failure has led to the first real pause: there is no pause after the first failure.
    PausesBegin,
    AsBefore,
}

impl Retries {
    /// The pause counts from `since`. If the server let the attempt wait, for example for a locked row, that wait was a pause
    /// itself: a further pause would miss the moments in which the row is free.
    pub(crate) fn failed(&self, since: Instant, longest: Duration) -> AfterFailure {
        let mut failures = self.0.lock();
        failures.in_a_row = failures.in_a_row.saturating_add(1);
        failures.not_before = Some(since + pause_up_to(failures.in_a_row, longest));
        if failures.in_a_row == 2 { AfterFailure::PausesBegin } else { AfterFailure::AsBefore }
    }

    pub(crate) fn answered(&self) {
        *self.0.lock() = Failures::default();
    }

    pub(crate) fn not_before(&self) -> Option<Instant> {
        self.0.lock().not_before
    }

    /// Whether what has failed is to be tried again only after a pause.
    pub(crate) fn is_pausing(&self, now: Instant) -> bool {
        self.not_before().is_some_and(|at| at > now)
    }

    /// The server probably answers now.
    pub(crate) fn hurry(&self, now: Instant) {
        let mut failures = self.0.lock();
        failures.not_before = failures.not_before.map(|at| at.min(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[test]
    fn a_raise_before_the_wait_is_not_missed_and_wakes_all_waiters() {
        for clock in [Clock::system(), super::super::ManualClock::new().into()] {
            let signal = Signal::new(&clock);
            let seen = signal.generation();
            signal.raise();
            assert_eq!(signal.wait(seen, None), Woken::Raised);
            let seen = signal.generation();
            std::thread::scope(|scope| {
                let waiters: Vec<_> = (0..3).map(|_| scope.spawn(|| signal.wait(seen, None))).collect();
                signal.raise();
                for waiter in waiters {
                    assert_eq!(waiter.join().unwrap(), Woken::Raised);
                }
            });
        }
    }

    #[test]
    fn a_wait_ends_at_its_deadline() {
        let signal = Signal::new(&Clock::system());
        let deadline = Instant::now() + Duration::from_millis(20);
        assert_eq!(signal.wait(signal.generation(), Some(deadline)), Woken::TimeOut);
        assert!(Instant::now() >= deadline);
    }

    /// No raise is missed, however it meets a thread that falls asleep.
    #[test]
    fn no_raise_is_missed_by_a_thread_that_falls_asleep() {
        const ROUNDS: u64 = 5_000;
        let [there, back] = [(); 2].map(|()| Signal::new(&Clock::system()));
        let hears = |signal: &Signal, round| {
            if round % 2 == 0 {
                signal.watch(round); // every other time mostly awake
            }
            let give_up_at = Instant::now() + Duration::from_secs(20);
            assert_eq!(signal.wait(round, Some(give_up_at)), Woken::Raised, "in round {round}");
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    hears(&there, round);
                    back.raise();
                }
            });
            for round in 0..ROUNDS {
                there.raise();
                hears(&back, round);
            }
        });
    }

    #[test]
    fn a_watch_ends_without_a_raise() {
        let signal = Signal::new(&Clock::system());
        signal.watch(signal.generation());
        assert_eq!(signal.generation(), 0);
    }

    #[test]
    fn a_thread_that_is_woken_without_a_raise_sleeps_on() {
        let signal = Signal::new(&Clock::system());
        let give_up_at = Instant::now() + Duration::from_secs(20);
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| signal.wait(0, Some(give_up_at)));
            while signal.sleepers.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            for _ in 0..1_000 {
                let _asleep = signal.falling_asleep.lock();
                signal.changed.notify_all();
            }
            signal.raise();
            assert_eq!(sleeper.join().unwrap(), Woken::Raised);
        });
    }

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// What a poll does first.
    #[derive(Clone, Copy, PartialEq)]
    enum First {
        Register,
        Look,
    }

    /// Where a thread stands in its program. Each step touches shared state once, as in the real code. (`take_due` reads the flag
    /// before the swap. This adds no outcome: if the read says "not due", the read is the step, otherwise the swap is.)
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum At {
        Idle,
        Knows,
        Replaces,
        Looks,
        Changes,
        TakesDue,
        Wakes,
        Over,
    }

    /// A task that waits until two threads have changed the state, a thread that raises for another reason, and a second task to
    /// which the future moves at any moment.
    struct Run {
        first: First,
        slot: TaskSlot,
        tasks: [Arc<Task>; 2],
        /// How often each task had been woken when it was polled last.
        polled_at: [usize; 2],
        /// The task that polls.
        latest: usize,
        poll: At,
        threads: [At; 3],
        state: Cell<u32>,
        is_ready: bool,
    }

    const CHANGES: u32 = 2;
    /// The steps that can be next: of a thread, of the poll, and the move to the second task.
    const POLL: usize = 3;
    const MOVE: usize = 4;

    impl Run {
        fn new(first: First) -> Run {
            let tasks = [Arc::default(), Arc::default()];
            let threads = [At::Changes, At::Changes, At::TakesDue];
            let (slot, state) = (TaskSlot::default(), Cell::new(0));
            let poll = Run::begin(first);
            Run { first, slot, tasks, polled_at: [0; 2], latest: 0, poll, threads, state, is_ready: false }
        }

        fn begin(first: First) -> At {
            if first == First::Register { At::Knows } else { At::Looks }
        }

        fn woken(&self) -> usize {
            self.tasks[self.latest].0.load(Ordering::SeqCst)
        }

        fn enabled(&self) -> Vec<usize> {
            // Threads that stand at the same step are alike: the first of them stands for all.
            let is_another = |at: usize| !self.threads[..at].contains(&self.threads[at]);
            let mut enabled: Vec<_> =
                (0..3).filter(|&at| self.threads[at] != At::Over && is_another(at)).collect();
            let is_due = self.poll != At::Idle || self.woken() > self.polled_at[self.latest];
            if is_due && !self.is_ready {
                enabled.push(POLL);
            }
            if self.poll == At::Idle && self.latest == 0 && !self.is_ready {
                enabled.push(MOVE);
            }
            enabled
        }

        fn step(&mut self, which: usize) {
            match which {
                POLL => self.step_of_poll(),
                MOVE => (self.latest, self.poll) = (1, Run::begin(self.first)),
                thread => {
                    self.threads[thread] = match self.threads[thread] {
                        At::Changes => {
                            self.state.set(self.state.get() + 1);
                            self.slot.is_due(); // under the mutex of the state
                            At::TakesDue
                        }
                        At::TakesDue if self.slot.take_due() => At::Wakes,
                        At::Wakes => {
                            self.slot.wake();
                            At::Over
                        }
                        _ => At::Over,
                    }
                }
            }
        }

        fn step_of_poll(&mut self) {
            let waker = Waker::from(Arc::clone(&self.tasks[self.latest]));
            let after_register = if self.first == First::Register { At::Looks } else { At::Idle };
            self.poll = match self.poll {
                At::Idle => {
                    self.polled_at[self.latest] = self.woken();
                    Run::begin(self.first)
                }
                At::Knows if self.slot.knows(&waker) => after_register,
                At::Knows => At::Replaces,
                At::Replaces => {
                    drop(self.slot.replace(Some(waker)));
                    after_register
                }
                At::Looks => {
                    self.is_ready = self.state.get() == CHANGES;
                    if self.first == First::Register { At::Idle } else { At::Knows }
                }
                other => panic!("{other:?}"),
            };
        }
    }

    /// How many runs there are, and how many of them end with a task that is not ready and never woken again.
    fn explore(first: First, prefix: &mut Vec<usize>, (runs, lost): (&mut usize, &mut usize)) {
        let mut run = Run::new(first);
        prefix.iter().for_each(|&step| run.step(step));
        let enabled = run.enabled();
        if enabled.iter().all(|&step| step == MOVE) {
            *runs += 1;
            *lost += usize::from(!run.is_ready);
        }
        for step in enabled {
            prefix.push(step);
            explore(first, prefix, (runs, lost));
            prefix.pop();
        }
    }

    /// No order of the steps of a poll and of three threads loses a wake-up.
    #[test]
    fn no_order_of_steps_loses_a_wake_up_of_a_task() {
        let (mut runs, mut lost) = (0, 0);
        explore(First::Register, &mut Vec::new(), (&mut runs, &mut lost));
        assert!(runs > 1_000 && lost == 0, "{lost} of {runs}");
        let (mut runs, mut lost) = (0, 0);
        explore(First::Look, &mut Vec::new(), (&mut runs, &mut lost));
        assert!(lost > 0, "a look before the waker is there has to lose some of {runs}");
    }

    #[test]
    fn only_the_latest_waker_is_woken_and_once() {
        let (slot, tasks) = (TaskSlot::default(), [Arc::<Task>::default(), Arc::default()]);
        for task in &tasks {
            slot.register(&Waker::from(Arc::clone(task)));
        }
        slot.wake_if_due();
        let woken = || tasks.each_ref().map(|task| task.0.load(Ordering::SeqCst));
        assert_eq!(woken(), [0, 0], "nothing is due");
        slot.is_due();
        slot.wake_if_due();
        slot.is_due();
        slot.wake_if_due();
        assert_eq!(woken(), [0, 1]);
        assert_eq!(Arc::strong_count(&tasks[1]), 1, "it is not kept");
    }

    #[test]
    fn pauses_grow_and_stay_in_their_bounds() {
        for (failures, full) in [(0, 0), (1, 0), (2, 50), (3, 100), (6, 800), (7, 1000), (u32::MAX, 1000)] {
            for _ in 0..50 {
                let pause = pause(failures);
                assert!(pause >= Duration::from_millis(full) / 2 && pause <= Duration::from_millis(full));
            }
        }
    }

    #[test]
    fn only_the_second_failure_in_a_row_begins_to_pause() {
        let retries = Retries::default();
        let fails = || retries.failed(Instant::now(), LONGEST_PAUSE) == AfterFailure::PausesBegin;
        assert_eq!([fails(), fails(), fails()], [false, true, false]);
    }

    #[derive(Default)]
    struct Waiting {
        is_raised: AtomicBool,
    }

    impl Raise for Waiting {
        fn raise(&self) {
            self.is_raised.store(true, Ordering::SeqCst);
        }
    }

    /// A wait that is over is told nothing, and leaves nothing behind.
    #[test]
    fn a_wait_that_is_over_is_told_nothing() {
        let cancel = CancelToken::new();
        let waits = [(); 3].map(|()| Arc::new(Waiting::default()));
        let [one, two, three] = waits.each_ref().map(|wait| cancel.listen(wait));
        drop(two);
        assert_eq!(cancel.0.listeners.lock().len(), 2);
        cancel.cancel();
        assert_eq!(waits.map(|wait| wait.is_raised.load(Ordering::SeqCst)), [true, false, true]);
        drop((one, three));
        assert!(cancel.0.listeners.lock().is_empty());
    }
}
