//! Tasks, polled by hand: what wakes them, and what they leave behind.

mod calls;
mod ends;
mod limits;
mod quick;
mod releases;
mod waits;
mod wakers;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::store::Asked;
use super::support::World;
use crate::{AsyncGuard, AsyncLock, Result};

/// Counts how often a task was woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A task that waits for one future.
pub(super) struct Polled<T> {
    future: Pin<Box<dyn Future<Output = T> + Send>>,
    wakes: Arc<Wakes>,
}

impl<T> Polled<T> {
    pub(super) fn new(future: impl Future<Output = T> + Send + 'static) -> Polled<T> {
        Polled { future: Box::pin(future), wakes: Arc::default() }
    }

    fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.wakes))
    }

    pub(super) fn poll(&mut self) -> Poll<T> {
        let waker = self.waker();
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    pub(super) fn woken(&self) -> usize {
        self.wakes.0.load(Ordering::SeqCst)
    }

    /// What it came to. It was woken for that, once.
    pub(super) fn ended(mut self) -> T {
        assert_eq!(self.woken(), 1);
        let Poll::Ready(ended) = self.poll() else { panic!("it is still pending") };
        assert_eq!(Arc::strong_count(&self.wakes), 1, "nothing keeps the task");
        ended
    }
}

impl World {
    fn async_lock(&self, name: &str) -> AsyncLock {
        self.client.fair_lock(name).unwrap().to_async()
    }

    /// The store answers no other thread before this is over.
    pub(super) fn before_the_answer<T>(&self, poll: impl FnOnce() -> T) -> T {
        let _silent = self.store.silence();
        poll()
    }

    /// A task that was polled once.
    fn task<T>(&self, future: impl Future<Output = T> + Send + 'static) -> Polled<T> {
        let mut task = Polled::new(future);
        assert!(self.before_the_answer(|| task.poll()).is_pending());
        task
    }

    /// A task that waits for this lock, once its first attempt is over.
    fn locking(&self, name: &str) -> Polled<Result<AsyncGuard>> {
        let task = self.task(self.async_lock(name).lock());
        self.settle();
        task
    }

    fn locked(&self, name: &str) -> AsyncGuard {
        self.locking(name).ended().unwrap()
    }
}

/// Whether a thread for tasks asked that.
fn is_by_tasks(asked: &Asked) -> bool {
    asked.by.as_deref() == Some("fairlock-tasks")
}
