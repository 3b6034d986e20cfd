//! Calls that block, for tasks: each runs on a thread of the crate `blocking`.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::thread;

use blocking::unblock;
use parking_lot::Mutex;

use super::Ends;
use crate::time::{Clock, TaskSlot};

/// Where the other thread leaves the result, and the task its waker.
struct Outcome<T> {
    result: Mutex<Option<thread::Result<T>>>,
    task: TaskSlot,
}

/// Runs a blocking call on another thread, from the first poll on, and passes its panic on. If the future is dropped, the call goes on:
/// nothing is left half done, and a manual clock meets each thread that was announced to it.
pub(crate) async fn unblocked<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    on_clock(Clock::system(), call).await
}

async fn on_clock<T: Send + 'static>(clock: Clock, call: impl FnOnce() -> T + Send + 'static) -> T {
    let here = Arc::new(Outcome { result: Mutex::new(None), task: TaskSlot::default() });
    let there = Arc::clone(&here);
    clock.announce_background();
    let run = move || {
        // Held until the task is woken: a manual clock does not move between the end of the call and the wake-up.
        let _attends = clock.attend_in_background();
        let result = catch_unwind(AssertUnwindSafe(call));
        let mut kept = there.result.lock();
        *kept = Some(result);
        there.task.is_due();
        drop(kept);
        there.task.wake_if_due();
    };
    unblock(run).detach();
    let result = poll_fn(|context| {
        here.task.register(context.waker());
        here.result.lock().take().map_or(Poll::Pending, Poll::Ready)
    });
    result.await.unwrap_or_else(|panic| resume_unwind(panic))
}

/// The same for a call about this client, which lives until the call's end.
pub(crate) async fn aside<T: Send + 'static>(client: &Ends, call: impl FnOnce() -> T + Send + 'static) -> T {
    let (clock, client) = (client.clock(), client.clone());
    let about_client = move || {
        let result = call();
        drop(client);
        result
    };
    on_clock(clock, about_client).await
}

/// Asks the server. A backend that does not block is asked here: under a paused clock of a runtime no other thread may be needed.
pub(crate) async fn asked<T: Send + 'static>(client: &Ends, ask: impl FnOnce() -> T + Send + 'static) -> T {
    if client.is_non_blocking() { ask() } else { aside(client, ask).await }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::task::{Context, Wake, Waker};
    use std::time::Duration;

    use super::*;
    use crate::time::ManualClock;

    /// A waker that has another thread move the clock, and says whether the clock moved.
    struct Moves(ManualClock, Sender<bool>);

    impl Wake for Moves {
        fn wake(self: Arc<Self>) {
            let (clock, (moves, moved)) = (self.0.clone(), channel());
            thread::spawn(move || {
                clock.advance(Duration::from_secs(1));
                let _ = moves.send(());
            });
            let _ = self.1.send(moved.recv_timeout(Duration::from_millis(50)).is_ok());
        }
    }

    /// Else a task that waits on that clock finds its time over, though its call took no time.
    #[test]
    fn a_manual_clock_waits_until_the_task_is_woken() {
        let (clock, (says, said), (ends, end)) = (ManualClock::new(), channel(), channel());
        let mut call = Box::pin(on_clock(clock.clone().into(), move || end.recv().is_ok()));
        let waker = Waker::from(Arc::new(Moves(clock.clone(), says)));
        let context = &mut Context::from_waker(&waker);
        assert!(call.as_mut().poll(context).is_pending());
        ends.send(()).unwrap();
        assert!(!said.recv_timeout(Duration::from_secs(10)).unwrap(), "it moved before the task was woken");
        assert!(matches!(call.as_mut().poll(context), Poll::Ready(true)));
    }
}
