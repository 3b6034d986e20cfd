//! Tells the program of lost holds: by channels, by callbacks on their own thread, so that a slow one delays no renewal, and
//! in the log. The program's end of a channel also tells that a request is decided.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvError, RecvTimeoutError, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{self as channel, Sender, bounded, unbounded};
use parking_lot::Mutex;

use crate::error::Lost;
use crate::logging::{LineLimit, log_line};
use crate::time::{CancelToken, TaskSlot};

/// A channel that a program listens to, with the calls and errors of std's. Of [`Guard::lost`](crate::Guard::lost) and
/// [`Request::decided`](crate::Request::decided). Clones share the messages: each message goes to one of them.
///
/// With feature `crossbeam-channel-0_5` it can stand in a `select!` of the crate `crossbeam-channel`.
#[derive(Clone, Debug)]
pub struct Receiver<T>(pub(crate) channel::Receiver<T>);

impl<T> Receiver<T> {
    /// Waits for a message.
    ///
    /// # Errors
    /// When the channel is closed, and has no message.
    pub fn recv(&self) -> Result<T, RecvError> {
        self.0.recv().map_err(|_| RecvError)
    }

    /// Waits for a message, at most `timeout`.
    ///
    /// # Errors
    /// When the time is over; and as [`recv`](Self::recv).
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.0.recv_timeout(timeout).map_err(|error| match error {
            channel::RecvTimeoutError::Timeout => RecvTimeoutError::Timeout,
            channel::RecvTimeoutError::Disconnected => RecvTimeoutError::Disconnected,
        })
    }

    /// Takes a message that is there.
    ///
    /// # Errors
    /// When there is none; and as [`recv`](Self::recv).
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.0.try_recv().map_err(|error| match error {
            channel::TryRecvError::Empty => TryRecvError::Empty,
            channel::TryRecvError::Disconnected => TryRecvError::Disconnected,
        })
    }

    /// The channel of the crate `crossbeam-channel` 0.5, for its `select!`. A later major version of `crossbeam-channel` gets its own
    /// feature and method here, and fairlock keeps its major version.
    #[cfg(feature = "crossbeam-channel-0_5")]
    pub fn as_crossbeam(&self) -> &channel::Receiver<T> {
        &self.0
    }
}

type Callback = Arc<dyn Fn(&Lost) + Send + Sync>;

/// The channel for the loss of a hold, or for the first loss among several. It gets one message and is then closed.
#[derive(Clone, Debug)]
pub(crate) struct FirstLoss(Arc<LossListener>);

#[derive(Debug)]
struct LossListener {
    /// The sender; none once the channel is closed.
    sender: Mutex<Option<Sender<Lost>>>,
    ends_waits: CancelToken,
    /// The waker of a task that waits for the loss.
    task: TaskSlot,
}

impl RefUnwindSafe for LossListener {} // see `Shared`

impl FirstLoss {
    pub(crate) fn new() -> (FirstLoss, Receiver<Lost>) {
        let (sender, lost) = bounded(1);
        let (sender, ends_waits) = (Mutex::new(Some(sender)), CancelToken::new());
        let listener = LossListener { sender, ends_waits, task: TaskSlot::default() };
        (FirstLoss(Arc::new(listener)), Receiver(lost))
    }

    /// Ends the waits that go on beside these holds.
    pub(crate) fn cancel(&self) -> &CancelToken {
        &self.0.ends_waits
    }

    /// Sends the loss, unless another one came before it.
    pub(crate) fn tell(&self, lost: &Lost) {
        if let Some(sender) = self.0.sender.lock().take() {
            // One message fits; dropping the sender then wakes every clone of the receiver.
            let _ = sender.try_send(lost.clone());
        }
    }

    /// After [`FirstLoss::tell`], and without a claim's mutex: it raises the signal of a caller that waits, and wakes a task.
    pub(crate) fn end_waits(&self) {
        self.0.ends_waits.cancel();
        self.0.task.wake();
    }

    /// Where the task leaves its waker that waits for the loss.
    pub(crate) fn task(&self) -> &TaskSlot {
        &self.0.task
    }

    /// Closes the channel: the holds are released.
    pub(crate) fn close(&self) {
        self.0.sender.lock().take();
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.sender.lock().is_some()
    }
}

/// The callbacks of a client, and the thread that runs them. The first callback starts it.
#[derive(Default)]
pub(crate) struct LossCallbacks {
    callbacks: Arc<Mutex<Vec<Callback>>>,
    runner: Mutex<Option<Runner>>,
    /// How many losses are being reported: the client does not end before the callbacks have them.
    reporting: AtomicUsize,
}

