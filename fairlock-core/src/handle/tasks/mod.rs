//! Locks for tasks: waits are futures, and neither a wait nor a release blocks a thread. Any executor will do.
//!
//! Calls that block, such as an operator's look, begin with the first poll of their future, and go on if it is dropped. The client's
//! threads for calls make those that last for a few attempts, and a thread of its own makes each of the others. No executor's pool is
//! used: the program's own work may fill it, and wait for this very call.

mod guard;

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use parking_lot::Mutex;

pub(super) use guard::obtain_all;
pub use guard::{AsyncGuard, AsyncHold};

use super::guard::{Owner, Ownership, ThisThread, TryLock};
use super::lock::{Caller, Lock, terms, wait_of};
use crate::backend::{BackendError, BackendErrorKind, Wait};
use crate::claim::{Claim, Patience, TaskStep};
use crate::error::{Error, Result};
use crate::flow::{count, end_of, error_of, without};
use crate::ids::{LockKind, LockName};
use crate::shared::{Handles, Shared};
use crate::stats::{Outcome, Stats};
use crate::tasks;
use crate::time::{CancelToken, Clock, Listening, TaskSlot};
use crate::timers::no_thread;

/// A [`Lock`] for tasks, made by [`Lock::to_async`]. Cheap to clone. It needs no runtime: its futures are woken by the client.
///
/// ```
/// # use fairlock::{Client, MemoryBackend};
/// # use std::{pin::pin, sync::Arc, task::{Context, Poll, Wake, Waker}, thread::{self, Thread}};
/// # struct Unpark(Thread);
/// # impl Wake for Unpark { fn wake(self: Arc<Self>) { self.0.unpark() } }
/// # fn block_on<T>(task: impl Future<Output = T>) -> T {
/// #     let (mut task, waker) = (pin!(task), Waker::from(Arc::new(Unpark(thread::current()))));
/// #     loop {
/// #         if let Poll::Ready(done) = task.as_mut().poll(&mut Context::from_waker(&waker)) { return done }
/// #         thread::park();
/// #     }
/// # }
/// # let client = Client::new(MemoryBackend::new())?;
/// # let task = async {
/// let lock = client.fair_lock("lock:orders")?.to_async();
/// let guard = lock.lock().await?; // the watchdog renews the hold
/// println!("write with token {}", guard.token());
/// guard.unlock().await?; // or drop it: it is released in the background
/// # Ok::<(), fairlock::Error>(())
/// # };
/// # block_on(task)?;
/// # Ok::<(), fairlock::Error>(())
/// ```
///
/// # Owners
/// Each wait, with its guard, is its own owner. So there is no re-entry: a task that holds the lock and asks for it again waits
/// for itself. Take several locks in one order everywhere.
///
/// # Order
/// The first poll takes a place in the queue. Dropping the future leaves the queue; a grant that is on its way is passed on. A
/// `select!` in a loop has to keep the future outside of the loop, or the task loses its place at each turn.
///
/// # A task that is not polled
/// A grant that no poll takes is renewed for one lease only, and ends within two leases in all. That is reported as a loss, and a
/// task that comes back later asks anew, at the tail. A guard that a stuck task keeps is renewed for ever: [`Lock::max_hold`]
/// bounds that.
///
/// # Wakers
/// Wakers run on the client's threads, and on threads that release a lock: a waker that blocks keeps others from being woken.
#[derive(Clone, Debug)]
pub struct AsyncLock(pub(super) Caller<ThisThread>, Ends);

impl<O: Ownership> Lock<O> {
    /// This lock for tasks, with the terms and the [`CancelToken`] of this handle. Its waits and releases block no thread. Makes no round
    /// trip.
    pub fn to_async(&self) -> AsyncLock {
        let Caller { shared, lock, terms, units, cancel, condition, .. } = self.0.clone();
        let ends = Ends::new(&shared);
        AsyncLock(Caller { shared, lock, owner: ThisThread, terms, units, cancel, condition }, ends)
    }
}

