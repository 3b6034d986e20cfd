//! Locks for tasks: waits are futures, and neither a wait nor a release blocks a thread. Any executor will do.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use crate::backend::{BackendError, BackendErrorKind, RequestId, Wait};
use crate::cancel::{Cancel, Listening};
use crate::claim::{Claim, Patience, ReleaseStep, TaskStep};
use crate::flow::{Taken, error_of};
use crate::handle::caller::{Caller, wait_of};
use crate::handle::guard::{AnyGuard, Guard, OwnedGuard, TryLock};
use crate::handle::lock::Lock;
use crate::handle::owner::{Owner, Ownership, ThisThread};
use crate::losses::FirstLoss;
use crate::shared::Shared;
use crate::{Error, FencingToken, LockKind, Lost, OwnerId, Result};

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
/// Each wait and its guard are an owner of their own. So there is no re-entry: a task that holds the lock and asks for it again waits
/// for itself. Take several locks in one order everywhere.
///
/// # Order
/// A place in the line is taken by the first poll. Dropping the future leaves the line; a grant that crosses that is passed on. A
/// `select!` in a loop has to keep the future outside of the loop, or it loses its place at each turn.
///
/// # A task that is not polled
/// A grant that no poll takes is renewed for one lease only, and then ends as any hold does, within two leases in all. That is
/// reported as a loss, and a task that comes back later asks anew, at the tail. A guard that a stuck task keeps is renewed for ever:
/// [`Lock::max_hold`] bounds that.
#[derive(Clone, Debug)]
pub struct AsyncLock(Caller<ThisThread>, Ends);

/// The last field of a task's handle: if that is the last handle of its client, a thread ends the client, and not this drop. The other
/// fields are gone by then, so no other drop of this handle is the last one.
#[derive(Clone, Debug)]
struct Ends(Option<Arc<Shared>>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.take().and_then(Arc::into_inner).map_or((), Shared::end_elsewhere)
    }
}

