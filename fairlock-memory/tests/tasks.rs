//! Tasks ask the memory backend themselves, and a release wakes the next one: what that costs an executor that polls in its wakers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};

use fairlock_core::{Client, LockKind, ManualClock};
use fairlock_memory::{MemoryBackend, Operation};

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Its waker polls the task, on whichever thread wakes it.
struct Inline {
    task: Mutex<Option<Task>>,
    this: Weak<Inline>,
}

impl Inline {
    /// Polls the task once.
    fn run(task: impl Future<Output = ()> + Send + 'static) -> Arc<Inline> {
        let task = Mutex::new(Some(Box::pin(task) as Task));
        let inline = Arc::new_cyclic(|this| Inline { task, this: this.clone() });
        Arc::clone(&inline).wake();
        inline
    }
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(self.this.upgrade().unwrap());
        let task = self.task.lock().unwrap().take();
        if let Some(mut task) = task
            && task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
        {
            *self.task.lock().unwrap() = Some(task);
        }
    }
}

fn poll<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Poll<T> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// The first release polls the second task, whose release polls the third one. Polled inside each other they would not fit on the stack.
#[test]
fn a_crowd_that_is_polled_by_its_wakers_is_not_nested() {
    const CROWD: usize = 4_000;
    for is_plain in [false, true] {
        // No heartbeat comes due: the watchdog would have calls under way, and settle what would overtake them.
        let clock = ManualClock::new();
        let store = MemoryBackend::with_clock(clock.clone());
        let client = Client::builder(store).clock(clock).build().unwrap();
        let crowd = if is_plain { CROWD / 100 } else { CROWD }; // each release of a plain lock looks for one among all
        let lock =
            if is_plain { client.plain_lock("crowd") } else { client.fair_lock("crowd") }.unwrap().to_async();
        assert_eq!(lock.kind() == LockKind::Plain, is_plain);
        let Poll::Ready(guard) = poll(&mut lock.lock()) else { panic!("the lock is free") };
        let served = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..crowd)
            .map(|nth| {
                let (lock, served) = (lock.clone(), Arc::clone(&served));
                Inline::run(async move {
                    let guard = lock.lock().await.unwrap();
                    let before = served.fetch_add(1, SeqCst);
                    assert!(is_plain || before == nth, "in order");
                    if nth % 2 == 0 { drop(guard) } else { guard.unlock().await.unwrap() }
                })
            })
            .collect();
        assert_eq!(served.load(SeqCst), 0);
        drop(guard.unwrap());
        assert_eq!(served.load(SeqCst), crowd, "when the drop returns");
        assert!(tasks.iter().all(|task| task.task.lock().unwrap().is_none()));
        assert!(client.held().is_empty() && client.waiting().is_empty());
    }
}

/// What is done in a poll is no reason to sleep in a poll.
#[test]
fn a_call_that_is_to_be_delayed_does_not_hold_a_poll_up() {
    let clock = ManualClock::new();
    let store = MemoryBackend::with_clock(clock.clone());
    let client = Client::builder(store.clone()).clock(clock.clone()).build().unwrap();
    let lock = client.fair_lock("slow").unwrap().to_async();
    let second = std::time::Duration::from_secs(1);
    for operation in [Operation::Acquire, Operation::Release, Operation::Withdraw] {
        let mut waiting = lock.lock();
        let Poll::Ready(guard) = poll(&mut waiting) else { panic!("it is free") };
        let mut left = lock.lock();
        assert!(poll(&mut left).is_pending());
        store.faults().delay_next(operation, 1, second);
        let mut next = lock.lock();
        assert!(poll(&mut next).is_pending(), "it is asked for on the thread for tasks");
        drop(left);
        drop(guard);
        clock.advance(second);
        let Poll::Ready(guard) = poll(&mut next) else { panic!("{operation:?}: it has the lock") };
        drop(guard);
        clock.advance(second);
        assert!(client.held().is_empty() && client.waiting().is_empty());
        assert!(!client.fair_lock("slow").unwrap().is_locked().unwrap());
    }
    assert_eq!(client.stats().lost, 0);
}