impl AsyncLock {
    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.0.lock.name.as_str()
    }

    /// Which kind of lock it is.
    pub fn kind(&self) -> LockKind {
        self.0.lock.kind
    }

    /// Waits for the lock, without a time limit.
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn lock(&self) -> LockFuture {
        LockFuture(Attempt::new(self, Wait::Forever))
    }

    /// Makes one attempt. It never waits in the queue, and never passes a waiter that does.
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn try_lock(&self) -> TryLockFuture {
        self.obtain(Wait::No)
    }

    /// Waits for the lock, at most `timeout` from the first poll on, by the client's [clock](crate::ClientBuilder::clock); zero is
    /// [`try_lock`](Self::try_lock). A timer of the runtime around [`lock`](Self::lock) ends a wait as well, but does not tell a
    /// busy lock from a server that does not answer.
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn try_lock_for(&self, timeout: Duration) -> TryLockFuture {
        self.obtain(wait_of(timeout))
    }

    /// As [`Lock::try_lock_until`].
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn try_lock_until(&self, deadline: Instant) -> TryLockFuture {
        self.try_lock_for(self.0.time_to(deadline))
    }

    /// As [`Lock::stats`].
    pub fn stats(&self) -> Option<Stats> {
        self.lock_of_thread().stats()
    }

    /// As [`Lock::is_locked`].
    ///
    /// # Errors
    /// As [`Lock::is_locked`].
    pub async fn is_locked(&self) -> Result<bool> {
        let lock = self.lock_of_thread();
        asked(&self.0.shared, &self.0.lock.name, move || lock.is_locked()).await
    }

    pub(super) fn obtain(&self, wait: Wait) -> TryLockFuture {
        TryLockFuture(Attempt::new(self, wait))
    }

    pub(super) fn lock_of_thread(&self) -> Lock {
        Lock(self.0.clone())
    }

    pub(super) fn with_lock(&self, change: impl FnOnce(&Lock) -> Lock) -> AsyncLock {
        change(&self.lock_of_thread()).to_async()
    }
}

terms!(AsyncLock);

/// A wait for a lock, of [`AsyncLock::lock`]. Dropping it leaves the queue in the background.
///
/// After it was ready it has only [`Error::Misuse`].
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct LockFuture(Attempt);

/// A wait for a lock that may end without it, of [`AsyncLock::try_lock`] and [`AsyncLock::try_lock_for`]. Dropping it leaves the queue
/// in the background.
///
/// After it was ready it has only [`Error::Misuse`].
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct TryLockFuture(Attempt);

impl LockFuture {
    /// How many waiters are ahead, as last heard; 0 is next. None before that, when it is decided, and where the lock is plain.
    pub fn rank(&self) -> Option<u64> {
        match &self.0.stage {
            Stage::Waiting { claim, .. } => claim.rank(),
            Stage::New | Stage::Over => None,
        }
    }
}

impl Future for LockFuture {
    type Output = Result<AsyncGuard>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            // Busy can't be: a wait without limit ends with the lock or an error.
            match self.0.poll(context) {
                Poll::Ready(Ok(TryLock::Granted(guard))) => return Poll::Ready(Ok(guard)),
                Poll::Ready(Ok(TryLock::Busy(_))) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl Future for TryLockFuture {
    type Output = Result<TryLock<AsyncGuard>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context)
    }
}

struct Attempt {
    lock: AsyncLock,
    wait: Wait,
    /// Made by the first poll, from which its time counts, even if a later claim goes on with it.
    patience: Option<Patience>,
    began: Option<Instant>,
    stage: Stage,
}

enum Stage {
    New,
    Waiting {
        claim: Arc<Claim>,
        /// To the handle's `CancelToken`.
        _listening: Option<Listening>,
    },
    Over,
}