struct Runner {
    losses: Sender<Lost>,
    /// Closed when the thread ends.
    done: channel::Receiver<()>,
    thread: JoinHandle<()>,
}

/// Whether the callbacks have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    Ended,
    /// A callback still runs.
    Running,
}

impl LossCallbacks {
    pub(crate) fn add(&self, callback: Callback) {
        self.callbacks.lock().push(callback);
        let mut runner = self.runner.lock();
        if runner.is_none() {
            *runner = start(Arc::clone(&self.callbacks));
        }
    }

    pub(crate) fn report(&self, lost: &Lost) {
        if let Some(runner) = &*self.runner.lock() {
            // The channel is unbounded, but there is at most one message for each hold.
            let _ = runner.losses.send(lost.clone());
        }
    }

    /// Reports the loss that `mark` marks, if it is one.
    pub(crate) fn report_marked(&self, mark: impl FnOnce() -> Option<Lost>) -> Option<Lost> {
        self.reporting.fetch_add(1, Ordering::SeqCst);
        let lost = mark();
        lost.iter().for_each(|lost| self.report(lost));
        self.reporting.fetch_sub(1, Ordering::SeqCst);
        lost
    }

    /// Whether each loss that was marked is reported.
    pub(crate) fn all_reported(&self) -> bool {
        self.reporting.load(Ordering::SeqCst) == 0
    }

    /// Ends the thread once the callbacks have had every loss that was reported. Waits for that, `at_most` in real time (it
    /// runs user code), and not at all on that thread itself. The wait needs an end: a callback may want a mutex of the
    /// caller's, which is not free before the caller goes on.
    pub(crate) fn stop(&self, at_most: Duration) -> Stopped {
        let runner = self.runner.lock().take();
        let Some(Runner { losses, done, thread }) = runner else { return Stopped::Ended };
        drop(losses);
        if thread.thread().id() == thread::current().id() {
            return Stopped::Ended;
        }
        if done.recv_timeout(at_most) == Err(channel::RecvTimeoutError::Timeout) {
            return Stopped::Running;
        }
        let _ = thread.join(); // it catches its panics, and is at its very end
        Stopped::Ended
    }
}

pub(crate) fn log_loss(loss: &Lost) {
    let Lost { lock, owner, label, token, cause } = loss;
    log_line!(warn, "fairlock::watchdog",
        event = "lost", lock = lock.as_str(), owner = owner.as_str(), label = &**label, token = token.get(),
        cause:? = cause;
        "{loss}"
    );
}

/// Losses that were reported and have no line in the log yet.
#[derive(Default)]
pub(crate) struct Unlogged(Mutex<VecDeque<Lost>>);

impl Unlogged {
    pub(crate) fn keep(&self, lost: Lost) {
        self.0.lock().push_back(lost);
    }

    /// Logs these losses until `stop` says so, which is asked after each line. False: some losses are left.
    pub(crate) fn log(&self, stop: impl Fn() -> bool) -> bool {
        loop {
            let Some(lost) = self.0.lock().pop_front() else { return true };
            log_loss(&lost);
            if stop() {
                return false;
            }
        }
    }
}

fn start(callbacks: Arc<Mutex<Vec<Callback>>>) -> Option<Runner> {
    let ((losses, reports), (running, done)) = (unbounded(), bounded(0));
    let run = move || {
        run(&reports, &callbacks);
        drop(running);
    };
    match thread::Builder::new().name("fairlock-calls".into()).spawn(run) {
        Ok(thread) => Some(Runner { losses, done, thread }),
        Err(error) => {
            log_line!(error, "fairlock::watchdog",
                event = "no thread", error:% = error;
                "can't start the thread for loss callbacks, so they won't run: {error}"
            );
            None
        }
    }
}

/// Ends when the client has dropped the other end of the channel.
fn run(reports: &channel::Receiver<Lost>, callbacks: &Mutex<Vec<Callback>>) {
    let panicked = LineLimit::new();
    for lost in reports {
        let current = callbacks.lock().clone(); // user code runs without our mutex
        for callback in current {
            if catch_unwind(AssertUnwindSafe(|| callback(&lost))).is_err()
                && let Some(count) = panicked.count(1, Instant::now())
            {
                log_line!(error, "fairlock::watchdog",
                    event = "callback panicked", lock = lost.lock.as_str(), count = count;
                    "a callback for lost holds panicked, {count} time(s) since the last line ({lost})"
                );
            }
        }
    }
}