impl<O: Ownership> Lock<O> {
    /// The same lock for tasks, with the terms and the [`Cancel`] of this handle. Its waits and releases block no thread. Makes no round
    /// trip.
    pub fn to_async(&self) -> AsyncLock {
        let Caller { shared, lock, terms, takes, cancel, .. } = self.0.clone();
        let ends = Ends(Some(Arc::clone(&shared)));
        AsyncLock(Caller { shared, lock, owner: ThisThread, terms, takes, cancel }, ends)
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
    pub fn lock(&self) -> Locking {
        Locking(Attempt::new(self, Wait::Forever))
    }

    /// Makes one attempt. It never waits in line, and never passes a waiter that does.
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn try_lock(&self) -> TryLocking {
        TryLocking(Attempt::new(self, Wait::No))
    }

    /// Waits for the lock, at most `timeout` from the first poll on, by the client's [clock](crate::ClientBuilder::clock); zero is
    /// [`try_lock`](Self::try_lock). A timer of the runtime around [`lock`](Self::lock) ends a wait as well, but does not tell a
    /// busy lock from a server that does not answer.
    ///
    /// # Errors
    /// See [`Lock`].
    pub fn try_lock_for(&self, timeout: Duration) -> TryLocking {
        TryLocking(Attempt::new(self, wait_of(timeout)))
    }
}

/// A wait for a lock, of [`AsyncLock::lock`]. Dropping it leaves the line in the background.
///
/// After it was ready it has only [`Error::Misuse`].
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct Locking(Attempt);

/// A wait for a lock that may end without it, of [`AsyncLock::try_lock`] and [`AsyncLock::try_lock_for`]. Dropping it leaves the line
/// in the background.
///
/// After it was ready it has only [`Error::Misuse`].
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct TryLocking(Attempt);

impl Locking {
    /// How many waiters are ahead, as last heard; 0 is next. None before that, when it is decided, and where the lock is plain.
    pub fn rank(&self) -> Option<u64> {
        match &self.0.stage {
            Stage::Waiting { claim, .. } => claim.rank(),
            Stage::New | Stage::Over => None,
        }
    }
}

impl Future for Locking {
    type Output = Result<AsyncGuard>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            // Busy can't be: a wait without limit ends with the lock or an error.
            match self.0.poll(context) {
                Poll::Ready(Ok(TryLock::Granted(guard))) => return Poll::Ready(Ok(guard)),
                Poll::Ready(Ok(TryLock::Busy)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl Future for TryLocking {
    type Output = Result<TryLock<AsyncGuard>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context)
    }
}

struct Attempt {
    lock: AsyncLock,
    wait: Wait,
    /// Made by the first poll, from which its time counts, also where a later claim goes on with it.
    patience: Option<Patience>,
    stage: Stage,
}

enum Stage {
    New,
    Waiting {
        claim: Arc<Claim>,
        /// To the handle's `Cancel`.
        _listening: Option<Listening>,
    },
    Over,
}

impl Attempt {
    fn new(lock: &AsyncLock, wait: Wait) -> Attempt {
        Attempt { lock: lock.clone(), wait, patience: None, stage: Stage::New }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<TryLock<AsyncGuard>>> {
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
                    return Poll::Ready(Err(Error::Misuse { lock: self.lock.0.lock.name.clone(), reason }));
                }
            };
            // First the waker, then the look: what happens in between wakes the task.
            claim.register(context.waker());
            let step = claim.task_step(self.lock.0.shared.now());
            let is_cancelled = self.lock.0.cancel.as_ref().is_some_and(Cancel::is_cancelled);
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
                    shared.schedule.due_by(due_at);
                    let (shared, ends) = (Arc::clone(shared), self.lock.1.clone());
                    Ok(TryLock::Granted(AsyncGuard { shared, claim, token, spent: false, _ends: ends }))
                }
                TaskStep::TooLate => {
                    shared.leave_task(&claim);
                    self.stage = Stage::New;
                    continue;
                }
                TaskStep::Pending => {
                    shared.leave_task(&claim);
                    Err(self.cancelled())
                }
                TaskStep::NotGranted => Ok(TryLock::Busy),
                TaskStep::Failed(failure) => Err(error_of(&claim.lock.name, failure)),
            });
        }
    }

    fn begin(&mut self) -> Result<Stage> {
        let caller = &self.lock.0;
        if caller.cancel.as_ref().is_some_and(Cancel::is_cancelled) {
            return Err(self.cancelled());
        }
        let patience = self.patience.get_or_insert_with(|| caller.patience(self.wait));
        caller.shared.start_tasks().map_err(|error| Error::about(&caller.lock.name, error))?;
        let owner = Owner::new(caller.shared.id);
        let claim = caller.shared.begin_task(caller.wish(owner.id(), patience)?)?;
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
            self.lock.0.shared.leave_task(claim);
        }
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt").field("lock", &self.lock.0.lock).finish_non_exhaustive()
    }
}

/// A task's hold of a lock. It may move between threads. Dropping it blocks none: the lock is released in the background, before
/// anything that tasks of this client ask for later.
#[must_use = "if unused the lock is released at once"]
#[derive(Debug)]
pub struct AsyncGuard {
    shared: Arc<Shared>,
    claim: Arc<Claim>,
    token: FencingToken,
    /// Released already, or another guard's: the drop releases nothing.
    spent: bool,
    _ends: Ends,
}

impl AnyGuard for AsyncGuard {}