impl Attempt {
    fn new(lock: &AsyncLock, wait: Wait) -> Attempt {
        Attempt { lock: lock.clone(), wait, patience: None, began: None, stage: Stage::New }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<TryLock<AsyncGuard>>> {
        let polled = self.poll_inner(context);
        if let Poll::Ready(ended) = &polled {
            let is_granted = ended.as_ref().map(|lock| matches!(lock, TryLock::Granted(_)));
            let Caller { shared, lock, .. } = &self.lock.0;
            count(&shared.ledger.counters, &shared.config, lock, self.wait, is_granted, self.began);
        }
        polled
    }

    fn poll_inner(&mut self, context: &mut Context<'_>) -> Poll<Result<TryLock<AsyncGuard>>> {
        loop {
            let claim = match &self.stage {
                Stage::Waiting { claim, .. } => claim,
                Stage::New => match self.begin() {
                    Ok(waiting) => {
                        self.stage = waiting;
                        continue;
                    }
                    Err(error) => {
                        self.stage = Stage::Over;
                        return Poll::Ready(Err(error));
                    }
                },
                Stage::Over => {
                    let reason = "the wait was over before: its guard was taken, or its error reported";
                    return Poll::Ready(Err(Error::Misuse {
                        lock: self.lock.0.lock.name.clone(),
                        reason: reason.to_owned(),
                    }));
                }
            };
            // First the waker, then the look: what happens in between wakes the task.
            claim.register(context.waker());
            let step = claim.task_step(self.lock.0.shared.now());
            let is_cancelled = self.lock.0.cancel.as_ref().is_some_and(CancelToken::is_cancelled);
            if matches!(step, TaskStep::Pending) && !is_cancelled {
                return Poll::Pending;
            }
            let Stage::Waiting { claim, .. } = std::mem::replace(&mut self.stage, Stage::Over) else {
                continue;
            };
            let _dropped_last = claim.take_waker();
            let shared = &self.lock.0.shared;
            return Poll::Ready(match step {
                TaskStep::Take { token, due_at } => {
                    shared.timers.due_by(due_at);
                    claim.begin_hold(token);
                    let (shared, ends) = (Arc::clone(shared), self.lock.1.clone());
                    Ok(TryLock::Granted(AsyncGuard::new(shared, claim, token, ends)))
                }
                TaskStep::TooLate => {
                    tasks::leave(shared, &claim, "lost");
                    self.stage = Stage::New;
                    continue;
                }
                TaskStep::Pending => {
                    tasks::leave(shared, &claim, Outcome::Cancelled.name());
                    Err(self.cancelled())
                }
                TaskStep::NotGranted => {
                    claim.end_wait(without(self.wait).name());
                    Ok(TryLock::Busy(claim.busy()))
                }
                TaskStep::Failed(failure) => {
                    let failed = Err(error_of(&claim.lock.name, failure));
                    claim.end_wait(end_of(&failed, ""));
                    failed
                }
            });
        }
    }

    fn begin(&mut self) -> Result<Stage> {
        let caller = &self.lock.0;
        if caller.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
            return Err(self.cancelled());
        }
        let patience = self.patience.get_or_insert_with(|| caller.patience(self.wait));
        self.began.get_or_insert_with(|| caller.shared.now());
        caller.shared.timers.start_tasks().map_err(|error| Error::about(&caller.lock.name, error))?;
        let owner = Owner::new(caller.shared.id);
        let claim = tasks::begin(&caller.shared, caller.wish(owner.id(), patience)?)?;
        // A cancel before this is seen after the look that follows, as a cancel after it is.
        let listening = caller.cancel.as_ref().map(|cancel| cancel.listen(&claim));
        Ok(Stage::Waiting { claim, _listening: listening })
    }

    fn cancelled(&self) -> Error {
        Error::Cancelled { lock: self.lock.0.lock.name.clone() }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Stage::Waiting { claim, .. } = &self.stage {
            let _dropped_last = claim.take_waker();
            tasks::leave(&self.lock.0.shared, claim, Outcome::Cancelled.name());
        }
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt").field("lock", &self.lock.0.lock).finish_non_exhaustive()
    }
}

