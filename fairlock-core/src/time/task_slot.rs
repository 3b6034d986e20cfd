//! Where a task leaves its waker.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Instant;

use parking_lot::Mutex;

use crate::logging::{LineLimit, log_line};

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

/// Runs `act`, and passes the wakers of the tasks that it has decided on when it is over, also by a panic; and then those of the tasks that
/// these have decided, as long as there are some.
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

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
            let mut enabled: Vec<_> = (0..3).filter(|&at| self.threads[at] != At::Over).collect();
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
}