impl AsyncGuard {
    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.claim.lock.name.as_str()
    }

    /// The owner that holds it, which no other wait or guard has.
    pub fn owner(&self) -> &OwnerId {
        &self.claim.owner
    }

    /// The fencing token of this acquisition.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// The request that was granted. See [`Guard::request_id`].
    pub fn request_id(&self) -> RequestId {
        self.claim.request
    }

    /// How long the hold is certain without another renewal; zero when it is lost.
    pub fn valid_for(&self) -> Duration {
        let until = self.claim.valid_until();
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(self.shared.now()))
    }

    /// Whether the hold has ended or may have. See [`Guard::is_lost`].
    pub fn is_lost(&self) -> bool {
        self.valid_for() == Duration::ZERO
    }

    /// Says whether the hold is certain still, for a `?` between two steps of the work. Asks no server. A hold that was lost stays lost.
    ///
    /// # Errors
    /// [`Error::Lost`] when [`is_lost`](Self::is_lost) is true.
    pub fn check(&self) -> Result<()> {
        self.shared.lose_if_expired(&self.claim).map_or(Ok(()), |lost| Err(Error::Lost(lost)))
    }

    /// Ready when this hold is lost, and never if it is released before: for a `select!` beside the work. It borrows nothing, and any
    /// number of them may wait.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + Sync + Unpin + use<> {
        let (first_loss, lost) = FirstLoss::new();
        self.claim.tell_when_lost(&first_loss);
        UntilLost { first_loss, lost }
    }

    /// Releases the lock, and waits until the server has said so. Once it was polled the release goes on, also if this future is
    /// dropped.
    ///
    /// # Errors
    /// [`Error::Lost`] if the hold had ended before; [`Error::Unavailable`] if the server is silent for the [outage
    /// limit](crate::ClientBuilder::outage_limit), and [`Error::Denied`] if it refuses: the release is then repeated in the background, for as
    /// long as the lease may last; [`Error::Shutdown`] if the client has ended and the server could not be told.
    pub async fn unlock(mut self) -> Result<()> {
        self.spent = true;
        let until = self.shared.now() + self.shared.config.outage_limit;
        self.claim.tell_by(until);
        self.shared.unlock_task(&self.claim)?;
        self.shared.schedule.due_by(Some(until));
        poll_fn(|context| self.poll_released(context, until)).await
    }

    fn poll_released(&self, context: &Context<'_>, until: Instant) -> Poll<Result<()>> {
        self.claim.register(context.waker());
        let lock = &self.claim.lock.name;
        let error = match self.claim.release_step() {
            ReleaseStep::Released => return Poll::Ready(Ok(())),
            ReleaseStep::Lost(cause) => Error::Lost(self.claim.lost(self.token, cause)),
            ReleaseStep::Failed(failure) => error_of(lock, failure),
            ReleaseStep::UnderWay(Some(error)) if !error.kind().is_transient() => Error::about(lock, error),
            ReleaseStep::UnderWay(error) if self.shared.now() >= until => {
                let silence = || BackendError::new(BackendErrorKind::Unavailable, "no answer to the release");
                Error::about(lock, error.unwrap_or_else(silence))
            }
            ReleaseStep::UnderWay(_) => return Poll::Pending,
        };
        Poll::Ready(Err(error))
    }

    /// The same hold with a guard whose calls block, such as [`renew`](Guard::renew), [`bump`](Guard::bump) and
    /// [`leak`](Guard::leak): for a thread, or a `spawn_blocking`.
    pub fn into_blocking(mut self) -> OwnedGuard {
        self.spent = true;
        let taken = Taken { claim: Arc::clone(&self.claim), token: self.token };
        Guard::new(Arc::clone(&self.shared), taken)
    }
}

impl Drop for AsyncGuard {
    fn drop(&mut self) {
        let _dropped_last = self.claim.take_waker();
        if !self.spent {
            let _ = self.shared.unlock_task(&self.claim); // a loss was logged
        }
    }
}

/// The future of [`AsyncGuard::lost`].
struct UntilLost {
    first_loss: FirstLoss,
    lost: Receiver<Lost>,
}

impl Future for UntilLost {
    type Output = Lost;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Lost> {
        // The loss is sent before the waker is taken: this look finds it, or leaves the waker that is woken then.
        self.first_loss.task().register(context.waker());
        let Ok(lost) = self.lost.try_recv() else { return Poll::Pending };
        drop(self.first_loss.task().take());
        Poll::Ready(lost)
    }
}

impl Drop for UntilLost {
    fn drop(&mut self) {
        // The claim forgets a channel that is closed.
        self.first_loss.close();
        drop(self.first_loss.task().take());
    }
}