/// The last field of a task's handle. If this handle is the client's last, a thread ends the client, and not this drop. The other
/// fields are dropped before, and never drop the last handle.
#[derive(Clone, Debug)]
pub(crate) struct Ends(Option<Arc<Handles>>);

impl Ends {
    pub(super) fn new(shared: &Arc<Handles>) -> Ends {
        Ends(Some(Arc::clone(shared)))
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        let Some(handles) = self.0.take() else { return };
        let shared = Arc::clone(&handles.0);
        drop(handles); // if it was the last one, this waits a moment
        Arc::into_inner(shared).map_or((), tasks::end_elsewhere)
    }
}

/// Makes a call that may last long on a thread of this name, from the first poll on.
pub(super) async fn on_its_own_thread<T: Send + 'static>(
    name: &str,
    clock: Clock,
    call: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (run, called) = Called::of(call);
    clock.announce_background();
    let run = move || {
        // Held until the task is woken: a manual clock does not move between the end of the call and the wake-up.
        let _attends = clock.attend_in_background();
        run();
    };
    if let Err(error) = thread::Builder::new().name(name.to_owned()).spawn(run) {
        let source = Box::new(no_thread("no thread for this call", error));
        return Err(Error::Unavailable { lock: None, source });
    }
    called.wait().await
}

/// Makes a call about this lock on a thread for calls, from the first poll on. A backend that does not block is asked here: under a paused
/// clock of a runtime no other thread may be needed.
///
/// # Errors
/// Those of the call; [`Error::Unavailable`] if it had to wait for the outage limit: others were not answered.
pub(super) async fn asked<T: Send + 'static>(
    shared: &Arc<Shared>,
    lock: &LockName,
    call: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if shared.backend.is_non_blocking() {
        return call();
    }
    let (config, name) = (Arc::clone(&shared.config), lock.clone());
    let until = shared.now() + config.outage_limit;
    let (run, called) = Called::of(move || {
        if config.now() < until {
            return call();
        }
        let what = "the call had to wait too long to be made";
        Err(Error::about(&name, BackendError::new(BackendErrorKind::Unavailable, what)))
    });
    tasks::call_elsewhere(shared, Box::new(run)).map_err(|error| Error::about(lock, error))?;
    called.wait().await
}

/// Where the other thread leaves the result, and the task its waker.
struct Called<T> {
    result: Mutex<Option<thread::Result<Result<T>>>>,
    task: TaskSlot,
}

impl<T: Send + 'static> Called<T> {
    /// The call for another thread, and where it leaves its result. If no task waits any more, the call is made all the same.
    fn of(
        call: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> (impl FnOnce() + Send + 'static, Arc<Called<T>>) {
        let here = Arc::new(Called { result: Mutex::new(None), task: TaskSlot::default() });
        let there = Arc::clone(&here);
        let run = move || {
            let result = catch_unwind(AssertUnwindSafe(call));
            let mut kept = there.result.lock();
            *kept = Some(result);
            there.task.is_due();
            drop(kept);
            there.task.wake_if_due();
        };
        (run, here)
    }

    /// Waits for the result, and passes a panic on.
    async fn wait(&self) -> Result<T> {
        let result = poll_fn(|context| {
            self.task.register(context.waker());
            self.result.lock().take().map_or(Poll::Pending, Poll::Ready)
        });
        result.await.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The compiler says so, or this is not built.
    #[test]
    fn what_a_task_keeps_may_move_between_threads() {
        fn may<T: Send + Unpin + 'static>() {}
        fn is_shared<T: Sync>() {}
        fn is_future(_: impl Future<Output = Result<()>> + Send + 'static) {}
        let _ = [may::<AsyncLock>, may::<LockFuture>, may::<TryLockFuture>, may::<AsyncGuard>];
        let _ = [is_shared::<AsyncLock>, is_shared::<AsyncGuard>];
        let _ = |guard: AsyncGuard| is_future(guard.unlock());
    }
}
